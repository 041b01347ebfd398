//! Cuts a product into chunks for threads and into blocks that fit the caches.
//!
//! A chunk is an independent product of some rows and columns: it does not wait for data packed by others, and its
//! packed data stays in the cache of its core. The division into tiles and sums depends only on the shape.

use std::ops::Range;

use super::chunk::Chunk;
use super::kept;
use super::product::Strided;
use super::tile::{Kernels, kernels};
use crate::array::Workspace;
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::threads::{num_threads, parallel};

/// Rows of the right matrix in a block, such that two registers of its columns fill the L1 cache.
const DEPTH: usize = 384;
/// Terms of a sum that are added sequentially if nothing is packed. Longer sums are split for accuracy.
const LONG: usize = 4096;
/// The largest number of columns of a right matrix whose packed form is cached.
pub(super) const COLUMNS: usize = 4096;
/// Vertically adjacent tiles that are processed together, so that their part of the left matrix stays in the L2
/// cache.
pub(super) const TALL: usize = 10;
/// Horizontally adjacent tiles in a chunk, if that leaves enough chunks for all threads.
const WIDE: usize = 2;
/// Chunks per thread, so that threads finish at about the same time ...
const CHUNKS: usize = 4;
/// ... unless that makes chunks smaller than this number of multiplications: a few microseconds.
const CHUNK_WORK: usize = 300_000;
/// A product with fewer rows counts as this many: it takes as long, since it waits for the right matrix.
const WAITING: usize = 8;
/// The number of multiplications below which packing does not pay.
const SMALL: usize = 80 * 80 * 80;

/// A matrix in memory: element (i, j) is at offset `i row + j col`.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct MatrixOperand<T> {
    pub(in crate::kernels) p: *const T,
    pub(in crate::kernels) row: isize,
    pub(in crate::kernels) col: isize,
}

impl<T> MatrixOperand<T> {
    #[inline(always)]
    pub(super) fn at(self, i: usize, j: usize) -> *const T {
        self.p.wrapping_offset(i as isize * self.row + j as isize * self.col)
    }

    /// The matrix from element (i, j) on.
    pub(super) fn part(self, i: usize, j: usize) -> Self {
        let Self { row, col, .. } = self;
        Self { p: self.at(i, j), row, col }
    }

    pub(in crate::kernels) fn transposed(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }
}

/// A product `c = epilogue(a b)`: `a` has `m` rows, `b` has `n` columns, rows of `c` are contiguous and `c_row`
/// apart.
pub(super) struct BlockedProduct<'a, T> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: MatrixOperand<T>,
    pub(super) b: MatrixOperand<T>,
    /// The packed form of the right matrix (see [`super::kept`]), if available.
    pub(super) packed: Option<*const T>,
    pub(super) c: *mut T,
    pub(super) c_row: isize,
    pub(super) epilogue: Epilogue<'a, T>,
}

// SAFETY: these are only addresses. Users of the addresses ensure safe access.
unsafe impl<T> Sync for BlockedProduct<'_, T> {}

/// A number of items divided into parts as evenly as possible.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct EvenSplit {
    parts: usize,
    each: usize,
    more: usize,
}

impl EvenSplit {
    /// Divides `count` items into `parts`, at least one.
    pub(in crate::kernels) fn new(count: usize, parts: usize) -> Self {
        let parts = parts.max(1);
        Self { parts, each: count / parts, more: count % parts }
    }

    pub(in crate::kernels) fn parts(self) -> usize {
        self.parts
    }

    /// The smallest number of items in a part.
    pub(in crate::kernels) fn each(self) -> usize {
        self.each
    }

    /// True if part `i` has one item more than that.
    pub(in crate::kernels) fn has_one_more(self, i: usize) -> bool {
        i < self.more
    }

    /// The items of part `i`. The first parts have one more.
    #[inline(always)]
    pub(in crate::kernels) fn part(self, i: usize) -> Range<usize> {
        let start = |i: usize| i * self.each + i.min(self.more);
        start(i)..start(i + 1)
    }
}

/// The tiles of a product, and its chunks. Each chunk consists of some rows of tiles, or of some columns.
struct TileGrid {
    /// Rows of the matrix in each row of tiles.
    heights: EvenSplit,
    columns: usize,
    by_columns: bool,
    chunks: EvenSplit,
}

impl TileGrid {
    fn new((m, n, k): (usize, usize, usize), (tallest, panel): (usize, usize), packs_left: bool) -> Self {
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
    fn chunk(&self, i: usize) -> (Range<usize>, Range<usize>) {
        let some = self.chunks.part(i);
        if self.by_columns { (0..self.heights.parts(), some) } else { (some, 0..self.columns) }
    }
}

/// The layout in which a product reads its right matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Right<T> {
    /// Unpacked, in place.
    Plain,
    /// In the packed form of [`super::kept`].
    Kept(*const T),
    /// Row-major: the first tile that reads a column packs it.
    InRows,
    /// Column-major: packed beforehand.
    InColumns,
}

// SAFETY: as above.
unsafe impl<T> Sync for Right<T> {}

impl<T> BlockedProduct<'_, T> {
    /// The result from element (i, j) on.
    pub(super) fn result(&self, i: usize, j: usize) -> Strided<T> {
        let p = self.c.wrapping_offset(i as isize * self.c_row).wrapping_add(j);
        Strided { p, row: self.c_row, col: 1 }
    }
}

impl<T: Float> BlockedProduct<'_, T> {
    /// Computes the product.
    ///
    /// # Safety
    /// The matrices must be valid, and `c` must not be accessed concurrently.
    pub(super) unsafe fn run(&self) {
        let (kernels, size) = (kernels::<T>(), (self.m, self.n, self.k));
        let is_packed = packs_right(kernels, size, self.b.col);
        let mut right = match (is_packed, self.packed) {
            (_, Some(packed)) => Right::Kept(packed),
            (false, None) => Right::Plain,
            _ if self.b.col == 1 => Right::InRows,
            _ => Right::InColumns,
        };
        // Row-major left matrices are read in place.
        let small = self.m * self.n * self.k <= SMALL;
        let packs_left = self.a.col != 1 && is_packed && !small && self.n > 2 * kernels.panel() && self.m > 1;
        let depth = if is_packed { depth(self.k) } else { plain_depth(self.k) };
        let grid = TileGrid::new(size, (kernels.tallest(), kernels.panel()), packs_left);
        // Packs once for all chunks of rows if packing is slow, or if each of many chunks would pack the same data.
        let many = grid.chunks.parts() == CHUNKS * num_threads();
        let packs = right == Right::InColumns || (right == Right::InRows && many);
        let shares = packs && !grid.by_columns && grid.chunks.parts() > 1;
        let room = if shares { kept::room::<T>(self.n, self.k) } else { None };
        let all = room.and_then(|room| Workspace::<T>::new(room).ok());
        if let Some(all) = &all {
            // SAFETY: guaranteed by the caller, and the workspace is large enough.
            unsafe { kept::pack((self.n, self.k), depth, self.b, all.ptr()) };
            right = Right::Kept(all.ptr());
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
