//! Implicit GEMM, channels last: a product of the patches of a block of positions and the weights.

use std::ops::Range;

use super::Weights;
use super::im2row::Im2Row;
use super::packed_planes::{SLACK, padded_stride};
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::isa;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use crate::kernels::threads::parallel;
use crate::kernels::{Float, scratch};

/// The wanted number of elements in the patches of a block, half of a small second-level cache.
const BLOCK: usize = 48 << 10;
/// The smallest number of positions in a block, unless an image has fewer.
const LEAST: usize = 64;
/// The largest number of positions in a block.
const MOST: usize = 512;

/// Computes the sums. The left matrix has a row for each position.
pub(super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>, weights: &Weights<T>) {
    let (g, w, depth) = (sum.g, sum.window(), sum.depth());
    let n = (BLOCK / depth.max(1)).clamp(LEAST, MOST).min(w.positions());
    let blocks = EvenSplit::new(w.positions(), w.positions().div_ceil(n));
    parallel(g.images * g.group * blocks.parts(), |task| {
        let (image, rest) = (task / (g.group * blocks.parts()), task % (g.group * blocks.parts()));
        let (group, positions) = (rest / blocks.parts(), blocks.part(rest % blocks.parts()));
        // SAFETY: each task has its own part of the target.
        unsafe { block(sum, weights, image, group, positions) };
    });
}

/// Sums a range of positions of an image for all output channels of a group.
unsafe fn block<T: Float>(
    sum: &Correlation<'_, T>,
    weights: &Weights<T>,
    image: usize,
    group: usize,
    positions: Range<usize>,
) {
    let (window, depth, targets) = (sum.window(), sum.depth(), sum.targets.channels);
    let (n, row, wide, direct) =
        (positions.len(), padded_stride(depth), kernels::<T>().panel(), window.whole);
    let results = if direct { 0 } else { n * targets };
    scratch::with(n * row + SLACK + results, |memory: &mut [T]| {
        let (matrix, results) = memory.split_at_mut(n * row + SLACK);
        let (c, c_row) = if direct {
            let first = positions.start * sum.targets.pixel;
            (sum.target(image, group, 0).wrapping_add(first), sum.targets.pixel)
        } else {
            (results.as_mut_ptr(), targets)
        };
        // SAFETY: the memory holds the matrix and the results; the rest is guaranteed by the caller.
        unsafe {
            (isa::kernels::<T>().im2row)(&Im2Row {
                window,
                from: sum.source(image, group, 0),
                channels: sum.sources.channels,
                pixel: sum.sources.pixel,
                positions: positions.clone(),
                to: matrix.as_mut_ptr(),
                apart: row,
            });
            PanelProduct {
                kernels: sum.kernels,
                m: n,
                n: targets,
                k: depth,
                a: MatrixOperand { p: matrix.as_ptr(), row: row as isize, col: 1 },
                b: Panels { p: weights.p.wrapping_add(weights.group * group), row: wide, next: wide * depth },
                table: Table::None,
                batch: ONCE,
                c,
                c_row,
                epilogue: Epilogue {
                    accumulate: direct && sum.epilogue.accumulate,
                    row_bias: None,
                    column_bias: sum.bias(group, 0),
                    tail: sum.epilogue.tail.in_registers(direct),
                },
            }
            .run();
        }
        if direct {
            // SAFETY: these pixels were just written, and belong to this task alone.
            return unsafe { sum.epilogue.tail.finish(c, c_row, n, targets) };
        }
        let end = Epilogue { row_bias: None, ..sum.end(group, 0) }; // the product has added it
        for (i, o) in positions.enumerate() {
            let target = window.targets[o / window.width] + o % window.width * window.apart;
            let to = sum.target(image, group, 0).wrapping_add(target * sum.targets.pixel);
            // SAFETY: the target has these channels at each position.
            unsafe { end.store_strided(&results[i * targets..][..targets], to, 1) };
        }
    });
}
