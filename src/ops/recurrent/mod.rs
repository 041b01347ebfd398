//! Sequences and recurrent networks.

pub(crate) mod cells;
pub(crate) mod layers;
pub(crate) mod levels;
pub(crate) mod packing;
