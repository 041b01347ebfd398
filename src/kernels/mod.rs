//! Loops over memory. Knows slices, lanes and threads; knows no graphs, operations or Python.

mod amx;
pub(crate) mod attention;
pub mod broadcast;
pub mod broadcast_blocks;
pub mod channel_sums;
pub mod convolution;
mod dual;
mod elementary;
mod epilogue;
pub mod gemm;
mod index;
pub mod integer;
pub mod map;
pub mod normalization;
mod number;
pub mod order;
pub mod pooling;
pub mod random;
pub(crate) mod recurrent;
pub mod reduce;
pub mod regrid;
pub mod resample;
pub(crate) mod rounding;
pub mod row_copies;
pub mod sampling;
pub(crate) mod scaled;
pub mod scan;
pub(crate) mod scratch;
pub mod simd;
pub mod sixteen_bits;
pub mod softmax;
pub(crate) mod spectrum;
pub mod stop;
mod stored;
pub mod strided;
pub(crate) mod suppression;
pub mod threads;
pub(crate) mod triangular;
pub mod update;
mod variates;

pub use dual::Dual;
pub(crate) use dual::angle_gradients;
pub use epilogue::{Activation, Epilogue, RowFunctions, Tail};
pub use number::{Float, Movable, Number, PerFloat};
pub(crate) use number::{LARGE, from_square, size};
pub use stored::Stored;

/// Makes what a thread needs before its first task, see [`crate::array::begin_thread`].
pub(crate) fn begin_thread() {
    crate::array::begin_thread();
    convolution::begin_thread();
    random::begin_thread();
}
