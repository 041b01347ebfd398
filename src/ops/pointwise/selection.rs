//! Elementwise selection: the larger, the smaller, or by a condition.

use crate::array::Shape;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::{Movable, Number};
use crate::ops::{
    Backward, Binary, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Unary, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::binary::<Maximum2>(),
    Entry::binary::<Minimum2>(),
    Entry::unary::<MaximumScalar>(),
    Entry::unary::<MinimumScalar>(),
    Entry::of::<Where>(),
];

op! {
    /// Maximum of two arrays, elementwise: `y = max(x0, x1)`, NaN where either is NaN. The gradient goes to the larger
    /// input, to `x1` where both are equal.
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
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 5.0]), nn.NdArray.from_numpy_array([4.0, 2.0])
    ///     >>> F.maximum2(x, y).data
    ///     array([4., 5.], dtype=float32)
    /// ```
    Maximum2 = maximum2(x0, x1)
}

impl Binary for Maximum2 {
    const SELECTS: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(N::or(a.gt(b), a.is_nan()), a, b)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        let (first, zero) = (N::or(a.gt(b), a.is_nan()), N::all(0.0));
        (N::select(first, gy, zero), N::select(first, zero, gy))
    }
}

op! {
    /// Minimum of two arrays, elementwise: `y = min(x0, x1)`, NaN where either is NaN. The gradient goes to the smaller
    /// input, to `x1` where both are equal.
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
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 5.0]), nn.NdArray.from_numpy_array([4.0, 2.0])
    ///     >>> F.minimum2(x, y).data
    ///     array([1., 2.], dtype=float32)
    /// ```
    Minimum2 = minimum2(x0, x1)
}

impl Binary for Minimum2 {
    const SELECTS: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        N::select(N::or(a.lt(b), a.is_nan()), a, b)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        let (first, zero) = (N::or(a.lt(b), a.is_nan()), N::all(0.0));
        (N::select(first, gy, zero), N::select(first, zero, gy))
    }
}

op! {
    /// Maximum with a number, elementwise: `y = max(x, val)`. The derivative is zero where both are equal, or where `x`
    /// is NaN.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 5.0])
    ///     >>> F.maximum_scalar(x, 3.0).data
    ///     array([3., 5.], dtype=float32)
    /// ```
    MaximumScalar = maximum_scalar(x; val: f64 = 1.0)
}

impl Unary for MaximumScalar {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);
    const HAS_LIMIT: bool = true;

    // Without a bound, no result is the number.
    fn limit(&self) -> f64 {
        if self.val == f64::NEG_INFINITY { 0.0 } else { self.val }
    }

    fn within_limit(&self) -> [i64; 2] {
        [self.val.ceil() as i64, i64::MAX]
    }

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let val = N::all(self.val);
        N::select(N::or(x.le(val), val.is_nan()), val, x)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(x.gt(N::all(self.val)), gy, N::all(0.0))
    }
}

op! {
    /// Minimum with a number, elementwise: `y = min(x, val)`. The derivative is zero where both are equal, or where `x`
    /// is NaN.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 5.0])
    ///     >>> F.minimum_scalar(x, 3.0).data
    ///     array([1., 3.], dtype=float32)
    /// ```
    MinimumScalar = minimum_scalar(x; val: f64 = 1.0)
}

impl Unary for MinimumScalar {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);
    const HAS_LIMIT: bool = true;

    // As above.
    fn limit(&self) -> f64 {
        if self.val == f64::INFINITY { 0.0 } else { self.val }
    }

    fn within_limit(&self) -> [i64; 2] {
        [i64::MIN, self.val.floor() as i64]
    }

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let val = N::all(self.val);
        N::select(N::or(x.ge(val), val.is_nan()), val, x)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(x.lt(N::all(self.val)), gy, N::all(0.0))
    }
}

op! {
    /// Selection, elementwise: `y = x_true` where `condition` is not zero, else `x_false`.
    ///
    /// Args:
    ///     condition: The condition. Its shape is the shape of the other inputs, or a prefix of it.
    ///     x_true: The values where `condition` is not zero.
    ///     x_false: The values elsewhere, of the shape of `x_true`.
    ///
    /// Returns:
    ///     Array of the shape of `x_true`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> condition = nn.NdArray.from_numpy_array([1.0, 0.0, 1.0])
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> y = nn.NdArray.from_numpy_array([-1.0, -2.0, -3.0])
    ///     >>> F.where(condition, x, y).data
    ///     array([ 1., -2.,  3.], dtype=float32)
    /// ```
    Where = where(condition, x_true, x_false)
}

impl Where {
    /// Broadcasting of an array of shape `y` with a condition, which is repeated along the axes that it lacks.
    fn broadcast(y: &Shape, condition: &Shape) -> BroadcastLayout {
        let kept = (0..y.ndim()).map(|i| if i < condition.ndim() { condition[i] } else { 1 });
        BroadcastLayout::new(y, &kept.collect())
    }
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

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (c, t, f, y) = (run.x(0), run.x(1), run.x(2), run.y(0));
        let broadcast = Self::broadcast(run.x_shape(1), run.x_shape(0));
        broadcast.write_many(
            [t, f],
            [c],
            y,
            false,
            #[inline(always)]
            |[t, f], [c]| if c.is_zero() { f } else { t },
        );
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (c, gy) = (run.x(0), run.gy(0));
        let broadcast = Self::broadcast(run.y_shape(0), run.x_shape(0));
        if let Some(g) = run.gx(0) {
            g.put(|_| T::ZERO);
        }
        if let Some(g) = run.gx(1) {
            let f = |gy: T, c: T, []: [T; 0]| if c.is_zero() { T::ZERO } else { gy };
            broadcast.put([gy, c], [], g.data, g.accumulate, f);
        }
        if let Some(g) = run.gx(2) {
            let f = |gy: T, c: T, []: [T; 0]| if c.is_zero() { gy } else { T::ZERO };
            broadcast.put([gy, c], [], g.data, g.accumulate, f);
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

    fn moves(&self, i: usize) -> bool {
        i != 0
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(1)
    }
}
