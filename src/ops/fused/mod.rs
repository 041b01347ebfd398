//! Several layers as one function: convolution, normalization, addition and activation.

pub(crate) mod activation;
pub(crate) mod backward;
pub(crate) mod batch_normalization;
pub(crate) mod convolution;
pub(crate) mod in_layers;
mod layer;
pub(crate) mod operation;
pub(crate) mod padded;
pub(crate) mod steps;
