//! Registers of 64-bit ARM, where NEON is always available.

#[allow(clippy::wildcard_imports)]
use std::arch::aarch64::*;

use super::Vector;

/// Makes a register type of NEON from its intrinsics.
macro_rules! neon {
    ($name:ident, $t:ident, $reg:ident, $width:expr, $set:ident, $load:ident, $store:ident, $add:ident, $sub:ident,
     $mul:ident, $fma:ident, $max:ident, $greater:ident, $choose:ident, $evens:ident, $low:ident, $high:ident,
     $exchange:item) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($reg);

        // SAFETY: the functions implement the trait as specified.
        unsafe impl Vector for $name {
            type T = $t;
            /// From one lane to another, excluding the latter.
            type Mask = (usize, usize);
            const WIDTH: usize = $width;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: these instructions are always available. Same below.
                Self(unsafe { $set(0.0) })
            }
            #[inline(always)]
            unsafe fn all(v: $t) -> Self {
                // SAFETY: as above.
                Self(unsafe { $set(v) })
            }
            #[inline(always)]
            unsafe fn load(p: *const $t) -> Self {
                // SAFETY: as above, and the elements are readable.
                Self(unsafe { $load(p) })
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $t) {
                // SAFETY: as above, and the elements are writable.
                unsafe { $store(p, self.0) }
            }
            #[inline(always)]
            unsafe fn first(n: usize) -> (usize, usize) {
                (0, n.min($width))
            }
            #[inline(always)]
            unsafe fn between(start: usize, end: usize) -> (usize, usize) {
                let end = end.min($width);
                (start.min(end), end)
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $t, (start, end): (usize, usize)) -> Self {
                let mut v = [0.0; $width];
                let to = v[start..end].as_mut_ptr();
                // SAFETY: only elements from `start` to `end` are read.
                unsafe {
                    std::ptr::copy_nonoverlapping(p.wrapping_add(start), to, end - start);
                    Self::load(v.as_ptr())
                }
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $t, (start, end): (usize, usize)) {
                let mut v = [0.0; $width];
                // SAFETY: only elements from `start` to `end` are written.
                unsafe {
                    self.store(v.as_mut_ptr());
                    let from = v[start..end].as_ptr();
                    std::ptr::copy_nonoverlapping(from, p.wrapping_add(start), end - start);
                }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $add(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $sub(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $mul(self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                // The instruction for it gives NaN where either is.
                // SAFETY: as above.
                Self(unsafe { $choose($greater(self.0, other.0), self.0, other.0) })
            }
            #[inline(always)]
            unsafe fn where_larger(self, other: Self, yes: Self, no: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $choose($greater(self.0, other.0), yes.0, no.0) })
            }
            #[inline(always)]
            unsafe fn equal(self, other: Self) -> u32 {
                let mut v = [[0.0; $width]; 2];
                // SAFETY: as above, and the buffer holds both.
                unsafe {
                    self.store(v[0].as_mut_ptr());
                    other.store(v[1].as_mut_ptr());
                }
                let mut bits = 0;
                for i in 0..$width {
                    bits |= u32::from(v[0][i] == v[1][i]) << i;
                }
                bits
            }
            #[inline(always)]
            unsafe fn keep(self, (start, end): (usize, usize)) -> Self {
                let mut v = [0.0; $width];
                // SAFETY: as above, and the buffer holds a register.
                unsafe {
                    self.store(v.as_mut_ptr());
                    v[..start].fill(0.0);
                    v[end..].fill(0.0);
                    Self::load(v.as_ptr())
                }
            }
            #[inline(always)]
            unsafe fn mul_add(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $fma(b.0, self.0, a.0) })
            }
            #[inline(always)]
            unsafe fn relu(self) -> Self {
                // The instruction for the larger one gives zero its sign.
                // SAFETY: as above.
                unsafe { Self::zero().where_larger(self, Self::zero(), self) }
            }
            #[inline(always)]
            unsafe fn prefetch(_: *const $t) {}
            #[inline(always)]
            unsafe fn evens(a: Self, b: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $evens(a.0, b.0) })
            }
            #[inline(always)]
            unsafe fn weave(a: Self, b: Self) -> (Self, Self) {
                // SAFETY: as above.
                unsafe { (Self($low(a.0, b.0)), Self($high(a.0, b.0))) }
            }
            #[inline(always)]
            $exchange
        }
    };
}

neon!(
    F32x4,
    f32,
    float32x4_t,
    4,
    vdupq_n_f32,
    vld1q_f32,
    vst1q_f32,
    vaddq_f32,
    vsubq_f32,
    vmulq_f32,
    vfmaq_f32,
    vmaxnmq_f32,
    vcgtq_f32,
    vbslq_f32,
    vuzp1q_f32,
    vzip1q_f32,
    vzip2q_f32,
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe {
            if D == 1 {
                return (Self(vtrn1q_f32(a.0, b.0)), Self(vtrn2q_f32(a.0, b.0)));
            }
            let (a, b) = (vreinterpretq_f64_f32(a.0), vreinterpretq_f64_f32(b.0));
            (Self(vreinterpretq_f32_f64(vtrn1q_f64(a, b))), Self(vreinterpretq_f32_f64(vtrn2q_f64(a, b))))
        }
    }
);
neon!(
    F64x2,
    f64,
    float64x2_t,
    2,
    vdupq_n_f64,
    vld1q_f64,
    vst1q_f64,
    vaddq_f64,
    vsubq_f64,
    vmulq_f64,
    vfmaq_f64,
    vmaxnmq_f64,
    vcgtq_f64,
    vbslq_f64,
    vuzp1q_f64,
    vzip1q_f64,
    vzip2q_f64,
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe { (Self(vtrn1q_f64(a.0, b.0)), Self(vtrn2q_f64(a.0, b.0))) }
    }
);
