//! Normalizations and norms.

pub(crate) mod batch_normalization;
pub(crate) mod clip_gradient;
pub(crate) mod group_normalization;
pub(crate) mod layer_normalization;
pub(crate) mod mean_subtraction;
pub(crate) mod norm;
pub(crate) mod spectral_norm;
pub(crate) mod weight_normalization;
