//! Rounding to types of 16 bits, in place.

use half::{bf16, f16};

use crate::array::DType;
use crate::kernels::{Float, map};

/// Rounds values to a type of 16 bits; does nothing for another type or none.
#[allow(clippy::cast_possible_truncation)] // values that are rounded to 16 bits are computed in 32
pub fn round<T: Float>(values: &mut [T], to: Option<DType>) {
    match to {
        Some(DType::F16) => map::change(values, |v| T::of(f16::from_f32(v.real() as f32).to_f64())),
        Some(DType::BF16) => map::change(values, |v| T::of(bf16::from_f32(v.real() as f32).to_f64())),
        _ => {}
    }
}
