//! Products with blocks of levels by AVX-512: 16 columns in a register, up to 8 rows in a tile.

mod in_amx;

#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;

use in_amx::{BlockTiles, rows_in_tiles};

use super::{BlockWeights, quantize, rounded};
use crate::array::{InputCache, Lent};
use crate::kernels::Float;
use crate::kernels::amx::TILE_ROWS;
use crate::kernels::integer::in_tiles;
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::x86::F32x16;
use crate::kernels::simd::{Isa, Vector, isa, vectorised};
use crate::kernels::threads::{self, Shared};

/// Columns of a register.
const WIDE: usize = 16;
/// Rows of the tallest tile.
const TALL: usize = 8;
/// Rows that are prepared together.
const MANY: usize = 64;
/// The fewest multiplications of a task.
const GRAIN: usize = 1 << 18;

/// The rows of a tile, prepared for its kernel, and the columns of a register.
struct BlockTile {
    /// Terms of all rows, and for each block the middle level times the negative sum of whole numbers.
    x: *const f32,
    /// Sums of the rows in each block.
    sums: *const f32,
    /// The steps of the rows in each block, if they are whole numbers.
    steps: *const f32,
    /// The levels. Four bytes of each column are followed by the next four bytes of each column.
    levels: *const u8,
    /// The scales of each block.
    scales: *const f32,
    /// The zero points of each block minus the middle level.
    zeros: *const f32,
    /// Blocks of a column.
    blocks: usize,
    /// Registers of levels in a block.
    words: usize,
    /// The result.
    y: *mut f32,
    /// The distance of its rows.
    row: usize,
    /// The columns that are written.
    mask: u16,
}

/// A kernel for one number of rows.
type BlockKernel = unsafe fn(&BlockTile);

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
        fn $name(rows: usize, has_zeros: bool, bits: usize) -> BlockKernel {
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

/// Transposes up to 16 rows of `n` elements, `row` elements apart. Missing rows become zeros, and `less` is subtracted
/// if `SUBTRACTS`.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
unsafe fn transpose<const SUBTRACTS: bool>(
    x: *const f32,
    rows: usize,
    n: usize,
    row: usize,
    less: f32,
    to: *mut f32,
) {
    // SAFETY: the caller guarantees the rows and space for `n` registers.
    unsafe {
        for at in (0..n).step_by(WIDE) {
            let some = WIDE.min(n - at);
            let mut registers = [F32x16::zero(); WIDE];
            for (i, register) in registers.iter_mut().enumerate().take(rows) {
                *register = F32x16::load_masked(x.add(i * row + at), F32x16::first(some));
            }
            F32x16::transpose(&mut registers);
            for (i, register) in registers.iter().enumerate().take(some) {
                let register = if SUBTRACTS { register.sub(F32x16::all(less)) } else { *register };
                register.store(to.add((at + i) * WIDE));
            }
        }
    }
}

/// Writes the scales of 16 columns from `first` on: a register for each block. The zero points minus the middle level
/// follow, if there are any.
///
/// # Safety
/// The machine must have AVX-512, numbers must be `f32`, and `to` must have space for [`BlockWeights::parameters`].
unsafe fn transpose_parameters<T: Float>(weights: &BlockWeights<'_, T>, first: usize, to: *mut f32) {
    let (blocks, columns) = (weights.blocks(), WIDE.min(weights.columns - first));
    let of = |values: &[T]| values[first * blocks..][..columns * blocks].as_ptr().cast::<f32>();
    // SAFETY: guaranteed by the caller.
    unsafe {
        transpose::<false>(of(weights.scales), columns, blocks, blocks, 0.0, to);
        if !weights.zeros.is_empty() {
            let (zeros, middle) = (of(weights.zeros), weights.middle() as f32);
            transpose::<true>(zeros, columns, blocks, blocks, middle, to.add(WIDE * blocks));
        }
    }
}

/// The memory of packed levels: of the cache, or its own.
#[allow(dead_code)] // keeps the memory alive
enum PackedLevels<'a> {
    Kept(Lent<'a, u8>),
    Own(List<u8>),
}

/// Levels with 16 columns side by side.
pub(super) struct PackedBlocks<'a> {
    /// The first byte.
    start: Shared<u8>,
    /// Keeps the memory alive.
    _memory: PackedLevels<'a>,
    /// The scales and zero points of all columns, if they are cached.
    parameters: Option<Lent<'a, f32>>,
    /// True if tiles of AMX multiply whole numbers.
    uses_tiles: bool,
}

/// The numbers of prepared rows, and the kernel that multiplies them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowForm {
    Numbers,
    Whole,
    /// Whole numbers in contiguous rows, a multiple of [`TILE_ROWS`], for tiles of AMX.
    InTiles,
}

impl RowForm {
    /// Rows of a tile, whose terms are interleaved.
    fn tall(self) -> usize {
        if self == Self::InTiles { 1 } else { TALL }
    }
}

/// Rows in the order in which the kernels read them.
struct PreparedRows {
    /// The kind of numbers.
    form: RowForm,
    /// Terms, see [`BlockTile`].
    x: List<f32>,
    /// Elements of `x` for each row.
    each: usize,
    /// Sums of the blocks.
    sums: List<f32>,
    /// Steps of the blocks.
    steps: List<f32>,
}

impl<T> BlockWeights<'_, T> {
    /// Numbers of a group of columns: scales, and zero points if there are any.
    fn parameters(&self) -> usize {
        let kinds = if self.zeros.is_empty() { 1 } else { 2 };
        kinds * WIDE * self.terms.div_ceil(self.block)
    }
}

impl<'a> PackedBlocks<'a> {
    /// Packs levels, or returns the cached packed form. None without AVX-512, or in double precision.
    pub(super) fn new<T: Float>(
        weights: &BlockWeights<'_, T>,
        input_cache: Option<InputCache<'a>>,
    ) -> Option<Self> {
        if isa() != Isa::Avx512 || size_of::<T>() != size_of::<f32>() {
            return None;
        }
        let (columns, bytes) = (weights.columns, weights.blocks() * weights.block_bytes());
        let size = columns.next_multiple_of(WIDE) * bytes;
        let pack = |to: *mut u8| {
            let to = Shared::new(to);
            threads::ranges(columns.div_ceil(WIDE), 4, |groups| {
                for first in groups.map(|group| group * WIDE) {
                    let (from, rows) = (weights.levels[first * bytes..].as_ptr(), WIDE.min(columns - first));
                    // SAFETY: the machine has the instructions. Registers only move the bits, and each group has its
                    // own memory.
                    unsafe {
                        let to = to.get().add(first * bytes);
                        transpose::<false>(from.cast(), rows, bytes / 4, bytes / 4, 0.0, to.cast());
                    }
                }
            });
        };
        let way = [columns, weights.block, weights.bits];
        let uses_tiles = is_x86_feature_detected!("avx512vnni") && in_tiles::are_used();
        let parameters = input_cache.and_then(|array| Self::keep_parameters(weights, array, way));
        if let Some(mut lent) = input_cache.and_then(|array| array.lend(0, way, size)) {
            let start = lent.ptr();
            if !lent.is_made() {
                pack(start);
                lent.made();
            }
            return Some(Self {
                start: Shared::new(start),
                _memory: PackedLevels::Kept(lent),
                parameters,
                uses_tiles,
            });
        }
        let own = List::<u8>::with_capacity(size);
        let start = own.as_ptr().cast_mut();
        pack(start);
        Some(Self { start: Shared::new(start), _memory: PackedLevels::Own(own), parameters, uses_tiles })
    }

    /// The cached scales and zero points of all groups of columns, see [`transpose_parameters`]. None if they may not
    /// be cached.
    fn keep_parameters<T: Float>(
        weights: &BlockWeights<'_, T>,
        array: InputCache<'a>,
        way: [usize; 3],
    ) -> Option<Lent<'a, f32>> {
        let (groups, each) = (weights.columns.div_ceil(WIDE), weights.parameters());
        let mut lent = array.lend_of_parameters::<f32>(1, way, groups * each)?;
        if !lent.is_made() {
            let to = Shared::new(lent.ptr());
            threads::ranges(groups, 4, |groups| {
                for group in groups {
                    // SAFETY: the machine has the instructions, and each group has its own memory.
                    unsafe { transpose_parameters(weights, group * WIDE, to.get().add(group * each)) };
                }
            });
            lent.made();
        }
        Some(lent)
    }

    /// Writes the products of rows without very large numbers. The numbers must be `f32`.
    pub(super) fn multiply<T: Float>(
        &self,
        weights: &BlockWeights<'_, T>,
        x: &[T],
        quantizes: bool,
        y: &mut [T],
    ) {
        let (terms, columns) = (weights.terms, weights.columns);
        let is_whole = quantizes && is_x86_feature_detected!("avx512vnni");
        if quantizes && !is_whole {
            return rounded(x, terms, weights.block, |x| self.multiply(weights, x, false, y));
        }
        let is_in_tiles = is_whole && self.uses_tiles;
        let first = if is_in_tiles { rows_in_tiles(y.len() / columns, weights.block) } else { 0 };
        let ((x, x_rest), (y, y_rest)) = (x.split_at(first * terms), y.split_at_mut(first * columns));
        let rest = if is_whole { RowForm::Whole } else { RowForm::Numbers };
        for (form, x, y) in [(RowForm::InTiles, x, y), (rest, x_rest, y_rest)] {
            for (x, y) in x.chunks(MANY * terms).zip(y.chunks_mut(MANY * columns)) {
                let rows = if form == RowForm::Numbers {
                    PreparedRows::of_numbers(weights, x)
                } else {
                    PreparedRows::of_whole(weights, x, form)
                };
                self.multiply_rows(weights, &rows, y);
            }
        }
    }

    /// As [`PackedBlocks::multiply`], for prepared rows.
    fn multiply_rows<T: Float>(&self, weights: &BlockWeights<'_, T>, x: &PreparedRows, y: &mut [T]) {
        let &BlockWeights { zeros, columns, bits, .. } = weights;
        let (rows, blocks, bytes) = (y.len() / columns, weights.blocks(), weights.block_bytes());
        let (has_zeros, levels, to) = (!zeros.is_empty(), self.start, Shared::new(y.as_mut_ptr()));
        let (kept, each) =
            (self.parameters.as_ref().map(|kept| Shared::new(kept.ptr())), weights.parameters());
        let kernel = if x.form == RowForm::Numbers { numbers } else { whole };
        let grain = GRAIN / (WIDE * weights.terms * rows);
        threads::ranges(columns.div_ceil(WIDE), grain, |groups| {
            let is_in_tiles = x.form == RowForm::InTiles;
            // SAFETY: the process may use tiles.
            let mut tiles = is_in_tiles.then(|| unsafe { BlockTiles::new(weights) });
            scratch::with(if kept.is_some() { 0 } else { each }, |parameters: &mut [f32]| {
                for first in groups.map(|group| group * WIDE) {
                    let n = WIDE.min(columns - first);
                    let scales = match kept {
                        Some(kept) => kept.get().wrapping_add(first / WIDE * each),
                        None => {
                            let to = parameters.as_mut_ptr();
                            // SAFETY: the machine has the instructions, numbers are `f32`, and there is a register for
                            // each block.
                            unsafe { transpose_parameters(weights, first, to) };
                            to
                        }
                    };
                    let levels = levels.get().wrapping_add(first * blocks * bytes).cast_const();
                    let tile = |start: usize, levels: *const u8| BlockTile {
                        x: x.x[start * x.each..].as_ptr(),
                        sums: x.sums[start * blocks..].as_ptr(),
                        steps: x.steps.as_ptr().wrapping_add(start * blocks),
                        levels,
                        scales,
                        zeros: scales.wrapping_add(WIDE * blocks),
                        blocks,
                        words: bytes / 4,
                        y: to.get().cast::<f32>().wrapping_add(start * columns + first),
                        row: columns,
                        mask: u16::MAX >> (WIDE - n),
                    };
                    if let Some(tiles) = &mut tiles {
                        // SAFETY: the machine has the instructions, and these are the levels of a group.
                        let levels = unsafe { tiles.levels(levels) };
                        for start in (0..rows).step_by(TILE_ROWS) {
                            let tile = tile(start, levels);
                            // SAFETY: as above, the rows are prepared for tiles, and each thread writes columns of its
                            // own.
                            unsafe { tiles.multiply(&tile, x.each, has_zeros) };
                        }
                        continue;
                    }
                    for start in (0..rows).step_by(TALL) {
                        let count = TALL.min(rows - start);
                        // SAFETY: the machine has the instructions, the rows are prepared for the kernel, and each
                        // thread writes columns of its own.
                        unsafe { kernel(count, has_zeros, bits)(&tile(start, levels)) };
                    }
                }
            });
        });
    }
}

impl PreparedRows {
    /// The place of a row in a tile of up to `tall` rows. Returns the first row of the tile, the row within it, and its
    /// number of rows.
    fn place(i: usize, rows: usize, tall: usize) -> (usize, usize, usize) {
        let start = i / tall * tall;
        (start, i - start, tall.min(rows - start))
    }

    /// Elements of a block of whole numbers.
    fn words(block: usize) -> usize {
        1 + block / 4
    }

    /// Numbers, with zeros after the last term.
    fn of_numbers<T: Float>(weights: &BlockWeights<'_, T>, x: &[T]) -> Self {
        let (terms, blocks, block) = (weights.terms, weights.blocks(), weights.block);
        let (rows, each) = (x.len() / terms, blocks * block);
        let (mut to, mut sums) = (List::repeat(0.0, rows * each), List::repeat(0.0, rows * blocks));
        vectorised(
            #[inline(always)]
            || {
                for (i, x) in x.chunks_exact(terms).enumerate() {
                    let (start, m, count) = Self::place(i, rows, TALL);
                    let to = &mut to[start * each + m..];
                    to.iter_mut().step_by(count).zip(x).for_each(|(to, v)| *to = v.real() as f32);
                    let sums = sums[start * blocks + m..].iter_mut().step_by(count);
                    for (to, x) in sums.zip(x.chunks(block)) {
                        *to = x.iter().map(|v| v.real()).sum::<f64>() as f32;
                    }
                }
            },
        );
        Self { form: RowForm::Numbers, x: to, each, sums, steps: List::repeat(0.0, 0) }
    }

    /// Blocks quantized to whole numbers of 8 bits.
    fn of_whole<T: Float>(weights: &BlockWeights<'_, T>, x: &[T], form: RowForm) -> Self {
        let (terms, blocks, block) = (weights.terms, weights.blocks(), weights.block);
        let (rows, per_block) = (x.len() / terms, Self::words(block));
        let each = blocks * per_block;
        let mut to = List::repeat(0.0, rows * each);
        let [mut sums, mut steps] = [(); 2].map(|()| List::repeat(0.0, rows * blocks));
        let (middle, is_paired) = (weights.middle() as i32, weights.bits == 4);
        let mut bytes = List::repeat(0, block);
        scratch::with(block, |levels: &mut [T]| {
            vectorised(
                #[inline(always)]
                || {
                    for (i, x) in x.chunks_exact(terms).enumerate() {
                        let (start, m, count) = Self::place(i, rows, form.tall());
                        for (b, x) in x.chunks(block).enumerate() {
                            levels.fill(T::ZERO);
                            let step = quantize(x, levels);
                            let mut sum = 0;
                            for (to, level) in bytes.iter_mut().zip(&*levels) {
                                let level = level.real() as i32;
                                sum += level;
                                *to = level as u8;
                            }
                            let at = (start * blocks) + b * count + m;
                            (sums[at], steps[at]) = (sum as f32, step.real() as f32);
                            let to = &mut to[start * each + b * per_block * count + m..];
                            let mut to = to.iter_mut().step_by(count);
                            let mut put = |bits: u32| {
                                if let Some(to) = to.next() {
                                    *to = f32::from_bits(bits);
                                }
                            };
                            put((-middle * sum).cast_unsigned());
                            for eight in bytes.as_chunks::<8>().0 {
                                let [a, b, c, d, e, f, g, h] = *eight;
                                let order = if is_paired { [a, c, e, g, b, d, f, h] } else { *eight };
                                order
                                    .as_chunks::<4>()
                                    .0
                                    .iter()
                                    .for_each(|four| put(u32::from_le_bytes(*four)));
                            }
                        }
                    }
                },
            );
        });
        Self { form, x: to, each, sums, steps }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{BlockWeights, PackedBlocks};
    use crate::kernels::amx;
    use crate::kernels::threads;

    /// The product with pseudorandom levels, or with the largest ones.
    fn product(size: [usize; 3], [bits, block]: [usize; 2], flags: u8, uses_tiles: bool) -> Option<Vec<u32>> {
        let ([rows, terms, columns], flag) = (size, |bit: u8| flags >> bit & 1 == 1);
        let n = columns * terms.div_ceil(block);
        let byte = |i: usize| if flag(0) { 255 } else { ((i * 7919 + 31) % 1009 % 256) as u8 };
        let number = |i: usize| ((i * 7919 + 31) % 1009) as f32 / 1009.0 - 0.5;
        let levels: Vec<u8> = (0..n * block * bits / 8).map(byte).collect();
        let scales: Vec<f32> = (0..n).map(|i| number(i) / 64.0).collect();
        let zeros: Vec<f32> = (0..if flag(1) { n } else { 0 }).map(|i| f32::from(byte(i) >> 5)).collect();
        let x: Vec<f32> = (0..rows * terms).map(|i| if flag(0) { -1.0 } else { number(i + 3) }).collect();
        let weights =
            BlockWeights { levels: &levels, scales: &scales, zeros: &zeros, terms, columns, bits, block };
        let mut packed = PackedBlocks::new(&weights, None)?;
        packed.uses_tiles = uses_tiles;
        let mut y = vec![f32::NAN; rows * columns];
        packed.multiply(&weights, &x, true, &mut y);
        Some(y.iter().map(|v| v.to_bits()).collect())
    }

    #[test]
    fn tiles_have_the_bits_of_registers() {
        if !is_x86_feature_detected!("avx512vnni") {
            return;
        }
        amx::trap();
        let n = threads::num_threads();
        for size in [[16, 64, 16], [17, 100, 33], [1, 32, 5], [40, 301, 70], [81, 130, 20]] {
            for form in [[4, 16], [4, 32], [8, 32], [4, 64], [8, 64], [4, 96], [8, 128], [4, 128]] {
                for flags in 0..4 {
                    for threads in [1, 2] {
                        threads::set_num_threads(threads);
                        let found = [false, true].map(|in_tiles| product(size, form, flags, in_tiles));
                        assert!(found[0] == found[1], "{size:?}, {form:?}, {flags}");
                    }
                }
            }
        }
        threads::set_num_threads(n);
    }
}
