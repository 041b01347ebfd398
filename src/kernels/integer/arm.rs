//! Registers of sums of 8-bit products for 64-bit ARM. An instruction adds four products to each of four sums, or eight
//! products to each of 2 x 2 sums.

use std::arch::aarch64::*;
use std::arch::asm;

use super::dots::{IntegerDots, Rounding};
use super::tile::{GROUP, IntegerTile, TALL};
use crate::kernels::simd::neon::joined_rows;

/// Defines a register of four sums. `$less` is subtracted from each level, and `$extension` has `$instruction`.
macro_rules! dots {
    ($(#[$about:meta])+ $name:ident, $less:literal, $extension:literal, $instruction:literal) => {
        $(#[$about])+
        #[derive(Clone, Copy)]
        pub(super) struct $name(int32x4_t);

        // SAFETY: the functions implement the trait as specified.
        unsafe impl IntegerDots for $name {
            const WIDTH: usize = 4;
            const LEVELS_LESS: u8 = $less;
            type Weights = int8x16_t;
            type Levels = uint32x4_t;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: NEON is always available. Same below.
                Self(unsafe { vdupq_n_s32(0) })
            }
            #[inline(always)]
            unsafe fn weights(p: *const i8) -> int8x16_t {
                // SAFETY: as above, and the bytes are readable.
                unsafe { vld1q_s8(p) }
            }
            #[inline(always)]
            unsafe fn levels(p: *const u8) -> uint32x4_t {
                // SAFETY: as above.
                unsafe {
                    let levels = vld1q_dup_u32(p.cast());
                    if Self::LEVELS_LESS == 0 {
                        return levels;
                    }
                    veorq_u32(levels, vdupq_n_u32(u32::from_ne_bytes([Self::LEVELS_LESS; 4])))
                }
            }
            #[inline(always)]
            unsafe fn add(self, levels: uint32x4_t, weights: int8x16_t) -> Self {
                let mut sums = self.0;
                // SAFETY: the trait guarantees the instruction, which changes registers only.
                unsafe {
                    asm!(
                        concat!(".arch_extension ", $extension),
                        concat!($instruction, " {sums:v}.4s, {levels:v}.16b, {weights:v}.16b"),
                        sums = inout(vreg) sums, levels = in(vreg) levels, weights = in(vreg) weights,
                        options(pure, nomem, nostack, preserves_flags),
                    );
                }
                Self(sums)
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut i32) {
                // SAFETY: as above, and the elements are writable.
                unsafe { vst1q_s32(p, self.0) }
            }
            #[inline(always)]
            unsafe fn plus(self, p: *const i32) -> Self {
                // SAFETY: as above, and the elements are readable.
                Self(unsafe { vaddq_s32(self.0, vld1q_s32(p)) })
            }
            #[inline(always)]
            unsafe fn minus_product(self, p: *const i32, by: i32) -> Self {
                // SAFETY: as above.
                Self(unsafe { vmlsq_n_s32(self.0, vld1q_s32(p), by) })
            }
            #[inline(always)]
            unsafe fn write_levels(self, scales: *const f32, rounding: Rounding, to: *mut u8) {
                // SAFETY: as above, and the bytes are writable. The maximum is its second operand if the first is NaN.
                unsafe {
                    let v = vmulq_f32(vcvtq_f32_s32(self.0), vld1q_f32(scales));
                    let v = vmaxnmq_f32(v, vdupq_n_f32(rounding.least));
                    let v = vcvtnq_s32_f32(vminnmq_f32(v, vdupq_n_f32(rounding.most)));
                    let v = vmovn_s32(vaddq_s32(v, vdupq_n_s32(rounding.zero.into())));
                    let bytes = vmovn_s16(vcombine_s16(v, v));
                    to.cast::<u32>().write_unaligned(vget_lane_u32::<0>(vreinterpret_u32_s8(bytes)));
                }
            }
            #[inline(always)]
            unsafe fn write_numbers(self, scales: *const f32, shifts: *const f32, to: *mut f32) {
                // SAFETY: as above.
                unsafe {
                    let v = vmulq_f32(vcvtq_f32_s32(self.0), vld1q_f32(scales));
                    vst1q_f32(to, vaddq_f32(v, vld1q_f32(shifts)));
                }
            }
        }
    };
}

dots!(
    /// Four columns, by products of unsigned and signed bytes (FEAT_I8MM).
    UnsignedBySigned,
    0,
    "i8mm",
    "usdot"
);
dots!(
    /// Four columns, by products of signed bytes (FEAT_DotProd): 128 is subtracted from each level.
    SignedBySigned,
    128,
    "dotprod",
    "sdot"
);

/// Adds the products of two rows of eight levels and two columns of eight weights to their sums. Sums of row 0 come
/// first.
///
/// # Safety
/// The machine must have FEAT_I8MM.
#[inline(always)]
unsafe fn multiply_add(sums: &mut int32x4_t, rows: uint8x16_t, columns: int8x16_t) {
    // SAFETY: guaranteed by the caller. The instruction changes registers only.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "usmmla {sums:v}.4s, {rows:v}.16b, {columns:v}.16b",
            sums = inout(vreg) *sums, rows = in(vreg) rows, columns = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
}

/// Sums `M` rows of levels times `N` registers of packed weights, two groups at a time in blocks of 2 x 2 sums. The
/// last group of a run without partner is added to rows of sums.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // loops of constant length stay in registers
pub(super) unsafe fn sums_by_blocks<const M: usize, const N: usize>(
    t: &IntegerTile<'_>,
) -> [[UnsignedBySigned; N]; M] {
    const BLOCKS: usize = TALL / 2;
    let step = N * GROUP * UnsignedBySigned::WIDTH;
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        let mut blocks = [[[vdupq_n_s32(0); 2]; N]; BLOCKS];
        let mut w = t.weights;
        for &tap in t.taps {
            let mut rows = [t.rows[0]; M];
            for i in 0..M {
                rows[i] = t.rows[i].offset(tap);
            }
            for pair in 0..t.groups / 2 {
                let mut levels = [vdupq_n_u8(0); BLOCKS];
                for i in 0..M.div_ceil(2) {
                    // A last row may be its own neighbour, whose sums are not used.
                    levels[i] = joined_rows(rows[2 * i], rows[(2 * i + 1).min(M - 1)], 2 * GROUP * pair);
                }
                for j in 0..N {
                    for half in 0..2 {
                        let weights = vld1q_s8(w.add((2 * j + half) * 4 * GROUP));
                        for i in 0..M.div_ceil(2) {
                            multiply_add(&mut blocks[i][j][half], levels[i], weights);
                        }
                    }
                }
                w = w.add(2 * step);
            }
            w = w.add(t.groups % 2 * step);
        }
        let mut sums = [[UnsignedBySigned::zero(); N]; M];
        for i in 0..M {
            for j in 0..N {
                let [left, right] = blocks[i / 2][j].map(|v| vreinterpretq_s64_s32(v));
                let row = if i % 2 == 0 { vzip1q_s64(left, right) } else { vzip2q_s64(left, right) };
                sums[i][j] = UnsignedBySigned(vreinterpretq_s32_s64(row));
            }
        }
        if t.groups % 2 == 1 {
            let last = t.groups - 1;
            let mut w = t.weights.add(last * step);
            for &tap in t.taps {
                for i in 0..M {
                    let levels = UnsignedBySigned::levels(t.rows[i].offset(tap).add(last * GROUP));
                    for j in 0..N {
                        let weights = UnsignedBySigned::weights(w.add(j * 4 * GROUP));
                        sums[i][j] = sums[i][j].add(levels, weights);
                    }
                }
                w = w.wrapping_add(t.groups * step);
            }
        }
        sums
    }
}
