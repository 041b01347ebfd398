//! Weights packed for all steps, and cached with their array until they change.

use super::Layer;
use crate::array::{InputCache, Lent};
use crate::kernels::Float;
use crate::kernels::gemm::{MatrixOperand, Panels};

/// Packed weights of all directions for the forward run, cached with an array.
pub struct PackedWeights<'a, T> {
    /// The cached memory, which this locks.
    lent: Lent<'a, T>,
    /// Numbers of a direction.
    n: usize,
    /// The number of directions.
    directions: usize,
}

impl<T> PackedWeights<'_, T> {
    /// The packed weights of a direction.
    pub fn part(&self, direction: usize) -> &[T] {
        assert!(direction < self.directions);
        // SAFETY: this many numbers were written.
        unsafe { std::slice::from_raw_parts(self.lent.ptr().add(direction * self.n), self.n) }
    }
}

impl Layer {
    /// Numbers that [`Layer::pack`] writes.
    pub(super) fn packed<T: Float>(&self) -> usize {
        self.cell.gates()
            * (Panels::<T>::size(self.inputs, self.hidden) + Panels::<T>::size(self.hidden, self.hidden))
    }

    /// The packed weights of this many directions, cached with their array. None until the same weights are used
    /// twice in a row.
    pub fn keep_packed<'a, T: Float>(
        &self,
        w: &[T],
        directions: usize,
        input_cache: InputCache<'a>,
    ) -> Option<PackedWeights<'a, T>> {
        let n = self.packed::<T>();
        let lent = input_cache.lend::<T>(0, [size_of::<T>(), self.inputs, self.hidden], directions * n)?;
        let mut kept = PackedWeights { lent, n, directions };
        if !kept.lent.is_made() {
            // SAFETY: the buffer holds this many numbers, and is not shared meanwhile.
            let all = unsafe { std::slice::from_raw_parts_mut(kept.lent.ptr(), directions * n) };
            let of_each = w.chunks_exact((w.len() / directions).max(1));
            of_each.zip(all.chunks_exact_mut(n.max(1))).for_each(|(w, to)| self.pack(w, to));
            kept.lent.made();
        }
        Some(kept)
    }

    /// Packs the weights, gate by gate: first of the inputs, then of the state.
    pub(super) fn pack<T: Float>(&self, w: &[T], to: &mut [T]) {
        let (hidden, row, gates) = (self.hidden, self.row(), self.cell.gates());
        assert!(w.len() == gates * hidden * row && to.len() == self.packed::<T>());
        if hidden == 0 {
            return;
        }
        let (of_inputs, of_states) = to.split_at_mut(gates * Panels::<T>::size(self.inputs, hidden));
        for (first, k, to) in [(0, self.inputs, of_inputs), (self.inputs, hidden, of_states)] {
            let size = Panels::<T>::size(k, hidden).max(1);
            for (w, to) in w.chunks_exact(hidden * row).zip(to.chunks_exact_mut(size)) {
                let weights = MatrixOperand { p: w[first..].as_ptr(), row: 1, col: row as isize };
                // SAFETY: the weights of a gate are `hidden` rows, and the buffer holds them.
                unsafe { Panels::pack(weights, k, hidden, to.as_mut_ptr()) };
            }
        }
    }

    /// Packed weights of the inputs, for a gate, from a unit on, which must be the first of a panel.
    pub(super) fn of_inputs<T: Float>(&self, packed: &[T], gate: usize, unit: usize) -> Panels<T> {
        self.panels(packed, 0, self.inputs, gate, unit)
    }

    /// Packed weights of the state, as [`Layer::of_inputs`].
    pub(super) fn of_state<T: Float>(&self, packed: &[T], gate: usize, unit: usize) -> Panels<T> {
        let first = self.cell.gates() * Panels::<T>::size(self.inputs, self.hidden);
        self.panels(packed, first, self.hidden, gate, unit)
    }

    /// The packed weights of a gate from a unit on; the part starts at `first` and has sums of `k` products.
    fn panels<T: Float>(&self, packed: &[T], first: usize, k: usize, gate: usize, unit: usize) -> Panels<T> {
        assert!(packed.len() == self.packed::<T>() && gate < self.cell.gates() && unit < self.hidden);
        let at = packed.as_ptr().wrapping_add(first + gate * Panels::<T>::size(k, self.hidden));
        Panels::packed(at.cast_mut(), k).column(unit, k)
    }
}
