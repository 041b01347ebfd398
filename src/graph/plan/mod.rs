//! All decisions made before a run.

pub(crate) mod backward;
pub(crate) mod cache;
pub(crate) mod forward;
pub(crate) mod fusion;
pub(crate) mod instructions;
pub(crate) mod leaf_hooks;
