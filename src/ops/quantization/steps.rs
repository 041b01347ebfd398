//! Elementwise quantization: to two values, to fixed point, to powers of two.

use crate::kernels::Number;
use crate::ops::{Entry, Unary, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::unary::<BinarySigmoid>(),
    Entry::unary::<BinaryTanh>(),
    Entry::unary::<FixedPointQuantize>(),
    Entry::unary::<Pow2Quantize>(),
];

/// `yes` if `|x| < 1`, else zero.
#[inline(always)]
fn near_zero<N: Number>(x: N, yes: N) -> N {
    N::select(N::and(x.lt(N::all(1.0)), x.gt(N::all(-1.0))), yes, N::all(0.0))
}

op! {
    /// Binary sigmoid, elementwise: 1 where `x > 0`, else 0. Its gradient is the gradient of `(x + 1) / 2` clipped to
    /// [0, 1]: one half where `|x| < 1`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, of zeros and ones.
    ///
    /// Source:
    ///     Courbariaux and Bengio, BinaryNet, 2016, arXiv:1602.02830.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 0.5])
    ///     >>> F.binary_sigmoid(x).data
    ///     array([0., 0., 1.], dtype=float32)
    /// ```
    BinarySigmoid = binary_sigmoid(x)
}

impl Unary for BinarySigmoid {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let other = N::select(x.is_nan(), x, N::all(0.0));
        N::select(x.gt(N::all(0.0)), N::all(1.0), other)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        near_zero(x, gy * N::all(0.5))
    }
}

op! {
    /// Binary hyperbolic tangent, elementwise: 1 where `x > 0`, else -1. Its gradient is the gradient of `x` clipped to
    /// [-1, 1]: one where `|x| < 1`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, of ones and minus ones.
    ///
    /// Source:
    ///     Courbariaux and Bengio, BinaryNet, 2016, arXiv:1602.02830.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 0.5])
    ///     >>> F.binary_tanh(x).data
    ///     array([-1., -1.,  1.], dtype=float32)
    /// ```
    BinaryTanh = binary_tanh(x)
}

impl Unary for BinaryTanh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let other = N::select(x.is_nan(), x, N::all(-1.0));
        N::select(x.gt(N::all(0.0)), N::all(1.0), other)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        near_zero(x, gy)
    }
}

op! {
    /// Quantization to a fixed point, elementwise: the nearest multiple of `delta`, halves away from zero, within
    /// `-(2 ** (n - 1) - 1) * delta` and `(2 ** (n - 1) - 1) * delta`; if not `sign`, within 0 and
    /// `(2 ** n - 1) * delta`.
    ///
    /// The values stay floating-point numbers: quantization is simulated.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     sign: Represent negative numbers too, which takes one bit.
    ///     n: Number of bits, 1 to 64.
    ///     delta: Distance between neighbouring values, positive.
    ///     ste_fine_grained: No gradient flows where `x` is out of range; if off, the gradient passes everywhere.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `n` or `delta` is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-9.0, 0.3, 0.4])
    ///     >>> F.fixed_point_quantize(x, n=4, delta=0.25).data
    ///     array([-1.75,  0.25,  0.5 ], dtype=float32)
    /// ```
    FixedPointQuantize = fixed_point_quantize(x; sign: bool = true, n: i64 = 8, delta: f64 = 0.0625,
        ste_fine_grained: bool = true)
}

impl FixedPointQuantize {
    /// The smallest and the largest value.
    #[inline(always)]
    fn range(&self) -> (f64, f64) {
        let bits = self.n - i64::from(self.sign);
        let most = ((bits as f64).exp2() - 1.0) * self.delta;
        (if self.sign { -most } else { 0.0 }, most)
    }
}

impl Unary for FixedPointQuantize {
    const CHECK: Option<fn(&Self) -> Result<()>> = Some(|op| {
        if !(1..=64).contains(&op.n) {
            return Err(Error::argument("fixed_point_quantize", "n", "from 1 to 64", op.n));
        }
        let fits = op.delta > 0.0 && op.delta.is_finite();
        if fits {
            Ok(())
        } else {
            Err(Error::argument("fixed_point_quantize", "delta", "a positive number", op.delta))
        }
    });

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (least, most) = self.range();
        let near = (x.abs() / N::all(self.delta) + N::all(0.5)).floor() * N::all(self.delta);
        let near = N::select(x.lt(N::all(0.0)), -near, near);
        let above = N::select(x.gt(N::all(most)), N::all(most), near);
        N::select(x.lt(N::all(least)), N::all(least), above)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        if !self.ste_fine_grained {
            return gy;
        }
        let (least, most) = self.range();
        let out = N::or(x.lt(N::all(least)), x.gt(N::all(most)));
        N::select(out, N::all(0.0), gy)
    }
}

op! {
    /// Quantization to powers of two, elementwise: `sign(x) * 2 ** round(log2(|x|))`, no larger than `2 ** m` and no
    /// smaller than `2 ** (m - (2 ** bits - 1))`, where `bits` is `n` less one for `sign` and one for `with_zero`.
    ///
    /// If not `sign`, negative numbers become the smallest value. The values stay floating-point numbers: quantization
    /// is simulated.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     sign: Negative numbers are represented too.
    ///     with_zero: Represent zero too. Numbers smaller than the smallest power of two by more than a factor of
    ///         `sqrt(2)` become zero.
    ///     n: Number of bits, at most 64. At least one bit must be left for the exponent.
    ///     m: Exponent of the largest value.
    ///     ste_fine_grained: No gradient flows where `x` is out of range; if off, the gradient passes everywhere.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `n` leaves no bits.
    ///
    /// Source:
    ///     Miyashita, Lee and Murmann, Convolutional Neural Networks using Logarithmic Data Representation, 2016,
    ///     arXiv:1603.01025.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-9.0, 0.3, 0.4])
    ///     >>> F.pow2_quantize(x).data
    ///     array([-2.  ,  0.25,  0.5 ], dtype=float32)
    /// ```
    Pow2Quantize = pow2_quantize(x; sign: bool = true, with_zero: bool = true, n: i64 = 8, m: i64 = 1,
        ste_fine_grained: bool = true)
}

/// The most bits for exponents. With more, the smallest power is zero in 64 bits.
const MOST_BITS: i64 = 12;

impl Pow2Quantize {
    /// Bits for the exponent.
    #[inline(always)]
    fn bits(&self) -> i64 {
        self.n - i64::from(self.sign) - i64::from(self.with_zero)
    }

    /// The number of exponents below `m`.
    #[inline(always)]
    fn depth(&self) -> f64 {
        (self.bits().min(MOST_BITS) as f64).exp2() - 1.0
    }
}

impl Unary for Pow2Quantize {
    const CHECK: Option<fn(&Self) -> Result<()>> = Some(|op| {
        if op.n > 64 || op.bits() < 1 {
            let least = 1 + i64::from(op.sign) + i64::from(op.with_zero);
            return Err(Error::argument("pow2_quantize", "n", format!("from {least} to 64"), op.n));
        }
        Ok(())
    });

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        let (zero, one, size) = (N::all(0.0), N::all(1.0), x.abs());
        let m = self.m as f64;
        let exponent = (size.ln() * N::all(std::f64::consts::LOG2_E)).round();
        // The number of halvings of the largest value, applied bit by bit so that powers are exact.
        let mut halvings = (N::all(m) - exponent).max(zero).min(N::all(self.depth()));
        let mut q = N::all(m.exp2());
        for bit in (0..self.bits().min(MOST_BITS)).rev() {
            let step = f64::from(1_u32 << bit);
            let holds = halvings.ge(N::all(step));
            q = q * N::select(holds, N::all((-step).exp2()), one);
            halvings = halvings - N::select(holds, N::all(step), zero);
        }
        let least = (m - self.depth()).exp2();
        if self.with_zero {
            q = N::select(size.lt(N::all(least * std::f64::consts::FRAC_1_SQRT_2)), zero, q);
        }
        let below = if self.sign { -q } else { N::all(if self.with_zero { 0.0 } else { least }) };
        let q = N::select(x.lt(zero), below, q);
        N::select(x.is_nan(), x, q)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, _: N) -> N {
        if !self.ste_fine_grained {
            return gy;
        }
        let most = N::all((self.m as f64 + 0.5).exp2());
        let least = if self.sign { -most } else { N::all(0.0) };
        N::select(N::or(x.gt(most), x.lt(least)), N::all(0.0), gy)
    }
}
