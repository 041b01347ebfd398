//! Types that users hold: counted handles on nodes, arrays, and the hooks registered on them.

pub(crate) mod active_inputs;
pub(crate) mod callbacks;
pub(crate) mod edit;
pub(crate) mod flags;
pub(crate) mod function;
pub(crate) mod gradient_hooks;
pub(crate) mod ndarray;
pub(crate) mod segment;
pub(crate) mod user;
pub(crate) mod variable;
