//! Packing into quads: four adjacent elements of a row of the left matrix, or of a column of the right matrix, in two
//! words. Quads are in the order that `tile` reads. Rounds `f32` to bfloat16. Missing elements are zeros.

use std::arch::aarch64::{
    float32x4_t, uint16x4_t, uint16x8_t, uint32x4_t, vcombine_u16, vdup_n_u16, vdupq_n_u16, vget_lane_u32,
    vld1_u16, vld1q_f32, vld1q_u16, vreinterpret_u32_u16, vreinterpretq_u32_u16, vst1_u16, vst1q_u32,
    vzip1q_u16, vzip1q_u32, vzip2q_u16, vzip2q_u32,
};
use std::arch::asm;
use std::ops::Range;

use super::super::source::{NumberPart, PairOperand};
use super::tile::PANEL;
use crate::kernels::gemm::split::EvenSplit;

/// Rounds to bfloat16.
///
/// # Safety
/// The machine must have FEAT_BF16.
#[inline(always)]
unsafe fn rounded(v: float32x4_t) -> uint16x4_t {
    let bits: uint16x4_t;
    // SAFETY: guaranteed by the caller. The instruction changes registers only.
    unsafe {
        asm!(
            ".arch_extension bf16",
            "bfcvtn {bits:v}.4h, {v:v}.4s",
            bits = out(vreg) bits, v = in(vreg) v,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    bits
}

impl PairOperand {
    /// The first `n` of four adjacent elements at `at`, as bfloat16, and zeros.
    #[inline(always)]
    unsafe fn four(self, at: *const u8, n: usize) -> uint16x4_t {
        // SAFETY: the caller guarantees FEAT_BF16 and the elements.
        unsafe {
            if n < 4 || self.part != NumberPart::Rounded {
                let of_first = PairOperand { p: at, row: 0, col: 1, ..self };
                let bits: [u16; 4] = std::array::from_fn(|j| if j < n { of_first.bits(0, j) } else { 0 });
                return vld1_u16(bits.as_ptr());
            }
            if self.is_narrow { vld1_u16(at.cast()) } else { rounded(vld1q_f32(at.cast())) }
        }
    }

    /// The first `n` of eight adjacent elements at `at`, as bfloat16, and zeros.
    #[inline(always)]
    unsafe fn eight(self, at: *const u8, n: usize) -> uint16x8_t {
        // SAFETY: as above.
        unsafe {
            if self.is_narrow && n >= 8 {
                return vld1q_u16(at.cast());
            }
            let next = at.wrapping_add(4 * self.size() as usize);
            vcombine_u16(self.four(at, n), self.four(next, n.saturating_sub(4)))
        }
    }

    /// Packs quads of lines, which are rows of a left matrix, or columns of a transposed right one: `n` of `all` lines
    /// with `k` adjacent elements.
    #[inline(always)]
    unsafe fn pack_lines(self, n: usize, all: usize, k: usize, to: *mut u32) {
        // SAFETY: as above, and `to` has all pairs.
        unsafe {
            for i in 0..all {
                for p in (0..k).step_by(4) {
                    let quad = match i < n {
                        true => self.four(self.at(i, p), k - p),
                        false => vdup_n_u16(0),
                    };
                    match k - p > 2 {
                        true => vst1_u16(to.add(p / 2 * all + 2 * i).cast(), quad),
                        false => *to.add(p / 2 * all + i) = vget_lane_u32::<0>(vreinterpret_u32_u16(quad)),
                    }
                }
            }
        }
    }

    /// Packs the quad from element `p` on of eight lines from line `i` on, of `n` in a packed matrix of `all`. Elements
    /// with the same index are adjacent.
    #[inline(always)]
    unsafe fn pack_across(self, (n, all, k): (usize, usize, usize), p: usize, i: usize, to: *mut u32) {
        // SAFETY: as above.
        unsafe {
            let element = |p: usize| match p < k {
                true => self.eight(self.at(i, p), n.saturating_sub(i)),
                false => vdupq_n_u16(0),
            };
            let pairs = |p: usize| {
                let (low, high) = (element(p), element(p + 1));
                (vreinterpretq_u32_u16(vzip1q_u16(low, high)), vreinterpretq_u32_u16(vzip2q_u16(low, high)))
            };
            let (a, b) = pairs(p);
            let lines = all - i;
            if k - p > 2 {
                let (c, d) = pairs(p + 2);
                let quads = [vzip1q_u32(a, c), vzip2q_u32(a, c), vzip1q_u32(b, d), vzip2q_u32(b, d)];
                write(quads, 2 * lines, to.add(p / 2 * all + 2 * i));
            } else {
                write([a, b], lines, to.add(p / 2 * all + i));
            }
        }
    }

    /// As `pack_lines`, element by element.
    unsafe fn pack_elements(self, n: usize, all: usize, k: usize, to: *mut u32) {
        let bits = |i: usize, p: usize| {
            // SAFETY: as above.
            u32::from(if i < n && p < k { unsafe { self.bits(i, p) } } else { 0 })
        };
        for p in (0..k).step_by(2) {
            let (quad, has_partner) = (p / 4, p / 4 * 4 + 2 < k);
            for i in 0..all {
                let at = if has_partner { quad * 2 * all + 2 * i + p / 2 % 2 } else { quad * 2 * all + i };
                // SAFETY: as above.
                unsafe { *to.add(at) = bits(i, p) | bits(i, p + 1) << 16 };
            }
        }
    }
}

/// Writes the first `n` words of registers, or all.
#[inline(always)]
unsafe fn write<const N: usize>(registers: [uint32x4_t; N], n: usize, to: *mut u32) {
    // SAFETY: the caller guarantees that the words are writable.
    unsafe {
        for (i, v) in registers.into_iter().enumerate() {
            let left = n.saturating_sub(4 * i);
            if left >= 4 {
                vst1q_u32(to.add(4 * i), v);
            } else {
                let words = std::mem::transmute::<uint32x4_t, [u32; 4]>(v);
                words.as_ptr().copy_to_nonoverlapping(to.add(4 * i), left);
            }
        }
    }
}

/// Packs up to [`PANEL`] columns of a right matrix with `k` rows. Columns beyond `n` are zeros. Nothing follows the
/// last pair: `padded` is the number of pairs.
///
/// # Safety
/// The machine must have FEAT_BF16, and the memory must be valid.
#[target_feature(enable = "neon,bf16")]
pub(in super::super) unsafe fn panel(b: PairOperand, k: usize, n: usize, padded: usize, to: *mut u32) {
    debug_assert_eq!(padded, k.div_ceil(2));
    // SAFETY: guaranteed by the caller.
    unsafe {
        match b.transposed() {
            lines @ PairOperand { row: 1, .. } => {
                for p in (0..k).step_by(4) {
                    lines.pack_across((n, PANEL, k), p, 0, to);
                }
            }
            lines @ PairOperand { col: 1, .. } => lines.pack_lines(n, PANEL, k, to),
            lines => lines.pack_elements(n, PANEL, k, to),
        }
    }
}

/// Copies rows of a left matrix of contiguous rows, `row` bytes apart at the target, with a zero after a row of odd
/// length.
///
/// # Safety
/// As [`panel`].
#[target_feature(enable = "neon,bf16")]
pub(in super::super) unsafe fn rows(
    a: PairOperand,
    m: usize,
    k: usize,
    padded: usize,
    to: *mut u8,
    row: usize,
) {
    debug_assert_eq!(padded, k.div_ceil(2));
    // SAFETY: guaranteed by the caller.
    unsafe {
        for i in 0..m {
            let (from, to) = (a.at(i, 0), to.add(i * row));
            if a.is_narrow {
                from.copy_to_nonoverlapping(to, 2 * k);
            } else {
                let whole = k / 4 * 4;
                for p in (0..whole).step_by(4) {
                    vst1_u16(to.add(2 * p).cast(), a.four(from.add(4 * p), 4));
                }
                for p in whole..k {
                    to.add(2 * p).cast::<u16>().write_unaligned(a.bits(i, p));
                }
            }
            if k % 2 == 1 {
                to.add(2 * k).cast::<u16>().write_unaligned(0);
            }
        }
    }
}

/// Packs some rows of tiles of a left matrix whose columns are contiguous, or that has any strides, tile after tile.
///
/// # Safety
/// As [`panel`].
#[target_feature(enable = "neon,bf16")]
pub(in super::super) unsafe fn columns(
    a: PairOperand,
    heights: EvenSplit,
    tiles: Range<usize>,
    k: usize,
    to: *mut u32,
) {
    let (pairs, first) = (k.div_ceil(2), heights.part(tiles.start).start);
    let part = |tile: usize| {
        let (start, m) = (heights.part(tile).start - first, heights.part(tile).len());
        (a.part(start, 0), m, to.wrapping_add(start * pairs))
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        if a.row != 1 {
            for (lines, m, to) in tiles.map(part) {
                lines.pack_elements(m, m, k, to);
            }
            return;
        }
        // For one quad, rows of all tiles are adjacent in memory.
        for p in (0..k).step_by(4) {
            for (lines, m, to) in tiles.clone().map(part) {
                for i in (0..m).step_by(8) {
                    lines.pack_across((m, m, k), p, i, to);
                }
            }
        }
    }
}
