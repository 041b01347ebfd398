//! Implicit GEMM, channels first: a product of the weights and packed planes for each block of positions.

use std::ops::Range;

use super::Weights;
use super::blocking::tasks_of;
use super::column_order::{ColumnOrder, ColumnPlan, plan_columns};
use super::in_tiles;
use super::packed_planes::{PackImage, PlaneBlock, PlaneLayout, SLACK, copy_rows};
use super::store::{finish_rows, store_results};
use super::tap_rows::TapRows;
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::threads::{Shared, ranges};

/// The number of tasks beyond which a thread takes several at a time.
const MANY: usize = 128;

/// Computes the sums. The left matrix holds the weights, and the right one has a column for each position, read from
/// packed planes.
pub(super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>, weights: &Weights<T>, layout: &PlaneLayout) {
    let window = sum.window();
    for_each_block(sum, layout, window.positions() * window.taps.len(), |block, group, targets| {
        // SAFETY: each call has its own part of the target.
        unsafe {
            if sum.in_tiles.is_some() {
                return in_tiles::sum_block(sum, weights, layout, &block, group, targets);
            }
            sum_block(sum, weights, layout, &block, group, targets);
        }
    });
}

/// Calls `f` on all threads with each block of positions, each group of channels, and some targets of the group.
/// `products` is the number of products of each source and target of an image.
pub(super) fn for_each_block<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    products: usize,
    f: impl Fn(PlaneBlock, usize, Range<usize>) + Sync,
) {
    let g = sum.g;
    // With few positions, tasks divide the targets, too. They are few, because each packs the positions again.
    let many = sum.targets.channels / (2 * kernels::<T>().panel());
    let wanted = tasks_of(g, products, sum.sources, sum.targets);
    let parts = (wanted / (layout.blocks() * g.group)).min(many.min(2).max(many / 2));
    let targets = EvenSplit::new(sum.targets.channels, parts);
    let parts = targets.parts();
    let tasks = layout.blocks() * g.group * parts;
    ranges(tasks, tasks / MANY, |some| {
        for task in some {
            let (block, rest) = (layout.block(task / (g.group * parts)), task % (g.group * parts));
            f(block, rest / parts, targets.part(rest % parts));
        }
    });
}

/// Packs some channels of a group.
///
/// # Safety
/// `planes` must hold [`PlaneLayout::capacity`] elements.
pub(super) unsafe fn pack_images<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    group: usize,
    channels: Range<usize>,
    planes: &mut [T],
) {
    for (image, i) in block.images.clone().enumerate() {
        let (from, area) = (sum.source(i, group, channels.start), sum.sources.channel);
        let (channels, to) = (channels.len(), planes.as_mut_ptr());
        // SAFETY: the table was chosen for this machine, and the memory is large enough.
        unsafe {
            (isa::kernels::<T>().pack_image)(&PackImage { layout, block, image, from, channels, area, to });
        };
    }
}

/// Copies the elements that the positions of a block read from some channels, to rows that are `apart`.
///
/// # Safety
/// `to` must have space for the rows.
unsafe fn tap_rows<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    group: usize,
    channels: Range<usize>,
    to: *mut T,
    apart: usize,
) {
    let mut rows = List::with_capacity(64);
    layout.each_row(block, |image, row, _, _| rows.push((image, row)));
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
    // SAFETY: the table was chosen for this machine, and the images are valid.
    unsafe { (isa::kernels::<T>().tap_rows)(&order) };
}

/// Sums a block of positions for some rows of output channels.
unsafe fn sum_block<T: Float>(
    sum: &Correlation<'_, T>,
    weights: &Weights<T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    group: usize,
    rows: Range<usize>,
) {
    let ColumnPlan { columns, direct, n, each, stride } = plan_columns(sum, layout, block, rows.len());
    let (w, depth, sources) = (sum.window(), sum.depth(), sum.sources.channels);
    let (taps, width) = (w.taps.len(), block.columns.len());
    let (copied, from_image) = (columns.are_copied(), columns == ColumnOrder::CopiedFromImage);
    let of_copied = if copied { layout.chunk * taps * stride } else { 0 };
    let of_results = if direct { 0 } else { rows.len() * stride };
    let capacity = if from_image { 0 } else { layout.capacity() };
    let starts = layout.row_starts(block);
    scratch::with(capacity + of_results + of_copied + SLACK, |memory: &mut [T]| {
        let (planes, results) = memory.split_at_mut(capacity);
        let (results, together) = results.split_at_mut(of_results);
        let results = Shared::new(results.as_mut_ptr());
        let chunks = sources.div_ceil(layout.chunk).max(1);
        for i in 0..chunks {
            let first = i * layout.chunk;
            let channels = layout.chunk.min(sources - first);
            let b = if layout.in_place {
                sum.source(block.images.start, group, first).wrapping_add(layout.origin(block))
            } else {
                if !from_image {
                    // SAFETY: the planes hold a chunk.
                    unsafe { pack_images(sum, layout, block, group, first..first + channels, planes) };
                }
                planes.as_ptr()
            };
            let weights = weights.p.wrapping_add(weights.group * group + rows.start * depth + first * taps);
            let k = channels * taps;
            let (mut b, mut b_row, mut table) = (b, 0, Table::OfRight(&layout.table));
            if copied {
                let to = together.as_mut_ptr();
                // SAFETY: the rows are within the images or the planes, and the memory holds them and the excess of
                // the copies.
                unsafe {
                    if from_image {
                        tap_rows(sum, layout, block, group, first..first + channels, to, stride);
                    } else {
                        copy_rows(&layout.table[..k], b, &starts, width, to, stride);
                    }
                }
                (b, b_row, table) = (together.as_ptr(), stride, Table::None);
            }
            let multiply = |image: usize, element: usize, at: usize, n: usize, terms: Range<usize>| {
                let (c, c_row) = if direct {
                    let first = sum.target(image, group, rows.start).wrapping_add(element);
                    (first, sum.targets.channel)
                } else {
                    (results.get().wrapping_add(at), stride)
                };
                let product = PanelProduct {
                    kernels: sum.kernels,
                    m: rows.len(),
                    n,
                    k: terms.len(),
                    a: MatrixOperand { p: weights.wrapping_add(terms.start), row: depth as isize, col: 1 },
                    b: Panels { p: b.wrapping_add(at), row: b_row, next: kernels::<T>().panel() },
                    table: table.part(terms),
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
                // SAFETY: the table keeps within the planes; the rest is guaranteed by the caller.
                unsafe { product.run() };
            };
            if columns == ColumnOrder::ByRow {
                layout.each_row(block, |image, row, column, at| {
                    let terms = match sum.descriptor.by_tap_rows {
                        true => {
                            let (rows, each) = (w.tap_rows_of(row), sources * w.columns.len());
                            rows.start * each..rows.end * each
                        }
                        false => 0..k,
                    };
                    multiply(image, w.targets[row] + column, at, n, terms);
                });
            } else {
                let position = block.rows.start * w.inner * w.width + block.columns.start;
                for at in (0..n).step_by(each) {
                    multiply(block.images.start, position + at, at, each.min(n - at), 0..k);
                }
            }
        }
        if !direct {
            let results = results.get().cast_const();
            // SAFETY: these are results of all rows and positions; the target has an element for each.
            unsafe { store_results(sum, layout, block, group, rows.clone(), results, (stride, copied)) };
        }
        if sum.epilogue.tail.rows.is_some() {
            finish_rows(sum, layout, block, group, rows);
        }
    });
}
