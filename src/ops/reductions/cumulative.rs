//! Running sums and products.

use crate::Result;
use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::scan::Scan;
use crate::ops::arrangement::diagonal::Trilu;
use crate::ops::arrangement::slicing::Flip;
use crate::ops::contract::derivative::{ByKernel, by_kernel};
use crate::ops::pointwise::selection::Where;
use crate::ops::reductions::reduction::{from_rows, to_rows};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, like, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<CumSum>(), Entry::of::<CumProd>()];

op! {
    /// Running sum along an axis: `y[i] = x[0] + ... + x[i]`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: The axis, the first one by default; a negative one counts from the end.
    ///     exclusive: Leave out the element itself: `y[i] = x[0] + ... + x[i - 1]`.
    ///     reverse: Run from the end to the start.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.cumsum(x).data
    ///     array([1., 3., 6.], dtype=float32)
    ///     >>> F.cumsum(x, exclusive=True).data
    ///     array([0., 1., 3.], dtype=float32)
    /// ```
    CumSum = cumsum(x; axis: Option<i64> = None, exclusive: bool = false, reverse: bool = false)
}

impl CumSum {
    /// The loops along the axis.
    fn scan(&self, shape: &Shape) -> Result<Scan> {
        let axis = shape.axis("cumsum", self.axis.unwrap_or(0))?;
        Ok(Scan::new(shape, axis).exclusive(self.exclusive).reverse(self.reverse))
    }
}

impl Compute for CumSum {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        x.get(0).axis("cumsum", self.axis.unwrap_or(0))?;
        like(x)
    }

    fn open(&self, _: &str, _: &InputShapes<'_>) -> Value {
        Value::Int(0)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.scan(run.x_shape(0))?.sum(run.x(0), run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (scan, gy) = (self.scan(run.x_shape(0))?.reverse(!self.reverse), run.gy(0));
        if let Some(gx) = run.gx(0) {
            gx.through(|g| scan.sum(gy, g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(Self { reverse: !self.reverse, ..*self }, &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Running product along an axis: `y[i] = x[0] * ... * x[i]`. Its gradient is exact even if elements are zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: The axis, the first one by default; a negative one counts from the end.
    ///     exclusive: Leave out the element itself: `y[i] = x[0] * ... * x[i - 1]`.
    ///     reverse: Run from the end to the start.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.cumprod(x).data
    ///     array([1., 2., 6.], dtype=float32)
    ///     >>> F.cumprod(x, reverse=True).data
    ///     array([6., 6., 3.], dtype=float32)
    /// ```
    CumProd = cumprod(x; axis: Option<i64> = None, exclusive: bool = false, reverse: bool = false)
}

impl CumProd {
    /// The loops along the axis.
    fn scan(&self, shape: &Shape) -> Result<Scan> {
        let axis = shape.axis("cumprod", self.axis.unwrap_or(0))?;
        Ok(Scan::new(shape, axis).exclusive(self.exclusive).reverse(self.reverse))
    }
}

impl Compute for CumProd {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        x.get(0).axis("cumprod", self.axis.unwrap_or(0))?;
        like(x)
    }

    fn open(&self, _: &str, _: &InputShapes<'_>) -> Value {
        Value::Int(0)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.scan(run.x_shape(0))?.product(run.x(0), run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (scan, x, gy) = (self.scan(run.x_shape(0))?, run.x(0), run.gy(0));
        if let Some(gx) = run.gx(0) {
            gx.through(|g| scan.product_gradient(x, gy, g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        by_kernel(self, s, |_| true)
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl ByKernel for CumProd {
    fn is_linear(&self, _: usize) -> bool {
        false
    }

    /// `gx[i] = (x[0] ... x[i - 1]) * sum over j of gy[j] * (x[i + 1] ... x[j])`. The products in the sum form a
    /// matrix: the running products of rows whose elements up to `i` are one.
    fn formula(&self, s: &Symbols) -> Option<Sym> {
        let shape = s.x(0).shape();
        let axis = [shape.axis("cumprod", self.axis.unwrap_or(0)).unwrap_or_default()];
        let in_order =
            |x: Sym| if self.reverse { Sym::rearrange(Flip { axes: Some(vec![-1]) }, x) } else { x };
        let (x, gy) = (in_order(to_rows(s.x(0), &axis)), in_order(to_rows(s.gy(0), &axis)));
        let (m, n) = (x.shape()[0], x.shape()[1]);
        let square = Shape::from([m, n, n]);
        let each = |x: Sym| x.reshape(&[m, 1, n]).broadcast(&square);
        let ones = Sym::Const(1.0).broadcast(&square);
        let later = |k, x| Sym::apply(Trilu { k, upper: true }, &[x]);
        let factors = Sym::apply(Where {}, &[later(1, ones), each(x), ones]);
        let run = |axis, exclusive, x| Sym::apply(Self { axis, exclusive, reverse: false }, &[x]);
        let products = later(i64::from(self.exclusive), run(Some(2), self.exclusive, factors));
        let gy = later(i64::from(self.exclusive), each(gy));
        let gx = run(Some(1), true, x) * (products * gy).sum(&[2], false);
        Some(from_rows(in_order(gx), &shape, &axis))
    }
}
