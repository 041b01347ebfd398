//! Kernels that multiply a tile of rows by the columns of a register, in numbers or in whole numbers.

#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;

use super::{TALL, WIDE};

/// The rows of a tile, prepared for its kernel, and the columns of a register.
pub(super) struct BlockTile {
    /// Terms of all rows, and for each block the middle level times the negative sum of whole numbers.
    pub(super) x: *const f32,
    /// Sums of the rows in each block.
    pub(super) sums: *const f32,
    /// The steps of the rows in each block, if they are whole numbers.
    pub(super) steps: *const f32,
    /// The levels. Four bytes of each column are followed by the next four bytes of each column.
    pub(super) levels: *const u8,
    /// The scales of each block.
    pub(super) scales: *const f32,
    /// The zero points of each block minus the middle level.
    pub(super) zeros: *const f32,
    /// Blocks of a column.
    pub(super) blocks: usize,
    /// Registers of levels in a block.
    pub(super) words: usize,
    /// The result.
    pub(super) y: *mut f32,
    /// The distance of its rows.
    pub(super) row: usize,
    /// The columns that are written.
    pub(super) mask: u16,
}

/// A kernel for one number of rows.
pub(super) type BlockKernel = unsafe fn(&BlockTile);

/// Multiplies numbers by levels of `BITS`. `ZEROS` is true if there are zero points.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // loops of constant length stay in registers
unsafe fn of_numbers<const M: usize, const ZEROS: bool, const BITS: u32>(t: &BlockTile) {
    // SAFETY: the caller guarantees the instruction set, and the memory of the tile is valid.
    unsafe {
        let table = _mm512_setr_ps(
            -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0,
        );
        let middle = _mm512_set1_epi8(-128);
        let mut totals = [_mm512_setzero_ps(); M];
        let (mut x, mut levels) = (t.x, t.levels);
        for b in 0..t.blocks {
            // Few rows need two sums each, since an addition takes longer than the steps between two.
            let mut sums = [[_mm512_setzero_ps(); M]; 2];
            for _ in 0..t.words {
                let eight = _mm512_loadu_si512(levels.cast());
                /// Adds the products of one term.
                macro_rules! add {
                    ($i:literal) => {
                        // The table ignores all but the lowest four bits.
                        let weights = if BITS == 4 {
                            _mm512_permutexvar_ps(_mm512_srli_epi32::<{ 4 * $i }>(eight), table)
                        } else {
                            let signed = _mm512_xor_si512(eight, middle);
                            let high = _mm512_slli_epi32::<{ 24 - 8 * ($i % 4) }>(signed);
                            _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(high))
                        };
                        let sums = &mut sums[if M <= 2 { $i % 2 } else { 0 }];
                        for m in 0..M {
                            sums[m] = _mm512_fmadd_ps(_mm512_set1_ps(*x.add($i * M + m)), weights, sums[m]);
                        }
                    };
                }
                add!(0);
                add!(1);
                add!(2);
                add!(3);
                if BITS == 4 {
                    add!(4);
                    add!(5);
                    add!(6);
                    add!(7);
                }
                x = x.add(M * (32 / BITS as usize));
                levels = levels.add(64);
            }
            let scales = _mm512_loadu_ps(t.scales.add(WIDE * b));
            for m in 0..M {
                let mut sum = if M <= 2 { _mm512_add_ps(sums[0][m], sums[1][m]) } else { sums[0][m] };
                if ZEROS {
                    let of_row = _mm512_set1_ps(*t.sums.add(b * M + m));
                    sum = _mm512_fnmadd_ps(_mm512_loadu_ps(t.zeros.add(WIDE * b)), of_row, sum);
                }
                totals[m] = _mm512_fmadd_ps(sum, scales, totals[m]);
            }
        }
        for m in 0..M {
            _mm512_mask_storeu_ps(t.y.add(m * t.row), t.mask, totals[m]);
        }
    }
}

/// Multiplies whole numbers of 8 bits by levels. Four terms of a row are adjacent: for levels of 4 bits the even ones
/// of eight terms, then the odd ones.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
unsafe fn of_whole<const M: usize, const ZEROS: bool, const BITS: u32>(t: &BlockTile) {
    // SAFETY: as above.
    unsafe {
        let low = _mm512_set1_epi8(15);
        let mut totals = [_mm512_setzero_ps(); M];
        let (mut x, mut levels) = (t.x.cast::<i32>(), t.levels);
        for b in 0..t.blocks {
            let mut sums = [_mm512_setzero_si512(); M];
            for m in 0..M {
                sums[m] = _mm512_set1_epi32(*x.add(m));
            }
            x = x.add(M);
            for _ in 0..t.words {
                let eight = _mm512_loadu_si512(levels.cast());
                let even = if BITS == 4 { _mm512_and_si512(eight, low) } else { eight };
                for m in 0..M {
                    sums[m] = _mm512_dpbusd_epi32(sums[m], even, _mm512_set1_epi32(*x.add(m)));
                }
                x = x.add(M);
                if BITS == 4 {
                    let odd = _mm512_and_si512(_mm512_srli_epi32::<4>(eight), low);
                    for m in 0..M {
                        sums[m] = _mm512_dpbusd_epi32(sums[m], odd, _mm512_set1_epi32(*x.add(m)));
                    }
                    x = x.add(M);
                }
                levels = levels.add(64);
            }
            let scales = _mm512_loadu_ps(t.scales.add(WIDE * b));
            for m in 0..M {
                let mut sum = _mm512_cvtepi32_ps(sums[m]);
                if ZEROS {
                    let of_row = _mm512_set1_ps(*t.sums.add(b * M + m));
                    sum = _mm512_fnmadd_ps(_mm512_loadu_ps(t.zeros.add(WIDE * b)), of_row, sum);
                }
                let step = _mm512_mul_ps(scales, _mm512_set1_ps(*t.steps.add(b * M + m)));
                totals[m] = _mm512_fmadd_ps(sum, step, totals[m]);
            }
        }
        for m in 0..M {
            _mm512_mask_storeu_ps(t.y.add(m * t.row), t.mask, totals[m]);
        }
    }
}

/// Makes a function that returns the kernel for a number of rows, bits, and zero points or none.
macro_rules! kernels {
    ($name:ident, $work:ident, $features:literal) => {
        /// The kernel for this number of rows, with or without zero points, for levels of 4 or 8 bits.
        pub(super) fn $name(rows: usize, has_zeros: bool, bits: usize) -> BlockKernel {
            #[target_feature(enable = $features)]
            /// The kernel with its instructions.
            unsafe fn kernel<const M: usize, const ZEROS: bool, const BITS: u32>(t: &BlockTile) {
                // SAFETY: the function has the instruction set, and the caller guarantees the memory.
                unsafe { $work::<M, ZEROS, BITS>(t) }
            }
            /// Kernels for one to eight rows.
            const fn all<const ZEROS: bool, const BITS: u32>() -> [BlockKernel; TALL] {
                [
                    kernel::<1, ZEROS, BITS>,
                    kernel::<2, ZEROS, BITS>,
                    kernel::<3, ZEROS, BITS>,
                    kernel::<4, ZEROS, BITS>,
                    kernel::<5, ZEROS, BITS>,
                    kernel::<6, ZEROS, BITS>,
                    kernel::<7, ZEROS, BITS>,
                    kernel::<8, ZEROS, BITS>,
                ]
            }
            let all = match (bits, has_zeros) {
                (4, false) => all::<false, 4>(),
                (4, true) => all::<true, 4>(),
                (_, false) => all::<false, 8>(),
                (_, true) => all::<true, 8>(),
            };
            all[rows - 1]
        }
    };
}
kernels!(numbers, of_numbers, "avx512f,avx512dq,avx512bw,avx512vl,fma");
kernels!(whole, of_whole, "avx512f,avx512dq,avx512bw,avx512vl,fma,avx512vnni");
