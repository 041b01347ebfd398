//! Right matrices packed once into panels, for many products on one thread each.

use super::blocks::MatrixOperand;
use super::pack::ColumnsToPack;
use super::panels::Panels;
use super::tile::kernels;
use crate::kernels::Float;

impl<T: Float> Panels<T> {
    /// Elements of a right matrix of `k` rows and `n` columns when it is packed.
    pub(in crate::kernels) fn room(k: usize, n: usize) -> usize {
        n.next_multiple_of(kernels::<T>().panel()) * k
    }

    /// Packs a right matrix of `k` rows and `n` columns.
    ///
    /// # Safety
    /// The matrix is there, and so is [`Panels::room`] for it.
    pub(in crate::kernels) unsafe fn pack(from: MatrixOperand<T>, k: usize, n: usize, to: *mut T) {
        let (kernels, wide) = (kernels::<T>(), kernels::<T>().panel());
        for j in (0..n).step_by(wide) {
            let MatrixOperand { row, col, .. } = from;
            let (n, to) = (wide.min(n - j), to.wrapping_add(j * k));
            // SAFETY: the caller's promise; each panel is another.
            unsafe { (kernels.pack_columns)(&ColumnsToPack { from: from.at(0, j), row, col, k, n, to }) };
        }
    }

    /// What was packed of a matrix of `k` rows.
    pub(in crate::kernels) fn packed(p: *mut T, k: usize) -> Self {
        let row = kernels::<T>().panel();
        Self { p, row, next: k * row }
    }

    /// It from row `i` on.
    pub(in crate::kernels) fn row(self, i: usize) -> Self {
        Self { p: self.p.wrapping_add(i * self.row), ..self }
    }

    /// It from column `j` on, the first of a panel, where it has `k` rows.
    pub(in crate::kernels) fn column(self, j: usize, k: usize) -> Self {
        Self { p: self.p.wrapping_add(j * k), ..self }
    }
}

// SAFETY: only addresses; those who use them promise that they may.
unsafe impl<T> Send for Panels<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Panels<T> {}
