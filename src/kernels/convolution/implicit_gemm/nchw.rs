//! Sums over channels and taps, channels first: a block of positions is packed into planes in the cache, and one product gives
//! its results.

use std::ops::Range;

use super::Weights;
use super::blocking::tasks;
use super::column_order::{Arrangement, ColumnOrder, arrangement};
use super::packed_planes::{ImageLayout, SLACK, StripBlock, Strips};
use super::store::{finish_rows, move_results};
use super::tap_rows::TapRows;
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::threads::{Shared, ranges};

/// Tasks beyond this number are taken several at a time.
const MANY: usize = 128;

/// Channels first: a left matrix of weights, a right one with a column a position, read from strips.
pub(super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>, weights: &Weights<T>, strips: &Strips) {
    let g = sum.g;
    // Where there are few positions, each task has a part of the targets
    // (few of them, as each lays out the positions anew).
    let many = sum.targets.channels / (2 * kernels::<T>().panel());
    let wanted = tasks(g, sum.window(), sum.sources, sum.targets);
    let parts = (wanted / (strips.blocks() * g.group)).min(many.min(2).max(many / 2));
    let targets = EvenSplit::new(sum.targets.channels, parts);
    let parts = targets.parts();
    let tasks = strips.blocks() * g.group * parts;
    ranges(tasks, tasks / MANY, |some| {
        for task in some {
            let (block, rest) = (strips.block(task / (g.group * parts)), task % (g.group * parts));
            // SAFETY: each task has its own part of the target.
            unsafe { sum_block(sum, weights, strips, &block, rest / parts, targets.part(rest % parts)) };
        }
    });
}

/// Lays out some channels of a group.
///
/// # Safety
/// There is [`Strips::room`] for them.
unsafe fn lay_out<T: Float>(
    sum: &Correlation<'_, T>,
    strips: &Strips,
    block: &StripBlock,
    group: usize,
    channels: Range<usize>,
    planes: &mut [T],
) {
    for (image, i) in block.images.clone().enumerate() {
        let (from, area) = (sum.source(i, group, channels.start), sum.sources.channel);
        let (channels, to) = (channels.len(), planes.as_mut_ptr());
        // SAFETY: the table was chosen for this machine, and there is room.
        unsafe {
            (isa::kernels::<T>().lay_out)(&ImageLayout { strips, block, image, from, channels, area, to });
        };
    }
}

/// Copies what the positions of a block see of some channels of a group, to lines that are `apart`.
///
/// # Safety
/// There is room for it.
unsafe fn tap_rows<T: Float>(
    sum: &Correlation<'_, T>,
    strips: &Strips,
    block: &StripBlock,
    group: usize,
    channels: Range<usize>,
    to: *mut T,
    apart: usize,
) {
    let mut rows = List::with_capacity(64);
    strips.each_row(block, |image, row, _, _| rows.push((image, row)));
    let order = TapRows {
        window: sum.window(),
        rows: &rows,
        from: sum.source(0, group, channels.start),
        area: sum.sources.channel,
        image: sum.sources.image,
        channels: channels.len(),
        to,
        apart,
    };
    // SAFETY: the table was chosen for this machine, and the images are there.
    unsafe { (isa::kernels::<T>().tap_rows)(&order) };
}

unsafe fn sum_block<T: Float>(
    sum: &Correlation<'_, T>,
    weights: &Weights<T>,
    strips: &Strips,
    block: &StripBlock,
    group: usize,
    rows: Range<usize>,
) {
    let Arrangement { columns, direct, n, each, line } = arrangement(sum, strips, block, rows.len());
    let (w, depth, sources) = (sum.window(), sum.depth(), sum.sources.channels);
    let (taps, width) = (w.taps.len(), block.columns.len());
    let (close, straight) = (columns.are_close(), columns == ColumnOrder::Straight);
    let of_close = if close { strips.chunk * taps * line } else { 0 };
    let of_results = if direct { 0 } else { rows.len() * line };
    let room = if straight { 0 } else { strips.room() };
    let starts = strips.starts(block);
    scratch::with(room + of_results + of_close + SLACK, |memory: &mut [T]| {
        let (planes, results) = memory.split_at_mut(room);
        let (results, together) = results.split_at_mut(of_results);
        let results = Shared::new(results.as_mut_ptr());
        let chunks = sources.div_ceil(strips.chunk).max(1);
        for i in 0..chunks {
            let first = i * strips.chunk;
            let channels = strips.chunk.min(sources - first);
            let b = if strips.in_place {
                sum.source(block.images.start, group, first).wrapping_add(strips.origin(block))
            } else {
                if !straight {
                    // SAFETY: there is room for a chunk.
                    unsafe { lay_out(sum, strips, block, group, first..first + channels, planes) };
                }
                planes.as_ptr()
            };
            let weights = weights.p.wrapping_add(weights.group * group + rows.start * depth + first * taps);
            let k = channels * taps;
            let (mut b, mut b_row, mut table) = (b, 0, Table::OfRight(&strips.table));
            if close {
                let to = together.as_mut_ptr();
                // SAFETY: the rows lie in the images or in the planes; there is room for all, and for what is copied too
                // much.
                unsafe {
                    if straight {
                        tap_rows(sum, strips, block, group, first..first + channels, to, line);
                    } else {
                        strips.close(k, b, &starts, width, to, line);
                    }
                }
                (b, b_row, table) = (together.as_ptr(), line, Table::None);
            }
            let multiply = |image: usize, position: usize, at: usize, n: usize| {
                let (c, c_row) = if direct {
                    let first = sum.target(image, group, rows.start).wrapping_add(position);
                    (first, sum.targets.channel)
                } else {
                    (results.get().wrapping_add(at), line)
                };
                let product = PanelProduct {
                    m: rows.len(),
                    n,
                    k,
                    a: MatrixOperand { p: weights, row: depth as isize, col: 1 },
                    b: Panels { p: b.wrapping_add(at), row: b_row, next: kernels::<T>().panel() },
                    table,
                    batch: ONCE,
                    c,
                    c_row,
                    epilogue: Epilogue {
                        accumulate: i > 0 || direct && sum.epilogue.accumulate,
                        row_bias: sum.bias(group, rows.start).filter(|_| direct && i + 1 == chunks),
                        column_bias: None,
                        tail: sum.epilogue.tail.in_registers(direct && i + 1 == chunks),
                    },
                };
                // SAFETY: the table keeps within the planes; the rest is the caller's promise.
                unsafe { product.run() };
            };
            if columns == ColumnOrder::ByRow {
                strips.each_row(block, |image, row, column, at| {
                    multiply(image, row * w.width + column, at, n);
                });
            } else {
                let position = block.rows.start * w.inner * w.width + block.columns.start;
                for at in (0..n).step_by(each) {
                    multiply(block.images.start, position + at, at, each.min(n - at));
                }
            }
        }
        if !direct {
            let results = results.get().cast_const();
            // SAFETY: these are results of all rows and positions; the target has an element for each.
            unsafe { move_results(sum, strips, block, group, rows.clone(), results, (line, close)) };
        }
        if sum.epilogue.tail.rows.is_some() {
            finish_rows(sum, strips, block, group, rows);
        }
    });
}
