//! Operations along the axes of images: convolutions, pooling, interpolation.

pub(crate) mod adaptive_separable_convolution;
pub(crate) mod convolution;
pub(crate) mod deconvolution;
pub(crate) mod deformable_convolution;
pub(crate) mod depthwise;
pub(crate) mod depthwise_deconvolution;
pub(crate) mod interpolate;
pub(crate) mod kernel_passes;
pub(crate) mod layout;
pub(crate) mod max_pooling;
pub(crate) mod modulated_convolution;
pub(crate) mod nms_detection;
pub(crate) mod non_max_suppression;
pub(crate) mod patch_correlation;
pub(crate) mod pooling;
pub(crate) mod roi_align;
pub(crate) mod warp;
