//! Sums of products of levels and weights over windows, tile by tile, on all cores.

use super::output::{ColumnTerms, ResultPart, SumOutput, Sums};
use super::pack::{Packed, QuantizedWeights};
use super::tile::{IntegerTile, Kernels, TALL, WIDE, kernels};
use super::window::{ImageWindow, Origins, PositionBlock};
use crate::array::InputCache;
use crate::kernels::scratch::List;
use crate::kernels::threads::parallel;

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
    let shares = PIECES.div_ceil(blocks.count().max(1)).min(panels).max(1);
    let per_share = panels.div_ceil(shares);
    parallel(blocks.count() * shares, |i| {
        let block = blocks.get(i / shares);
        let (first_panel, end_panel) = (i % shares * per_share, panels.min((i % shares + 1) * per_share));
        if first_panel >= end_panel {
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
        let mut sums: Sums = [0; TALL * WIDE];
        for panel in first_panel..end_panel {
            let column = panel * wide;
            let (weights, registers) = packed.panel(column);
            let columns = (registers * kernels.width).min(packed.columns - column);
            let tiles = kernels.tiles[registers - 1];
            let mut starts = Positions::new(&block, width);
            let mut at = 0;
            while at < positions {
                let rows = tiles.len().min(positions - at);
                let part = ResultPart { row: first + at, rows, column, columns };
                let target = output.target(part, &mut sums);
                let tile = IntegerTile {
                    rows: next_rows(&origins, &mut starts, rows),
                    taps: &taps,
                    groups: stretches.groups(),
                    weights,
                    finish: offsets.finish(
                        column,
                        sums_of_rows.as_ref().map(|sums| &sums[at..at + rows]),
                        target,
                    ),
                };
                // SAFETY: the kernel runs on this machine, and the panel has its weights. Each run of a window is
                // followed by the rest of its last group. The target has space for the part.
                unsafe { tiles[rows - 1](&tile) };
                output.take(part, &sums);
                at += rows;
            }
        }
        let column = first_panel * wide;
        let columns = packed.columns.min(end_panel * wide) - column;
        output.finish(ResultPart { row: first, rows: positions, column, columns });
    });
}

/// The positions of a block, in order: image, line and column.
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

/// The addresses of the next `height` rows of levels. The remaining entries are copies of the first.
#[inline(always)]
fn next_rows(origins: &Origins, starts: &mut Positions, height: usize) -> [*const u8; TALL] {
    let mut rows = [std::ptr::null(); TALL];
    for (row, at) in rows[..height].iter_mut().zip(starts) {
        *row = origins.of(at);
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
