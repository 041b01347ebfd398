//! A product cut into blocks that fit the caches and into chunks for threads, by its shape alone.

use std::ops::Range;

use super::activation::{Activation, Then};
use super::pack::{Columns, Rows};
use super::tile::{After, Kernels, REGULAR, Tile};
use crate::array::Workspace;
use crate::kernels::Float;
use crate::kernels::threads::{Shared, num_threads, parallel};

/// Rows of the right matrix in a block: two registers of columns of it fill the first cache.
const DEPTH: usize = 384;
/// Rows of a plain right matrix that are fetched ahead.
pub(super) const AHEAD: isize = 8;
/// Terms of a sum that are added one after the other where nothing is packed: longer sums are cut for accuracy.
const LONG: usize = 4096;
/// Rows of the left matrix and columns of the right in a packed block.
const ROWS: usize = 4096;
pub(super) const COLUMNS: usize = 4096;
/// Columns of tiles that are packed together where they lie side by side.
pub(super) const TOGETHER: usize = 4;
/// Sums so short that most of the time goes into the result: it is visited row by row.
pub(super) const SHALLOW: usize = 128;
/// Tiles one above the other in a chunk: their part of the left matrix stays in the second cache.
const CHUNK_ROWS: usize = 10;
/// Chunks for each thread, so that threads end together ...
const CHUNKS: usize = 8;
/// ... unless that makes them smaller than so many multiplications: a few microseconds.
const CHUNK_WORK: usize = 300_000;
/// Products of fewer multiplications are not worth packing.
const SMALL: usize = 80 * 80 * 80;

/// A matrix in memory: element (i, j) is at `i row + j col`.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Operand<T> {
    pub(in crate::kernels) p: *const T,
    pub(in crate::kernels) row: isize,
    pub(in crate::kernels) col: isize,
}

impl<T> Operand<T> {
    pub(super) fn at(self, i: usize, j: usize) -> *const T {
        self.p.wrapping_offset(i as isize * self.row + j as isize * self.col)
    }

    pub(super) fn transposed(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }
}

/// A product `c = after(a b)`: `a` has `m` rows, `b` has `n` columns, rows of `c` are contiguous and `c_row` apart.
pub(super) struct Product<'a, T> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: Operand<T>,
    pub(super) b: Operand<T>,
    /// The right matrix as [`super::kept`] packs it, if it was packed before.
    pub(super) packed: Option<*const T>,
    pub(super) c: *mut T,
    pub(super) c_row: isize,
    pub(super) after: After<T>,
    pub(super) then: Then<'a>,
}

// SAFETY: only addresses; those who use them promise that they may.
unsafe impl<T> Sync for Product<'_, T> {}

/// Things shared out in parts as even as can be.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Split {
    parts: usize,
    each: usize,
    more: usize,
}

impl Split {
    /// At least one part.
    pub(in crate::kernels) fn new(count: usize, parts: usize) -> Self {
        let parts = parts.max(1);
        Self { parts, each: count / parts, more: count % parts }
    }

    pub(in crate::kernels) fn parts(self) -> usize {
        self.parts
    }

    /// What part `i` has: the first parts have one more.
    #[inline(always)]
    pub(in crate::kernels) fn part(self, i: usize) -> Range<usize> {
        let start = |i: usize| i * self.each + i.min(self.more);
        start(i)..start(i + 1)
    }
}

/// Tiles of a block, and its chunks: each is of some rows of tiles, or of some columns of them. A chunk packs what nobody else
/// reads: that stays in the cache of its core.
struct Grid {
    /// Rows of the matrix in each row of tiles.
    heights: Split,
    columns: usize,
    by_columns: bool,
    /// Rows or columns of tiles, and how many chunks they make.
    count: usize,
    chunks: usize,
}

impl Grid {
    fn new(m: usize, n: usize, k: usize, tile_rows: usize, tile_columns: usize) -> Self {
        let (rows, columns) = (m.div_ceil(tile_rows), n.div_ceil(tile_columns));
        // All of the left matrix is read for each chunk of columns: so it should be the smaller one.
        let by_columns = m <= n && rows <= 4 * CHUNK_ROWS && columns >= rows.min(8);
        let (count, least) = if by_columns { (columns, 1) } else { (rows, rows.div_ceil(CHUNK_ROWS)) };
        let threads = num_threads();
        let chunks = (CHUNKS * threads).min(m * n * k / CHUNK_WORK).max(least);
        let chunks = if chunks > threads { chunks.next_multiple_of(threads) } else { chunks }.min(count);
        Self { heights: Split::new(m, rows), columns, by_columns, count, chunks }
    }

    /// What a chunk has, so that the first half of all chunks have half of the work.
    fn chunk(&self, i: usize) -> Range<usize> {
        i * self.count / self.chunks..(i + 1) * self.count / self.chunks
    }
}

impl<T: Float> Product<'_, T> {
    /// Computes the product. `false`, with nothing done: no memory for packing.
    ///
    /// # Safety
    /// The matrices are there, and nobody else uses `c` meanwhile.
    pub(super) unsafe fn run(&self) -> bool {
        let kernels = T::kernels();
        let tile_columns = kernels.panel();
        let small = self.m * self.n * self.k <= SMALL;
        let pack_b = packs_right(kernels, (self.m, self.n, self.k), self.b.col);
        // Rows whose elements lie together are read where they are, unless they compete for the same places of a cache.
        let apart = self.a.col == 1 && (self.a.row * size_of::<T>() as isize).rem_euclid(4096) != 0;
        let pack_a = !apart && pack_b && !small && self.n > 2 * tile_columns && self.m > 1;
        if !pack_b {
            // SAFETY: the caller's promise.
            unsafe { self.plain(kernels) };
            return true;
        }
        let depth = depth(self.k);
        // Both matrices in one piece, each from the start of a cache line on.
        let columns = self.n.min(COLUMNS).next_multiple_of(tile_columns);
        let of_b = if self.packed.is_some() { 0 } else { (depth * columns).next_multiple_of(16) };
        let of_a = if pack_a { depth * self.m.min(ROWS) } else { 0 };
        let Ok(packed) = Workspace::<T>::new(of_a + of_b) else { return false };
        let (packed_b, packed_a) = (packed.ptr(), pack_a.then(|| packed.ptr().wrapping_add(of_b)));
        for j in (0..self.n).step_by(COLUMNS) {
            for i in (0..self.m).step_by(ROWS) {
                for p in (0..self.k).step_by(depth) {
                    // What is kept has all blocks, one below the other.
                    let packed_b =
                        self.packed.map_or(packed_b, |all| all.cast_mut().wrapping_add(p * columns));
                    let block = Block {
                        product: self,
                        kernels,
                        i,
                        j,
                        p,
                        m: ROWS.min(self.m - i),
                        n: COLUMNS.min(self.n - j),
                        k: depth.min(self.k - p),
                        a: packed_a.map(Shared::new),
                        b: Some(Shared::new(packed_b)),
                    };
                    // SAFETY: the caller's promise; there is room for the largest block.
                    unsafe { block.run() };
                }
            }
        }
        true
    }

    /// The product straight from the matrices.
    unsafe fn plain(&self, kernels: &'static Kernels<T>) {
        let (m, n) = (self.m, self.n);
        let depth = self.k.div_ceil(self.k.div_ceil(LONG).max(1)).max(1);
        for p in (0..self.k.max(1)).step_by(depth) {
            let k = depth.min(self.k - p);
            let block = Block { product: self, kernels, i: 0, j: 0, p, m, n, k, a: None, b: None };
            // SAFETY: the caller's promise.
            unsafe { block.run() };
        }
    }
}

/// Whether the right matrix of a product is packed.
pub(super) fn packs_right<T>(kernels: &Kernels<T>, (m, n, k): (usize, usize, usize), b_col: isize) -> bool {
    (b_col != 1 && n > 1 && k > 0) || (m * n * k > SMALL && m > 2 * kernels.tallest() && n > kernels.panel())
}

/// Rows of the right matrix in a packed block, where it has `k`.
pub(super) fn depth(k: usize) -> usize {
    k.div_ceil(k.div_ceil(DEPTH))
}

/// A block of a product, of `m` x `n` of the result and `k` of the sums, and its packed matrices.
struct Block<'a, T: 'static> {
    product: &'a Product<'a, T>,
    kernels: &'static Kernels<T>,
    i: usize,
    j: usize,
    p: usize,
    m: usize,
    n: usize,
    k: usize,
    a: Option<Shared<T>>,
    b: Option<Shared<T>>,
}

impl<T: Float> Block<'_, T> {
    /// # Safety
    /// As [`Product::run`]; the packed matrices have room for the block.
    unsafe fn run(&self) {
        let grid = Grid::new(self.m, self.n, self.k, self.kernels.tallest(), 2 * self.kernels.width);
        // Columns of tiles that are packed as one piece.
        let together = if self.product.b.col == 1 { TOGETHER } else { 1 };
        // Nobody is called for what one chunk can do.
        let share = |count: usize, work: &(dyn Fn(usize) + Sync)| match grid.chunks {
            1 => (0..count).for_each(work),
            _ => parallel(count, work),
        };
        // SAFETY: each piece has its own place in the buffers, each chunk its own tiles of the result; what a chunk reads
        // is packed before.
        unsafe {
            if grid.by_columns {
                let rows = if self.a.is_some() { grid.heights.parts() } else { 0 };
                share(rows, &|row| self.pack_rows(&grid, row));
                share(grid.chunks, &|chunk| self.chunk_of_columns(&grid, chunk, together));
            } else {
                let pieces = if self.packs() { grid.columns.div_ceil(together) } else { 0 };
                share(pieces, &|piece| self.pack_columns(piece * together, together));
                share(grid.chunks, &|chunk| self.chunk_of_rows(&grid, chunk));
            }
        }
    }

    /// Whether the right matrix is still to be packed.
    fn packs(&self) -> bool {
        self.b.is_some() && self.product.packed.is_none()
    }

    unsafe fn pack_columns(&self, column: usize, together: usize) {
        let (Some(to), b) = (self.b.filter(|_| self.packs()), self.product.b) else { return };
        let wide = 2 * self.kernels.width;
        let first = column * wide;
        let columns = Columns {
            from: b.at(self.p, self.j + first),
            row: b.row,
            col: b.col,
            k: self.k,
            n: (together * wide).min(self.n - first),
            // SAFETY: the buffer has room for all columns, `wide` at a time.
            to: unsafe { to.get().add(first * self.k) },
        };
        // SAFETY: the table was chosen for this machine; the memory is there.
        unsafe { (self.kernels.pack_columns)(&columns) };
    }

    unsafe fn pack_rows(&self, grid: &Grid, row: usize) {
        let (Some(to), a) = (self.a, self.product.a) else { return };
        let rows = grid.heights.part(row);
        // SAFETY: the buffer has room for all rows; the matrix is there.
        unsafe {
            Rows {
                from: a.at(self.i + rows.start, self.p),
                row: a.row,
                col: a.col,
                k: self.k,
                n: rows.len(),
                to: to.get().add(rows.start * self.k),
            }
            .pack();
        }
    }

    /// # Safety
    /// As [`Product::run`]; the left matrix is packed where it is to be.
    unsafe fn chunk_of_columns(&self, grid: &Grid, chunk: usize, together: usize) {
        let columns = grid.chunk(chunk);
        for first in columns.clone().step_by(together) {
            let some = first..columns.end.min(first + together);
            // SAFETY: as the caller promises; these columns are of this chunk alone.
            unsafe {
                self.pack_columns(first, some.len());
                self.tiles(grid, 0..grid.heights.parts(), some);
            }
        }
    }

    /// # Safety
    /// As [`Product::run`]; the right matrix is packed where it is to be.
    unsafe fn chunk_of_rows(&self, grid: &Grid, chunk: usize) {
        let rows = grid.chunk(chunk);
        // SAFETY: as the caller promises; these rows are of this chunk alone.
        unsafe {
            rows.clone().for_each(|row| self.pack_rows(grid, row));
            self.tiles(grid, rows, 0..grid.columns);
        }
    }

    /// # Safety
    /// As [`Product::run`]; what the tiles read is packed where it is to be.
    unsafe fn tiles(&self, grid: &Grid, rows: Range<usize>, columns: Range<usize>) {
        // SAFETY: as the caller promises.
        let tile = |row, column| unsafe { self.tile(grid.heights.part(row), column) };
        if self.k <= SHALLOW {
            for row in rows {
                columns.clone().for_each(|column| tile(row, column));
                self.finish(grid, row..row + 1, &columns);
            }
        } else {
            columns.clone().for_each(|column| rows.clone().for_each(|row| tile(row, column)));
            self.finish(grid, rows, &columns);
        }
    }

    /// Takes tiles whose sums are complete through what follows.
    fn finish(&self, grid: &Grid, rows: Range<usize>, columns: &Range<usize>) {
        let (product, wide) = (self.product, 2 * self.kernels.width);
        if self.p + self.k < product.k || product.then.rows.is_none() || rows.is_empty() {
            return;
        }
        let (i, end) = (grid.heights.part(rows.start).start, grid.heights.part(rows.end - 1).end);
        let j = columns.start * wide;
        let c = product.c.wrapping_offset((self.i + i) as isize * product.c_row).wrapping_add(self.j + j);
        let n = (columns.end * wide).min(self.n).saturating_sub(j);
        // SAFETY: these tiles were just written, and are of one chunk alone; rows of the result follow each other.
        unsafe { product.then.finish(c, product.c_row as usize, end - i, n) };
    }

    /// # Safety
    /// As [`Block::tiles`].
    #[inline(always)]
    unsafe fn tile(&self, rows: Range<usize>, column: usize) {
        let (product, wide) = (self.product, 2 * self.kernels.width);
        let (first, last) = (self.p == 0, self.p + self.k == product.k);
        let (i, count, j) = (rows.start, rows.len(), column * wide);
        let n = wide.min(self.n - j);
        let (b, b_row) = match self.b {
            // SAFETY: packed columns lie one after the other.
            Some(packed) => (unsafe { packed.get().add(j * self.k) }.cast_const(), wide as isize),
            None => (product.b.at(self.p, self.j + j), product.b.row),
        };
        let (a, a_row, a_col) = match self.a {
            Some(packed) => {
                let (row, col) = if Rows::<T>::one_by_one(product.a.row) { (self.k, 1) } else { (1, count) };
                // SAFETY: packed rows lie one tile after the other.
                (unsafe { packed.get().add(i * self.k) }.cast_const(), row as isize, col as isize)
            }
            None => (product.a.at(self.i + i, self.p), product.a.row, product.a.col),
        };
        let offset = |bias: Option<*const T>, at: usize| bias.filter(|_| last).map(|b| b.wrapping_add(at));
        let mut after = product.after;
        after.accumulate |= !first;
        after.row_bias = offset(after.row_bias, self.i + i);
        after.column_bias = offset(after.column_bias, self.j + j);
        if !last {
            after.activation = Activation::Identity;
        }
        let c = product.c.wrapping_offset((self.i + i) as isize * product.c_row).wrapping_add(self.j + j);
        // Packed tiles of the left matrix come from the second cache, rows of a plain right matrix from anywhere.
        let (ahead, ahead_step) = match self.a {
            Some(_) => (a.wrapping_add(count * self.k), count as isize),
            None => (b.wrapping_offset(AHEAD * b_row), b_row),
        };
        let tile = Tile {
            k: self.k,
            n,
            batch: &[(0, 0)],
            a,
            a_row,
            a_col,
            b,
            b_row,
            table: std::ptr::null(),
            c,
            c_row: product.c_row,
            after,
            ahead,
            ahead_step,
        };
        let kernel = self.kernels.tiles[REGULAR][usize::from(n > self.kernels.width)][count - 1];
        // SAFETY: the table was chosen for this machine; the tile lies within the matrices.
        unsafe { kernel(&tile) };
    }
}
