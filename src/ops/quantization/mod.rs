//! Numbers with few bits: quantization, binary weights and pruning.

pub(crate) mod binary_layers;
pub(crate) mod block_layers;
pub(crate) mod incremental;
pub(crate) mod integer_arrays;
pub(crate) mod integer_layers;
pub(crate) mod integer_parts;
pub(crate) mod integer_pooling;
pub(crate) mod levels;
pub(crate) mod min_max;
pub(crate) mod prune;
pub(crate) mod steps;
