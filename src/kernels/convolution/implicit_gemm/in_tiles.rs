//! Implicit GEMM of words of two bfloat16 numbers in tiles of AMX, channels first.
//!
//! A tile of the right matrix is 16 positions of 16 words of channels. In packed planes, these are rows that are a
//! plane apart, so tiles are loaded from there, and a tap only moves the address.

use std::ops::Range;

use crate::array::{DType, OutOfMemory, Workspace};
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::convolution::implicit_gemm::Weights;
use crate::kernels::convolution::implicit_gemm::nchw::pack_images;
use crate::kernels::convolution::implicit_gemm::packed_planes::{PlaneBlock, PlaneLayout, padded_stride};
use crate::kernels::convolution::implicit_gemm::store::store_results;
use crate::kernels::gemm::tiles::{
    COLUMNS, TALLEST, TILE_PAIRS, TILE_ROWS, TileFactors, TileSums, TilesInUse, multiply_pairs,
};
use crate::kernels::scratch::List;
use crate::kernels::sixteen_bits::narrow;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch};

/// True if tiles can multiply words of this many source channels of a group. Words that are read in place must be whole
/// tiles, since the next ones belong to other images.
pub(in super::super) fn fit(layout: &PlaneLayout, channels: usize) -> bool {
    let are_whole = channels.is_multiple_of(layout.chunk) && layout.chunk.is_multiple_of(TILE_PAIRS);
    !layout.in_place || are_whole
}

/// Words between the weights of two targets, so that they do not map to the same sets of the L1 cache.
const GAP: usize = 16;

/// The steps of a chunk of channels, one for each tap and each tile of words.
fn steps(layout: &PlaneLayout, taps: usize) -> usize {
    taps * layout.chunk.div_ceil(TILE_PAIRS)
}

/// Packs the weights for tiles. `channels` is the number of source channels of a group.
///
/// A row has the weights of a target: for each tap, words of the channels of a chunk, and zeros up to whole tiles.
/// After the rows of all targets, and zeros for the largest tile, come the rows of the next chunk.
pub(super) fn pack_weights<T: Float>(
    sum: &Correlation<'_, T>,
    channels: usize,
) -> Result<Weights<T>, OutOfMemory> {
    let (g, taps, layout) = (sum.g, &sum.window().taps, sum.descriptor.layout.as_ref());
    let layout = layout.unwrap_or_else(|| unreachable!("tiles are for channels first"));
    let (targets, tile) = (sum.targets.channels, layout.chunk.next_multiple_of(TILE_PAIRS));
    let of_kernel = g.taps();
    let (source, target) = match sum.forward {
        true => (of_kernel, channels * of_kernel),
        false => (targets * of_kernel, of_kernel),
    };
    let (row, rows) = (steps(layout, taps.len()) * TILE_PAIRS + GAP, targets + TALLEST);
    let chunks = sum.sources.channels.div_ceil(layout.chunk).max(1);
    let memory = Workspace::<T>::new(g.group * chunks * rows * row)?;
    let to = Shared::new(memory.ptr().cast::<u32>());
    let mut rounded = List::<u16>::repeat(0, g.group * targets * channels * of_kernel);
    // SAFETY: the weight has an element in `f32` for each target, channel and tap.
    unsafe { narrow(sum.weight.cast(), rounded.as_mut_ptr().cast(), DType::BF16, rounded.len()) };
    parallel(g.group * chunks * rows, |i| {
        let (group, chunk, at) = (i / rows / chunks, i / rows % chunks, i % rows);
        // SAFETY: each task has its own row, which the memory holds. Any bits are words.
        let to = unsafe {
            let row_of = to.get().add(i * row);
            row_of.write_bytes(0, row);
            std::slice::from_raw_parts_mut(row_of.cast::<u16>(), 2 * row)
        };
        if at >= targets {
            return;
        }
        let from = &rounded[group * targets * channels * of_kernel + at * target..];
        let some = 2 * chunk * layout.chunk..(2 * (chunk + 1) * layout.chunk).min(channels);
        for (i, tap) in taps.iter().enumerate() {
            let of_channels = from[some.start * source + tap..].iter().step_by(source);
            to[2 * i * tile..][..some.len()].iter_mut().zip(of_channels).for_each(|(to, v)| *to = *v);
        }
    });
    Ok(Weights::packed(memory, chunks * rows * row))
}

/// Sums a block of positions for some rows of output channels.
///
/// # Safety
/// The arrays must have the sizes of the geometry, nothing else may use these rows, and the machine must have AMX.
pub(super) unsafe fn sum_block<T: Float>(
    sum: &Correlation<'_, T>,
    weights: &Weights<T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    group: usize,
    rows: Range<usize>,
) {
    let (sources, taps) = (sum.sources.channels, sum.window().taps.len());
    let n = layout.len(block).next_multiple_of(COLUMNS);
    let (stride, height) = (padded_stride(n), rows.len().next_multiple_of(TILE_ROWS));
    let tile = layout.chunk.next_multiple_of(TILE_PAIRS);
    let capacity = if layout.in_place { 0 } else { tile * layout.channel };
    let (row, chunks) = (steps(layout, taps) * TILE_PAIRS + GAP, sources.div_ceil(layout.chunk));
    let words =
        |tap| (0..tile).step_by(TILE_PAIRS).map(move |word| 4 * (tap + (word * layout.channel) as isize));
    let places: List<isize> = layout.table[..taps].iter().flat_map(|tap| words(*tap)).collect();
    scratch::with(capacity + height * stride + COLUMNS, |memory: &mut [T]| {
        let (planes, results) = memory.split_at_mut(capacity);
        let results = results.as_mut_ptr();
        for chunk in 0..chunks {
            let first = chunk * layout.chunk;
            let channels = layout.chunk.min(sources - first);
            let b = if layout.in_place {
                sum.source(block.images.start, group, first).wrapping_add(layout.origin(block))
            } else {
                // Planes of missing channels are zeros, as are their weights.
                planes[channels * layout.channel..].fill(T::ZERO);
                // SAFETY: the planes hold a chunk.
                unsafe { pack_images(sum, layout, block, group, first..first + channels, planes) };
                planes.as_ptr()
            };
            let all = sum.targets.channels + TALLEST;
            let a = weights.p.wrapping_add(weights.group * group + (chunk * all + rows.start) * row);
            // SAFETY: the weights have a row for each of these targets, the planes for each word, and the memory
            // beyond the planes, or beyond an image in place, has the excess of the last tile.
            unsafe {
                let _tiles = TilesInUse::new();
                for j in (0..n).step_by(COLUMNS) {
                    for i in (0..height).step_by(TALLEST) {
                        let factors = TileFactors {
                            a: a.wrapping_add(i * row).cast(),
                            a_row: 4 * row,
                            b: b.wrapping_add(j).cast(),
                            b_row: 4 * layout.channel,
                            steps: &places,
                        };
                        let p = results.wrapping_add(i * stride + j).cast();
                        let sums = TileSums { p, row: 4 * stride, accumulate: chunk > 0 };
                        multiply_pairs(&factors, height - i, sums);
                    }
                }
            }
        }
        let stored = (stride, false);
        // SAFETY: these are results of all rows and positions; the target has an element for each.
        unsafe { store_results(sum, layout, block, group, rows.clone(), results, stored) };
    });
}

/// The sums of a gradient of the weight for some channels and all taps, by whole tiles. A row has the sums of a
/// channel for all maps. Rows of a tap are together.
pub(super) struct TileWeightSums {
    /// The number of taps.
    taps: usize,
    /// The number of channels.
    channels: usize,
    /// The number of maps.
    maps: usize,
    /// Rows of a tap, which are whole tiles.
    height: usize,
    /// Sums of a row, which are whole panels.
    width: usize,
}

impl TileWeightSums {
    /// The sums of as many channels, taps and maps.
    pub(super) fn new(taps: usize, channels: usize, maps: usize) -> Self {
        let (height, width) = (channels.next_multiple_of(TILE_ROWS), maps.next_multiple_of(COLUMNS));
        Self { taps, channels, maps, height, width }
    }

    /// The number of elements of the sums.
    pub(super) fn size(&self) -> usize {
        self.taps * self.height * self.width
    }

    /// The number of elements of planes with the rows of whole tiles.
    pub(super) fn capacity(&self, layout: &PlaneLayout) -> usize {
        if layout.in_place { 0 } else { self.height * layout.channel + COLUMNS }
    }

    /// The number of positions of the longest block, with gaps between rows and up to whole tiles.
    pub(super) fn longest(layout: &PlaneLayout) -> usize {
        layout.len(&layout.block(0)).next_multiple_of(TILE_PAIRS)
    }

    /// Writes the products of a block with `n` positions including gaps, or adds them. `a` are the planes of the
    /// input. `b` are gradients of the output in panels that are `next` apart, zeros at gaps.
    ///
    /// # Safety
    /// The planes must have numbers for whole tiles of channels and positions, the panels for whole tiles of
    /// positions, and `sums` [`TileWeightSums::size`] elements. The machine must have AMX.
    pub(super) unsafe fn add<T: Float>(
        &self,
        layout: &PlaneLayout,
        n: usize,
        a: *const T,
        (b, next): (*const T, usize),
        (sums, accumulate): (*mut T, bool),
    ) {
        let tile = (4 * TILE_PAIRS * COLUMNS) as isize;
        let places: List<isize> = (0..n.div_ceil(TILE_PAIRS) as isize).map(|i| i * tile).collect();
        // SAFETY: guaranteed by the caller.
        unsafe {
            let _tiles = TilesInUse::new();
            for map in (0..self.width).step_by(COLUMNS) {
                for (tap, at) in layout.table[..self.taps].iter().enumerate() {
                    for channel in (0..self.height).step_by(TALLEST) {
                        let a = a.wrapping_offset(*at).wrapping_add(channel * layout.channel);
                        let p = sums.wrapping_add((tap * self.height + channel) * self.width + map);
                        let factors = TileFactors {
                            a: a.cast(),
                            a_row: 4 * layout.channel,
                            b: b.wrapping_add(map / COLUMNS * next).cast(),
                            b_row: 4 * COLUMNS,
                            steps: &places,
                        };
                        let sums = TileSums { p: p.cast(), row: 4 * self.width, accumulate };
                        multiply_pairs(&factors, self.height - channel, sums);
                    }
                }
            }
        }
    }

    /// Copies the sums to rows of channels and taps, with the sums of all maps each.
    pub(super) fn copy<T: Float>(&self, sums: &[T], to: &mut [T]) {
        for (i, to) in to.chunks_exact_mut(self.maps).take(self.channels * self.taps).enumerate() {
            let (channel, tap) = (i / self.taps, i % self.taps);
            let from = (tap * self.height + channel) * self.width;
            to.copy_from_slice(&sums[from..from + self.maps]);
        }
    }
}
