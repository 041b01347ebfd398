//! A memory budget for graphs that are there before they run: what is dropped and computed again.

pub(crate) mod model;
pub(crate) mod roots;
pub(crate) mod search;
pub(crate) mod simulate;
