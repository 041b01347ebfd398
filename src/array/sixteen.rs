//! Conversion between `f32` and the types of 16 bits, in loops that compilers vectorize.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

use super::DType;

/// Rounds to bfloat16, ties to even. Branch-free, so that loops are vectorized.
#[inline(always)]
pub(crate) fn bits_of(v: f32) -> u16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if bits & 0x7FFF_FFFF > 0x7F80_0000 { quiet } else { rounded }) as u16
}

/// Converts numbers of a type of 16 bits, given as their bits, to `f32`.
#[inline(always)]
pub(crate) fn widen(from: &[u16], dtype: DType, to: &mut [f32]) {
    if dtype == DType::F16 {
        return from.reinterpret_cast::<f16>().convert_to_f32_slice(to);
    }
    to.iter_mut().zip(from).for_each(|(to, v)| *to = f32::from_bits(u32::from(*v) << 16));
}

/// Rounds numbers to a type of 16 bits.
#[inline(always)]
pub(crate) fn narrow(from: &[f32], to: &mut [u16], dtype: DType) {
    if dtype == DType::F16 {
        return to.reinterpret_cast_mut::<f16>().convert_from_f32_slice(from);
    }
    to.iter_mut().zip(from).for_each(|(to, v)| *to = bits_of(*v));
}
