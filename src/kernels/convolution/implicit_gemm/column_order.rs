//! Chooses which positions of a block become the columns of a product, by estimated cost.

use super::packed_planes::{PlaneBlock, PlaneLayout, SLACK, padded_stride};
use super::tap_rows::TapRows;
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::gemm::kernels;

/// The cost of storing a row of results again, where a step of a wide tile costs 3.
const MOVING: usize = 36;
/// Elements of a right matrix that fit the first-level cache beside the left one.
const NEAR: usize = 1 << 12;

/// The order of positions as columns of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnOrder {
    /// One product for each row.
    ByRow,
    /// All elements of the packed planes, including those between rows, whose results are discarded.
    WithGaps,
    /// Rows without gaps, copied from the packed planes.
    CopiedFromPlanes,
    /// Rows without gaps, copied from the image.
    CopiedFromImage,
}

/// The columns of the products of a block.
pub(super) struct ColumnPlan {
    /// The order of the columns.
    pub(in super::super) columns: ColumnOrder,
    /// True if the products write to the target directly.
    pub(in super::super) direct: bool,
    /// The number of columns of a row, or of the block if rows are combined.
    pub(in super::super) n: usize,
    /// The most columns of one product.
    pub(in super::super) each: usize,
    /// The distance between rows of copies and rows of results.
    pub(super) stride: usize,
}

impl ColumnOrder {
    /// True if rows are copied, so that there are no gaps between them.
    pub(super) fn are_copied(self) -> bool {
        matches!(self, Self::CopiedFromPlanes | Self::CopiedFromImage)
    }
}

/// The cost of `n` columns of a product. A narrow tile costs 2 and a wide one 3, because it loads more for each
/// multiplication.
pub(super) fn tiles<T: Float>(n: usize) -> usize {
    let wide = kernels::<T>().panel();
    n / wide * 3 + [0, 2, 3][(n % wide).div_ceil(wide / 2)]
}

/// Chooses the columns for a block and this number of targets.
pub(super) fn plan_columns<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    targets: usize,
) -> ColumnPlan {
    let (w, depth) = (sum.window(), sum.depth());
    // Rows are separate, or combined with the gaps between them if that makes fewer tiles. Results with gaps have to
    // be stored again.
    let (width, all) = (block.columns.len(), layout.len(block));
    let n_rows = block.images.len() * block.rows.len() * w.inner;
    let moved = if w.apart == 1 { MOVING * n_rows } else { 0 };
    let terms = if sum.descriptor.by_tap_rows {
        // Rows leave out the taps that read padding.
        let of_row = sum.sources.channels * w.columns.len();
        let rows = block.rows.clone().map(|row| w.tap_rows_of(row).len());
        block.images.len() * rows.sum::<usize>() * of_row
    } else {
        n_rows * depth
    };
    let by_row_costs = tiles::<T>(width) * terms;
    let all_costs = tiles::<T>(all) * depth + moved;
    // With a step, complete rows are copied from the image directly.
    let from_image = TapRows::<T>::fit(w) && width == w.width;
    // A copy without gaps pays for short rows and many targets. If no element is read through two taps, the copy
    // replaces packing. It then pays for long steps even with the same number of tiles.
    let once = from_image && layout.has_plane_for_each_tap();
    let heights = targets.div_ceil(kernels::<T>().tallest());
    let is_block_whole = w.whole && block.images.len() == 1 && width == w.width && !sum.epilogue.accumulate;
    let moved_copied = if is_block_whole { 0 } else { moved };
    let copies = if once { 0 } else { n_rows * depth / heights };
    let copied_costs = tiles::<T>(n_rows * width) * depth + moved_copied + copies;
    let least = by_row_costs.min(all_costs);
    let is_less = copied_costs < least || (once && w.step > 2 && copied_costs == least);
    let pays = is_less && (once || width <= SLACK);
    let copied = pays && !layout.in_place;
    let columns = match (copied, by_row_costs <= all_costs) {
        (true, _) if from_image => ColumnOrder::CopiedFromImage,
        (true, _) => ColumnOrder::CopiedFromPlanes,
        (_, true) => ColumnOrder::ByRow,
        _ => ColumnOrder::WithGaps,
    };
    let whole_rows = n_rows * width == all && block.images.len() == 1;
    let (n, fits_target) = match columns {
        ColumnOrder::ByRow => (width, w.apart == 1),
        ColumnOrder::WithGaps => (all, w.whole && (n_rows == 1 || whole_rows)),
        ColumnOrder::CopiedFromPlanes | ColumnOrder::CopiedFromImage => (n_rows * width, is_block_whole),
    };
    let direct = fits_target && !sum.is_narrow;
    // Such copies are used in parts that stay in the first-level cache for all targets.
    let panel = kernels::<T>().panel();
    let near = (NEAR / (layout.chunk * w.taps.len()).max(1) / panel).max(1) * panel;
    let each = if copied && once { near.min(n) } else { n };
    ColumnPlan { columns, direct, n, each, stride: padded_stride(if copied { n } else { all }) }
}
