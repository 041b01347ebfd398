//! Execution of one function: from the arena's storages to a kernel and back.

pub(crate) mod accumulate;
pub(crate) mod anomaly;
pub(crate) mod backward;
pub(crate) mod by_hand;
pub(crate) mod cost;
pub(crate) mod differentiate;
pub(crate) mod formula;
pub(crate) mod forward;
pub(crate) mod operand;
pub(crate) mod prepare;
pub(crate) mod setup;
pub(crate) mod shapes;
pub(crate) mod tiles;
