//! Conversions by instructions of AVX-512.
//!
//! The instruction that rounds to bfloat16 flushes subnormal numbers. Registers with such numbers are rounded bit by
//! bit.

use std::arch::x86_64::{
    __m256i, __m512, __m512bh, __m512i, _MM_FROUND_TO_NEAREST_INT, _mm256_loadu_si256,
    _mm256_mask_storeu_epi16, _mm256_maskz_loadu_epi16, _mm256_storeu_si256, _mm512_castsi512_ps,
    _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_fpclass_ps_mask,
    _mm512_loadu_ps, _mm512_mask_storeu_epi16, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_slli_epi32, _mm512_storeu_ps, _mm512_storeu_si512,
};

use crate::array::sixteen::bits_of;
use crate::kernels::simd::x86::SUBNORMAL;

/// Numbers that are rounded at a time.
const WIDE: usize = 32;

/// Rounds numbers to bfloat16.
///
/// # Safety
/// The machine must have AVX-512 with BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn to_bfloat16(from: &[f32], to: &mut [u16]) {
    let n = from.len().min(to.len());
    let whole = n - n % (2 * WIDE);
    for i in (0..whole).step_by(2 * WIDE) {
        // SAFETY: the elements are within the slices, and both types are registers of 512 bits.
        unsafe {
            let load = |k: usize| _mm512_loadu_ps(from.as_ptr().add(i + k * WIDE / 2));
            let v = [load(0), load(1), load(2), load(3)];
            let pair =
                |k: usize| std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(v[k + 1], v[k]));
            let (a, b) = (pair(0), pair(2));
            let flushed = |v: __m512| _mm512_fpclass_ps_mask::<SUBNORMAL>(v);
            if flushed(v[0]) | flushed(v[1]) | flushed(v[2]) | flushed(v[3]) == 0 {
                _mm512_storeu_si512(to.as_mut_ptr().add(i).cast(), a);
                _mm512_storeu_si512(to.as_mut_ptr().add(i + WIDE).cast(), b);
                continue;
            }
        }
        to[i..i + 2 * WIDE].iter_mut().zip(&from[i..]).for_each(|(to, v)| *to = bits_of(*v));
    }
    for (from, to) in from[whole..].chunks(WIDE).zip(to[whole..].chunks_mut(WIDE)) {
        let all = match from.len() {
            WIDE => u32::MAX,
            n => (1 << n) - 1,
        };
        let (low, high) = (all as u16, (all >> 16) as u16);
        // SAFETY: the masks keep within the slices, and both types are registers of 512 bits.
        let is_rounded = unsafe {
            let (p, to) = (from.as_ptr(), to.as_mut_ptr().cast::<i16>());
            let a = if low == u16::MAX { _mm512_loadu_ps(p) } else { _mm512_maskz_loadu_ps(low, p) };
            let b = match high {
                u16::MAX => _mm512_loadu_ps(p.add(WIDE / 2)),
                _ => _mm512_maskz_loadu_ps(high, p.wrapping_add(WIDE / 2)),
            };
            let subnormal = _mm512_fpclass_ps_mask::<SUBNORMAL>(a) | _mm512_fpclass_ps_mask::<SUBNORMAL>(b);
            let rounded = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(b, a));
            match (subnormal, all) {
                (0, u32::MAX) => _mm512_storeu_si512(to.cast(), rounded),
                (0, _) => _mm512_mask_storeu_epi16(to, all, rounded),
                _ => {}
            }
            subnormal == 0
        };
        if !is_rounded {
            to.iter_mut().zip(from).for_each(|(to, v)| *to = bits_of(*v));
        }
    }
}

/// The mask of the first `n` lanes of a register.
fn first(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// Rounds numbers to half precision.
///
/// # Safety
/// The machine must have AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn to_half(from: &[f32], to: &mut [u16]) {
    let n = from.len().min(to.len());
    let (p, to) = (from.as_ptr(), to.as_mut_ptr());
    let mut i = 0;
    // SAFETY: the elements are within the slices, and so is what the mask keeps.
    unsafe {
        while i + 16 <= n {
            let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(p.add(i)));
            _mm256_storeu_si256(to.add(i).cast(), rounded);
            i += 16;
        }
        if i < n {
            let mask = first(n - i);
            let v = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_maskz_loadu_ps(mask, p.add(i)));
            _mm256_mask_storeu_epi16(to.add(i).cast(), mask, v);
        }
    }
}

/// Converts numbers of half precision.
///
/// # Safety
/// As [`to_half`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn of_half(from: &[u16], to: &mut [f32]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        widen_by(
            from,
            to,
            #[inline(always)]
            |bits| _mm512_cvtph_ps(bits),
        );
    }
}

/// Converts numbers of bfloat16.
///
/// # Safety
/// As [`to_half`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(super) unsafe fn of_bfloat16(from: &[u16], to: &mut [f32]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        widen_by(
            from,
            to,
            #[inline(always)]
            |bits| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits))),
        );
    }
}

/// Converts numbers by a function of registers.
///
/// # Safety
/// As [`to_half`].
#[inline(always)]
unsafe fn widen_by(from: &[u16], to: &mut [f32], f: impl Fn(__m256i) -> __m512) {
    for (from, to) in from.chunks(16).zip(to.chunks_mut(16)) {
        let mask = first(from.len());
        // SAFETY: the mask keeps within the slices.
        unsafe {
            if mask == u16::MAX {
                _mm512_storeu_ps(to.as_mut_ptr(), f(_mm256_loadu_si256(from.as_ptr().cast())));
                continue;
            }
            let v = f(_mm256_maskz_loadu_epi16(mask, from.as_ptr().cast()));
            _mm512_mask_storeu_ps(to.as_mut_ptr(), mask, v);
        }
    }
}
