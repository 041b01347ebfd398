//! Mathematical functions other than trigonometric ones: exponential, sign, rounding, tests for infinity and NaN.

use crate::kernels::Number;
use crate::ops::{Entry, Reads, Unary, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::unary::<Abs>(),
    Entry::unary::<Sign>(),
    Entry::unary::<Exp>(),
    Entry::unary::<Log>(),
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
    /// Absolute value, elementwise: `y = |x|`. The derivative at zero is 1.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 3.0])
    ///     >>> F.abs(x).data
    ///     array([2., 0., 3.], dtype=float32)
    /// ```
    Abs = abs(x)
}

impl Unary for Abs {
    // Not every signed type holds the absolute value of its least number.
    const SELECTS: Option<[i64; 2]> = Some([0, 1 << 53]);

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.abs()
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        let zero = N::all(0.0);
        N::select(x.lt(zero), -gy, N::select(x.ge(zero), gy, zero))
    }
}

op! {
    /// Sign, elementwise: 1 where `x > 0`, -1 where `x < 0`, `alpha` where `x = 0`, NaN where `x` is NaN. Its gradient
    /// passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     alpha: Value at zero.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 3.0])
    ///     >>> F.sign(x, alpha=0.0).data
    ///     array([-1.,  0.,  1.], dtype=float32)
    /// ```
    Sign = sign(x; alpha: f64 = 1.0)
}

impl Unary for Sign {
    const READS: Reads = Reads::NOTHING;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let zero = N::all(0.0);
        let other = N::select(x.eq(zero), N::all(self.alpha), x);
        N::select(x.gt(zero), N::all(1.0), N::select(x.lt(zero), N::all(-1.0), other))
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
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 1.0, 2.0])
    ///     >>> F.exp(x).data.round(3)
    ///     array([1.   , 2.718, 7.389], dtype=float32)
    /// ```
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
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, np.e, 10.0])
    ///     >>> F.log(x).data.round(3)
    ///     array([0.   , 1.   , 2.303], dtype=float32)
    /// ```
    Log = log(x)
}

impl Unary for Log {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.ln()
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        gy / x
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
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.erf(x).data.round(3)
    ///     array([-0.843,  0.   ,  0.843], dtype=float32)
    /// ```
    Erf = erf(x)
}

impl Unary for Erf {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.erf()
    }
}

op! {
    /// Rounding down, elementwise: the largest whole number `y <= x`. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.5, 0.5, 2.0])
    ///     >>> F.floor(x).data
    ///     array([-2.,  0.,  2.], dtype=float32)
    /// ```
    Floor = floor(x)
}

impl Unary for Floor {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);
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
    /// Rounding up, elementwise: the smallest whole number `y >= x`. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.5, 0.5, 2.0])
    ///     >>> F.ceil(x).data
    ///     array([-1.,  1.,  2.], dtype=float32)
    /// ```
    Ceil = ceil(x)
}

impl Unary for Ceil {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);
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
    /// Rounding to the nearest whole number, halves away from zero, elementwise. Its gradient passes straight through.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.5, 0.5, 1.2])
    ///     >>> F.round(x).data
    ///     array([-2.,  1.,  1.], dtype=float32)
    /// ```
    Round = round(x)
}

impl Unary for Round {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);
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
    /// 1 where `x0` is NaN, else 0. Its gradient is zero.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, np.nan, np.inf])
    ///     >>> F.isnan(x).data
    ///     array([0., 1., 0.], dtype=float32)
    /// ```
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
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, np.nan, np.inf])
    ///     >>> F.isinf(x).data
    ///     array([0., 0., 1.], dtype=float32)
    /// ```
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
    /// Replaces NaN, elementwise: `y = val` where `x0` is NaN, else `x0`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The replacement.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, np.nan, np.inf])
    ///     >>> F.reset_nan(x, val=-1.0).data
    ///     array([ 1., -1., inf], dtype=float32)
    /// ```
    ResetNaN = reset_nan(x0; val: f64 = 0.0)
}

impl Unary for ResetNaN {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.is_nan(), N::all(self.val), x)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(x.is_nan(), N::all(0.0), gy)
    }
}

op! {
    /// Replaces infinity, elementwise: `y = val` where `x0` is infinite, else `x0`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     val: The replacement.
    ///
    /// Returns:
    ///     Array of the shape of `x0`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, np.nan, np.inf])
    ///     >>> F.reset_inf(x, val=-1.0).data
    ///     array([ 1., nan, -1.], dtype=float32)
    /// ```
    ResetInf = reset_inf(x0; val: f64 = 0.0)
}

impl Unary for ResetInf {
    const SELECTS: Option<[i64; 2]> = Some([0, 0]);

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(is_inf(x), N::all(self.val), x)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        N::select(is_inf(x), N::all(0.0), gy)
    }
}

/// True where `x` is plus or minus infinity.
#[inline(always)]
fn is_inf<N: Number>(x: N) -> N::Mask {
    x.abs().eq(N::all(f64::INFINITY))
}
