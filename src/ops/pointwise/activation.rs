//! Smooth activation functions.

use crate::kernels::{Dual, Number, from_square, size};
use crate::ops::{Entry, Reads, Unary, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::unary::<Sigmoid>(),
    Entry::unary::<Tanh>(),
    Entry::unary::<Swish>(),
    Entry::unary::<GELU>(),
    Entry::unary::<Mish>(),
    Entry::unary::<SoftPlus>(),
    Entry::unary::<LogSigmoid>(),
    Entry::unary::<SoftSign>(),
    Entry::unary::<TanhShrink>(),
    Entry::unary::<Sinc>(),
];

/// Returns `exp(-|x|)`, which cannot overflow, and a mask of positive `x`.
///
/// Does not use `abs`, which has no derivative at zero, although functions of this pair do.
#[inline(always)]
fn decay<N: Number>(x: N) -> (N, N::Mask) {
    let positive = x.gt(N::all(0.0));
    (N::select(positive, -x, x).exp(), positive)
}

/// `x` clamped to at least -1e30, so that multiplying it by a factor of zero gives zero.
#[inline(always)]
fn above<N: Number>(x: N) -> N {
    let least = N::all(-1e30);
    N::select(x.lt(least), least, x)
}

/// `x` clamped to `[-most, most]`. NaN stays NaN.
#[inline(always)]
fn within<N: Number>(x: N, most: f64) -> N {
    let (low, high) = (N::all(-most), N::all(most));
    N::select(x.lt(low), low, N::select(x.gt(high), high, x))
}

op! {
    /// Logistic function, elementwise: `y = 1 / (1 + exp(-x))`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [0, 1].
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.sigmoid(x).data.round(3)
    ///     array([0.269, 0.5  , 0.731], dtype=float32)
    /// ```
    Sigmoid = sigmoid(x)
}

impl Unary for Sigmoid {
    const READS: Reads = Reads::OUTPUTS;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.sigmoid()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, y: N) -> N {
        y * (N::all(1.0) - y)
    }
}

op! {
    /// Hyperbolic tangent, elementwise: `y = tanh(x)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [-1, 1].
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.tanh(x).data.round(3)
    ///     array([-0.762,  0.   ,  0.762], dtype=float32)
    /// ```
    Tanh = tanh(x)
}

impl Unary for Tanh {
    const READS: Reads = Reads::OUTPUTS;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.tanh()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, y: N) -> N {
        from_square(y)
    }
}

op! {
    /// Swish (SiLU), elementwise: `y = x * sigmoid(x)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Source:
    ///     Ramachandran, Zoph and Le, Searching for Activation Functions, 2017, arXiv:1710.05941.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.swish(x).data.round(3)
    ///     array([-0.269,  0.   ,  0.731], dtype=float32)
    /// ```
    Swish = swish(x)
}

impl Unary for Swish {
    const IS_LONG: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        above(x) * x.sigmoid()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        let (s, left) = x.sigmoids();
        s * (N::all(1.0) + within(x, 1e30) * left)
    }
}

op! {
    /// Gaussian error linear unit, elementwise, approximated by the hyperbolic tangent:
    /// `y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Source:
    ///     Hendrycks and Gimpel, Gaussian Error Linear Units, 2016, arXiv:1606.08415.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.gelu(x).data.round(3)
    ///     array([-0.159,  0.   ,  0.841], dtype=float32)
    /// ```
    GELU = gelu(x)
}

/// `2 sqrt(2 / pi)`.
const TWICE: f64 = 2.0 * std::f64::consts::FRAC_2_SQRT_PI / std::f64::consts::SQRT_2;

impl Unary for GELU {
    const IS_LONG: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        // (1 + tanh(u)) / 2 = sigmoid(2 u), which is exact where tanh approaches -1.
        above(x) * (x * (N::all(TWICE) + N::all(TWICE * 0.044_715) * x * x)).sigmoid()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        // Beyond 30 the logistic function is exactly 0 or 1, in float64 too.
        let (x, one) = (within(x, 30.0), N::all(1.0));
        let bend = N::all(TWICE * 0.044_715) * x * x;
        let (s, left) = (x * (N::all(TWICE) + bend)).sigmoids();
        s * (one + x * (N::all(TWICE) + N::all(3.0) * bend) * left)
    }
}

op! {
    /// Mish, elementwise: `y = x * tanh(log(1 + exp(x)))`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Source:
    ///     Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019, arXiv:1908.08681.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.mish(x).data.round(3)
    ///     array([-0.303,  0.   ,  0.865], dtype=float32)
    /// ```
    Mish = mish(x)
}

impl Mish {
    /// Returns `tanh(log(1 + exp(x)))`, its difference to 1, and the logistic function. All are exact near their
    /// limits.
    #[inline(always)]
    fn parts<N: Number>(x: N) -> (N, N, N) {
        // tanh(log(1 + t)) = (t^2 + 2t) / (t^2 + 2t + 2), expressed by exp(-|x|) for either sign.
        let (e, positive) = decay(x);
        let (one, two) = (N::all(1.0), N::all(2.0));
        let over = N::select(positive, one + two * e, e * (e + two));
        let rest = N::select(positive, two * e * e, two);
        let small = N::select(positive, rest, over) / (over + rest);
        let large = one - small;
        let s = N::select(positive, one, e) / (one + e);
        (N::select(positive, large, small), N::select(positive, small, large), s)
    }
}

impl Unary for Mish {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (tanh, ..) = Self::parts(x);
        above(x) * tanh
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        let (tanh, left, s) = Self::parts(x);
        tanh + within(x, 1e30) * s * left * (N::all(1.0) + tanh)
    }
}

op! {
    /// Softplus, elementwise: `y = log(1 + exp(beta * x)) / beta`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Sharpness, not zero. A larger one is closer to `relu`.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `beta` is zero or NaN.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.softplus(x).data.round(3)
    ///     array([0.313, 0.693, 1.313], dtype=float32)
    ///     >>> F.softplus(x, beta=10.0).data.round(3)
    ///     array([0.   , 0.069, 1.   ], dtype=float32)
    /// ```
    SoftPlus = softplus(x; beta: f64 = 1.0)
}

impl Unary for SoftPlus {
    const CHECK: Option<fn(&Self) -> Result<()>> = Some(|op| {
        let fits = op.beta != 0.0 && !op.beta.is_nan();
        if fits {
            Ok(())
        } else {
            Err(Error::argument("softplus", "beta", "a number that is not zero", op.beta))
        }
    });

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let beta = N::all(self.beta);
        let (e, positive) = decay(beta * x);
        N::select(positive, x, N::all(0.0)) + e.ln_1p() / beta
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        (N::all(self.beta) * x).sigmoid()
    }
}

op! {
    /// Logarithm of the logistic function, elementwise: `y = -log(1 + exp(-x))`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([-100.0, 0.0, 1.0])
    ///     >>> F.log_sigmoid(x).data.round(3)
    ///     array([-100.   ,   -0.693,   -0.313], dtype=float32)
    /// ```
    LogSigmoid = log_sigmoid(x)
}

impl Unary for LogSigmoid {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (e, positive) = decay(x);
        N::select(positive, N::all(0.0), x) - e.ln_1p()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        (-x).sigmoid()
    }
}

op! {
    /// Softsign, elementwise: `y = x / (1 + |x|)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [-1, 1].
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 3.0])
    ///     >>> F.softsign(x).data
    ///     array([-0.5 ,  0.  ,  0.75], dtype=float32)
    /// ```
    SoftSign = softsign(x)
}

impl Unary for SoftSign {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (size, one) = (x.abs(), N::all(1.0));
        let end = N::select(x.lt(N::all(0.0)), -one, one);
        N::select(size.eq(N::all(f64::INFINITY)), end, x / (one + size))
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        let r = N::all(1.0) / (N::all(1.0) + size(x));
        r * r
    }
}

op! {
    /// Difference to the hyperbolic tangent, elementwise: `y = x - tanh(x)`.
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
    ///     >>> F.tanh_shrink(x).data.round(3)
    ///     array([-0.238,  0.   ,  0.238], dtype=float32)
    /// ```
    TanhShrink = tanh_shrink(x)
}

impl Unary for TanhShrink {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        // The difference cancels near zero. There the result is `x` times eight terms of the continued fraction x / (1
        // + x^2 / (3 + ...)). That has no subtraction. Each branch is clamped so that it does not overflow where the
        // other one is selected.
        let c = |v: f64| N::all(v);
        let near = x.abs().lt(c(1.0));
        let close = N::select(near, x, c(0.0));
        let square = close * close;
        let over = c(11_486_475.0) + square * (c(810_810.0) + square * (c(12_870.0) + square * c(44.0)));
        let under = c(34_459_425.0)
            + square
                * (c(16_216_200.0) + square * (c(945_945.0) + square * (c(13_860.0) + square * c(45.0))));
        N::select(near, close * (square * over / under), x - x.tanh())
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        let t = x.tanh();
        t * t
    }
}

op! {
    /// Cardinal sine, elementwise: `y = sin(x) / x`, and 1 at zero.
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
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, np.pi / 2, np.pi])
    ///     >>> F.sinc(x).data.round(3)
    ///     array([ 1.   ,  0.637, -0.   ], dtype=float32)
    /// ```
    Sinc = sinc(x)
}

impl Sinc {
    /// `sin(x) / x`. `sin` is the sine to use.
    #[inline(always)]
    fn by<N: Number>(x: N, sin: impl Fn(N) -> N) -> N {
        // The derivatives of the quotient cancel near zero; the derivatives of the series do not. Each branch is
        // clamped so that it does not overflow where the other one is selected.
        let one = N::all(1.0);
        let near = x.abs().lt(one);
        let close = N::select(near, x, N::all(0.0));
        let square = close * close;
        let mut series = one;
        // Unrolled, so that the compiler vectorizes it.
        macro_rules! terms {
            ($($k:literal)+) => {$(
                series = one - square * series * N::all(1.0 / f64::from(2 * $k * (2 * $k + 1)));
            )+};
        }
        terms!(10 9 8 7 6 5 4 3 2 1);
        let far = N::select(near, one, x);
        N::select(near, series, sin(far) / far)
    }
}

impl Unary for Sinc {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        Self::by(x, N::sin)
    }

    const IS_OF_ANGLES: bool = true;

    #[inline(always)]
    fn f_small<N: Number>(&self, x: N) -> N {
        Self::by(x, N::sin_small)
    }

    #[inline(always)]
    fn df_small<N: Number>(&self, x: N, _: N) -> N {
        self.f_small(Dual::variable(x)).d
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::Value;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, op};

    type Formula<'a> = &'a dyn Fn(f64) -> f64;

    #[test]
    fn smooth_activations_equal_their_formulas() {
        let softplus = |x: f64| x.exp().ln_1p();
        let gelu = |x: f64| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        };
        let cases: [(&str, Formula<'_>, &[Value]); 8] = [
            ("swish", &|x| x / (1.0 + (-x).exp()), &[]),
            ("gelu", &gelu, &[]),
            ("mish", &|x| x * softplus(x).tanh(), &[]),
            ("softplus", &|x| softplus(2.0 * x) / 2.0, &[Value::Float(2.0)]),
            ("log_sigmoid", &|x| -softplus(-x), &[]),
            ("softsign", &|x| x / (1.0 + x.abs()), &[]),
            ("tanh_shrink", &|x| x - x.tanh(), &[]),
            ("sinc", &|x| if x == 0.0 { 1.0 } else { x.sin() / x }, &[]),
        ];
        let mut x = Tensor::sample([3, 5], 1);
        x.data[..4].copy_from_slice(&[0.0, 3.0, -3.0, 12.0]);
        for (name, f, values) in cases {
            let y = Tensor { shape: x.shape.clone(), data: x.data.iter().map(|x| f(*x)).collect() };
            check_forward(&op(name, values), &[x.clone()], &[y]);
            check_gradient(&op(name, values), &[x.clone()], &[true]);
        }
    }
}
