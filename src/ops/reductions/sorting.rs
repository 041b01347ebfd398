//! Sorting: sort, searchsorted.

use crate::array::{DType, Shape};
use crate::kernels::scratch::SavedMemory;
use crate::kernels::{Float, map, order, threads};
use crate::ops::contract::dialect;
use crate::ops::indexing::scatter::ScatterAdd;
use crate::ops::{
    Backward, Compares, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Sort>(), Entry::of::<SearchSorted>()];

op! {
    /// The elements along an axis in ascending order. Equal ones keep their order; a NaN counts as the largest.
    ///
    /// The gradient goes to the original position of each element. Under NNabla's names it is permuted the other way,
    /// as in NNabla (`docs/differences.md`).
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: The axis; a negative one counts from the end.
    ///     reverse: Sort in descending order.
    ///     with_index: Return the original index of each element too.
    ///     only_index: Return only the original index of each element.
    ///
    /// Returns:
    ///     Array of the shape of `x`, the index along `axis` that each of its elements had, or both.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([3.0, 1.0, 2.0])
    ///     >>> F.sort(x).data
    ///     array([1., 2., 3.], dtype=float32)
    ///     >>> F.sort(x, reverse=True, only_index=True).data
    ///     array([0, 2, 1])
    /// ```
    Sort = sort(x; axis: i64 = -1, reverse: bool = false, with_index: bool = false, only_index: bool = false)
}

impl Compute for Sort {
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let shape = x.get(0);
        shape.axis("sort", self.axis)?;
        let both = self.with_index && !self.only_index;
        Ok(Shapes::from_elem(shape.clone(), if both { 2 } else { 1 }))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, shape) = (run.x(0), run.x_shape(0));
        let axis = shape.axis("sort", self.axis)?;
        let (n, inner) = (shape[axis], shape.size_from(axis + 1));
        let y = if self.only_index { None } else { Some(run.y(0)) };
        let index = match (self.only_index, self.with_index) {
            (true, _) => Some(run.y_index(0)),
            (false, true) => Some(run.y_index(1)),
            (false, false) => None,
        };
        let from = run.state::<SavedMemory<usize>>();
        from.resize(x.len(), 0);
        order::sorted(x, n, inner, self.reverse, from);
        let from = &**from;
        if let Some(y) = y {
            map::fill(y, |i| x[from[i]]);
        }
        if let Some(index) = index {
            map::fill(index, |i| (from[i] / inner % n) as i64);
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        let Some(gx) = run.gx(0).map(Grad::adding) else { return Ok(()) };
        if dialect::is_nnabla() {
            let from = &**run.state::<SavedMemory<usize>>();
            assert!(gx.len() == from.len() && gy.len() == from.len(), "as many places as elements");
            threads::in_turn(from.len(), map::GRAIN, |range| {
                from[range.clone()].iter().zip(&mut gx[range]).for_each(|(from, gx)| *gx = *gx + gy[*from]);
            });
        } else if !self.only_index {
            let from = &**run.state::<SavedMemory<usize>>();
            threads::in_turn(from.len(), map::GRAIN, |range| {
                from[range.clone()].iter().zip(&gy[range]).for_each(|(from, gy)| gx[*from] = gx[*from] + *gy);
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let is_nnabla = dialect::is_nnabla();
        if self.only_index && !is_nnabla {
            return vec![None];
        }
        let mut index = Sym::apply(Self { only_index: true, ..*self }, &[s.x(0)]);
        if is_nnabla {
            // The inverse permutation. NNabla gathers with the permutation itself.
            index = Sym::apply(Self { only_index: true, reverse: false, ..*self }, &[index]);
        }
        let zeros = Sym::Const(0.0).broadcast(&s.x(0).shape());
        vec![Some(Sym::apply(ScatterAdd { axis: Some(self.axis) }, &[zeros, index, s.gy(0)]))]
    }

    // `backward` reads the permutation, which `forward` saves.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }

    fn output(&self, o: usize) -> Option<DType> {
        (o == 1 || self.only_index).then_some(DType::I64)
    }
}

op! {
    /// Positions at which numbers can be inserted into ascending sequences to keep them sorted. The gradient is zero.
    ///
    /// Args:
    ///     sorted_sequence: Sequences along the last axis, each in ascending order.
    ///     values: Numbers to look for in them, with the same leading axes.
    ///     right: Insert after equal elements; if off, before them.
    ///
    /// Returns:
    ///     Positions, of the shape of `values`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes differ along another axis than the last.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> limits = nn.NdArray.from_numpy_array([1.0, 3.0, 5.0])
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 3.0, 9.0])
    ///     >>> F.searchsorted(limits, x).data
    ///     array([0, 1, 3])
    ///     >>> F.searchsorted(limits, x, right=True).data
    ///     array([0, 2, 3])
    /// ```
    SearchSorted = searchsorted(sorted_sequence, values; right: bool = false)
}

impl Compute for SearchSorted {
    const COMPARES: Compares = Compares::All;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (sequence, values) = (x.get(0), x.get(1));
        let leading = |s: &Shape| s.split_last().map(|(_, leading)| leading.to_vec());
        if leading(sequence).is_none() || leading(sequence) != leading(values) {
            return Err(Error::shape(
                "searchsorted",
                "shapes that differ along the last axis alone",
                [sequence, values],
            ));
        }
        one(values.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = run.x_shape(0).size_from(run.x_shape(0).ndim() - 1);
        let each = run.x_shape(1).size_from(run.x_shape(1).ndim() - 1);
        let (sequence, values, y) = (run.x(0), run.x(1), run.y_index(0));
        for (i, (y, v)) in y.iter_mut().zip(values).enumerate() {
            let sequence = &sequence[i / each * n..][..n];
            *y = sequence.partition_point(|x| if self.right { x <= v } else { x < v }) as i64;
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        (0..2).filter_map(|i| run.gx(i)).for_each(|gx| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None, None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }
}
