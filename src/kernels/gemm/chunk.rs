//! A chunk of a product, computed block by block, and each block tile by tile.

use std::ops::Range;

use super::fallback::one_by_one;
use super::operand::{BlockedProduct, Right, TALL};
use super::pack::{ColumnsToPack, RowsToPack};
use super::split::EvenSplit;
use super::tile::{Kernels, PACKING, ProductTile, REGULAR};
use crate::array::Workspace;
use crate::kernels::{Float, stop};

/// The prefetch distance in rows for an unpacked right matrix.
pub(super) const AHEAD: isize = 8;
/// The prefetch distance in rows for a cached packed right matrix, which is read from memory as one stream.
const AHEAD_OF_PACKED: usize = 64;
/// Sums up to this length spend most of their time on the result, which is then visited row by row.
pub(super) const SHALLOW: usize = 128;
/// The ratio of rows to columns above which a product mostly reads the left matrix.
const FLAT: usize = 4;
/// Columns of the right matrix in a packed block.
const COLUMNS: usize = 1024;

/// Some rows and columns of tiles of a product.
pub(super) struct Chunk<'a, T: 'static> {
    /// The whole product.
    pub(super) product: &'a BlockedProduct<'a, T>,
    /// The kernels of this machine.
    pub(super) kernels: &'static Kernels<T>,
    /// Rows of the matrix in each row of tiles.
    pub(super) heights: EvenSplit,
    /// Rows of tiles.
    pub(super) rows: Range<usize>,
    /// Columns of tiles.
    pub(super) columns: Range<usize>,
    /// How the tiles read the right matrix.
    pub(super) right: Right<T>,
    /// True if the left matrix is packed before the tiles read it.
    pub(super) packs_left: bool,
    /// Terms of the sums in a block.
    pub(super) depth: usize,
}

/// Some columns of tiles and some terms of a chunk, and the addresses of its two packed matrices.
struct PackedBlock<'a, T: 'static> {
    /// The chunk that the block is a part of.
    chunk: &'a Chunk<'a, T>,
    /// Columns of tiles.
    columns: Range<usize>,
    /// The first term.
    p: usize,
    /// The number of terms.
    k: usize,
    /// The packed part of the left matrix.
    a: *mut T,
    /// The packed part of the right matrix.
    b: *mut T,
}

impl<T: Float> Chunk<'_, T> {
    /// Computes this part of the product.
    ///
    /// # Safety
    /// As [`BlockedProduct::run`], and the chunk must be within the product.
    pub(super) unsafe fn run(&self) {
        let (product, depth, panel) = (self.product, self.depth, self.kernels.panel());
        let wide = self.columns.len().min(COLUMNS / panel);
        let of_b = match self.right {
            Right::Plain | Right::Packed(_) => 0,
            Right::InRows | Right::InColumns => depth * wide * panel,
        };
        let of_a =
            if self.packs_left { depth * TALL.min(self.rows.len()) * self.kernels.tallest() } else { 0 };
        let packed = match of_a + of_b {
            0 => None,
            n => match Workspace::<T>::new(n) {
                Ok(packed) => Some(packed),
                // SAFETY: guaranteed by the caller.
                Err(_) => return unsafe { self.unpacked() },
            },
        };
        // Packed columns are whole registers, so the data after them is also aligned to a cache line.
        let b = packed.as_ref().map_or(std::ptr::null_mut(), Workspace::ptr);
        let a = b.wrapping_add(of_b);
        let parts = EvenSplit::new(self.rows.len(), self.rows.len().div_ceil(TALL));
        for first in self.columns.clone().step_by(wide.max(1)) {
            let columns = first..self.columns.end.min(first + wide);
            for p in (0..product.k.max(1)).step_by(depth) {
                let k = depth.min(product.k - p);
                let block = PackedBlock { chunk: self, columns: columns.clone(), p, k, a, b };
                // SAFETY: guaranteed by the caller, and the workspace holds the largest block.
                unsafe {
                    for part in 0..parts.parts() {
                        let some = parts.part(part);
                        // Small products have only the first block.
                        if part > 0 || p > 0 {
                            stop::poll();
                        }
                        block.tiles(self.rows.start + some.start..self.rows.start + some.end);
                    }
                }
            }
        }
    }

    /// The same without memory for packing.
    unsafe fn unpacked(&self) {
        let (product, panel) = (self.product, self.kernels.panel());
        let (i, end) = (self.row(self.rows.start), self.row(self.rows.end));
        let j = self.columns.start * panel;
        let n = (self.columns.end * panel).min(product.n) - j;
        let (a, b) = (product.a.part(i, 0), product.b.part(0, j));
        let (c, epilogue) = (product.result(i, j), product.epilogue.part(i, j));
        // SAFETY: guaranteed by the caller.
        unsafe { one_by_one((end - i, n, product.k), a, b, c, epilogue) };
    }

    /// The first matrix row of a row of tiles.
    fn row(&self, tile: usize) -> usize {
        self.heights.part(tile).start
    }
}

impl<T: Float> PackedBlock<'_, T> {
    /// The address of a packed column of tiles.
    fn packed(&self, column: usize) -> *mut T {
        self.b.wrapping_add((column - self.columns.start) * self.chunk.kernels.panel() * self.k)
    }

    /// The address of a column of tiles in a cached packed matrix, for the block of `k` terms from `p` on. Blocks are
    /// contiguous.
    fn packed_block(&self, all: *const T, p: usize, k: usize, column: usize) -> *const T {
        let wide = self.chunk.kernels.panel();
        all.wrapping_add(p * self.chunk.product.n.next_multiple_of(wide) + column * wide * k)
    }

    /// The address to prefetch while a tile reads `b`, if `b` is cached in packed form and read from memory as one
    /// stream. These are rows further ahead, or the data to be read next once the last tile of a column reads its
    /// rows from a cache.
    fn kept_ahead(&self, rows: &Range<usize>, row: usize, column: usize, b: *const T) -> Option<*const T> {
        let Chunk { product, kernels, right, depth, .. } = *self.chunk;
        let Right::Packed(all) = right else { return None };
        let (next, is_last) = (self.p + self.k, rows.len() > 1 && row + 1 == rows.end);
        match is_last {
            _ if self.k <= SHALLOW => None,
            true if column + 1 < self.columns.end => Some(self.packed_block(all, self.p, self.k, column + 1)),
            true if next < product.k => {
                Some(self.packed_block(all, next, depth.min(product.k - next), self.columns.start))
            }
            _ => (rows.len() <= 2).then(|| b.wrapping_add(AHEAD_OF_PACKED * kernels.panel())),
        }
    }

    /// Packs one panel of columns of the right matrix.
    unsafe fn pack_column(&self, column: usize) {
        let Chunk { product, kernels, .. } = self.chunk;
        let j = column * kernels.panel();
        let b = product.b.part(self.p, j);
        let n = kernels.panel().min(product.n - j);
        let to = self.packed(column);
        // SAFETY: the table was chosen for this machine, and the memory is valid.
        unsafe {
            (kernels.pack_columns)(&ColumnsToPack { from: b.p, row: b.row, col: b.col, k: self.k, n, to });
        };
    }

    /// The address of the packed rows from matrix row `i` on, if the block starts with row `first` of tiles.
    fn packed_rows(&self, first: usize, i: usize) -> *mut T {
        self.a.wrapping_add((i - self.chunk.row(first)) * self.k)
    }

    /// Packs these rows of tiles of the left matrix.
    unsafe fn pack_rows(&self, tiles: Range<usize>) {
        if tiles.is_empty() {
            return;
        }
        let Chunk { product, heights, .. } = *self.chunk;
        let i = self.chunk.row(tiles.start);
        let from = product.a.part(i, self.p);
        let to = self.packed_rows(tiles.start, i);
        let rows = RowsToPack { from: from.p, row: from.row, col: from.col, k: self.k, heights, tiles, to };
        // SAFETY: the matrix is valid, and the buffer holds as many rows as are processed together.
        unsafe { (self.chunk.kernels.pack_rows)(&rows) };
    }

    /// # Safety
    /// As [`Chunk::run`]; the right matrix is packed unless tiles do that.
    unsafe fn tiles(&self, rows: Range<usize>) {
        let columns = self.columns.clone();
        // SAFETY: as the caller promises. The memory that tiles read is packed first.
        unsafe {
            if self.chunk.packs_left {
                self.pack_rows(rows.clone());
            }
            if self.k <= SHALLOW {
                for row in rows.clone() {
                    columns.clone().for_each(|column| self.tile(&rows, row, column));
                    self.finish(row..row + 1);
                }
            } else {
                columns.for_each(|column| rows.clone().for_each(|row| self.tile(&rows, row, column)));
                self.finish(rows);
            }
        }
    }

    /// Applies the tail to tiles whose sums are complete.
    fn finish(&self, rows: Range<usize>) {
        let Chunk { product, kernels, .. } = self.chunk;
        if self.p + self.k < product.k || product.epilogue.tail.rows.is_none() || rows.is_empty() {
            return;
        }
        let (i, end) = (self.chunk.row(rows.start), self.chunk.row(rows.end));
        let j = self.columns.start * kernels.panel();
        let n = (self.columns.end * kernels.panel()).min(product.n) - j;
        let c = product.result(i, j);
        // SAFETY: these tiles were just written and belong to this chunk only, and rows of the result are contiguous.
        unsafe { product.epilogue.tail.finish(c.p, c.row as usize, end - i, n) };
    }

    /// Computes the tile of a row and a column. The row must be one of those whose left matrix is packed together.
    ///
    /// # Safety
    /// As [`PackedBlock::tiles`].
    #[inline(always)]
    unsafe fn tile(&self, together: &Range<usize>, row: usize, column: usize) {
        let Chunk { product, kernels, heights, ref rows, right, packs_left, .. } = *self.chunk;
        let (i, count) = (heights.part(row).start, heights.part(row).len());
        let j = column * kernels.panel();
        let n = kernels.panel().min(product.n - j);
        // The first tile of a column packs the data that the others read.
        let packs = right == Right::InRows && row == rows.start;
        if right == Right::InColumns && row == rows.start {
            // SAFETY: guaranteed by the caller.
            unsafe { self.pack_column(column) };
        }
        let (b, b_row) = match right {
            Right::Plain => (product.b.at(self.p, j), product.b.row),
            Right::InRows if packs => (product.b.at(self.p, j), product.b.row),
            Right::InRows | Right::InColumns => (self.packed(column).cast_const(), kernels.panel() as isize),
            Right::Packed(all) => (self.packed_block(all, self.p, self.k, column), kernels.panel() as isize),
        };
        let (a, a_row, a_col) = if packs_left {
            let (row, col) =
                if RowsToPack::<T>::one_by_one(product.a.row) { (self.k, 1) } else { (1, count) };
            (self.packed_rows(together.start, i).cast_const(), row as isize, col as isize)
        } else {
            (product.a.at(i, self.p), product.a.row, product.a.col)
        };
        let last = self.p + self.k == product.k;
        let epilogue = product.epilogue.of_part(self.p == 0, last).part(i, j);
        // Packed tiles of the left matrix come from the L2 cache. Rows of an unpacked right matrix come from any
        // level, as does a row-major left matrix that is read for few columns.
        let streams = product.a.row == self.k as isize && product.a.col == 1 && product.m > FLAT * product.n;
        let (ahead, ahead_step) = if let Some(ahead) = self.kept_ahead(together, row, column, b) {
            (ahead, b_row)
        } else if streams || (packs_left && !packs) {
            (a.wrapping_add(count * self.k), count as isize)
        } else {
            // The last element of each register: a row that is not aligned to cache lines ends in another line.
            (b.wrapping_offset(AHEAD * b_row).wrapping_add(kernels.width - 1), b_row)
        };
        let c = product.result(i, j);
        let tile = ProductTile {
            chain: self.k,
            k: self.k,
            n,
            batch: &[(0, 0)],
            a,
            a_row,
            a_col,
            b,
            b_row,
            table: std::ptr::null(),
            packed: if packs { self.packed(column) } else { std::ptr::null_mut() },
            c: c.p,
            c_row: c.row,
            epilogue,
            ahead,
            ahead_step,
        };
        let registers = if packs || n > kernels.width { 2 } else { 1 };
        let kind = if packs { PACKING } else { REGULAR };
        // SAFETY: the table was chosen for this machine, and the tile is within the matrices.
        unsafe { kernels.tiles[kind][registers - 1][count - 1](&tile) };
    }
}
