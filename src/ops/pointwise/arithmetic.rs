//! Arithmetic of two arrays, or of an array and a number.

use crate::kernels::Number;
use crate::ops::{Binary, Entry, Reads, Unary, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::binary::<Add2>(),
    Entry::binary::<BcAdd2>(),
    Entry::binary::<Sub2>(),
    Entry::binary::<Mul2>(),
    Entry::binary::<Div2>(),
    Entry::binary::<Pow2>(),
    Entry::unary::<AddScalar>(),
    Entry::unary::<MulScalar>(),
    Entry::unary::<RSubScalar>(),
    Entry::unary::<RDivScalar>(),
    Entry::unary::<RPowScalar>(),
];

op! {
    /// Sum, elementwise: `y = x0 + x1`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([[1.0], [2.0]]), nn.NdArray.from_numpy_array([[10.0, 20.0]])
    ///     >>> F.add2(x, y).data
    ///     array([[11., 21.],
    ///            [12., 22.]], dtype=float32)
    /// ```
    Add2 = add2(x0, x1; inplace: bool = false)
}

impl Binary for Add2 {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a + b
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N, _: N) -> (N, N) {
        (N::all(1.0), N::all(1.0))
    }
}

op! {
    /// Sum with broadcasting, elementwise: `y = x0 + x1`. The same as `add2`, under NNabla's older name.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([[1.0], [2.0]]), nn.NdArray.from_numpy_array([[10.0, 20.0]])
    ///     >>> F.bc_add2(x, y).data
    ///     array([[11., 21.],
    ///            [12., 22.]], dtype=float32)
    /// ```
    BcAdd2 = bc_add2(x0, x1; inplace: bool = false)
}

impl Binary for BcAdd2 {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a + b
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N, _: N) -> (N, N) {
        (N::all(1.0), N::all(1.0))
    }
}

op! {
    /// Difference, elementwise: `y = x0 - x1`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([5.0, 7.0]), nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.sub2(x, y).data
    ///     array([4., 5.], dtype=float32)
    /// ```
    Sub2 = sub2(x0, x1; inplace: bool = false)
}

impl Binary for Sub2 {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a - b
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N, _: N) -> (N, N) {
        (N::all(1.0), N::all(-1.0))
    }
}

op! {
    /// Product, elementwise: `y = x0 * x1`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([5.0, 7.0]), nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.mul2(x, y).data
    ///     array([ 5., 14.], dtype=float32)
    /// ```
    Mul2 = mul2(x0, x1; inplace: bool = false)
}

impl Binary for Mul2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a * b
    }

    #[inline(always)]
    fn df<N: Number>(&self, a: N, b: N, _: N) -> (N, N) {
        (b, a)
    }
}

op! {
    /// Quotient, elementwise: `y = x0 / x1`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([5.0, 7.0]), nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.div2(x, y).data
    ///     array([5. , 3.5], dtype=float32)
    /// ```
    Div2 = div2(x0, x1; inplace: bool = false)
}

impl Binary for Div2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a / b
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        // Neither `1 / b` nor `b * b` is computed: they may overflow although the gradient is finite.
        (gy / b, -(gy * (a / b)) / b)
    }
}

op! {
    /// Power, elementwise: `y = x0 ** x1`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([2.0, 3.0]), nn.NdArray.from_numpy_array([3.0, 2.0])
    ///     >>> F.pow2(x, y).data
    ///     array([8., 9.], dtype=float32)
    /// ```
    Pow2 = pow2(x0, x1; inplace: bool = false)
}

impl Binary for Pow2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a.pow(b)
    }
}

op! {
    /// Sum with a number, elementwise: `y = x + val`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.add_scalar(x, 10.0).data
    ///     array([11., 12.], dtype=float32)
    /// ```
    AddScalar = add_scalar(x; val: f64 = 1.0, inplace: bool = false)
}

impl Unary for AddScalar {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x + N::all(self.val)
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(1.0)
    }
}

op! {
    /// Product with a number, elementwise: `y = val * x`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///     inplace: Ignored; exists for NNabla programs. Memory is reused if that changes no result.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.mul_scalar(x, 10.0).data
    ///     array([10., 20.], dtype=float32)
    /// ```
    MulScalar = mul_scalar(x; val: f64 = 1.0, inplace: bool = false)
}

impl Unary for MulScalar {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x * N::all(self.val)
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(self.val)
    }
}

op! {
    /// Difference from a number, elementwise: `y = val - x`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.r_sub_scalar(x, 10.0).data
    ///     array([9., 8.], dtype=float32)
    /// ```
    RSubScalar = r_sub_scalar(x; val: f64 = 1.0)
}

impl Unary for RSubScalar {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::all(self.val) - x
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(-1.0)
    }
}

op! {
    /// Quotient of a number, elementwise: `y = val / x`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.r_div_scalar(x, 10.0).data
    ///     array([10.,  5.], dtype=float32)
    /// ```
    RDivScalar = r_div_scalar(x; val: f64 = 1.0)
}

impl Unary for RDivScalar {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::all(self.val) / x
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        -(gy * (N::all(self.val) / x)) / x
    }
}

op! {
    /// Power of a number, elementwise: `y = val ** x`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 3.0])
    ///     >>> F.r_pow_scalar(x, 2.0).data
    ///     array([2., 8.], dtype=float32)
    /// ```
    RPowScalar = r_pow_scalar(x; val: f64 = 1.0)
}

impl Unary for RPowScalar {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::all(self.val).pow(x)
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        if self.val == 0.0 {
            // At a step the derivative is zero: nothing is multiplied by an infinite logarithm.
            let step = N::select(x.is_nan(), x, N::all(f64::NEG_INFINITY));
            return N::select(x.gt(N::all(0.0)), N::all(0.0), step);
        }
        N::all(self.val).pow(x) * N::all(self.val.ln())
    }
}
