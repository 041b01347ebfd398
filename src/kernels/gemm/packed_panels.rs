//! Right matrices packed once into panels, for many products on one thread each.

use super::operand::MatrixOperand;
use super::pack::ColumnsToPack;
use super::panels::Panels;
use super::tile::kernels;
use crate::kernels::Float;

impl<T: Float> Panels<T> {
    /// The number of elements of a packed right matrix of `k` rows and `n` columns.
    pub(in crate::kernels) fn size(k: usize, n: usize) -> usize {
        n.next_multiple_of(kernels::<T>().panel()) * k
    }

    /// Packs a right matrix of `k` rows and `n` columns.
    ///
    /// # Safety
    /// The matrix must be valid, and `to` must have space for [`Panels::size`] elements.
    pub(in crate::kernels) unsafe fn pack(from: MatrixOperand<T>, k: usize, n: usize, to: *mut T) {
        let (kernels, wide) = (kernels::<T>(), kernels::<T>().panel());
        for j in (0..n).step_by(wide) {
            let MatrixOperand { row, col, .. } = from;
            let (n, to) = (wide.min(n - j), to.wrapping_add(j * k));
            // SAFETY: guaranteed by the caller, and panels are disjoint.
            unsafe { (kernels.pack_columns)(&ColumnsToPack { from: from.at(0, j), row, col, k, n, to }) };
        }
    }

    /// The panels of a packed matrix of `k` rows.
    pub(in crate::kernels) fn packed(p: *mut T, k: usize) -> Self {
        let row = kernels::<T>().panel();
        Self { p, row, next: k * row }
    }

    /// The panels from row `i` on.
    pub(in crate::kernels) fn row(self, i: usize) -> Self {
        Self { p: self.p.wrapping_add(i * self.row), ..self }
    }

    /// The panels from column `j` on, which must be the first of a panel, for a matrix of `k` rows.
    pub(in crate::kernels) fn column(self, j: usize, k: usize) -> Self {
        Self { p: self.p.wrapping_add(j * k), ..self }
    }
}

// SAFETY: these are only addresses. Users of the addresses ensure safe access.
unsafe impl<T> Send for Panels<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Panels<T> {}
