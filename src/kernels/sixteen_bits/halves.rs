//! Conversions of half precision by instructions that each 64-bit ARM processor has. Arithmetic on half precision
//! (FEAT_FP16) is not used: it rounds each step to 11 bits, where kernels compute in `f32` and round once.

use std::arch::aarch64::{float32x4_t, uint16x4_t, vld1_u16, vld1q_f32, vst1_u16, vst1q_f32};
use std::arch::asm;

/// Numbers that an instruction converts.
const WIDE: usize = 4;

/// Rounds four numbers to half precision.
#[inline(always)]
fn rounded(v: float32x4_t) -> uint16x4_t {
    let bits: uint16x4_t;
    // SAFETY: the instruction is always available, and changes registers only.
    unsafe {
        asm!(
            "fcvtn {bits:v}.4h, {v:v}.4s",
            bits = out(vreg) bits, v = in(vreg) v,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    bits
}

/// Converts four numbers of half precision.
#[inline(always)]
fn widened(bits: uint16x4_t) -> float32x4_t {
    let v: float32x4_t;
    // SAFETY: as above.
    unsafe {
        asm!(
            "fcvtl {v:v}.4s, {bits:v}.4h",
            v = out(vreg) v, bits = in(vreg) bits,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    v
}

/// Rounds numbers to half precision.
pub(super) fn to_half(from: &[f32], to: &mut [u16]) {
    let ((whole, rest), (to, last)) = (from.as_chunks::<WIDE>(), to.as_chunks_mut::<WIDE>());
    for (from, to) in whole.iter().zip(to) {
        // SAFETY: the arrays are readable and writable.
        unsafe { vst1_u16(to.as_mut_ptr(), rounded(vld1q_f32(from.as_ptr()))) };
    }
    let (mut four, mut bits) = ([0.0; WIDE], [0; WIDE]);
    four[..rest.len()].copy_from_slice(rest);
    // SAFETY: as above.
    unsafe { vst1_u16(bits.as_mut_ptr(), rounded(vld1q_f32(four.as_ptr()))) };
    last.copy_from_slice(&bits[..last.len()]);
}

/// Converts numbers of half precision.
pub(super) fn of_half(from: &[u16], to: &mut [f32]) {
    let ((whole, rest), (to, last)) = (from.as_chunks::<WIDE>(), to.as_chunks_mut::<WIDE>());
    for (from, to) in whole.iter().zip(to) {
        // SAFETY: as above.
        unsafe { vst1q_f32(to.as_mut_ptr(), widened(vld1_u16(from.as_ptr()))) };
    }
    let (mut bits, mut four) = ([0; WIDE], [0.0; WIDE]);
    bits[..rest.len()].copy_from_slice(rest);
    // SAFETY: as above.
    unsafe { vst1q_f32(four.as_mut_ptr(), widened(vld1_u16(bits.as_ptr()))) };
    last.copy_from_slice(&four[..last.len()]);
}
