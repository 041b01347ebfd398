//! Sums, means and extremes along axes.

use super::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::Result;
use crate::array::Shape;
use crate::kernels::{Float, strided};

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[Entry::of::<Sum>()];

/// The shape that is left of `shape` when `axis` is reduced.
pub(super) fn reduced(op: &str, shape: &Shape, axis: Option<&[i64]>, keepdims: bool) -> Result<Shape> {
    let axes = shape.axes(op, axis)?;
    let dims = shape.iter().enumerate();
    Ok(match keepdims {
        true => dims.map(|(i, d)| if axes.contains(&i) { 1 } else { *d }).collect(),
        false => dims.filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect(),
    })
}

op! {
    /// Sum along axes.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: Axis or axes to sum over, all of them by default; negative ones count from the end.
    ///     keepdims: Keep the axes, with length one.
    ///
    /// Returns:
    ///     Array of the shape of `x` without `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    Sum = sum(x; axis as axes: Option<Vec<i64>> = None, keepdims as keep_dims: bool = false)
}

impl Compute for Sum {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(reduced("sum", x.get(0), self.axis.as_deref(), self.keepdims)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = run.x_shape(0).axes("sum", self.axis.as_deref())?;
        strided::sum(run.x(0), run.x_shape(0), &axes, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let kept = reduced("sum", run.x_shape(0), self.axis.as_deref(), true)?;
        let (gy, shape) = (run.gy(0), run.x_shape(0));
        if let Some(gx) = run.gx(0) {
            strided::add_broadcast(gy, &kept, shape, gx.adding());
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        let kept = reduced("sum", &shape, self.axis.as_deref(), true).unwrap_or_default();
        vec![Some(s.gy(0).reshape(&kept).broadcast(&shape))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
