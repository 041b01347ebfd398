//! `reduce_sum` and `reduce_mean`: sum and mean of a whole array, under NNabla's older names.

use crate::Result;
use crate::kernels::Float;
use crate::ops::reductions::reduction::{Mean, Sum};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ReduceSum>(), Entry::of::<ReduceMean>()];

op! {
    /// Sum of all elements. The same as `sum` over all axes, under NNabla's older name.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     A scalar.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.reduce_sum(x).data
    ///     array(10., dtype=float32)
    /// ```
    ReduceSum = reduce_sum(x)
}

op! {
    /// Mean of all elements. The same as `mean` over all axes, under NNabla's older name.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     A scalar.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.reduce_mean(x).data
    ///     array(2.5, dtype=float32)
    /// ```
    ReduceMean = reduce_mean(x)
}

/// Implements an operation as another one over all axes.
macro_rules! as_over_all_axes {
    ($($ty:ty = $of:ident;)+) => {$(
        impl Compute for $ty {
            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                $of { axis: None, keepdims: false }.shapes(x)
            }
            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                $of { axis: None, keepdims: false }.forward(run)
            }
            fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
                $of { axis: None, keepdims: false }.backward(run)
            }
            fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
                $of { axis: None, keepdims: false }.gradient(s)
            }
            fn reads(&self, _: usize) -> Reads {
                Reads::NOTHING
            }
        }
    )+};
}
as_over_all_axes! { ReduceSum = Sum; ReduceMean = Mean; }
