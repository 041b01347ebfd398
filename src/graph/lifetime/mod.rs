//! Decides which memory may be freed and when, and restores freed values.

pub(crate) mod backward;
pub(crate) mod clear_record;
pub(crate) mod forward;
pub(crate) mod in_place;
pub(crate) mod liveness;
pub(crate) mod release;
pub(crate) mod restore;
pub(crate) mod rules;
