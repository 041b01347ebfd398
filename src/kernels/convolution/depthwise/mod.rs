//! Depthwise convolution: each channel has kernels of its own.

pub(super) mod narrow;
pub(super) mod nchw;
pub(super) mod nhwc;
pub(super) mod pixel_sums;
pub(super) mod plane;
pub(super) mod sliding_sum;
pub(super) mod tap_sum;
pub(super) mod weight_gradient;
