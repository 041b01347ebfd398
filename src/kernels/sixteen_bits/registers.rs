//! Loops over arrays of 16 bits that widen elements in registers of AVX-512, compute in `f32` and round.

use std::arch::x86_64::{
    __m512bh, __m512i, _MM_FROUND_TO_NEAREST_INT, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm512_cvtne2ps_pbh, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_fpclass_ps_mask, _mm512_loadu_ps,
    _mm512_storeu_ps, _mm512_storeu_si512,
};
use std::cell::Cell;
use std::hint::black_box;

use half::{bf16, f16};

use crate::array::Element;
use crate::array::sixteen::bits_of;
use crate::kernels::map::Aligned;
use crate::kernels::simd::x86::SUBNORMAL;

/// TwoRegisters in a register.
const WIDTH: usize = 16;
/// Elements that are computed before any of them is written: two registers.
pub(crate) const LANES: usize = 2 * WIDTH;

/// The numbers of two registers.
type TwoRegisters = Aligned<[f32; LANES]>;

/// A type of 16 bits that is converted in registers.
pub(crate) trait RegisterElement: Element {
    /// Runs `work` with the instructions of this type.
    ///
    /// # Safety
    /// The machine must have AVX-512, and its part BF16 for bfloat16.
    unsafe fn with_instructions<R>(work: impl FnOnce() -> R) -> R;

    /// Widens [`LANES`] elements.
    ///
    /// # Safety
    /// They must exist, and the caller must be compiled for the instructions.
    unsafe fn widen(from: *const Self) -> [f32; LANES];

    /// Rounds as many numbers.
    ///
    /// # Safety
    /// As [`RegisterElement::widen`].
    unsafe fn narrow(from: &TwoRegisters, to: *mut Self);
}

impl RegisterElement for bf16 {
    #[inline(always)]
    unsafe fn with_instructions<R>(work: impl FnOnce() -> R) -> R {
        /// Runs `work` with AVX-512 and BF16.
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma,avx512bf16")]
        fn with_pairs<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: guaranteed by the caller.
        unsafe { with_pairs(work) }
    }

    #[inline(always)]
    unsafe fn widen(from: *const Self) -> [f32; LANES] {
        // SAFETY: guaranteed by the caller.
        let bits = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        let mut to = [0.0; LANES];
        for i in 0..LANES {
            to[i] = f32::from_bits(u32::from(bits[i]) << 16);
        }
        to
    }

    #[inline(always)]
    unsafe fn narrow(from: &TwoRegisters, to: *mut Self) {
        // SAFETY: guaranteed by the caller. Both types are registers of 512 bits.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(from.0.as_ptr()), _mm512_loadu_ps(from.0.as_ptr().add(WIDTH)));
            // The instruction flushes subnormal numbers.
            if _mm512_fpclass_ps_mask::<SUBNORMAL>(a) | _mm512_fpclass_ps_mask::<SUBNORMAL>(b) == 0 {
                let rounded = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(b, a));
                _mm512_storeu_si512(to.cast(), rounded);
            } else {
                to.cast::<[u16; LANES]>().write_unaligned(rounded_bits(from));
            }
        }
    }
}

/// Rounds numbers to bfloat16, subnormal ones too.
#[cold]
#[inline(never)]
fn rounded_bits(from: &TwoRegisters) -> [u16; LANES] {
    from.0.map(bits_of)
}

impl RegisterElement for f16 {
    #[inline(always)]
    unsafe fn with_instructions<R>(work: impl FnOnce() -> R) -> R {
        /// Runs `work` with AVX-512.
        #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
        fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: guaranteed by the caller.
        unsafe { with_avx512(work) }
    }

    #[inline(always)]
    unsafe fn widen(from: *const Self) -> [f32; LANES] {
        let mut to = Aligned([0.0; LANES]);
        for i in (0..LANES).step_by(WIDTH) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let wide = _mm512_cvtph_ps(_mm256_loadu_si256(from.add(i).cast()));
                _mm512_storeu_ps(to.0.as_mut_ptr().add(i), wide);
            }
        }
        to.0
    }

    #[inline(always)]
    unsafe fn narrow(from: &TwoRegisters, to: *mut Self) {
        for i in (0..LANES).step_by(WIDTH) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let wide = _mm512_loadu_ps(from.0.as_ptr().add(i));
                let rounded = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
                _mm256_storeu_si256(to.add(i).cast(), rounded);
            }
        }
    }
}

/// Writes or adds `f` of the elements of each of `x` at the same index, up to the last multiple of [`LANES`]. `f` must
/// be `#[inline(always)]`. `to` may be one of `x`.
///
/// # Panics
/// If the arrays differ in length, or if the machine lacks the instructions of the type.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops vectorize
pub(crate) fn put_in_registers<S: RegisterElement, const N: usize>(
    x: [&[Cell<S>]; N],
    to: &[Cell<S>],
    add: bool,
    f: impl Fn([f32; N]) -> f32,
) {
    let n = to.len();
    assert!(x.iter().all(|x| x.len() == n), "arrays of different lengths");
    assert!(super::has_registers(S::DTYPE), "a machine without loops of 16 bits");
    let (x, to) = (x.map(|x| x.as_ptr().cast::<S>()), to.as_ptr().cast_mut().cast::<S>());
    // SAFETY: the machine has the instructions, and all arrays have the elements. Cells may be written while they are
    // shared.
    unsafe {
        S::with_instructions(
            #[inline(always)]
            move || {
                let mut y = Aligned([0.0; LANES]);
                for start in (0..n / LANES * LANES).step_by(LANES) {
                    let mut of = [[0.0; LANES]; N];
                    for j in 0..N {
                        of[j] = S::widen(x[j].add(start));
                    }
                    let mut lanes = [0.0; LANES];
                    for k in 0..LANES {
                        let mut v = [0.0; N];
                        for j in 0..N {
                            v[j] = of[j][k];
                        }
                        lanes[k] = f(v);
                    }
                    // Formulas are computed in vectors if all numbers are stored to memory.
                    y.0 = lanes;
                    black_box(&mut y);
                    if add {
                        let before = S::widen(to.add(start).cast_const());
                        for k in 0..LANES {
                            y.0[k] += before[k];
                        }
                    }
                    S::narrow(&y, to.add(start));
                }
            },
        );
    }
}
