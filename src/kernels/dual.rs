//! Dual numbers: a value and a derivative that every operation carries along.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::Number;

/// `v + d * epsilon` where `epsilon * epsilon = 0`: running a formula on it yields the derivative in `d`.
///
/// Duals nest: a dual of duals carries second derivatives.
#[derive(Clone, Copy, Debug)]
pub struct Dual<N> {
    /// The value.
    pub v: N,
    /// Its derivative.
    pub d: N,
}

impl<N: Number> Dual<N> {
    /// The variable that is differentiated by.
    #[inline(always)]
    pub fn variable(v: N) -> Self {
        Self { v, d: N::all(1.0) }
    }

    /// Something that does not depend on the variable.
    #[inline(always)]
    pub fn constant(v: N) -> Self {
        Self { v, d: N::all(0.0) }
    }

    /// A function with value `v` and derivative `slope` at `self.v`.
    ///
    /// Where the derivative is zero an infinite slope does not turn it into NaN.
    #[inline(always)]
    fn chain(self, v: N, slope: N) -> Self {
        let flat = self.d.eq(N::all(0.0));
        Self { v, d: N::select(flat, self.d, self.d * slope) }
    }
}

impl<N: Number> Add for Dual<N> {
    type Output = Self;
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        Self { v: self.v + o.v, d: self.d + o.d }
    }
}

impl<N: Number> Sub for Dual<N> {
    type Output = Self;
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        Self { v: self.v - o.v, d: self.d - o.d }
    }
}

impl<N: Number> Mul for Dual<N> {
    type Output = Self;
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        Self { v: self.v * o.v, d: self.d * o.v + self.v * o.d }
    }
}

impl<N: Number> Div for Dual<N> {
    type Output = Self;
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        let v = self.v / o.v;
        Self { v, d: (self.d - v * o.d) / o.v }
    }
}

impl<N: Number> Neg for Dual<N> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        Self { v: -self.v, d: -self.d }
    }
}

impl<N: Number> Number for Dual<N> {
    type Mask = N::Mask;

    #[inline(always)]
    fn all(v: f64) -> Self {
        Self::constant(N::all(v))
    }
    #[inline(always)]
    fn abs(self) -> Self {
        let (x, zero) = (self.v, N::all(0.0));
        let sign = N::select(x.gt(zero), N::all(1.0), N::select(x.lt(zero), N::all(-1.0), zero));
        self.chain(x.abs(), sign)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        let v = self.v.sqrt();
        self.chain(v, N::all(0.5) / v)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        let v = self.v.exp();
        self.chain(v, v)
    }
    #[inline(always)]
    fn exp_m1(self) -> Self {
        self.chain(self.v.exp_m1(), self.v.exp())
    }
    #[inline(always)]
    fn ln(self) -> Self {
        self.chain(self.v.ln(), N::all(1.0) / self.v)
    }
    #[inline(always)]
    fn ln_1p(self) -> Self {
        self.chain(self.v.ln_1p(), N::all(1.0) / (N::all(1.0) + self.v))
    }
    #[inline(always)]
    fn sin(self) -> Self {
        self.chain(self.v.sin(), self.v.cos())
    }
    #[inline(always)]
    fn cos(self) -> Self {
        self.chain(self.v.cos(), -self.v.sin())
    }
    #[inline(always)]
    fn sin_small(self) -> Self {
        self.chain(self.v.sin_small(), self.v.cos_small())
    }
    #[inline(always)]
    fn cos_small(self) -> Self {
        self.chain(self.v.cos_small(), -self.v.sin_small())
    }
    #[inline(always)]
    fn tan(self) -> Self {
        let v = self.v.tan();
        self.chain(v, N::all(1.0) + v * v)
    }
    #[inline(always)]
    fn asin(self) -> Self {
        self.chain(self.v.asin(), N::all(1.0) / (N::all(1.0) - self.v * self.v).sqrt())
    }
    #[inline(always)]
    fn acos(self) -> Self {
        self.chain(self.v.acos(), N::all(-1.0) / (N::all(1.0) - self.v * self.v).sqrt())
    }
    #[inline(always)]
    fn atan(self) -> Self {
        self.chain(self.v.atan(), N::all(1.0) / (N::all(1.0) + self.v * self.v))
    }
    #[inline(always)]
    fn sinh(self) -> Self {
        self.chain(self.v.sinh(), self.v.cosh())
    }
    #[inline(always)]
    fn cosh(self) -> Self {
        self.chain(self.v.cosh(), self.v.sinh())
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        let v = self.v.tanh();
        self.chain(v, N::all(1.0) - v * v)
    }
    #[inline(always)]
    fn asinh(self) -> Self {
        self.chain(self.v.asinh(), N::all(1.0) / (N::all(1.0) + self.v * self.v).sqrt())
    }
    #[inline(always)]
    fn acosh(self) -> Self {
        self.chain(self.v.acosh(), N::all(1.0) / (self.v * self.v - N::all(1.0)).sqrt())
    }
    #[inline(always)]
    fn atanh(self) -> Self {
        self.chain(self.v.atanh(), N::all(1.0) / (N::all(1.0) - self.v * self.v))
    }
    #[inline(always)]
    fn erf(self) -> Self {
        let slope = N::all(std::f64::consts::FRAC_2_SQRT_PI) * (-(self.v * self.v)).exp();
        self.chain(self.v.erf(), slope)
    }
    #[inline(always)]
    fn sigmoid(self) -> Self {
        let v = self.v.sigmoid();
        self.chain(v, v * (N::all(1.0) - v))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        Self::constant(self.v.floor())
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        Self::constant(self.v.ceil())
    }
    #[inline(always)]
    fn round(self) -> Self {
        Self::constant(self.v.round())
    }
    #[inline(always)]
    fn atan2(self, x: Self) -> Self {
        let square = self.v * self.v + x.v * x.v;
        Self { v: self.v.atan2(x.v), d: (self.d * x.v - self.v * x.d) / square }
    }
    #[inline(always)]
    fn pow(self, y: Self) -> Self {
        let v = self.v.pow(y.v);
        let by_base = self.chain(v, y.v * self.v.pow(y.v - N::all(1.0)));
        let zero = self.v.eq(N::all(0.0));
        let by_power = y.chain(v, v * N::select(zero, zero_log(self.v, y.v), self.v.ln()));
        Self { v, d: by_base.d + by_power.d }
    }
    #[inline(always)]
    fn lt(self, other: Self) -> N::Mask {
        self.v.lt(other.v)
    }
    #[inline(always)]
    fn le(self, other: Self) -> N::Mask {
        self.v.le(other.v)
    }
    #[inline(always)]
    fn eq(self, other: Self) -> N::Mask {
        self.v.eq(other.v)
    }
    #[inline(always)]
    fn and(a: N::Mask, b: N::Mask) -> N::Mask {
        N::and(a, b)
    }
    #[inline(always)]
    fn or(a: N::Mask, b: N::Mask) -> N::Mask {
        N::or(a, b)
    }
    #[inline(always)]
    fn select(mask: N::Mask, yes: Self, no: Self) -> Self {
        Self { v: N::select(mask, yes.v, no.v), d: N::select(mask, yes.d, no.d) }
    }
    #[inline(always)]
    fn is_nan(self) -> N::Mask {
        self.v.is_nan()
    }
}

/// `ln(0)` as the derivative of `0^y` wants it: nothing to multiply by where `0^y` is flat.
#[inline(always)]
fn zero_log<N: Number>(x: N, y: N) -> N {
    N::select(y.gt(N::all(0.0)), N::all(0.0), x.ln())
}

#[cfg(test)]
mod tests {
    use super::{Dual, Number};

    #[test]
    fn duals_nest_to_second_derivatives() {
        let twice = Dual::variable(Dual::variable(2.0_f64)).powi(3);
        assert_eq!((twice.v.v, twice.d.v, twice.d.d), (8.0, 12.0, 12.0));
    }

    #[test]
    fn flat_inputs_stay_flat_at_infinite_slopes() {
        assert_eq!(Dual::constant(0.0_f64).sqrt().d, 0.0);
    }
}
