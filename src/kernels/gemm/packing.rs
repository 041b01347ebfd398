//! When and in which blocks right matrices are packed.

use super::tile::Kernels;

/// Rows of the right matrix in a block. Two registers of its columns are in the L2 cache, and mostly in the L1 cache.
const DEPTH: usize = 512;
/// Terms of a sum that are added sequentially if nothing is packed. Longer sums are split for accuracy.
const LONG: usize = 4096;
/// The largest number of columns of a right matrix whose packed form is cached.
pub(super) const COLUMNS: usize = 4096;
/// The number of multiplications below which packing does not pay.
pub(super) const SMALL: usize = 80 * 80 * 80;

/// True if the right matrix of a product is packed.
pub(super) fn packs_right<T>(kernels: &Kernels<T>, (m, n, k): (usize, usize, usize), b_col: isize) -> bool {
    (b_col != 1 && n > 1 && k > 0) || (m * n * k > SMALL && m > 2 * kernels.tallest() && n > kernels.panel())
}

/// Rows in a packed block of a right matrix with `k` rows.
pub(super) fn depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH))
}

/// The same if nothing is packed, or only because the packed form is cached.
pub(super) fn plain_depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(LONG).max(1)).max(1)
}
