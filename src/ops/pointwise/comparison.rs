//! Comparisons. The result is a number: 1 for true, 0 for false.

use crate::kernels::Number;
use crate::ops::{Binary, Entry, Reads, Unary, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::binary::<Equal>(),
    Entry::unary::<EqualScalar>(),
    Entry::binary::<NotEqual>(),
    Entry::unary::<NotEqualScalar>(),
    Entry::binary::<Greater>(),
    Entry::unary::<GreaterScalar>(),
    Entry::binary::<GreaterEqual>(),
    Entry::unary::<GreaterEqualScalar>(),
    Entry::binary::<Less>(),
    Entry::unary::<LessScalar>(),
    Entry::binary::<LessEqual>(),
    Entry::unary::<LessEqualScalar>(),
];

op! {
    /// Comparison, elementwise: `y = x0 == x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 2.0, 1.0])
    ///     >>> F.equal(x, y).data
    ///     array([0., 1., 0.], dtype=float32)
    /// ```
    Equal = equal(x0, x1)
}

impl Binary for Equal {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        truth(a.eq(b))
    }
}

op! {
    /// Comparison with a number, elementwise: `y = x0 == val`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.equal_scalar(x, 2.0).data
    ///     array([0., 1., 0.], dtype=float32)
    /// ```
    EqualScalar = equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for EqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.eq(N::all(self.val)))
    }
}

op! {
    /// Comparison, elementwise: `y = x0 != x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 2.0, 1.0])
    ///     >>> F.not_equal(x, y).data
    ///     array([1., 0., 1.], dtype=float32)
    /// ```
    NotEqual = not_equal(x0, x1)
}

impl Binary for NotEqual {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::all(1.0) - truth(a.eq(b))
    }
}

op! {
    /// Comparison with a number, elementwise: `y = x0 != val`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.not_equal_scalar(x, 2.0).data
    ///     array([1., 0., 1.], dtype=float32)
    /// ```
    NotEqualScalar = not_equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for NotEqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::all(1.0) - truth(x.eq(N::all(self.val)))
    }
}

op! {
    /// Comparison, elementwise: `y = x0 > x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 2.0, 1.0])
    ///     >>> F.greater(x, y).data
    ///     array([0., 0., 1.], dtype=float32)
    /// ```
    Greater = greater(x0, x1)
}

impl Binary for Greater {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        truth(a.gt(b))
    }
}

op! {
    /// Comparison with a number, elementwise: `y = x0 > val`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.greater_scalar(x, 2.0).data
    ///     array([0., 0., 1.], dtype=float32)
    /// ```
    GreaterScalar = greater_scalar(x0; val: f64 = 1.0)
}

impl Unary for GreaterScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.gt(N::all(self.val)))
    }
}

op! {
    /// Comparison, elementwise: `y = x0 >= x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 2.0, 1.0])
    ///     >>> F.greater_equal(x, y).data
    ///     array([0., 1., 1.], dtype=float32)
    /// ```
    GreaterEqual = greater_equal(x0, x1)
}

impl Binary for GreaterEqual {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        truth(a.ge(b))
    }
}

op! {
    /// Comparison with a number, elementwise: `y = x0 >= val`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.greater_equal_scalar(x, 2.0).data
    ///     array([0., 1., 1.], dtype=float32)
    /// ```
    GreaterEqualScalar = greater_equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for GreaterEqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.ge(N::all(self.val)))
    }
}

op! {
    /// Comparison, elementwise: `y = x0 < x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 2.0, 1.0])
    ///     >>> F.less(x, y).data
    ///     array([1., 0., 0.], dtype=float32)
    /// ```
    Less = less(x0, x1)
}

impl Binary for Less {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        truth(a.lt(b))
    }
}

op! {
    /// Comparison with a number, elementwise: `y = x0 < val`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.less_scalar(x, 2.0).data
    ///     array([1., 0., 0.], dtype=float32)
    /// ```
    LessScalar = less_scalar(x0; val: f64 = 1.0)
}

impl Unary for LessScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.lt(N::all(self.val)))
    }
}

op! {
    /// Comparison, elementwise: `y = x0 <= x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 2.0, 1.0])
    ///     >>> F.less_equal(x, y).data
    ///     array([1., 1., 0.], dtype=float32)
    /// ```
    LessEqual = less_equal(x0, x1)
}

impl Binary for LessEqual {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        truth(a.le(b))
    }
}

op! {
    /// Comparison with a number, elementwise: `y = x0 <= val`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.less_equal_scalar(x, 2.0).data
    ///     array([1., 1., 0.], dtype=float32)
    /// ```
    LessEqualScalar = less_equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for LessEqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const COMPARES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.le(N::all(self.val)))
    }
}

/// A mask as a number: 1 for true, 0 for false.
#[inline(always)]
pub(crate) fn truth<N: Number>(mask: N::Mask) -> N {
    N::select(mask, N::all(1.0), N::all(0.0))
}
