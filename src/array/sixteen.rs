//! Conversion between `f32` and the types of 16 bits, in loops that compilers vectorize.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::DType;

/// Rounds to bfloat16, ties to even. Branch-free, so that loops are vectorized.
#[inline(always)]
pub(crate) fn bits_of(v: f32) -> u16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if bits & 0x7FFF_FFFF > 0x7F80_0000 { quiet } else { rounded }) as u16
}

/// Converts numbers of a type of 16 bits to `f32`.
///
/// # Safety
/// `from` must have as many elements of the type as `to`, and be aligned for them.
#[inline(always)]
pub(crate) unsafe fn widen(from: *const u8, dtype: DType, to: &mut [f32]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if dtype == DType::F16 {
            return std::slice::from_raw_parts(from.cast::<f16>(), to.len()).convert_to_f32_slice(to);
        }
        let from = std::slice::from_raw_parts(from.cast::<bf16>(), to.len());
        to.iter_mut().zip(from).for_each(|(to, v)| *to = f32::from_bits(u32::from(v.to_bits()) << 16));
    }
}

/// Rounds numbers to a type of 16 bits.
///
/// # Safety
/// `to` must have space for as many elements of the type as `from` has, and be aligned for them.
#[inline(always)]
pub(crate) unsafe fn narrow(from: &[f32], to: *mut u8, dtype: DType) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if dtype == DType::F16 {
            return std::slice::from_raw_parts_mut(to.cast::<f16>(), from.len()).convert_from_f32_slice(from);
        }
        let to = std::slice::from_raw_parts_mut(to.cast::<u16>(), from.len());
        to.iter_mut().zip(from).for_each(|(to, v)| *to = bits_of(*v));
    }
}
