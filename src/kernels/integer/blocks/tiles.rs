//! Products with blocks of levels by AVX-512: 16 columns in a register, up to 8 rows in a tile.

mod in_amx;
mod kernels;
mod rows;

use in_amx::{BlockTiles, rows_in_tiles};
use kernels::{BlockTile, numbers, whole};
use rows::{PreparedRows, RowForm};

use super::{BlockWeights, rounded};
use crate::array::{InputCache, Lent};
use crate::kernels::Float;
use crate::kernels::amx::TILE_ROWS;
use crate::kernels::integer::in_tiles;
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::x86::F32x16;
use crate::kernels::simd::{Isa, Vector, isa};
use crate::kernels::threads::{self, Shared};

/// Columns of a register.
const WIDE: usize = 16;
/// Rows of the tallest tile.
const TALL: usize = 8;
/// Rows that are prepared together.
const MANY: usize = 64;
/// The fewest multiplications of a task.
const GRAIN: usize = 1 << 18;

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
