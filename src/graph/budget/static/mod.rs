//! A memory budget for static graphs: the choice of values to drop and recompute.

pub(crate) mod model;
pub(crate) mod roots;
pub(crate) mod search;
pub(crate) mod simulate;
