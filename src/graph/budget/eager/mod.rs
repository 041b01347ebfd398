//! A memory budget for eager execution: eviction of values, and their recomputation.

pub(crate) mod evictor;
pub(crate) mod pool;
pub(crate) mod reserve;
pub(crate) mod score;
