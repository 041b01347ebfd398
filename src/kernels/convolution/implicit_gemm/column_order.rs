//! How the positions of a block are arranged as columns of products: row by row, with what lies between rows, or without gaps.
//! Knows what each costs; computes nothing.

use super::packed_planes::{PlaneBlock, PlaneLayout, SLACK, padded_stride};
use super::tap_rows::TapRows;
use crate::kernels::Float;
use crate::kernels::convolution::correlation::Correlation;
use crate::kernels::gemm::kernels;

/// What it costs to move a row of results, beside a third of a tile's step.
const MOVING: usize = 36;
/// Elements of a right matrix that the first cache has room for, beside those of the left one.
const NEAR: usize = 1 << 12;

/// In what order positions are columns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnOrder {
    /// Each row is a product of its own.
    ByRow,
    /// As they lie in planes, with what lies between rows.
    WithGaps,
    /// Row after row, of copies of the planes.
    CopiedFromPlanes,
    /// Row after row, of copies of the image.
    CopiedFromImage,
}

/// How the positions of a block are arranged.
pub(super) struct ColumnPlan {
    pub(in super::super) columns: ColumnOrder,
    /// Whether results are written where they belong.
    pub(in super::super) direct: bool,
    /// Columns of all products of a row or, if rows are taken together, of the block.
    pub(in super::super) n: usize,
    /// Columns of a product.
    pub(in super::super) each: usize,
    /// How far lines of copies, and of results, are apart.
    pub(super) stride: usize,
}

impl ColumnOrder {
    /// Whether rows follow each other without gaps.
    pub(super) fn are_copied(self) -> bool {
        matches!(self, Self::CopiedFromPlanes | Self::CopiedFromImage)
    }
}

/// What columns of a product cost: a narrow tile two thirds of a wide one, as it loads more for each product.
fn tiles<T: Float>(n: usize) -> usize {
    let wide = kernels::<T>().panel();
    n / wide * 3 + [0, 2, 3][(n % wide).div_ceil(wide / 2)]
}

/// The arrangement of a block for so many targets.
pub(super) fn plan_columns<T: Float>(
    sum: &Correlation<'_, T>,
    layout: &PlaneLayout,
    block: &PlaneBlock,
    targets: usize,
) -> ColumnPlan {
    let (w, depth) = (sum.window(), sum.depth());
    // Positions are taken row by row, or together with what lies between rows if that makes fewer tiles. Then results
    // have to be moved to where they belong, unless whole rows of positions follow each other.
    let (width, all) = (block.columns.len(), layout.len(block));
    let n_rows = block.images.len() * block.rows.len() * w.inner;
    let moved = if w.whole { MOVING * n_rows } else { 0 };
    let by_row_costs = n_rows * tiles::<T>(width) * depth;
    let all_costs = tiles::<T>(all) * depth + moved;
    // With steps copies come straight from the image, if whole rows are taken.
    let from_image = TapRows::<T>::fit(w) && width == w.width;
    // Short rows are laid out once more without gaps where enough is computed of them. Where each element is seen through one
    // tap, what comes straight is laid out like that at first; longer steps gain by it even if there are as many tiles.
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
    let (n, direct) = match columns {
        ColumnOrder::ByRow => (width, w.whole),
        ColumnOrder::WithGaps => (all, w.whole && (n_rows == 1 || whole_rows)),
        ColumnOrder::CopiedFromPlanes | ColumnOrder::CopiedFromImage => (n_rows * width, is_block_whole),
    };
    // What is copied no more often than it was to be laid out stays in the first cache while all targets come by.
    let panel = kernels::<T>().panel();
    let near = (NEAR / (layout.chunk * w.taps.len()).max(1) / panel).max(1) * panel;
    let each = if copied && once { near.min(n) } else { n };
    ColumnPlan { columns, direct, n, each, stride: padded_stride(if copied { n } else { all }) }
}
