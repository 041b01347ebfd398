//! Weights, packed for all steps, and kept with their array while they do not change.

use super::Layer;
use crate::array::{Lasting, Lent};
use crate::kernels::Float;
use crate::kernels::gemm::{MatrixOperand, Panels};

/// Weights of all directions as [`forward`](super::forward) multiplies by them, kept with an array.
pub struct PackedWeights<'a, T> {
    lent: Lent<'a, T>,
    /// Numbers of a direction.
    n: usize,
    directions: usize,
}

impl<T> PackedWeights<'_, T> {
    /// Those of a direction.
    pub fn part(&self, direction: usize) -> &[T] {
        assert!(direction < self.directions);
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.lent.ptr().add(direction * self.n), self.n) }
    }
}

impl Layer {
    /// Numbers that [`Layer::pack`] writes.
    pub(super) fn packed<T: Float>(&self) -> usize {
        self.cell.gates()
            * (Panels::<T>::room(self.inputs, self.hidden) + Panels::<T>::room(self.hidden, self.hidden))
    }

    /// The weights of so many directions, packed and kept with their array: from the second time in a row on that they are the same.
    pub fn keep_packed<'a, T: Float>(
        &self,
        w: &[T],
        directions: usize,
        lasting: Lasting<'a>,
    ) -> Option<PackedWeights<'a, T>> {
        let n = self.packed::<T>();
        let lent = lasting.lend::<T>(0, [size_of::<T>(), self.inputs, self.hidden], directions * n)?;
        let mut kept = PackedWeights { lent, n, directions };
        if !kept.lent.is_made() {
            // SAFETY: there is room for so many, and nobody else has it meanwhile.
            let all = unsafe { std::slice::from_raw_parts_mut(kept.lent.ptr(), directions * n) };
            let of_each = w.chunks_exact((w.len() / directions).max(1));
            of_each.zip(all.chunks_exact_mut(n.max(1))).for_each(|(w, to)| self.pack(w, to));
            kept.lent.made();
        }
        Some(kept)
    }

    /// Packs the weights: those of the inputs, gate by gate, and then those of the state.
    pub(super) fn pack<T: Float>(&self, w: &[T], to: &mut [T]) {
        let (hidden, row, gates) = (self.hidden, self.row(), self.cell.gates());
        assert!(w.len() == gates * hidden * row && to.len() == self.packed::<T>());
        if hidden == 0 {
            return;
        }
        let (of_inputs, of_states) = to.split_at_mut(gates * Panels::<T>::room(self.inputs, hidden));
        for (first, k, to) in [(0, self.inputs, of_inputs), (self.inputs, hidden, of_states)] {
            let room = Panels::<T>::room(k, hidden).max(1);
            for (w, to) in w.chunks_exact(hidden * row).zip(to.chunks_exact_mut(room)) {
                let weights = MatrixOperand { p: w[first..].as_ptr(), row: 1, col: row as isize };
                // SAFETY: the weights of a gate are `hidden` rows, and there is room for them.
                unsafe { Panels::pack(weights, k, hidden, to.as_mut_ptr()) };
            }
        }
    }

    /// Packed weights by which the inputs are multiplied, of a gate from a unit on, the first of a panel.
    pub(super) fn of_inputs<T: Float>(&self, packed: &[T], gate: usize, unit: usize) -> Panels<T> {
        self.panels(packed, 0, self.inputs, gate, unit)
    }

    /// Likewise those by which the state is multiplied.
    pub(super) fn of_state<T: Float>(&self, packed: &[T], gate: usize, unit: usize) -> Panels<T> {
        let first = self.cell.gates() * Panels::<T>::room(self.inputs, self.hidden);
        self.panels(packed, first, self.hidden, gate, unit)
    }

    fn panels<T: Float>(&self, packed: &[T], first: usize, k: usize, gate: usize, unit: usize) -> Panels<T> {
        assert!(packed.len() == self.packed::<T>() && gate < self.cell.gates() && unit < self.hidden);
        let at = packed.as_ptr().wrapping_add(first + gate * Panels::<T>::room(k, self.hidden));
        Panels::packed(at.cast_mut(), k).column(unit, k)
    }
}
