//! `max` and `min` along axes, with the indices of the extremes.

use crate::array::{DType, Shape};
use crate::kernels::reduce::ReducedRows;
use crate::kernels::scratch::SavedMemory;
use crate::kernels::{Movable, Number, Stored, map, threads};
use crate::ops::indexing::gather::OneHot;
use crate::ops::reductions::reduction::{ascending, from_rows, reduced, to_rows};
use crate::ops::{
    Backward, Compares, Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Extremes<Max>>(), Entry::of::<Extremes<Min>>()];

op! {
    /// Largest element along axes; the first one if several are equal. A NaN counts as larger than everything.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis or axes to reduce, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///     with_index: Return the index too.
    ///     only_index: Return only the index.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`, the index of each element along `axis`, or both. Along several
    ///     axes, elements are counted row by row.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If there is no element to choose from.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> F.max(x, axis=1).data
    ///     array([5., 7.], dtype=float32)
    ///     >>> F.max(x, axis=1, only_index=True).data
    ///     array([1, 0])
    /// ```
    Max = max(x; axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false, with_index: bool = false,
        only_index: bool = false)
}

op! {
    /// Smallest element along axes; the first one if several are equal. A NaN counts as smaller than everything.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis or axes to reduce, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///     with_index: Return the index too.
    ///     only_index: Return only the index.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`, the index of each element along `axis`, or both. Along several
    ///     axes, elements are counted row by row.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If there is no element to choose from.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> F.min(x, axis=1).data
    ///     array([1., 2.], dtype=float32)
    ///     >>> F.min(x, axis=1, only_index=True).data
    ///     array([0, 1])
    /// ```
    Min = min(x; axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false, with_index: bool = false,
        only_index: bool = false)
}

/// The arguments of [`Max`] and [`Min`], and which of them it is.
trait Extreme: Declared {
    /// True for the minimum.
    const SMALLEST: bool;
    /// The axes to reduce. None for all.
    fn axis(&self) -> Option<&[i64]>;
    /// True if the reduced axes keep length one.
    fn keepdims(&self) -> bool;
    /// True if the index is a second output.
    fn with_index(&self) -> bool;
    /// True if the index is the only output.
    fn only_index(&self) -> bool;
    /// The operation that gives the index along the last axis of a matrix.
    fn index_of_rows() -> Self;
}

/// Implements [`Extreme`] for [`Max`] and [`Min`].
macro_rules! extremes {
    ($($ty:ident: $smallest:literal;)+) => {$(
        impl Extreme for $ty {
            const SMALLEST: bool = $smallest;
            fn axis(&self) -> Option<&[i64]> {
                self.axis.as_deref()
            }
            fn keepdims(&self) -> bool {
                self.keepdims
            }
            fn with_index(&self) -> bool {
                self.with_index
            }
            fn only_index(&self) -> bool {
                self.only_index
            }
            fn index_of_rows() -> Self {
                Self { axis: Some(vec![1]), keepdims: true, with_index: false, only_index: true }
            }
        }
    )+};
}
extremes! { Max: false; Min: true; }

/// Adapts [`Max`] and [`Min`] to [`Compute`].
#[derive(Clone)]
struct Extremes<C>(C);

impl<C: Declared> Declared for Extremes<C> {
    const SPEC: crate::ops::Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        C::bind(values).map(Extremes)
    }
    fn values(&self) -> Vec<Value> {
        self.0.values()
    }
}

/// The offset in an array of shape `shape` of element `k` along `axes` of result `i`.
pub(crate) fn place(shape: &Shape, axes: &[usize], mut i: usize, mut k: usize) -> usize {
    let strides = shape.strides();
    let mut at = 0;
    for axis in (0..shape.ndim()).rev() {
        let left = if axes.contains(&axis) { &mut k } else { &mut i };
        at += *left % shape[axis] * strides[axis];
        *left /= shape[axis];
    }
    at
}

/// The largest elements along an axis, which keeps length one.
pub(crate) fn largest(x: Sym, axis: usize) -> Sym {
    let axis = Some(vec![axis as i64]);
    Sym::apply(Extremes(Max { axis, keepdims: true, with_index: false, only_index: false }), &[x])
}

impl<C: Extreme> Compute for Extremes<C> {
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (name, shape) = (C::SPEC.name, x.get(0));
        let y = reduced(name, shape, self.0.axis(), self.0.keepdims())?;
        if shape.size() == 0 && y.size() > 0 {
            return Err(Error::shape(name, "an element at least along the reduced axes", [shape]));
        }
        if shape.size() / y.size().max(1) > u32::MAX as usize {
            return Err(Error::shape(name, "fewer than 2^32 elements along the reduced axes", [shape]));
        }
        let both = self.0.with_index() && !self.0.only_index();
        Ok(Shapes::from_elem(y, if both { 2 } else { 1 }))
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let axes = ascending(C::SPEC.name, run.x_shape(0), self.0.axis())?;
        let rows = ReducedRows::new(run.x(0), run.x_shape(0), &axes);
        let found = rows.extremes(C::SMALLEST);
        if self.0.only_index() {
            let y = run.y_index(0);
            y.iter_mut().zip(&*found).for_each(|(y, (_, at))| *y = *at as i64);
            return Ok(());
        }
        let y = run.y(0);
        let index = if self.0.with_index() { Some(run.y_index(1)) } else { None };
        let kept = run.state::<SavedMemory<usize>>();
        kept.set(found.iter().map(|(_, at)| *at));
        y.iter_mut().zip(&*found).for_each(|(y, (value, _))| *y = *value);
        if let Some(index) = index {
            index.iter_mut().zip(&**kept).for_each(|(index, at)| *index = *at as i64);
        }
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, gy) = (run.x_shape(0), run.gy(0));
        let axes = ascending(C::SPEC.name, shape, self.0.axis())?;
        let Some(gx) = run.gx(0).map(crate::ops::Grad::adding) else { return Ok(()) };
        if !self.0.only_index() {
            let kept = &**run.state::<SavedMemory<usize>>();
            threads::in_turn(kept.len(), map::GRAIN, |range| {
                for i in range {
                    let at = place(shape, &axes, i, kept[i]);
                    gx[at] = gx[at].plus(gy[i]);
                }
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        if self.0.only_index() {
            return vec![None];
        }
        let shape = s.x(0).shape();
        let axes = ascending(C::SPEC.name, &shape, self.0.axis()).unwrap_or_default();
        let x = to_rows(s.x(0), &axes);
        let rows = x.shape();
        let index = Sym::apply(Self(C::index_of_rows()), &[x]);
        let chosen = Sym::apply(OneHot { shape: vec![rows[1] as i64] }, &[index]);
        let gy = s.gy(0).reshape(&[rows[0], 1]).broadcast(&rows);
        let gx = Sym::select(chosen, gy, Sym::Const(0.0));
        vec![Some(from_rows(gx, &shape, &axes))]
    }

    // `backward` reads the places of the extremes, which `forward` saves.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }

    fn output(&self, o: usize) -> Option<DType> {
        (o == 1 || self.0.only_index()).then_some(DType::I64)
    }
}
