//! Cuts a product into chunks for threads and into blocks that fit the caches.
//!
//! A chunk is an independent product of some rows and columns: it does not wait for data packed by others, and its
//! packed data stays in the cache of its core. The division into tiles and sums depends only on the shape.

use std::ops::Range;

use super::chunk::Chunk;
use super::operand::{BlockedProduct, Right, TALL};
use super::packed_cache;
use super::packing::{SMALL, depth, packs_right, plain_depth};
use super::split::EvenSplit;
use super::tile::kernels;
use crate::array::Workspace;
use crate::kernels::Float;
use crate::kernels::threads::{num_threads, parallel};

/// Horizontally adjacent tiles in a chunk, if that leaves enough chunks for all threads.
const WIDE: usize = 2;
/// Chunks per thread, so that threads finish at about the same time. Fewer if they would be too small.
const CHUNKS: usize = 4;
/// The fewest multiplications of a chunk: a few microseconds.
const CHUNK_WORK: usize = 300_000;
/// Bytes between two addresses that map to the same set of an L1 cache.
const CONFLICT: isize = 1 << 12;
/// A product with fewer rows counts as this many: it takes as long, since it waits for the right matrix.
const WAITING: usize = 8;

/// The tiles of a product, and its chunks. Each chunk consists of some rows of tiles, or of some columns.
pub(super) struct TileGrid {
    /// Rows of the matrix in each row of tiles.
    pub(super) heights: EvenSplit,
    /// The number of columns of tiles.
    columns: usize,
    /// True if chunks are columns of tiles, not rows.
    pub(super) by_columns: bool,
    /// Rows or columns of tiles in each chunk.
    pub(super) chunks: EvenSplit,
}

impl TileGrid {
    /// Divides a product of `m` x `n` sums of `k` terms into tiles of at most `tallest` x `panel`. Divides the tiles
    /// into chunks for the threads. `packs_left` is true if each chunk must pack the left matrix.
    pub(super) fn new(
        (m, n, k): (usize, usize, usize),
        (tallest, panel): (usize, usize),
        packs_left: bool,
    ) -> Self {
        let (rows, columns) = (m.div_ceil(tallest), n.div_ceil(panel));
        let threads = num_threads();
        // Each chunk of columns reads all of the left matrix, and packs it if necessary, so the left matrix should be
        // the smaller one.
        let few = if packs_left { 4 * threads } else { 4 * TALL };
        let by_columns = m <= n && rows <= few && columns >= rows.min(8);
        let (count, each) = if by_columns { (columns, WIDE) } else { (rows, TALL) };
        let most = if threads > 1 { (count / each).clamp(threads, CHUNKS * threads) } else { 1 };
        let chunks = most.min(m.max(WAITING) * n * k / CHUNK_WORK).clamp(1, count);
        let chunks = if chunks > threads { chunks / threads * threads } else { chunks };
        Self { heights: EvenSplit::new(m, rows), columns, by_columns, chunks: EvenSplit::new(count, chunks) }
    }

    /// The rows and columns of tiles of a chunk.
    pub(super) fn chunk(&self, i: usize) -> (Range<usize>, Range<usize>) {
        let some = self.chunks.part(i);
        if self.by_columns { (0..self.heights.parts(), some) } else { (some, 0..self.columns) }
    }
}

impl<T: Float> BlockedProduct<'_, T> {
    /// Computes the product.
    ///
    /// # Safety
    /// The matrices must be valid, and `c` must not be accessed concurrently.
    pub(super) unsafe fn run(&self) {
        let (kernels, shape) = (kernels::<T>(), (self.m, self.n, self.k));
        let is_packed = packs_right(kernels, shape, self.b.col);
        let mut right = match (is_packed, self.packed) {
            (_, Some(packed)) => Right::Packed(packed),
            (false, None) => Right::Plain,
            _ if self.b.col == 1 => Right::InRows,
            _ => Right::InColumns,
        };
        // Row-major left matrices are read in place, unless all rows map to the same sets of the L1 cache.
        let small = self.m * self.n * self.k <= SMALL;
        let is_slow = self.a.col != 1 || (self.a.row * size_of::<T>() as isize) % CONFLICT == 0;
        let packs_left = is_slow && is_packed && !small && self.n > 2 * kernels.panel() && self.m > 1;
        let depth = if is_packed { depth(self.k) } else { plain_depth(self.k) };
        let grid = TileGrid::new(shape, (kernels.tallest(), kernels.panel()), packs_left);
        // Packs once for all chunks of rows if packing is slow, or if each of many chunks would pack the same data.
        let many = grid.chunks.parts() == CHUNKS * num_threads();
        let packs = right == Right::InColumns || (right == Right::InRows && many);
        let shares = packs && !grid.by_columns && grid.chunks.parts() > 1;
        let size = if shares { packed_cache::packed_size::<T>(self.n, self.k) } else { None };
        let all = size.and_then(|size| Workspace::<T>::new(size).ok());
        if let Some(all) = &all {
            // SAFETY: guaranteed by the caller, and the workspace is large enough.
            unsafe { packed_cache::pack((self.n, self.k), depth, self.b, all.ptr()) };
            right = Right::Packed(all.ptr());
        }
        let chunk = |i: usize| {
            let ((rows, columns), heights) = (grid.chunk(i), grid.heights);
            let chunk = Chunk { product: self, kernels, heights, rows, columns, right, packs_left, depth };
            // SAFETY: guaranteed by the caller, and each chunk has its own part of the result.
            unsafe { chunk.run() };
        };
        // A single chunk runs on the calling thread.
        match grid.chunks.parts() {
            1 => chunk(0),
            count => parallel(count, chunk),
        }
    }
}
