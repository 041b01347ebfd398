//! Functions of mathematics.

use super::{Binary, Entry, Reads, Unary, op};
use crate::kernels::Number;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[
    Entry::unary::<Abs>(),
    Entry::unary::<Sign>(),
    Entry::unary::<Exp>(),
    Entry::unary::<Log>(),
    Entry::unary::<Sin>(),
    Entry::unary::<Cos>(),
    Entry::unary::<Tan>(),
    Entry::unary::<ASin>(),
    Entry::unary::<ACos>(),
    Entry::unary::<ATan>(),
    Entry::unary::<Sinh>(),
    Entry::unary::<Cosh>(),
    Entry::unary::<ASinh>(),
    Entry::unary::<ACosh>(),
    Entry::unary::<ATanh>(),
    Entry::binary::<ATan2>(),
    Entry::unary::<Erf>(),
    Entry::unary::<Floor>(),
    Entry::unary::<Ceil>(),
    Entry::unary::<Round>(),
    Entry::unary::<IsNaN>(),
    Entry::unary::<IsInf>(),
    Entry::unary::<ResetNaN>(),
    Entry::unary::<ResetInf>(),
];

op! {
    /// Absolute value, elementwise: `y = |x|`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Abs = abs(x)
}

impl Unary for Abs {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.abs()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        N::select(x.gt(N::all(0.0)), N::all(1.0), N::select(x.lt(N::all(0.0)), N::all(-1.0), N::all(0.0)))
    }
}

op! {
    /// Sign, elementwise: 1 where `x > 0`, -1 where `x < 0`, `alpha` where `x = 0`. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     alpha: Value at zero.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Sign = sign(x; alpha: f64 = 1.0)
}

impl Unary for Sign {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(
            x.gt(N::all(0.0)),
            N::all(1.0),
            N::select(x.lt(N::all(0.0)), N::all(-1.0), N::all(self.alpha)),
        )
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(1.0)
    }
}

op! {
    /// Exponential, elementwise: `y = e ** x`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Exp = exp(x)
}

impl Unary for Exp {
    const READS: Reads = Reads::OUTPUTS;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.exp()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, y: N) -> N {
        y
    }
}

op! {
    /// Natural logarithm, elementwise: `y = ln(x)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Log = log(x)
}

impl Unary for Log {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.ln()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        N::all(1.0) / x
    }
}

op! {
    /// Sine, elementwise; `x` in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Sin = sin(x)
}

impl Unary for Sin {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.sin()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        x.cos()
    }
}

op! {
    /// Cosine, elementwise; `x` in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Cos = cos(x)
}

impl Unary for Cos {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.cos()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        -x.sin()
    }
}

op! {
    /// Tangent, elementwise; `x` in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Tan = tan(x)
}

impl Unary for Tan {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.tan()
    }
}

op! {
    /// Inverse sine, elementwise, in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ASin = asin(x)
}

impl Unary for ASin {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.asin()
    }
}

op! {
    /// Inverse cosine, elementwise, in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ACos = acos(x)
}

impl Unary for ACos {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.acos()
    }
}

op! {
    /// Inverse tangent, elementwise, in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ATan = atan(x)
}

impl Unary for ATan {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.atan()
    }
}

op! {
    /// Hyperbolic sine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Sinh = sinh(x)
}

impl Unary for Sinh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.sinh()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        x.cosh()
    }
}

op! {
    /// Hyperbolic cosine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Cosh = cosh(x)
}

impl Unary for Cosh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.cosh()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        x.sinh()
    }
}

op! {
    /// Inverse hyperbolic sine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ASinh = asinh(x)
}

impl Unary for ASinh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.asinh()
    }
}

op! {
    /// Inverse hyperbolic cosine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ACosh = acosh(x)
}

impl Unary for ACosh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.acosh()
    }
}

op! {
    /// Inverse hyperbolic tangent, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ATanh = atanh(x)
}

impl Unary for ATanh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.atanh()
    }
}

op! {
    /// Angle of the point (`x1`, `x0`), elementwise, in radians from -pi to pi.
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
    ATan2 = atan2(x0, x1)
}

impl Binary for ATan2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a.atan2(b)
    }
}

op! {
    /// Error function, elementwise: `y = 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Erf = erf(x)
}

impl Unary for Erf {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.erf()
    }
}

op! {
    /// Largest whole number that is not above, elementwise. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Floor = floor(x)
}

impl Unary for Floor {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.floor()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(1.0)
    }
}

op! {
    /// Smallest whole number that is not below, elementwise. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Ceil = ceil(x)
}

impl Unary for Ceil {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.ceil()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(1.0)
    }
}

op! {
    /// Nearest whole number, halves away from zero, elementwise. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    Round = round(x)
}

impl Unary for Round {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.round()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(1.0)
    }
}

op! {
    /// 1 where `x0` is not a number, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    IsNaN = isnan(x0)
}

impl Unary for IsNaN {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.is_nan(), N::all(1.0), N::all(0.0))
    }
}

op! {
    /// 1 where `x0` is infinite, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    IsInf = isinf(x0)
}

impl Unary for IsInf {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(is_inf(x), N::all(1.0), N::all(0.0))
    }
}

op! {
    /// Replaces what is not a number, elementwise: `y = val` there, else `x0`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: What comes in its place.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ResetNaN = reset_nan(x0; val: f64 = 0.0)
}

impl Unary for ResetNaN {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.is_nan(), N::all(self.val), x)
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        N::select(x.is_nan(), N::all(0.0), N::all(1.0))
    }
}

op! {
    /// Replaces what is infinite, elementwise: `y = val` there, else `x0`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: What comes in its place.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ResetInf = reset_inf(x0; val: f64 = 0.0)
}

impl Unary for ResetInf {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(is_inf(x), N::all(self.val), x)
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        N::select(is_inf(x), N::all(0.0), N::all(1.0))
    }
}

#[inline(always)]
fn is_inf<N: Number>(x: N) -> N::Mask {
    x.abs().eq(N::all(f64::INFINITY))
}
