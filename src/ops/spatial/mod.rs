//! Operations along the axes of images: convolutions, pooling, interpolation.

pub(crate) mod convolution;
pub(crate) mod deconvolution;
pub(crate) mod depthwise;
pub(crate) mod interpolate;
pub(crate) mod layout;
pub(crate) mod max_pooling;
pub(crate) mod pooling;
