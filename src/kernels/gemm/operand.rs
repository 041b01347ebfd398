//! Matrices in memory, and a product of them as it is divided into blocks.

use crate::kernels::epilogue::Epilogue;

/// A matrix in memory: element (i, j) is at `i * row + j * col` from `p`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Strided<T> {
    pub p: *mut T,
    pub row: isize,
    pub col: isize,
}

/// A matrix in memory: element (i, j) is at offset `i row + j col`.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct MatrixOperand<T> {
    /// The first element.
    pub(in crate::kernels) p: *const T,
    /// The distance from a row to the next.
    pub(in crate::kernels) row: isize,
    /// The distance from a column to the next.
    pub(in crate::kernels) col: isize,
}

impl<T> MatrixOperand<T> {
    /// The address of element (i, j).
    #[inline(always)]
    pub(super) fn at(self, i: usize, j: usize) -> *const T {
        self.p.wrapping_offset(i as isize * self.row + j as isize * self.col)
    }

    /// The matrix from element (i, j) on.
    pub(super) fn part(self, i: usize, j: usize) -> Self {
        let Self { row, col, .. } = self;
        Self { p: self.at(i, j), row, col }
    }

    /// The transposed matrix, in the same memory.
    pub(in crate::kernels) fn transposed(self) -> Self {
        Self { row: self.col, col: self.row, ..self }
    }
}

/// Vertically adjacent tiles that are processed together, so that their part of the left matrix stays in the L2
/// cache.
pub(super) const TALL: usize = 10;

/// A product `c = epilogue(a b)`: `a` has `m` rows, `b` has `n` columns, rows of `c` are contiguous and `c_row`
/// apart.
pub(super) struct BlockedProduct<'a, T> {
    /// Rows of the result.
    pub(super) m: usize,
    /// Columns of the result.
    pub(super) n: usize,
    /// Terms of each sum.
    pub(super) k: usize,
    /// The left matrix.
    pub(super) a: MatrixOperand<T>,
    /// The right matrix.
    pub(super) b: MatrixOperand<T>,
    /// The packed form of the right matrix (see [`super::packed_cache`]), if available.
    pub(super) packed: Option<*const T>,
    /// The first element of the result.
    pub(super) c: *mut T,
    /// The distance from a row of the result to the next.
    pub(super) c_row: isize,
    /// The epilogue, which is applied to each sum.
    pub(super) epilogue: Epilogue<'a, T>,
}

// SAFETY: these are only addresses. Users of the addresses ensure safe access.
unsafe impl<T> Sync for BlockedProduct<'_, T> {}

/// The layout in which a product reads its right matrix.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Right<T> {
    /// Unpacked, in place.
    Plain,
    /// In the packed form of [`super::packed_cache`].
    Packed(*const T),
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
