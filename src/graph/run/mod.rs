//! Runs through a graph as NNabla has them.

pub(crate) mod backward;
pub(crate) mod context;
pub(crate) mod forward;
pub(crate) mod lent_gradients;
pub(crate) mod timings;
