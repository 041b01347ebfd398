//! Packing into pairs: elements `2p` and `2p + 1` of a row of the left, or a column of the right matrix, in one word
//! of 32 bits. Rounds `f32` to bfloat16. A missing last element is zero.

use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __m512bh, __m512i, _mm256_mask_storeu_epi16, _mm256_maskz_loadu_epi16,
    _mm512_castsi512_ps, _mm512_cvtepu16_epi32, _mm512_cvtne2ps_pbh, _mm512_cvtneps_pbh,
    _mm512_fpclass_ps_mask, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_storeu_epi32,
    _mm512_maskz_loadu_ps, _mm512_maskz_sub_ps, _mm512_or_si512, _mm512_permutexvar_epi16, _mm512_setzero_ps,
    _mm512_slli_epi32, _mm512_storeu_si512,
};
use std::ops::Range;

use super::source::{NumberPart, PairOperand};
use super::tile::{PANEL, WIDTH, widen};
use crate::kernels::gemm::split::EvenSplit;
use crate::kernels::simd::Vector;
use crate::kernels::simd::x86::F32x16;

/// Numbers, or what rounding them to bfloat16 leaves if `is_rest`. Zero where the rounded number is infinite or
/// NaN.
#[inline(always)]
unsafe fn finite(v: __m512, is_rest: bool) -> __m512 {
    /// Infinite numbers and NaN, for `vfpclassps`.
    const SPECIAL: i32 = 0x99;
    // SAFETY: the caller guarantees AVX-512 with BF16.
    unsafe {
        let rounded = widen(std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v)));
        let without = if is_rest { rounded } else { _mm512_setzero_ps() };
        _mm512_maskz_sub_ps(!_mm512_fpclass_ps_mask::<SPECIAL>(rounded), v, without)
    }
}

impl PairOperand {
    /// 16 adjacent numbers of `f32` at `at`, as the mask selects, and zeros elsewhere.
    #[inline(always)]
    unsafe fn wide(self, at: *const u8, mask: u16) -> __m512 {
        // SAFETY: the caller guarantees AVX-512 with BF16 and the elements.
        unsafe {
            let v = _mm512_maskz_loadu_ps(mask, at.cast());
            match self.part {
                NumberPart::Rounded => v,
                part => finite(v, part == NumberPart::Rest),
            }
        }
    }

    /// The first of 16 adjacent elements at `at` that the mask selects, as bfloat16, and zeros.
    #[inline(always)]
    unsafe fn load(self, at: *const u8, mask: u16) -> __m256i {
        // SAFETY: the caller guarantees AVX-512 and the elements.
        unsafe {
            if self.is_narrow {
                _mm256_maskz_loadu_epi16(mask, at.cast())
            } else {
                std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(self.wide(at, mask)))
            }
        }
    }
}

/// A mask of the first `n` of 16 lanes.
#[inline(always)]
fn first(n: usize) -> u16 {
    if n >= 16 { u16::MAX } else { (1 << n) - 1 }
}

/// Interleaves two rows into words.
#[inline(always)]
unsafe fn words(low: __m256i, high: __m256i) -> __m512i {
    // SAFETY: the caller guarantees AVX-512.
    unsafe {
        let high = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(high));
        _mm512_or_si512(_mm512_cvtepu16_epi32(low), high)
    }
}

/// The order of two rows of 16 numbers in words.
static INTERLEAVED: [u16; 32] = {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 32 {
        order[i] = (i / 2 + i % 2 * 16) as u16;
        i += 1;
    }
    order
};

impl PairOperand {
    /// The words of 16 adjacent elements of two rows. Elements that the masks leave out are zeros.
    #[inline(always)]
    unsafe fn words(self, low: *const u8, high: *const u8, [of_low, of_high]: [u16; 2]) -> __m512i {
        // SAFETY: the caller guarantees AVX-512 with BF16 and the elements.
        unsafe {
            if self.is_narrow {
                return words(self.load(low, of_low), self.load(high, of_high));
            }
            let (low, high) = (self.wide(low, of_low), self.wide(high, of_high));
            let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
            _mm512_permutexvar_epi16(_mm512_loadu_si512(INTERLEAVED.as_ptr().cast()), both)
        }
    }
}

/// Packs up to [`PANEL`] columns of a right matrix with `k` rows: `to[p PANEL + j]` is pair `p` of column `j`. Columns
/// beyond `n` are zeros, and so are pairs beyond the matrix, up to `padded`.
///
/// # Safety
/// The machine must have AVX-512, and the memory must be valid.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn panel(b: PairOperand, k: usize, n: usize, padded: usize, to: *mut u32) {
    let pairs = k.div_ceil(2);
    // SAFETY: guaranteed by the caller, and masks keep within `k` and `n`.
    unsafe {
        if padded > pairs {
            to.add(pairs * PANEL).write_bytes(0, (padded - pairs) * PANEL);
        }
        if b.col == 1 {
            let masks = [first(n), first(n.saturating_sub(WIDTH))];
            for p in 0..pairs {
                let (low, high) = (b.at(2 * p, 0), b.at(2 * p + 1, 0));
                let has_high = 2 * p + 1 < k;
                for (half, mask) in masks.into_iter().enumerate() {
                    let skip = half * WIDTH * b.size() as usize;
                    let masks = [mask, if has_high { mask } else { 0 }];
                    let words = b.words(low.wrapping_add(skip), high.wrapping_add(skip), masks);
                    _mm512_storeu_si512(to.add(p * PANEL + half * WIDTH).cast(), words);
                }
            }
        } else if b.row == 1 {
            for half in 0..2 {
                let (first, to) = (half * WIDTH, to.add(half * WIDTH));
                transposed(b.part(0, first), k, n.saturating_sub(first).min(WIDTH), to, PANEL);
            }
        } else {
            for p in 0..pairs {
                for j in 0..PANEL {
                    let low = if j < n { b.bits(2 * p, j) } else { 0 };
                    let high = if j < n && 2 * p + 1 < k { b.bits(2 * p + 1, j) } else { 0 };
                    *to.add(p * PANEL + j) = u32::from(low) | u32::from(high) << 16;
                }
            }
        }
    }
}

/// Packs `n` columns of adjacent elements, at most 16, into registers that are `step` words apart.
#[inline(always)]
unsafe fn transposed(b: PairOperand, k: usize, n: usize, to: *mut u32, step: usize) {
    let pairs = k.div_ceil(2);
    // SAFETY: as above.
    unsafe {
        for p in (0..pairs).step_by(WIDTH) {
            let mut v = [F32x16::zero(); 16];
            let left = k - 2 * p;
            let masks = [first(left), first(left.saturating_sub(16))];
            for (j, v) in v.iter_mut().enumerate().take(n) {
                let at = b.at(2 * p, j);
                let row = if b.is_narrow && left >= 32 {
                    _mm512_loadu_ps(at.cast())
                } else {
                    let low = b.load(at, masks[0]);
                    let high = b.load(at.wrapping_add(16 * b.size() as usize), masks[1]);
                    joined(low, high)
                };
                *v = std::mem::transmute::<__m512, F32x16>(row);
            }
            F32x16::transpose(&mut v);
            for (i, v) in v.iter().enumerate().take(pairs - p) {
                v.store(to.add((p + i) * step).cast());
            }
        }
    }
}

/// Both halves in one register.
#[inline(always)]
unsafe fn joined(low: __m256i, high: __m256i) -> __m512 {
    use std::arch::x86_64::{_mm512_castsi256_si512, _mm512_inserti64x4};
    // SAFETY: the caller guarantees AVX-512.
    unsafe { _mm512_castsi512_ps(_mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)) }
}

/// Copies rows of a left matrix of contiguous rows, `row` bytes apart at the target, with zeros after each row up to
/// `padded` pairs.
///
/// # Safety
/// The machine must have AVX-512, and the memory must be valid.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn rows(a: PairOperand, m: usize, k: usize, padded: usize, to: *mut u8, row: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        for i in 0..m {
            let (from, to) = (a.at(i, 0), to.add(i * row));
            if a.is_narrow {
                from.copy_to_nonoverlapping(to, 2 * k);
            } else {
                let whole = k - k % 32;
                for p in (0..whole).step_by(32) {
                    let (low, high) = (from.wrapping_add(4 * p), from.wrapping_add(4 * p + 64));
                    let both = _mm512_cvtne2ps_pbh(a.wide(high, u16::MAX), a.wide(low, u16::MAX));
                    _mm512_storeu_si512(to.add(2 * p).cast(), std::mem::transmute::<__m512bh, __m512i>(both));
                }
                for p in (whole..k).step_by(16) {
                    let v = a.load(from.wrapping_add(4 * p), first(k - p));
                    _mm256_mask_storeu_epi16(to.add(2 * p).cast(), first(k - p), v);
                }
            }
            if 2 * padded > k {
                to.add(2 * k).write_bytes(0, 4 * padded - 2 * k);
            }
        }
    }
}

/// As [`rows`], for a left matrix whose columns are contiguous, or that has any strides. `padded` must be a multiple of
/// 16, and the target have a multiple of 16 rows.
///
/// # Safety
/// As [`rows`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn turned_rows(a: PairOperand, m: usize, k: usize, padded: usize, to: *mut u8, row: usize) {
    // SAFETY: guaranteed by the caller, and masks keep within the matrix.
    unsafe {
        for p in (0..padded).step_by(WIDTH) {
            for i in (0..m).step_by(WIDTH) {
                let mut v = [F32x16::zero(); 16];
                for (pair, v) in v.iter_mut().enumerate().take(k.div_ceil(2).saturating_sub(p)) {
                    let p = 2 * (p + pair);
                    *v = std::mem::transmute::<__m512, F32x16>(_mm512_castsi512_ps(column_pair(
                        a.part(i, p),
                        m - i,
                        p + 1 < k,
                    )));
                }
                F32x16::transpose(&mut v);
                for (r, v) in v.iter().enumerate() {
                    v.store(to.add((i + r) * row + 4 * p).cast());
                }
            }
        }
    }
}

/// The first pair of at most 16 rows. If the second column is missing, zeros take its place.
#[inline(always)]
unsafe fn column_pair(a: PairOperand, m: usize, has_high: bool) -> __m512i {
    // SAFETY: the caller guarantees AVX-512 and the elements.
    unsafe {
        if a.row == 1 {
            return a.words(a.at(0, 0), a.at(0, 1), [first(m), if has_high { first(m) } else { 0 }]);
        }
        let mut pairs = [0_u32; WIDTH];
        for (r, pair) in pairs.iter_mut().enumerate().take(m) {
            let high = if has_high { a.bits(r, 1) } else { 0 };
            *pair = u32::from(a.bits(r, 0)) | u32::from(high) << 16;
        }
        _mm512_loadu_si512(pairs.as_ptr().cast())
    }
}

/// Packs some rows of tiles of a left matrix whose columns are contiguous, or that has any strides, tile after tile:
/// pair `p` of row `i` of a tile of `m` rows is word `p m + i` of the tile. Tiles have at most 16 rows.
///
/// # Safety
/// As [`rows`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
pub(super) unsafe fn columns(
    a: PairOperand,
    heights: EvenSplit,
    tiles: Range<usize>,
    k: usize,
    to: *mut u32,
) {
    let (pairs, first_row) = (k.div_ceil(2), heights.part(tiles.start).start);
    // SAFETY: guaranteed by the caller, and masks keep within the rows of a tile.
    unsafe {
        // For one pair, rows of all tiles are adjacent in memory.
        for p in 0..pairs {
            let has_high = 2 * p + 1 < k;
            for tile in tiles.clone() {
                let (rows, m) = (heights.part(tile), heights.part(tile).len());
                let (i, to) = (rows.start - first_row, to.add((rows.start - first_row) * pairs + p * m));
                if a.row == 1 {
                    let masks = [first(m), if has_high { first(m) } else { 0 }];
                    let words = a.words(a.at(i, 2 * p), a.at(i, 2 * p + 1), masks);
                    _mm512_mask_storeu_epi32(to.cast(), first(m), words);
                } else {
                    for r in 0..m {
                        let high = if has_high { a.bits(i + r, 2 * p + 1) } else { 0 };
                        *to.add(r) = u32::from(a.bits(i + r, 2 * p)) | u32::from(high) << 16;
                    }
                }
            }
        }
    }
}
