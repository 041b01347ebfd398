//! `pow_scalar`: powers with a constant exponent. Multiples of one half are computed by products, quotients and square
//! roots.

use crate::Result;
use crate::kernels::Number;
use crate::ops::contract::loops::Loops;
use crate::ops::{Declared, Entry, Spec, Unary, Value, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::unary::<PowScalar>()];

op! {
    /// Power with a number, elementwise: `y = x ** val`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 3.0])
    ///     >>> F.pow_scalar(x, 2.0).data
    ///     array([1., 9.], dtype=float32)
    /// ```
    PowScalar = pow_scalar(x; val: f64 = 1.0, inplace: bool = false)
}

impl Unary for PowScalar {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        power(x, self.val)
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        if self.val == 0.0 { N::all(0.0) } else { N::all(self.val) * power(x, self.val - 1.0) }
    }

    fn loops(&self, double: bool) -> Loops {
        match 2.0 * self.val {
            -4.0 => Loops::unary(&Halves::<-4>, double),
            -2.0 => Loops::unary(&Halves::<-2>, double),
            -1.0 => Loops::unary(&Halves::<-1>, double),
            1.0 => Loops::unary(&Halves::<1>, double),
            3.0 => Loops::unary(&Halves::<3>, double),
            4.0 => Loops::unary(&Halves::<4>, double),
            6.0 => Loops::unary(&Halves::<6>, double),
            8.0 => Loops::unary(&Halves::<8>, double),
            _ => Loops::unary(self, double),
        }
    }
}

/// The power with exponent `N / 2`, which is known at compile time.
#[derive(Clone, Copy)]
struct Halves<const N: i32>;

impl<const HALVES: i32> Declared for Halves<HALVES> {
    const SPEC: Spec = PowScalar::SPEC;

    fn bind(_: &[Value]) -> Result<Self> {
        Ok(Self)
    }

    fn values(&self) -> Vec<Value> {
        vec![Value::Float(f64::from(HALVES) / 2.0), Value::Bool(false)]
    }
}

impl<const HALVES: i32> Unary for Halves<HALVES> {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.halves(HALVES)
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        N::all(f64::from(HALVES) / 2.0) * x.halves(HALVES - 2)
    }
}

/// The most halves that [`Number::halves`] accepts.
const MOST: f64 = 8.0;

/// `x` to the power of `val`.
#[inline(always)]
pub(crate) fn power<N: Number>(x: N, val: f64) -> N {
    let twice = 2.0 * val;
    if twice.fract() == 0.0 && twice.abs() <= MOST { x.halves(twice as i32) } else { x.pow(N::all(val)) }
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Tensor, check_forward, check_gradient};
    use crate::ops::{Value, find};

    #[test]
    fn powers_of_half_integers_equal_general_powers() {
        let x = [0.25, 1.0, 2.25, 1e-3, 37.0];
        for twice in -9..=9 {
            let val = f64::from(twice) / 2.0;
            let op = find("pow_scalar")
                .expect("is registered")
                .bind(&[Value::Float(val), Value::Bool(false)], u64::MAX)
                .expect("binds");
            check_forward(&op, &[Tensor::new([5], &x)], &[Tensor::new([5], &x.map(|x: f64| x.powf(val)))]);
            check_gradient(&op, &[Tensor::new([3], &[0.7, 1.3, 2.9])], &[true]);
        }
    }
}
