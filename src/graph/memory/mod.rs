//! Decides which memory may be freed and when, and restores freed values.

pub(crate) mod clear_record;
pub(crate) mod eviction;
pub(crate) mod evictor;
pub(crate) mod in_place;
pub(crate) mod release;
pub(crate) mod restore;
