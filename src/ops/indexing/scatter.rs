//! `scatter_add`: addition to elements selected by an index, and its gradient.

use std::ops::Range;

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::map::GRAIN;
use crate::kernels::row_copies::MANY;
use crate::kernels::scratch::List;
use crate::kernels::threads::{self, SharedCells};
use crate::ops::arrangement::array::lengths;
use crate::ops::indexing::gather::positions;
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ScatterAdd>()];

op! {
    /// Adds elements to an array at indices along an axis: `y[indices[i][j]][j] += x1[i][j]` for the first axis.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     indices: Indices along `axis`, with as many axes as `x0`, and no longer than it along other axes. Negative
    ///         ones count from the end.
    ///     x1: The elements to add, at least as long along each axis as `indices`. Further elements are ignored.
    ///     axis: The axis, the first by default; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Raises:
    ///     AxisError: If `x0` has no such axis.
    ///     ShapeError: If the shapes do not fit.
    ///     IndexError: If an index is out of range or not a whole number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.0, 0.0])
    ///     >>> y = nn.NdArray.from_numpy_array([1.0, 2.0, 4.0])
    ///     >>> F.scatter_add(x, nn.NdArray.from_numpy_array([0, 2, 0]), y, axis=0).data
    ///     array([5., 0., 2.], dtype=float32)
    /// ```
    ScatterAdd = scatter_add(x0, indices: index, x1; axis: Option<i64> = None)
}

op! {
    /// Reads one element of an array for each index along an axis: the gradient of `scatter_add`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     indices: Indices along `axis`.
    ///     axis: The axis.
    ///     shape: Shape of the output.
    ///
    /// Returns:
    ///     Array of shape `shape`. Elements without an index are zero.
    TakeAlong = take_along(x, indices: index; axis: i64, shape: Vec<i64>)
}

/// Calls `f(element of other, element of x)` for each index. Indices that select the same element of `x` are visited
/// one after the other, on one thread.
fn along(
    op: &str,
    x: &Shape,
    (index, shape): (&[i64], &Shape),
    other: &Shape,
    axis: usize,
    f: impl Fn(usize, usize) + Sync,
) -> Result<()> {
    let (strides, steps, last) = (x.strides(), other.strides(), shape.ndim() - 1);
    let at = positions(op, index, axis, x[axis])?;
    let rows = at.len().checked_div(shape[last]).filter(|rows| *rows > 0);
    let Some(rows) = rows else { return Ok(()) };
    // The start of a row in both arrays, apart from the index.
    let start = |mut row: usize| {
        let (mut from, mut to) = (0, 0);
        for a in (0..last).rev() {
            let k = row % shape[a];
            row /= shape[a];
            (from, to) = (from + k * steps[a], to + if a == axis { 0 } else { k * strides[a] });
        }
        (from, to)
    };
    let n = shape[last];
    let run = |row: usize, columns: Range<usize>| {
        let (from, to) = start(row);
        for k in columns {
            f(from + k, to + at[row * n + k] * strides[axis] + if axis == last { 0 } else { k });
        }
    };
    if axis == last {
        threads::ranges(rows, (GRAIN / n).max(1), |rows| rows.for_each(|row| run(row, 0..n)));
    } else {
        // Different columns never select the same element.
        threads::ranges(n, (GRAIN / rows).max(16), |columns| {
            (0..rows).for_each(|row| run(row, columns.clone()));
        });
    }
    Ok(())
}

impl ScatterAdd {
    /// The axis of `x` to which elements are added, 0 by default.
    fn axis(&self, x: &Shape) -> Result<usize> {
        x.axis("scatter_add", self.axis.unwrap_or(0))
    }
}

impl Compute for ScatterAdd {
    fn open(&self, _: &str, _: &InputShapes<'_>) -> Value {
        Value::Int(0)
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (x0, index, x1) = (x.get(0), x.get(1), x.get(2));
        let axis = self.axis(x0)?;
        let fits = index.ndim() == x0.ndim() && x1.ndim() == x0.ndim();
        if fits && (0..x0.ndim()).all(|i| index[i] <= x1[i] && (i == axis || index[i] <= x0[i])) {
            return one(x0.clone());
        }
        let expected = format!("indices no longer than x1, nor than x0 except along axis {axis}");
        Err(Error::shape("scatter_add", expected, [x0, index, x1]))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x1, y, axis) = (run.x(2), run.y(0), self.axis(run.x_shape(0))?);
        let index = (run.index(1), run.x_shape(1));
        if run.x_shape(1)[axis] > MANY && size_of::<T>() < size_of::<f64>() {
            // Many numbers may be added to one element, so the sum is in double precision.
            let mut sums: List<f64> = run.x(0).iter().map(|x| x.real()).collect();
            let to = SharedCells::of(&mut sums);
            along("scatter_add", run.x_shape(0), index, run.x_shape(2), axis, |i, at| {
                to.add(at, x1[i].real());
            })?;
            y.iter_mut().zip(&*sums).for_each(|(y, sum)| *y = T::of(*sum));
            return Ok(());
        }
        y.copy_from_slice(run.x(0));
        let y = SharedCells::of(y);
        along("scatter_add", run.x_shape(0), index, run.x_shape(2), axis, |i, at| y.add(at, x1[i]))
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        if let Some(gx) = run.gx(0) {
            gx.put_all(gy);
        }
        if let Some(gx) = run.gx(2).map(Grad::adding) {
            let (index, axis) = ((run.index(1), run.x_shape(1)), self.axis(shape)?);
            let gx = SharedCells::of(gx);
            along("scatter_add", shape, index, run.x_shape(2), axis, |i, at| gx.add(i, gy[at]))?;
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let taken = || {
            let shape = s.x(2).shape().iter().map(|n| *n as i64).collect();
            Sym::apply(TakeAlong { axis: self.axis.unwrap_or(0), shape }, &[s.gy(0), s.x(1)])
        };
        vec![Some(s.gy(0)), None, s.wants(2).then(taken)]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 2 { Reads::inputs(2) } else { Reads::NOTHING }
    }
}

impl Compute for TakeAlong {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(lengths("take_along", &self.shape)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y, axis) = (run.x(0), run.y(0), run.x_shape(0).axis("take_along", self.axis)?);
        y.fill(T::ZERO);
        let index = (run.index(1), run.x_shape(1));
        let y = SharedCells::of(y);
        along("take_along", run.x_shape(0), index, run.y_shape(0), axis, |i, at| y.change(i, |_| x[at]))
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let zeros = Sym::Const(0.0).broadcast(&s.x(0).shape());
        vec![Some(Sym::apply(ScatterAdd { axis: Some(self.axis) }, &[zeros, s.x(1), s.gy(0)])), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(2)
    }
}
