//! Sums of products of levels and weights over windows, tile by tile, on all cores.

use std::ops::Range;

use super::in_tiles::{LeftTiles, TileKernels, WeightPanel, rows_of_copies};
use super::output::{ColumnTerms, Offsets, ResultPart, SumOutput, Sums};
use super::pack::{Packed, QuantizedWeights, Stretches, WeightPanels};
use super::tile::{Finish, IntegerTile, Kernels, TALL, WIDE, kernels};
use super::window::{ImageWindow, PositionBlock};
use crate::array::InputCache;
use crate::kernels::amx::TilesInUse;
use crate::kernels::scratch::List;
use crate::kernels::threads::{num_threads, parallel};

/// Bytes that the windows of a block read and write. They stay in the L2 cache while the panels of weights are
/// processed one after the other.
const LEVELS: usize = 1 << 18;
/// The smallest number of positions of a block.
const FEW: usize = 64;
/// The largest number of positions of a block.
const MANY: usize = 1024;
/// The desired number of tasks.
const PIECES: usize = 16;

/// The left operand of a product: levels in channels-last images.
pub struct Levels<'a> {
    /// The levels.
    pub x: &'a [u8],
    /// The level that represents zero.
    pub zero: u8,
}

/// The division of the output into blocks, which depends only on its shape.
pub(super) struct Blocks<'a> {
    /// The windows over the levels.
    window: &'a ImageWindow,
    /// The number of images in a block.
    images: usize,
    /// The number of lines of each image in a block.
    lines: usize,
}

impl<'a> Blocks<'a> {
    /// Blocks that fit into the cache together with their output, of `out` bytes per position.
    pub(super) fn new(window: &'a ImageWindow, out: usize) -> Self {
        let [height, width] = window.output;
        let seen = (window.channels * window.stride[0] * window.stride[1] + out).max(1);
        let positions = (LEVELS / seen).clamp(FEW, MANY);
        let per_image = (height * width).max(1);
        if per_image <= positions {
            return Self { window, images: positions / per_image, lines: height };
        }
        let parts = per_image.div_ceil(positions);
        Self { window, images: 1, lines: height.div_ceil(parts) }
    }

    /// The number of blocks in each image.
    fn per_image(&self) -> usize {
        self.window.output[0].div_ceil(self.lines.max(1))
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> usize {
        self.window.images.div_ceil(self.images) * self.per_image()
    }

    /// The images and lines of block `i`.
    pub(super) fn get(&self, i: usize) -> PositionBlock {
        let (image, line) = (i / self.per_image() * self.images, i % self.per_image() * self.lines);
        PositionBlock {
            images: image..self.window.images.min(image + self.images),
            lines: line..self.window.output[0].min(line + self.lines),
        }
    }
}

/// Writes the outputs of all windows: for each position the results of all columns of the weights, contiguously.
pub fn multiply(
    levels: &Levels<'_>,
    weights: QuantizedWeights<'_>,
    input_cache: Option<InputCache<'_>>,
    window: &ImageWindow,
    columns: &ColumnTerms<'_>,
    output: &dyn SumOutput,
) {
    multiply_by(kernels(), levels, weights, input_cache, window, columns, output);
}

/// As [`multiply`], with these kernels.
pub(super) fn multiply_by(
    kernels: &'static Kernels,
    levels: &Levels<'_>,
    weights: QuantizedWeights<'_>,
    input_cache: Option<InputCache<'_>>,
    window: &ImageWindow,
    columns: &ColumnTerms<'_>,
    output: &dyn SumOutput,
) {
    let (stretches, taps) = (window.stretches(), window.taps());
    let held = Packed::new(kernels, weights, stretches, input_cache);
    let packed = held.panels();
    let offsets =
        columns.offsets(packed, levels.zero, kernels.levels_less, stretches.count * stretches.length);
    let (blocks, wide) = (Blocks::new(window, packed.columns * output.element()), kernels.panel());
    let panels = packed.columns.div_ceil(wide);
    let in_tiles =
        kernels.in_tiles.filter(|tiles| (tiles.pays)(window.positions(), stretches, packed.columns));
    // Tasks with the same block copy the same windows for tiles.
    let pieces = if in_tiles.is_some() { num_threads() } else { PIECES };
    let shares = pieces.div_ceil(blocks.count().max(1)).min(panels).max(1);
    let per_share = panels.div_ceil(shares);
    parallel(blocks.count() * shares, |i| {
        let block = blocks.get(i / shares);
        let some = i % shares * per_share..panels.min((i % shares + 1) * per_share);
        if some.is_empty() {
            return;
        }
        let mut frame = List::with_capacity(window.frame_len(&block));
        let origins = window.origins(levels.x, levels.zero, &block, &mut frame);
        let width = window.output[1];
        let positions = block.images.len() * block.lines.len() * width;
        let first = (block.images.start * window.output[0] + block.lines.start) * width;
        let sums_of_rows = columns.has_zeros().then(|| {
            let starts = Positions::new(&block, width).map(|at| origins.of(at));
            // SAFETY: the windows are within the levels, or within the frame.
            starts.map(|start| unsafe { sum(start, &taps, stretches.length) }).collect::<List<i32>>()
        });
        let product = BlockProduct {
            kernels,
            packed,
            offsets: &offsets,
            sums_of_rows: sums_of_rows.as_deref(),
            taps: &taps,
            stretches,
            first,
            output,
        };
        let starts = Positions::new(&block, width).map(|at| origins.of(at));
        match in_tiles {
            Some(tiles) => product.in_tiles(tiles, some.clone(), starts),
            None => product.in_registers(some.clone(), &starts, positions),
        }
        let column = some.start * wide;
        let columns = packed.columns.min(some.end * wide) - column;
        output.finish(ResultPart { row: first, rows: positions, column, columns });
    });
}

/// The product of a block of positions with some panels of weights. Its windows are within the levels or a frame, and
/// each run of a window is followed by the rest of its last group.
struct BlockProduct<'a> {
    /// The kernels, which run on this machine.
    kernels: &'static Kernels,
    /// The weights.
    packed: WeightPanels,
    /// The corrections of the sums.
    offsets: &'a Offsets,
    /// The sums of the levels of each window, if they are needed.
    sums_of_rows: Option<&'a [i32]>,
    /// The offset of each run of a window.
    taps: &'a [isize],
    /// The runs of a window.
    stretches: Stretches,
    /// The first position, as a row of the result.
    first: usize,
    /// The destination.
    output: &'a dyn SumOutput,
}

impl BlockProduct<'_> {
    /// The first column of a panel, its weights and registers, and the number of its columns.
    #[inline(always)]
    fn panel(&self, panel: usize) -> (usize, (*const i8, usize), usize) {
        let column = panel * self.kernels.panel();
        let (weights, registers) = self.packed.panel(column);
        (column, (weights, registers), (registers * self.kernels.width).min(self.packed.columns - column))
    }

    /// The conversion of the sums of a part.
    #[inline(always)]
    fn finish(&self, part: ResultPart, sums: &mut Sums) -> Finish<'_> {
        let at = part.row - self.first;
        let of_rows = self.sums_of_rows.map(|sums| &sums[at..at + part.rows]);
        self.offsets.finish(part.column, of_rows, self.output.target(part, sums))
    }

    /// Computes tiles of sums in registers. `starts` are the addresses of the windows of all positions.
    fn in_registers(
        &self,
        panels: Range<usize>,
        starts: &(impl Iterator<Item = *const u8> + Clone),
        positions: usize,
    ) {
        let mut sums: Sums = [0; TALL * WIDE];
        for panel in panels {
            let (column, (weights, registers), columns) = self.panel(panel);
            let tiles = self.kernels.tiles[registers - 1];
            let mut starts = starts.clone();
            let mut at = 0;
            while at < positions {
                let rows = tiles.len().min(positions - at);
                let part = ResultPart { row: self.first + at, rows, column, columns };
                let tile = IntegerTile {
                    rows: next_rows(&mut starts, rows),
                    taps: self.taps,
                    groups: self.stretches.groups(),
                    weights,
                    finish: self.finish(part, &mut sums),
                };
                // SAFETY: the kernel runs on this machine, and the panel has its weights. Each run of a window is
                // followed by the rest of its last group. The target has space for the part.
                unsafe { tiles[rows - 1](&tile) };
                self.output.take(part, &sums);
                at += rows;
            }
        }
    }

    /// As [`BlockProduct::in_registers`], in tiles of AMX.
    fn in_tiles(
        &self,
        kernels: &TileKernels,
        panels: Range<usize>,
        mut starts: impl Iterator<Item = *const u8>,
    ) {
        let (mut sums, mut at): (Sums, usize) = ([0; TALL * WIDE], 0);
        let most = rows_of_copies(self.stretches);
        // SAFETY: the machine has tiles.
        let _tiles = unsafe { TilesInUse::new() };
        loop {
            let rows: List<*const u8> = starts.by_ref().take(most).collect();
            if rows.is_empty() {
                return;
            }
            // SAFETY: the windows are within the levels, or within the frame.
            let left = unsafe { LeftTiles::new(&rows, self.taps, self.stretches.length) };
            for panel in panels.clone() {
                let (column, (weights, registers), columns) = self.panel(panel);
                let convert = |row: usize, rows: &[*const u8]| {
                    let part = ResultPart { row: self.first + at + row, rows: rows.len(), column, columns };
                    let tile = IntegerTile::of_sums(rows, self.finish(part, &mut sums));
                    // SAFETY: the kernel runs on this machine, and the target has space for the part.
                    unsafe { kernels.convert[registers - 1][rows.len() - 1](&tile) };
                    self.output.take(part, &sums);
                };
                // SAFETY: the panel has its weights, and tiles are in use.
                unsafe { left.multiply(WeightPanel { weights, registers }, convert) };
            }
            at += rows.len();
        }
    }
}

/// The positions of a block, in order: image, line and column.
#[derive(Clone)]
pub(super) struct Positions {
    /// The number of lines of an image.
    lines: usize,
    /// The number of columns of a line.
    width: usize,
    /// The number of images.
    images: usize,
    /// The next position.
    at: [usize; 3],
}

impl Positions {
    /// The positions of a block whose lines are `width` long.
    pub(super) fn new(block: &PositionBlock, width: usize) -> Self {
        Self { lines: block.lines.len(), width, images: block.images.len(), at: [0; 3] }
    }
}

impl Iterator for Positions {
    type Item = [usize; 3];

    #[inline(always)]
    fn next(&mut self) -> Option<[usize; 3]> {
        let at = self.at;
        if at[0] == self.images || self.lines * self.width == 0 {
            return None;
        }
        self.at[2] += 1;
        if self.at[2] == self.width {
            self.at = [at[0], at[1] + 1, 0];
            if self.at[1] == self.lines {
                self.at = [at[0] + 1, 0, 0];
            }
        }
        Some(at)
    }
}

/// The addresses of the next `height` rows of levels. The remaining entries are null.
#[inline(always)]
fn next_rows(starts: &mut impl Iterator<Item = *const u8>, height: usize) -> [*const u8; TALL] {
    let mut rows = [std::ptr::null(); TALL];
    for (row, start) in rows[..height].iter_mut().zip(starts) {
        *row = start;
    }
    rows
}

/// The sum of the levels of a window.
///
/// # Safety
/// The levels must be readable.
unsafe fn sum(start: *const u8, taps: &[isize], length: usize) -> i32 {
    let stretch = |tap: &isize| {
        // SAFETY: guaranteed by the caller.
        let levels = unsafe { std::slice::from_raw_parts(start.offset(*tap), length) };
        levels.iter().map(|level| i32::from(*level)).sum::<i32>()
    };
    taps.iter().map(stretch).fold(0, i32::wrapping_add)
}
