//! Sequences, and networks that go along them.

pub(crate) mod cells;
pub(crate) mod layers;
pub(crate) mod packing;
