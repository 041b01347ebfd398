//! Chooses the algorithm for each sum of a convolution. All thresholds of the choice are in this file.
//!
//! A constant without another reason was chosen by timing, and no record of the timings exists.

use std::sync::atomic::{AtomicU8, Ordering};

use super::descriptor::{Division, Pass};
use super::geometry::Geometry;
use super::window::Window;
use super::winograd::phases::Phases;
use super::winograd::transforms::{OUT, PRODUCTS};
use crate::kernels::Float;
use crate::kernels::gemm::kernels;
use crate::kernels::threads::num_threads;

/// How convolutions are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The fastest algorithm for the shape.
    Auto,
    /// The products of the definition, without Winograd's algorithm.
    Direct,
    /// Winograd's F(4, 3) wherever it applies: 3 x 3 kernels with stride 1 and
    /// a dilation along the width up to the widths of input and output.
    Winograd,
}

/// The [`Algorithm`] of the process, as a number.
static ALGORITHM: AtomicU8 = AtomicU8::new(Algorithm::Auto as u8);

/// Sets how convolutions are computed, for all threads.
pub fn set_algorithm(algorithm: Algorithm) {
    ALGORITHM.store(algorithm as u8, Ordering::Relaxed);
}

/// How convolutions are computed.
pub fn algorithm() -> Algorithm {
    match ALGORITHM.load(Ordering::Relaxed) {
        1 => Algorithm::Direct,
        2 => Algorithm::Winograd,
        _ => Algorithm::Auto,
    }
}

/// The algorithm of one sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// One product for all images, with a row for each position.
    GemmRows,
    /// Products of matrices without packing, for kernels of one element, and for one channel along one axis.
    Pointwise,
    /// One product for all taps, for kernels as large as their stride.
    StrideEqualsKernel,
    /// One product for all taps, whose results are added to the elements that the taps read.
    ScatteredTaps,
    /// Winograd's F(4, 3).
    Winograd,
    /// Sums over the taps of each channel, channels first.
    DepthwiseNchw,
    /// Sums over the taps of each channel, channels last.
    DepthwiseNhwc,
    /// Products of matrices that are packed block by block.
    ImplicitGemm,
}

/// The fewest channels and maps of a group for which Winograd's algorithm is faster.
pub(super) const WINOGRAD_CHANNELS: usize = 24;
/// The fewest channels and maps of a group for which Winograd's algorithm is faster than products of pairs of bfloat16.
const WINOGRAD_CHANNELS_OF_PAIRS: usize = 32;
/// The fewest channels and maps of a group for which the gradient of the weight by Winograd's algorithm is faster.
pub(super) const WINOGRAD_WEIGHT_CHANNELS: usize = 16;
/// The fewest channels and maps of a group for kernels with dilated columns. Their tiles see more padding. With
/// fewer channels, rounding errors would exceed twice the errors of direct sums.
const WINOGRAD_CHANNELS_OF_PHASES: usize = 32;
/// The fewest tiles of all images that pay for the transform of the weights.
const WINOGRAD_TILES: usize = 4;
/// The cost of a product of a tile, in tenths of the cost of a product of a tap.
const OF_PRODUCT: usize = 13;
/// The cost of the transforms for a product of a tile, in the same unit. Channels share it.
const OF_TRANSFORM: usize = 320;
/// The cost of the transform of the weights, in products of a tap at one position.
const OF_WEIGHTS: usize = 400;
/// The least share of outputs in all tiles of kernels with dilated rows, as a fraction.
const LEAST_SHARE: (usize, usize) = (2, 3);
/// The most tiles of all images for which transformed weights are cached. They are four times as large as the weights.
const CACHED_TILES: usize = 12;
/// The most tiles of all images that are put into one block, so that threads divide the targets instead of the tiles.
const FEW_TILES: usize = 12;
/// The most elements in the partial sums of a gradient of the weight.
const WINOGRAD_PARTIAL: usize = 2 << 20;
/// The most partial sums in a gradient of the weight. Sums of many tiles round less in more parts.
const WINOGRAD_PARTS: usize = 32;
/// The fewest partial sums that give all threads work.
const WINOGRAD_LEAST_PARTS: usize = 4;
/// The fewest outputs of all images for a gradient of the weight. For fewer, direct sums have less than half the
/// rounding error.
const WINOGRAD_OUTPUTS: usize = 1024;

/// The most positions of all images for one product, for a weight of at least [`LARGE_WEIGHT`] elements.
const ROWS: usize = 256;
/// The most positions of all images for one product, for a smaller weight.
const ROWS_OF_SMALL_WEIGHT: usize = 64;
/// The most positions of an image for which kernels of one element go into one product for all images.
const FEW_POSITIONS: usize = 9;
/// The most positions as in [`FEW_POSITIONS`] for a weight of at least [`UNCACHED_WEIGHT`]. Packed, it is read from
/// memory in one stream.
const FEW_POSITIONS_OF_UNCACHED: usize = 16;
/// Elements of a weight that is rarely in the second-level cache.
const UNCACHED_WEIGHT: usize = 1 << 17;
/// The cost of transposing an element, where a register of products costs 1.
const MOVE: usize = 16;
/// The cost of packing a register of weights, where a register of products costs 1.
const PACKED_WEIGHT: usize = 4;
/// The most positions of an image that do not fill a tile of Winograd's algorithm.
const FEW_POSITIONS_OF_TILE: usize = 4;
/// The fewest elements of a weight for which one product for all images is faster.
const LEAST_WEIGHT: usize = 1 << 12;
/// The fewest elements of a large weight, see [`ROWS`].
const LARGE_WEIGHT: usize = 1 << 15;
/// The fewest elements of a weight if each of several images is one pixel, which needs no copies.
const LEAST_WEIGHT_OF_PIXELS: usize = 1 << 8;

/// The cost of adding the result of a tap to an element, in terms of a product.
const ADDITION: usize = 24;
/// Results of taps are added if they cost less than this share of sums for each element of the input.
const SCATTERED: (usize, usize) = (5, 6);

/// The columns of a narrow tile of a product.
const LANES: usize = 16;
/// The rows of a tile of a product.
const HEIGHT: usize = 12;
/// The cost of storing a row of results, where a term of a wide tile costs 3.
const STORES: usize = 36;
/// Regions are used if they cost less than this share.
const FASTER: (usize, usize) = (9, 10);
/// The cost of packing a weight, where a term of a wide tile costs 3.
const PACKING: usize = 2;
/// The fewest taps in a row for products with a row for each position. Each row of taps costs a step of its own.
const LEAST_ROW_OF_TAPS: usize = 3;
/// The most taps in a row for such products.
const MOST_ROW_OF_TAPS: usize = 32;
/// The most positions for such products. Their results stay in the cache until they are transposed.
const MOST_POSITION_ROWS: usize = 1024;
/// The cost of a term of a wide tile.
const WIDE: usize = 3;
/// The cost of a term of a narrow tile of such products, in tenths.
const NARROW_OF_POSITIONS: usize = 16;
/// The cost of transposing a register of results, where a term of a wide tile costs 3.
const TRANSPOSED: usize = 12;
/// The longest rows that are divided into regions.
const WIDEST_REGION: usize = 1024;

/// The fewest output channels of a line, see [`is_line`], for which products of matrices are faster.
const LINE_MAPS: usize = 4;

/// The fewest positions in a row that fill registers of one plane well enough.
const WIDE_ROW: usize = 9;

/// Returns the algorithm for a sum. Without `values_fit`, it is the one for values that Winograd's algorithm rounds too
/// much.
pub(super) fn select<T: Float>(g: &Geometry, of: Pass, has_bias: bool, values_fit: bool) -> Method {
    let is_forward = of == Pass::Output;
    let channels = if of == Pass::WeightGradient { WINOGRAD_WEIGHT_CHANNELS } else { WINOGRAD_CHANNELS };
    let by_winograd = takes_winograd::<T>(g, channels);
    if of != Pass::InputGradient && is_line(g) {
        return Method::Pointwise;
    }
    if is_forward && takes_gemm_rows(g, by_winograd) {
        return Method::GemmRows;
    }
    // The gradient by a strided input leaves elements out, to which a bias would have to be added.
    let strided = g.stride.iter().any(|s| *s > 1);
    if is_pointwise(g, strided) && !(of == Pass::InputGradient && has_bias && strided) {
        return Method::Pointwise;
    }
    if of == Pass::InputGradient && has_stride_of_kernel(g) {
        return Method::StrideEqualsKernel;
    }
    if of == Pass::InputGradient && !by_winograd && takes_scattered_taps(g) {
        return Method::ScatteredTaps;
    }
    let has_parts = || of != Pass::WeightGradient || winograd_parts(g).is_some();
    if by_winograd && values_fit && has_parts() {
        return Method::Winograd;
    }
    if g.is_depthwise() && !g.channel_last && g.input.len() <= 2 {
        return Method::DepthwiseNchw;
    }
    if g.is_pixelwise() { Method::DepthwiseNhwc } else { Method::ImplicitGemm }
}

/// True if implicit GEMM of words computes a sum of values in bfloat16. A word holds two channels, or two images for
/// the gradient of the weight. Winograd's algorithm, in `f32`, is slower for few channels, for gradients of the weight,
/// and than tiles of AMX.
pub(super) fn takes_pairs<T: Float>(g: &Geometry, of: Pass, has_bias: bool, by_tiles: bool) -> bool {
    let summed = match of {
        Pass::Output => g.channels / g.group,
        Pass::InputGradient => g.maps / g.group,
        Pass::WeightGradient => g.images,
    };
    let is_narrow = g.channels.min(g.maps) / g.group < WINOGRAD_CHANNELS_OF_PAIRS;
    let fits = match select::<T>(g, of, has_bias, true) {
        Method::ImplicitGemm | Method::ScatteredTaps => true,
        Method::Winograd => {
            (by_tiles || of == Pass::WeightGradient || is_narrow) && algorithm() == Algorithm::Auto
        }
        _ => false,
    };
    fits && summed >= 2 && !g.channel_last
}

/// The tiles of all images.
fn tiles(g: &Geometry) -> usize {
    let phases = Phases::new((g.output[0], g.output[1]), (g.dilation[0], g.dilation[1]));
    phases.planes(g.images) * phases.size(0).0.div_ceil(OUT) * phases.row().tiles()
}

/// True if the tiles are not much larger than the outputs, which dilation divides into phases.
fn fill_tiles(g: &Geometry) -> bool {
    if g.dilation[1] > 1 {
        return costs_less_than_regions(g);
    }
    all(&g.dilation, 1) || LEAST_SHARE.0 * OUT * OUT * tiles(g) <= LEAST_SHARE.1 * g.images * g.positions()
}

/// True if the products of all tiles cost less than the products of the taps that read the input, computed
/// [region by region](pays_by_regions). Few channels pay less for the transforms.
fn costs_less_than_regions(g: &Geometry) -> bool {
    let reads = |i: usize, t: usize| {
        let clip = |at: isize| at.clamp(0, g.output[i] as isize);
        let first = g.pad[i] as isize - (t * g.dilation[i]) as isize;
        (clip(first + g.input[i] as isize) - clip(first)) as usize
    };
    let along = |i: usize| (0..g.kernel[i]).map(|t| reads(i, t)).sum::<usize>();
    let channels = g.channels.min(g.maps) / g.group;
    let of_tiles = PRODUCTS * tiles(g) * (OF_PRODUCT * channels + OF_TRANSFORM) / (10 * channels);
    of_tiles + OF_WEIGHTS < g.images * along(0) * along(1)
}

/// True if all numbers are `n`.
fn all(numbers: &[usize], n: usize) -> bool {
    numbers.iter().all(|v| *v == n)
}

/// True if Winograd's algorithm computes this convolution.
fn fits_winograd(g: &Geometry) -> bool {
    g.input.len() == 2
        && all(&g.kernel, 3)
        && all(&g.stride, 1)
        && g.dilation[1] <= g.input[1].min(g.output[1])
        && !g.channel_last
        && g.images * g.channels * g.maps * g.area() * g.positions() > 0
}

/// True if Winograd's algorithm is used for groups of at least `least` channels and maps. In double precision, where
/// exactness matters more, it is used only on request.
pub(super) fn takes_winograd<T: Float>(g: &Geometry, least: usize) -> bool {
    let pays = || {
        let least = if g.dilation[1] > 1 { least.max(WINOGRAD_CHANNELS_OF_PHASES) } else { least };
        let enough = |channels: usize| channels / g.group >= least;
        size_of::<T>() == size_of::<f32>()
            && enough(g.channels)
            && enough(g.maps)
            && tiles(g) >= WINOGRAD_TILES
            && fill_tiles(g)
    };
    fits_winograd(g)
        && match algorithm() {
            Algorithm::Auto => pays(),
            Algorithm::Direct => false,
            Algorithm::Winograd => true,
        }
}

/// True if the transformed weight is worth caching: for few tiles the transform takes much of a run. So does the
/// packing for regions.
pub fn caches_weight<T: Float>(g: &Geometry) -> bool {
    if takes_winograd::<T>(g, WINOGRAD_CHANNELS) {
        return tiles(g) <= CACHED_TILES;
    }
    !all(&g.dilation, 1)
        && select::<T>(g, Pass::Output, false, true) == Method::ImplicitGemm
        && g.descriptors(Pass::Output).division == Division::Regions
}

/// True if all tiles form one block, and threads divide the panels of targets.
pub(super) fn has_few_tiles(tiles: usize, targets: usize, panels: usize) -> bool {
    tiles <= FEW_TILES || 2 * tiles <= targets && panels >= num_threads()
}

/// The number of partial sums over images in the gradient of the weight with Winograd's algorithm. `None` if they take
/// too much memory.
pub(super) fn winograd_parts(g: &Geometry) -> Option<usize> {
    let sums = PRODUCTS * g.channels * g.maps / g.group;
    let parts = (WINOGRAD_PARTIAL / sums).min(WINOGRAD_PARTS);
    let enough = g.images * g.positions() >= WINOGRAD_OUTPUTS || algorithm() == Algorithm::Winograd;
    (parts >= WINOGRAD_LEAST_PARTS && enough).then_some(parts)
}

/// True for kernels of one element if rows of positions are faster than columns of positions, whose last tile is
/// partly empty. Columns of output channels fill tiles, but results are transposed. So are the inputs of several
/// images. The weight is packed unless its packed form is cached.
///
/// Costs are in columns of a tile: a column multiplies all channels of one position by all weights.
pub(super) fn pays_in_rows(g: &Geometry) -> bool {
    let (positions, rows) = (g.positions(), g.images * g.positions());
    if g.group > 1 || g.channel_last || rows == 0 || !is_pointwise(g, false) {
        return false;
    }
    let of_columns = columns_cost(positions) * 2 * LANES / 3;
    let moved = positions * MOVE / g.maps.max(1) + positions * MOVE / g.channels.max(1);
    of_columns > positions + moved + PACKED_WEIGHT * positions / rows
}

/// True if one product for all images is faster.
fn takes_gemm_rows(g: &Geometry, by_winograd: bool) -> bool {
    let (positions, rows, weight) = (g.positions(), g.images * g.positions(), g.maps * g.channels * g.taps());
    let least = if g.is_one_pixel() && g.images > 1 { LEAST_WEIGHT_OF_PIXELS } else { LEAST_WEIGHT };
    let few = if weight >= UNCACHED_WEIGHT { FEW_POSITIONS_OF_UNCACHED } else { FEW_POSITIONS };
    let most = if weight >= LARGE_WEIGHT { ROWS } else { ROWS_OF_SMALL_WEIGHT };
    (g.taps() > 1 || positions <= few || pays_in_rows(g))
        && (!by_winograd || positions <= FEW_POSITIONS_OF_TILE)
        && (1..=most).contains(&rows)
        && weight >= least
        && g.group == 1
        && !g.channel_last
        && algorithm() == Algorithm::Auto
}

/// The cost of `n` columns of a product: 3 for a wide tile and 2 for a narrow one, which has half the columns.
fn columns_cost(n: usize) -> usize {
    n / (2 * LANES) * 3 + [0, 2, 3][(n % (2 * LANES)).div_ceil(LANES)]
}

/// True if the sums of a window are computed faster region by region, for this many sources and targets of a group.
pub(super) fn pays_by_regions(
    window: &Window,
    regions: &[Window],
    (sources, targets): (usize, usize),
    images: usize,
) -> bool {
    let heights = targets.div_ceil(HEIGHT).max(1);
    // The copies of the elements that a row of positions reads, where a term of a wide tile costs 3.
    let copies = |w: &Window| w.taps.len() * sources * w.width.div_ceil(LANES) / heights;
    let of_region = |w: &Window| {
        let (rows, together) = (images * w.targets.len(), w.rows_together());
        let columns =
            rows / together * columns_cost(together * w.width) + columns_cost(rows % together * w.width);
        columns * w.taps.len() * sources + rows * (STORES + copies(w))
    };
    let rows = images * window.targets.len();
    let halo = window.columns.iter().map(|c| c.offset).max().unwrap_or(0)
        - window.columns.iter().map(|c| c.offset).min().unwrap_or(0);
    let gaps = columns_cost(rows * (window.width + halo as usize));
    let columns = (rows * columns_cost(window.width)).min(gaps);
    let whole = if window.width <= LANES {
        columns.min(
            columns_cost(rows * window.width)
                + rows * copies(window) / sources.max(1) / window.taps.len().max(1),
        )
    } else {
        columns
    };
    let by_regions: usize = regions.iter().map(of_region).sum();
    let by_regions = by_regions + PACKING * window.taps.len() * sources;
    window.width <= WIDEST_REGION && by_regions * FASTER.1 < whole * window.taps.len() * sources * FASTER.0
}

/// True if a product with a row for each position computes the outputs of a window faster. `sources` and `targets` are
/// the channels of a group. The other products have a column for each position, and leave part of the last tile empty.
/// This one has to transpose its results.
pub(super) fn pays_by_position_rows(window: &Window, (sources, targets): (usize, usize)) -> bool {
    let [rows, columns] = &window.axes[..] else { return false };
    let is_adjacent = |pair: &[isize]| pair[0] + 1 == pair[1];
    let fits = window.whole
        && (LEAST_ROW_OF_TAPS..=MOST_ROW_OF_TAPS).contains(&columns.offsets.len())
        && columns.offsets.windows(2).all(is_adjacent)
        && rows.offsets.windows(2).all(is_adjacent)
        && window.positions() <= MOST_POSITION_ROWS
        && sources * targets > 0;
    if !fits {
        return false;
    }
    let (positions, depth) = (window.positions(), sources * window.taps.len());
    // Tiles have all rows, so a narrow one takes little more than half the time of a wide one.
    let narrow = [0, NARROW_OF_POSITIONS, 10 * WIDE][(targets % (2 * LANES)).div_ceil(LANES)];
    let of_position = targets / (2 * LANES) * 10 * WIDE + narrow;
    let moved = positions * TRANSPOSED / depth;
    let of_rows = positions * of_position / 10 + targets.div_ceil(LANES) * moved;
    // The columns of the other products, for each output channel.
    let (n_rows, heights) = (rows.positions, targets.div_ceil(HEIGHT));
    let halo = (columns.offsets.len() - 1).div_ceil(columns.step);
    let with_gaps = columns_cost(n_rows * (window.width + halo)) + n_rows * STORES / depth;
    let copied = columns_cost(positions) + n_rows * window.width.div_ceil(LANES) / heights;
    let of_columns = (n_rows * columns_cost(window.width)).min(with_gaps).min(copied);
    of_rows * FASTER.1 < of_columns * targets * FASTER.0
}

/// True for one channel along the last axis, whose patches are a strided view of the input.
fn is_line(g: &Geometry) -> bool {
    let Some(last) = g.input.len().checked_sub(1) else { return false };
    let is_one = |i: usize| g.input[i] == 1 && g.kernel[i] == 1 && g.output[i] == 1 && g.pad[i] == 0;
    let has_sums = g.taps() > 1 && g.positions() > 0;
    g.channels == 1 && g.maps >= LINE_MAPS && has_sums && (0..last).all(is_one) && !g.channel_last
}

/// True if kernels have one element and there is no padding.
fn is_pointwise(g: &Geometry, strided: bool) -> bool {
    let fits = g.taps() == 1 && g.pad.iter().all(|p| *p == 0) && !g.is_depthwise();
    fits && !(strided && g.channel_last)
}

/// True if it is faster to add the result of each tap at each position to an element of the input. Sums for each
/// element also multiply the zeros around the positions.
fn takes_scattered_taps(g: &Geometry) -> bool {
    let strides: usize = g.stride.iter().product();
    let (maps, results) = (g.maps / g.group, g.positions() * strides);
    g.taps() > 1
        && g.channels / g.group > 1
        && !g.channel_last
        && g.positions() > 0
        && g.area() * maps * SCATTERED.0 >= results * (maps + ADDITION) * SCATTERED.1
        && algorithm() != Algorithm::Winograd
}

/// True if each element of the input is seen by one position through one tap.
fn has_stride_of_kernel(g: &Geometry) -> bool {
    let fits = |i: usize| {
        g.kernel[i] == g.stride[i]
            && g.pad[i] == 0
            && g.dilation[i] == 1
            && g.input[i] == g.output[i] * g.stride[i]
    };
    let is_one = !g.channel_last && !g.is_depthwise() && g.taps() > 1 && (0..g.input.len()).all(fits);
    is_one && g.positions() > 0
}

/// True if rows of this length do not fill registers of one plane.
pub(super) fn is_narrow(positions: usize) -> bool {
    positions < WIDE_ROW
}

/// True if registers that hold one position of each channel are filled better than registers that hold one row.
pub(super) fn fills_lanes<T: Float>(g: &Geometry, window: &Window) -> bool {
    let lanes = kernels::<T>().panel() / 2;
    g.maps == g.group && 2 * window.width <= lanes && 2 * g.group > lanes
}
