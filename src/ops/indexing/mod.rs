//! Operations that select elements by index or mask, or write to them.

pub(crate) mod embed;
pub(crate) mod gather;
pub(crate) mod gather_nd;
pub(crate) mod masking;
pub(crate) mod scatter;
