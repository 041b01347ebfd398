//! Dual numbers: a value and a derivative that every operation carries along.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{LARGE, Number, from_square, size};

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
        self.chain(self.v.asin(), self.v.asin_slope())
    }
    #[inline(always)]
    fn acos(self) -> Self {
        self.chain(self.v.acos(), -self.v.asin_slope())
    }
    #[inline(always)]
    fn atan(self) -> Self {
        // `1 / (1 + x^2)`, without the square of a large number.
        let (is_large, small) = without_large(self.v);
        let inverse = N::all(1.0) / N::select(is_large, self.v, N::all(1.0) + small * small);
        self.chain(self.v.atan(), N::select(is_large, inverse * inverse, inverse))
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
        self.chain(v, from_square(v))
    }
    #[inline(always)]
    fn asinh(self) -> Self {
        // `1 / sqrt(1 + x^2)`, without the square of a large number.
        let (is_large, small) = without_large(self.v);
        let root = N::select(is_large, size(self.v), (N::all(1.0) + small * small).sqrt());
        self.chain(self.v.asinh(), N::all(1.0) / root)
    }
    #[inline(always)]
    fn acosh(self) -> Self {
        self.chain(self.v.acosh(), self.v.acosh_slope())
    }
    #[inline(always)]
    fn atanh(self) -> Self {
        self.chain(self.v.atanh(), self.v.atanh_slope())
    }
    #[inline(always)]
    fn erf(self) -> Self {
        self.chain(self.v.erf(), N::all(std::f64::consts::FRAC_2_SQRT_PI) * self.v.bell())
    }
    #[inline(always)]
    fn bell(self) -> Self {
        let v = self.v.bell();
        self.chain(v, N::all(-2.0) * self.v * v)
    }
    #[inline(always)]
    fn sigmoid(self) -> Self {
        let v = self.v.sigmoid();
        self.chain(v, v * (N::all(1.0) - v))
    }
    #[inline(always)]
    fn sigmoids(self) -> (Self, Self) {
        let (v, left) = self.v.sigmoids();
        let slope = v * left;
        (self.chain(v, slope), self.chain(left, -slope))
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
        let (by_y, by_x) = angle_gradients(N::all(1.0), self.v, x.v);
        Self { v: self.v.atan2(x.v), d: self.d * by_y + by_x * x.d }
    }
    #[inline(always)]
    fn pow(self, y: Self) -> Self {
        let v = self.v.pow(y.v);
        let (by_base, by_power) = power_slopes(self.v, y.v, v);
        Self { v, d: self.chain(v, by_base).d + y.chain(v, by_power).d }
    }
    #[inline(always)]
    fn halves(self, n: i32) -> Self {
        let by = f64::from(n) / 2.0;
        let slope = match n {
            0 => N::all(0.0),
            -6..=8 => N::all(by) * self.v.halves(n - 2),
            _ => N::all(by) * self.v.pow(N::all(by - 1.0)),
        };
        self.chain(self.v.halves(n), slope)
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

/// True for numbers so large that `1 + x^2` is `x^2`, and `x` with 0 in place of these, so that its square is in range.
///
/// Without `abs`, whose slope at NaN is zero: the derivatives of functions of `x` are NaN there.
#[inline(always)]
fn without_large<N: Number>(x: N) -> (N::Mask, N) {
    let large = N::all(LARGE);
    let is_large = N::or(x.gt(large), x.lt(-large));
    (is_large, N::select(is_large, N::all(0.0), x))
}

/// The gradients by `y` and by `x` of the angle of the point (`x`, `y`), whose own gradient is `g`: `x g / (x^2 +
/// y^2)` and `-y g / (x^2 + y^2)`, without the squares.
#[inline(always)]
pub(crate) fn angle_gradients<N: Number>(g: N, y: N, x: N) -> (N, N) {
    let steep = y.abs().gt(x.abs());
    let (large, small) = (N::select(steep, y, x), N::select(steep, x, y));
    let ratio = small / large;
    // `large + small ratio` is in range if both halves are. Halves are taken only where no digits of `g` matter.
    let half = N::select(large.abs().gt(N::all(1e30)), N::all(0.5), N::all(1.0));
    let by_small = g * half / (large * half + small * half * ratio);
    let by_large = by_small * ratio;
    (N::select(steep, by_large, by_small), -N::select(steep, by_small, by_large))
}

/// The derivatives of `v = x^y` by `x` and by `y`.
///
/// Both are products with a factor that is zero where the power does not change. The other factor is infinite there at
/// times, and is made finite before the product, so that the derivatives of these are numbers too.
#[inline(always)]
fn power_slopes<N: Number>(x: N, y: N, v: N) -> (N, N) {
    let (zero, one) = (N::all(0.0), N::all(1.0));
    // `y x^(y - 1)`: `x^0` is 1 at zero too, and where `1 / x` is out of range.
    let steep = (one / x).abs().eq(N::all(f64::INFINITY));
    let base = N::select(N::and(y.eq(zero), steep), one, x);
    let slope = y * base.pow(y - one);
    // `v y / x` where only the product with a small `y` is in range, not the power.
    let is_small = y.abs().lt(N::all(1e-5));
    let apart = || {
        let is_apart = N::and(is_small, N::and(steep, v.gt(zero)));
        // Derivatives of a quotient by zero would be NaN even where it is not selected.
        N::select(is_apart, v * y / N::select(is_apart, base, one), slope)
    };
    let slope = N::select_of(is_small, apart, slope);
    // `v ln(x)`: `0^y` is 0 for all `y` above zero.
    let flat = N::and(x.eq(zero), y.gt(zero));
    (slope, v * N::select(flat, one, x).ln())
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
