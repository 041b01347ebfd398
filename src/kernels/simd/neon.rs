//! Registers of 64-bit ARM, where NEON is always available.

#[allow(clippy::wildcard_imports)]
use std::arch::aarch64::*;
use std::arch::asm;

use super::Vector;

/// Makes a register type of NEON from its intrinsics.
macro_rules! neon {
    ($name:ident, $t:ident, $reg:ident, $width:expr, $set:ident, $load:ident, $store:ident, $add:ident, $sub:ident,
     $mul:ident, $fma:ident, $fma_lane:ident, $greater:ident, $choose:ident, $evens:ident, $low:ident, $high:ident,
     $equal:ident, $load_lane:ident, $store_lane:ident, lanes: $lanes:ident of $count:ident [$($lane:literal)+],
     $lane_set:ident, $lane_load:ident, $less:ident, $and:ident, $without:ident, $sum:ident, $bits:ident, $number:ident,
     $exchange:item) => {
        #[derive(Clone, Copy)]
        pub(crate) struct $name($reg);

        // SAFETY: the functions implement the trait as specified.
        unsafe impl Vector for $name {
            type T = $t;
            /// A bit for each lane, from the lowest on, and all bits of each lane.
            type Mask = (u32, $lanes);
            const WIDTH: usize = $width;
            const HAS_LANES: bool = true;

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
            unsafe fn first(n: usize) -> Self::Mask {
                let n = n.min($width);
                // SAFETY: as above, and the array has as many numbers as a register.
                unsafe { ((1 << n) - 1, $less($lane_load([$($lane),+].as_ptr()), $lane_set(n as $count))) }
            }
            #[inline(always)]
            unsafe fn between(start: usize, end: usize) -> Self::Mask {
                // SAFETY: as above.
                unsafe {
                    let (before, lanes) = Self::first(start);
                    let (bits, end) = Self::first(end);
                    (bits & !before, $without(end, lanes))
                }
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $t, (bits, _): Self::Mask) -> Self {
                const ALL: u32 = (1 << $width) - 1;
                // SAFETY: as above, and only elements of lanes of the mask are read.
                unsafe {
                    if bits == ALL {
                        return Self::load(p);
                    }
                    let mut v = Self::zero().0;
                    $(if bits >> $lane & 1 != 0 {
                        v = $load_lane::<$lane>(p.wrapping_add($lane), v);
                    })+
                    Self(v)
                }
            }
            #[inline(always)]
            unsafe fn store_masked(self, p: *mut $t, (bits, _): Self::Mask) {
                // SAFETY: as above, and only elements of lanes of the mask are written.
                unsafe {
                    $(if bits >> $lane & 1 != 0 {
                        $store_lane::<$lane>(p.wrapping_add($lane), self.0);
                    })+
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
                // SAFETY: as above, and the array has as many numbers as a register.
                unsafe {
                    let bits = $lane_load([$(1 << $lane),+].as_ptr());
                    $sum($and($equal(self.0, other.0), bits)) as u32
                }
            }
            #[inline(always)]
            unsafe fn keep(self, (_, lanes): Self::Mask) -> Self {
                // SAFETY: as above.
                Self(unsafe { $number($and($bits(self.0), lanes)) })
            }
            #[inline(always)]
            unsafe fn mul_add(self, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe { $fma(b.0, self.0, a.0) })
            }
            #[inline(always)]
            unsafe fn lane_mul_add(self, lane: usize, a: Self, b: Self) -> Self {
                // SAFETY: as above.
                Self(unsafe {
                    match lane {
                        $($lane => $fma_lane::<$lane>(b.0, a.0, self.0),)+
                        _ => unreachable!("a register has {} lanes", $width),
                    }
                })
            }
            #[inline(always)]
            unsafe fn relu(self) -> Self {
                // The instruction for the larger one gives zero its sign.
                // SAFETY: as above.
                unsafe { Self::zero().where_larger(self, Self::zero(), self) }
            }
            #[inline(always)]
            unsafe fn prefetch(p: *const $t) {
                // SAFETY: a hint, which no address makes fail.
                unsafe {
                    asm!("prfm pldl1keep, [{}]", in(reg) p, options(nomem, nostack, preserves_flags));
                }
            }
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
    vfmaq_laneq_f32,
    vcgtq_f32,
    vbslq_f32,
    vuzp1q_f32,
    vzip1q_f32,
    vzip2q_f32,
    vceqq_f32,
    vld1q_lane_f32,
    vst1q_lane_f32,
    lanes: uint32x4_t of u32 [0 1 2 3],
    vdupq_n_u32,
    vld1q_u32,
    vcltq_u32,
    vandq_u32,
    vbicq_u32,
    vaddvq_u32,
    vreinterpretq_u32_f32,
    vreinterpretq_f32_u32,
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
    vfmaq_laneq_f64,
    vcgtq_f64,
    vbslq_f64,
    vuzp1q_f64,
    vzip1q_f64,
    vzip2q_f64,
    vceqq_f64,
    vld1q_lane_f64,
    vst1q_lane_f64,
    lanes: uint64x2_t of u64 [0 1],
    vdupq_n_u64,
    vld1q_u64,
    vcltq_u64,
    vandq_u64,
    vbicq_u64,
    vaddvq_u64,
    vreinterpretq_u64_f64,
    vreinterpretq_f64_u64,
    unsafe fn exchange<const D: usize>(a: Self, b: Self) -> (Self, Self) {
        // SAFETY: as above.
        unsafe { (Self(vtrn1q_f64(a.0, b.0)), Self(vtrn2q_f64(a.0, b.0))) }
    }
);

/// Eight bytes of each of two rows, at an offset from two addresses. The compiler would change all addresses in each
/// turn of a loop instead of the offset.
///
/// # Safety
/// The bytes must be readable.
#[inline(always)]
pub(in crate::kernels) unsafe fn joined_rows(row: *const u8, next: *const u8, offset: usize) -> uint8x16_t {
    let both: uint8x16_t;
    // SAFETY: guaranteed by the caller, and NEON is always available.
    unsafe {
        asm!(
            "ldr {both:d}, [{row}, {offset}]",
            "ldr {other:d}, [{next}, {offset}]",
            "zip1 {both:v}.2d, {both:v}.2d, {other:v}.2d",
            both = out(vreg) both, other = out(vreg) _,
            row = in(reg) row, next = in(reg) next, offset = in(reg) offset,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    both
}
