//! Forward and backward runs with NNabla's semantics.

pub(crate) mod backward;
pub(crate) mod context;
pub(crate) mod forward;
pub(crate) mod lent_gradients;
pub(crate) mod timings;
