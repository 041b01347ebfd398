//! The shape of an array as an array.

use crate::Result;
use crate::array::{self, DType};
use crate::kernels::Float;
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op,
};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Shape>()];

op! {
    /// The lengths of an array along its axes. Its gradient is zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     start: First axis, counted from the end if negative; 0 if left out.
    ///     end: Axis to stop before, counted from the end if negative; 0 and None are behind the last one.
    ///
    /// Returns:
    ///     Whole numbers, one for each axis. Axes that `x` does not have are left out.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray((2, 3, 4))
    ///     >>> F.shape(x).data
    ///     array([2, 3, 4])
    ///     >>> F.shape(x, start=1).data
    ///     array([3, 4])
    /// ```
    Shape = shape(x; start: Option<i64> = None, end: Option<i64> = None)
}

impl Shape {
    /// The axes of the shape that the arguments select.
    fn part<'a>(&self, x: &'a array::Shape) -> &'a [usize] {
        let n = x.ndim() as i64;
        let place = |axis: i64| (if axis < 0 { axis.saturating_add(n) } else { axis }).clamp(0, n) as usize;
        let start = place(self.start.unwrap_or(0));
        let end = place(self.end.filter(|end| *end != 0).unwrap_or(n));
        &x[start..end.max(start)]
    }
}

impl Compute for Shape {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one([self.part(x.get(0)).len()])
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let lengths = self.part(run.x_shape(0));
        run.y_index(0).iter_mut().zip(lengths).for_each(|(y, length)| *y = *length as i64);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        run.gx(0).into_iter().for_each(|gx: Grad<'_, T>| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }

    fn open(&self, _: &str, _: &InputShapes<'_>) -> Value {
        Value::Int(0)
    }
}
