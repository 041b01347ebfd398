//! Implicit GEMM, channels first, for kernels of which many taps read padding: each region of positions, whose taps all
//! read the source, is a product of its own.

use std::ops::Range;

use super::Weights;
use super::blocking::TASKS;
use super::packed_planes::{SLACK, padded_stride};
use super::tap_rows::TapRows;
use crate::array::{OutOfMemory, Workspace};
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::descriptor::Descriptor;
use crate::kernels::convolution::isa;
use crate::kernels::convolution::window::Window;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{Shared, parallel};

/// The wanted number of columns of a product.
const COLUMNS: usize = 256;
/// The number of elements of a right matrix, a part of a small second-level cache.
const BLOCK: usize = 48 << 10;

impl Window {
    /// The number of rows that form the columns of one product.
    pub(in super::super) fn rows_together(&self) -> usize {
        (COLUMNS / self.width.max(1)).max(1)
    }
}

/// Rows of positions of one region, of all images.
struct RegionBlock<'a> {
    /// The region.
    window: &'a Window,
    /// The rows: those of the first image, of the second and so on.
    rows: Range<usize>,
}

impl RegionBlock<'_> {
    /// The multiplications for one channel and target.
    fn cost(&self) -> usize {
        self.rows.len() * self.window.width * self.window.taps.len()
    }
}

/// Computes the sums of the regions of a window.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
pub(in super::super) unsafe fn run<T: Float>(
    sum: &Correlation<'_, T>,
    regions: &[Descriptor],
) -> Result<(), OutOfMemory> {
    let g = sum.g;
    let (sources, targets) = (sum.sources.channels, sum.targets.channels);
    if targets == 0 || g.images == 0 {
        return Ok(());
    }
    let weights = &pack_taps(sum)?;
    let mut blocks = List::with_capacity(2 * regions.len());
    for window in regions.iter().map(|region| &region.window).filter(|window| window.positions() > 0) {
        let rows = g.images * window.targets.len();
        let split = EvenSplit::new(rows, rows.div_ceil(window.rows_together()));
        for rows in (0..split.parts()).map(|i| split.part(i)) {
            blocks.push(RegionBlock { window, rows });
        }
    }
    // Long tasks first, so that threads finish together.
    blocks.sort_unstable_by_key(|block| std::cmp::Reverse(block.cost()));
    let (blocks, panel) = (&*blocks, kernels::<T>().panel());
    let parts = (TASKS / (blocks.len() * g.group).max(1)).min(targets / (2 * panel));
    let split = EvenSplit::new(targets, parts);
    let of_block = g.group * split.parts();
    parallel(blocks.len() * of_block, |task| {
        let (group, part) = (task % of_block / split.parts(), task % split.parts());
        // SAFETY: each task has its own part of the target.
        unsafe { sum_region(sum, weights, &blocks[task / of_block], group, split.part(part), sources) };
    });
    Ok(())
}

/// Packs the weights tap by tap: a matrix of targets by sources for each kernel element. Its rows are [`padded_stride`]
/// apart.
fn pack_taps<T: Float>(sum: &Correlation<'_, T>) -> Result<Weights<T>, OutOfMemory> {
    let g = sum.g;
    let (map, channel, tap) = g.weight_strides();
    let (target, source) = if sum.forward { (map, channel) } else { (channel, map) };
    let (targets, sources, taps) = (sum.targets.channels, sum.sources.channels, g.taps());
    let row = padded_stride(sources);
    let group = targets * row * taps;
    let memory = Workspace::<T>::new(group * g.group + SLACK)?;
    let (to, from) = (Shared::new(memory.ptr()), Shared::read_only(sum.weight));
    parallel(g.group * targets, |i| {
        let from = from
            .get()
            .cast_const()
            .wrapping_add(i / targets * (g.maps / g.group) * map + i % targets * target);
        let to = to.get().wrapping_add(i / targets * group + i % targets * row);
        vectorised(
            #[inline(always)]
            || {
                for (t, s) in (0..taps).flat_map(|t| (0..sources).map(move |s| (t, s))) {
                    // SAFETY: the weights are valid, and the memory holds all of them.
                    unsafe { *to.add(t * targets * row + s) = *from.add(s * source + t * tap) };
                }
            },
        );
    });
    Ok(Weights::packed(memory, group))
}

/// Sums a block of a region for some rows of output channels.
unsafe fn sum_region<T: Float>(
    sum: &Correlation<'_, T>,
    weights: &Weights<T>,
    block: &RegionBlock<'_>,
    group: usize,
    targets: Range<usize>,
    sources: usize,
) {
    let (w, heights) = (block.window, block.window.targets.len());
    let (taps, n) = (w.taps.len(), block.rows.len() * w.width);
    let (stride, weights_row) = (padded_stride(n), padded_stride(sources));
    let each = (BLOCK / (taps.max(1) * stride)).clamp(1, sources);
    let chunks = EvenSplit::new(sources, sources.div_ceil(each));
    let of_copies = chunks.part(0).len() * taps * stride;
    let mut rows = List::with_capacity(64);
    let mut batch = List::with_capacity(16);
    block.rows.clone().for_each(|row| rows.push((row / heights, row % heights)));
    for (i, tap) in w.taps.iter().enumerate() {
        batch.push(((tap * sum.targets.channels * weights_row) as isize, (i * stride) as isize));
    }
    scratch::with(targets.len() * stride + of_copies + SLACK, |memory: &mut [T]| {
        let (results, copies) = memory.split_at_mut(targets.len() * stride);
        if taps == 0 {
            results.fill(T::ZERO);
        }
        for i in 0..if taps > 0 { chunks.parts() } else { 0 } {
            let channels = chunks.part(i);
            let order = TapRows {
                window: w,
                rows: &rows,
                from: sum.source(0, group, channels.start),
                area: sum.sources.channel,
                image: sum.sources.image,
                channels: channels.len(),
                to: copies.as_mut_ptr(),
                apart: stride,
            };
            let first = group * weights.group + targets.start * weights_row + channels.start;
            // SAFETY: the table was chosen for this machine, all taps read the images, and the memory holds the copies
            // and the results.
            unsafe {
                (isa::kernels::<T>().tap_rows)(&order);
                PanelProduct {
                    kernels: kernels(),
                    m: targets.len(),
                    n,
                    k: channels.len(),
                    a: MatrixOperand { p: weights.p.add(first), row: weights_row as isize, col: 1 },
                    b: Panels { p: copies.as_ptr(), row: taps * stride, next: kernels::<T>().panel() },
                    table: Table::None,
                    batch: &batch,
                    c: results.as_mut_ptr(),
                    c_row: stride,
                    epilogue: Epilogue::plain(i > 0),
                }
                .run();
            }
        }
        for (at, (image, row)) in rows.iter().enumerate() {
            for (i, target) in targets.clone().enumerate() {
                let from = &results[i * stride + at * w.width..][..w.width];
                let to = sum.target(*image, group, target).wrapping_add(w.targets[*row]);
                // SAFETY: these elements of the target belong to this task alone.
                unsafe { sum.end(group, target).store_strided(from, to, 1) };
            }
            if sum.epilogue.tail.rows.is_some() {
                let to = sum.target(*image, group, targets.start).wrapping_add(w.targets[*row]);
                // SAFETY: as above.
                unsafe { sum.epilogue.tail.finish(to, sum.targets.channel, targets.len(), w.width) };
            }
        }
    });
}
