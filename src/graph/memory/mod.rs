//! What may be given back and when, and how it comes back.

pub(crate) mod clear_record;
pub(crate) mod eviction;
pub(crate) mod evictor;
pub(crate) mod in_place;
pub(crate) mod release;
pub(crate) mod restore;
