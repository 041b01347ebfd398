//! Comparisons, logic and choices. Truth is a number: 1 or 0.

use super::{
    Backward, Binary, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Unary, one, op,
};
use crate::kernels::{Float, Number};
use crate::{Error, Result};

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[
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
    Entry::binary::<LogicalAnd>(),
    Entry::unary::<LogicalAndScalar>(),
    Entry::binary::<LogicalOr>(),
    Entry::unary::<LogicalOrScalar>(),
    Entry::binary::<LogicalXor>(),
    Entry::unary::<LogicalXorScalar>(),
    Entry::unary::<LogicalNot>(),
    Entry::binary::<Maximum2>(),
    Entry::binary::<Minimum2>(),
    Entry::unary::<MaximumScalar>(),
    Entry::unary::<MinimumScalar>(),
    Entry::of::<Where>(),
];

op! {
    /// Comparison, elementwise: `y = x0 == x1`, 1 where it holds, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    Equal = equal(x0, x1)
}

impl Binary for Equal {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    EqualScalar = equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for EqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    NotEqual = not_equal(x0, x1)
}

impl Binary for NotEqual {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    NotEqualScalar = not_equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for NotEqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    Greater = greater(x0, x1)
}

impl Binary for Greater {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    GreaterScalar = greater_scalar(x0; val: f64 = 1.0)
}

impl Unary for GreaterScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    GreaterEqual = greater_equal(x0, x1)
}

impl Binary for GreaterEqual {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    GreaterEqualScalar = greater_equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for GreaterEqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    Less = less(x0, x1)
}

impl Binary for Less {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    LessScalar = less_scalar(x0; val: f64 = 1.0)
}

impl Unary for LessScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    LessEqual = less_equal(x0, x1)
}

impl Binary for LessEqual {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

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
    LessEqualScalar = less_equal_scalar(x0; val: f64 = 1.0)
}

impl Unary for LessEqualScalar {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        truth(x.le(N::all(self.val)))
    }
}

op! {
    /// Logic, elementwise: 1 where both are not zero, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
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
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
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

op! {
    /// The larger one, elementwise: `y = max(x0, x1)`. The gradient goes to the larger input, to `x0` where both are equal.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    Maximum2 = maximum2(x0, x1)
}

impl Binary for Maximum2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(a.ge(b), a, b)
    }
}

op! {
    /// The smaller one, elementwise: `y = min(x0, x1)`. The gradient goes to the smaller input, to `x0` where both are equal.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts against that of `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    Minimum2 = minimum2(x0, x1)
}

impl Binary for Minimum2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(a.le(b), a, b)
    }
}

op! {
    /// The larger of it and a number, elementwise: `y = max(x, val)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    MaximumScalar = maximum_scalar(x; val: f64 = 1.0)
}

impl Unary for MaximumScalar {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.lt(N::all(self.val)), N::all(self.val), x)
    }
}

op! {
    /// The smaller of it and a number, elementwise: `y = min(x, val)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     val: The number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    MinimumScalar = minimum_scalar(x; val: f64 = 1.0)
}

impl Unary for MinimumScalar {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.gt(N::all(self.val)), N::all(self.val), x)
    }
}

/// A mask as a number: 1 where it holds, else 0.
#[inline(always)]
fn truth<N: Number>(mask: N::Mask) -> N {
    N::select(mask, N::all(1.0), N::all(0.0))
}

/// 1 where a number is not zero, else 0.
#[inline(always)]
fn is_true<N: Number>(x: N) -> N {
    N::select(x.eq(N::all(0.0)), N::all(0.0), N::all(1.0))
}

op! {
    /// Choice, elementwise: `y = x_true` where `condition` is not zero, else `x_false`.
    ///
    /// Args:
    ///     condition: Input that chooses. Its shape is that of the other inputs, or the leading part of it.
    ///     x_true: What is taken where `condition` is not zero.
    ///     x_false: What is taken elsewhere, of the shape of `x_true`.
    ///
    /// Returns:
    ///     Array of the shape of `x_true`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit.
    Where = where(condition, x_true, x_false)
}

impl Compute for Where {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (c, t, f) = (x.get(0), x.get(1), x.get(2));
        if t != f || !t.starts_with(c) {
            let expected = "x_true and x_false of one shape that starts with that of condition";
            return Err(Error::shape("where", expected, [c, t, f]));
        }
        one(t.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (c, t, f, y) = (run.x(0), run.x(1), run.x(2), run.y(0));
        let inner = y.len() / c.len().max(1);
        for (i, y) in y.iter_mut().enumerate() {
            *y = if c[i / inner] == T::ZERO { f[i] } else { t[i] };
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (c, gy) = (run.x(0), run.gy(0));
        let inner = (gy.len() / c.len().max(1)).max(1);
        if let Some(g) = run.gx(0) {
            g.put(|_| T::ZERO);
        }
        if let Some(g) = run.gx(1) {
            g.put(|i| if c[i / inner] == T::ZERO { T::ZERO } else { gy[i] });
        }
        if let Some(g) = run.gx(2) {
            g.put(|i| if c[i / inner] == T::ZERO { gy[i] } else { T::ZERO });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (gy, zero) = (s.gy(0), Sym::Const(0.0));
        vec![
            None,
            s.wants(1).then(|| Sym::apply(Self {}, &[s.x(0), gy, zero.broadcast(&gy.shape())])),
            s.wants(2).then(|| Sym::apply(Self {}, &[s.x(0), zero.broadcast(&gy.shape()), gy])),
        ]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(1)
    }
}
