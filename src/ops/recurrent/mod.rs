//! Sequences and recurrent networks.

pub(crate) mod cells;
pub(crate) mod layers;
pub(crate) mod packing;
