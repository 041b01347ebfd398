//! Implicit GEMM, channels first, for kernels with many taps that read padding. Positions are divided into regions. All
//! taps of a region read the source, so each region is a product of its own.

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
use crate::kernels::convolution::weight::WeightCache;
use crate::kernels::convolution::window::Window;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{EvenSplit, MatrixOperand, PanelProduct, Panels, Table, kernels};
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{Shared, parallel};

/// The wanted number of columns of a product.
const COLUMNS: usize = 256;
/// The number of sources whose weights are contiguous: a cache line in single precision.
const TOGETHER: usize = 16;
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
    /// The rows, image by image.
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
    known: WeightCache<'_>,
) -> Result<(), OutOfMemory> {
    let g = sum.g;
    let targets = sum.targets.channels;
    if targets == 0 || g.images == 0 {
        return Ok(());
    }
    let weights = &pack_taps(sum, known)?;
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
        unsafe { sum_region(sum, weights, &blocks[task / of_block], group, split.part(part)) };
    });
    Ok(())
}

/// Packs the weights, or returns packed ones from the cache. Sources are divided into parts of [`TOGETHER`]. Each part
/// and kernel element has a matrix of targets by sources.
fn pack_taps<T: Float>(sum: &Correlation<'_, T>, known: WeightCache<'_>) -> Result<Weights<T>, OutOfMemory> {
    let g = sum.g;
    let (map, channel, tap) = g.weight_strides();
    let (target, source) = if sum.forward { (map, channel) } else { (channel, map) };
    let (targets, sources, taps) = (sum.targets.channels, sum.sources.channels, g.taps());
    let group = targets * sources.next_multiple_of(TOGETHER) * taps;
    let n = group * g.group + SLACK;
    // Winograd's algorithm caches weights in another way.
    let way = [size_of::<T>(), g.channels, usize::MAX - g.group];
    let (memory, kept) = match known.and_then(|(of, kept)| Some((kept.lend::<T>(of, way, n)?, kept))) {
        Some(((memory, true), _)) => return Ok(Weights::packed(memory, group)),
        Some(((memory, false), kept)) => (memory, Some(kept)),
        None => (Workspace::<T>::new(n)?, None),
    };
    let (to, from) = (Shared::new(memory.ptr()), Shared::read_only(sum.weight));
    parallel(g.group * targets, |i| {
        let (of, i) = (i / targets, i % targets);
        let from = from.get().cast_const().wrapping_add(of * (g.maps / g.group) * map + i * target);
        let to = to.get().wrapping_add(of * group + i * TOGETHER);
        vectorised(
            #[inline(always)]
            || {
                for first in (0..sources).step_by(TOGETHER) {
                    for t in 0..taps {
                        let to = to.wrapping_add((first * taps + t * TOGETHER) * targets);
                        let from = from.wrapping_add(first * source + t * tap);
                        for s in 0..TOGETHER.min(sources - first) {
                            // SAFETY: the weights are valid, and the memory holds all of them.
                            unsafe { *to.add(s) = *from.add(s * source) };
                        }
                    }
                }
            },
        );
    });
    if let Some(kept) = kept {
        kept.made();
    }
    Ok(Weights::packed(memory, group))
}

/// Sums a block of a region for some rows of output channels.
unsafe fn sum_region<T: Float>(
    sum: &Correlation<'_, T>,
    weights: &Weights<T>,
    block: &RegionBlock<'_>,
    group: usize,
    targets: Range<usize>,
) {
    let (w, heights) = (block.window, block.window.targets.len());
    let (taps, n) = (w.taps.len(), block.rows.len() * w.width);
    let (stride, sources) = (padded_stride(n), sum.sources.channels);
    // Parts of the sources are multiplied in one product if all have the same size.
    let parts = (BLOCK / (TOGETHER * taps.max(1) * stride)).clamp(1, (sources / TOGETHER).max(1));
    let of_copies = (parts * TOGETHER).min(sources) * taps * stride;
    let mut rows = List::with_capacity(64);
    let mut batch = List::with_capacity(16);
    block.rows.clone().for_each(|row| rows.push((row / heights, row % heights)));
    let of_part = TOGETHER * sum.targets.channels;
    for part in 0..parts {
        for (i, tap) in w.taps.iter().enumerate() {
            let (a, b) = ((part * sum.g.taps() + tap) * of_part, (part * TOGETHER * taps + i) * stride);
            batch.push((a as isize, b as isize));
        }
    }
    scratch::with(targets.len() * stride + of_copies + SLACK, |memory: &mut [T]| {
        let (results, copies) = memory.split_at_mut(targets.len() * stride);
        if taps == 0 {
            results.fill(T::ZERO);
        }
        let mut start = 0;
        while taps > 0 && start < sources {
            // The last part may be short.
            let parts = parts.min((sources - start) / TOGETHER).max(1);
            let channels = start..sources.min(start + parts * TOGETHER);
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
            let first = group * weights.group
                + start * sum.g.taps() * sum.targets.channels
                + targets.start * TOGETHER;
            // SAFETY: the table was chosen for this machine, all taps read the images, and the memory holds the copies
            // and the results.
            unsafe {
                (isa::kernels::<T>().tap_rows)(&order);
                PanelProduct {
                    kernels: kernels(),
                    m: targets.len(),
                    n,
                    k: channels.len() / parts,
                    a: MatrixOperand { p: weights.p.add(first), row: TOGETHER as isize, col: 1 },
                    b: Panels { p: copies.as_ptr(), row: taps * stride, next: kernels::<T>().panel() },
                    table: Table::None,
                    batch: &batch[..parts * taps],
                    c: results.as_mut_ptr(),
                    c_row: stride,
                    epilogue: Epilogue::plain(start > 0),
                }
                .run();
            }
            start = channels.end;
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
