//! Logic. The result is a number: 1 for true, 0 for false.

use crate::kernels::Number;
use crate::ops::pointwise::comparison::truth;
use crate::ops::{Binary, Entry, Reads, Unary, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::binary::<LogicalAnd>(),
    Entry::unary::<LogicalAndScalar>(),
    Entry::binary::<LogicalOr>(),
    Entry::unary::<LogicalOrScalar>(),
    Entry::binary::<LogicalXor>(),
    Entry::unary::<LogicalXorScalar>(),
    Entry::unary::<LogicalNot>(),
];

op! {
    /// Logic, elementwise: 1 where both are not zero, else 0. Its gradient is zero.
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
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.0, 1.0, 1.0])
    ///     >>> y = nn.NdArray.from_numpy_array([0.0, 1.0, 0.0, 1.0])
    ///     >>> F.logical_and(x, y).data
    ///     array([0., 0., 0., 1.], dtype=float32)
    /// ```
    LogicalAnd = logical_and(x0, x1)
}

impl Binary for LogicalAnd {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(a.eq(N::all(0.0)), N::all(0.0), is_true(b))
    }
}

op! {
    /// Logic with a constant, elementwise: 1 where both are true, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The constant.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.5, 1.0])
    ///     >>> F.logical_and_scalar(x, True).data
    ///     array([0., 1., 1.], dtype=float32)
    /// ```
    LogicalAndScalar = logical_and_scalar(x0; val: bool)
}

impl Unary for LogicalAndScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.eq(N::all(0.0)), N::all(0.0), is_true(N::all(f64::from(u8::from(self.val)))))
    }
}

op! {
    /// Logic, elementwise: 1 where either is not zero, else 0. Its gradient is zero.
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
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.0, 1.0, 1.0])
    ///     >>> y = nn.NdArray.from_numpy_array([0.0, 1.0, 0.0, 1.0])
    ///     >>> F.logical_or(x, y).data
    ///     array([0., 1., 1., 1.], dtype=float32)
    /// ```
    LogicalOr = logical_or(x0, x1)
}

impl Binary for LogicalOr {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(a.eq(N::all(0.0)), is_true(b), N::all(1.0))
    }
}

op! {
    /// Logic with a constant, elementwise: 1 where either is true, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The constant.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.5, 1.0])
    ///     >>> F.logical_or_scalar(x, False).data
    ///     array([0., 1., 1.], dtype=float32)
    /// ```
    LogicalOrScalar = logical_or_scalar(x0; val: bool)
}

impl Unary for LogicalOrScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.eq(N::all(0.0)), is_true(N::all(f64::from(u8::from(self.val)))), N::all(1.0))
    }
}

op! {
    /// Logic, elementwise: 1 where exactly one is not zero, else 0. Its gradient is zero.
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
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.0, 1.0, 1.0])
    ///     >>> y = nn.NdArray.from_numpy_array([0.0, 1.0, 0.0, 1.0])
    ///     >>> F.logical_xor(x, y).data
    ///     array([0., 1., 1., 0.], dtype=float32)
    /// ```
    LogicalXor = logical_xor(x0, x1)
}

impl Binary for LogicalXor {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(a.eq(N::all(0.0)), is_true(b), N::all(1.0) - is_true(b))
    }
}

op! {
    /// Logic with a constant, elementwise: 1 where exactly one is true, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The constant.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.5, 1.0])
    ///     >>> F.logical_xor_scalar(x, True).data
    ///     array([1., 0., 0.], dtype=float32)
    /// ```
    LogicalXorScalar = logical_xor_scalar(x0; val: bool)
}

impl Unary for LogicalXorScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(
            x.eq(N::all(0.0)),
            is_true(N::all(f64::from(u8::from(self.val)))),
            N::all(1.0) - is_true(N::all(f64::from(u8::from(self.val)))),
        )
    }
}

op! {
    /// Logic, elementwise: 1 where `x0` is zero, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.5, 1.0])
    ///     >>> F.logical_not(x).data
    ///     array([1., 0., 0.], dtype=float32)
    /// ```
    LogicalNot = logical_not(x0)
}

impl Unary for LogicalNot {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.eq(N::all(0.0)))
    }
}

/// 1 for a nonzero number, else 0.
#[inline(always)]
fn is_true<N: Number>(x: N) -> N {
    N::select(x.eq(N::all(0.0)), N::all(0.0), N::all(1.0))
}
