//! A memory budget for functions that run as they are built: what is evicted, and how it is computed again.

pub(crate) mod pool;
pub(crate) mod reserve;
pub(crate) mod score;
