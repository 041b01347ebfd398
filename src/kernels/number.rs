//! One arithmetic for every width: a formula on [`Number`] is evaluated on scalars, vectors, dual numbers and graph
//! symbols.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::elementary::{double, single};
use super::simd::{self, Work};
use crate::array::Element;

/// `|x|` with a slope of 1 or -1 everywhere, so that the derivatives of a function of it are NaN at NaN.
#[inline(always)]
pub(crate) fn size<N: Number>(x: N) -> N {
    N::select(x.lt(N::all(0.0)), -x, x)
}

/// A number whose square is the same after adding or subtracting 1.
pub(crate) const LARGE: f64 = 1e9;

/// `1 - x^2`, exact where that is small.
#[inline(always)]
pub(crate) fn from_square<N: Number>(x: N) -> N {
    (N::all(1.0) - x) * (N::all(1.0) + x)
}

/// A type with the arithmetic of real numbers: a scalar, a SIMD vector, a dual number, a symbol in a graph.
///
/// All functions are elementwise. Every formula on it must be `#[inline(always)]`.
#[allow(missing_docs)]
pub trait Number:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self> + Neg<Output = Self>
{
    /// The result of a comparison.
    type Mask: Copy;

    /// The constant `v` in all elements.
    fn all(v: f64) -> Self;

    /// The absolute value.
    fn abs(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// `e` to the power of `self`.
    fn exp(self) -> Self;
    /// `exp(self) - 1`, without cancellation near 0.
    fn exp_m1(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// `ln(1 + self)`, without cancellation near 0.
    fn ln_1p(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The tangent.
    fn tan(self) -> Self;
    /// The inverse sine.
    fn asin(self) -> Self;
    /// The inverse cosine.
    fn acos(self) -> Self;
    /// The inverse tangent.
    fn atan(self) -> Self;
    /// The hyperbolic sine.
    fn sinh(self) -> Self;
    /// The hyperbolic cosine.
    fn cosh(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The inverse hyperbolic sine.
    fn asinh(self) -> Self;
    /// The inverse hyperbolic cosine.
    fn acosh(self) -> Self;
    /// The inverse hyperbolic tangent.
    fn atanh(self) -> Self;
    /// The Gauss error function.
    fn erf(self) -> Self;
    /// `sin` in fewer steps, with the same result for angles below `Float::SMALL_ANGLE`. Likewise the other `_small`
    /// functions.
    #[inline(always)]
    fn sin_small(self) -> Self {
        self.sin()
    }
    /// The cosine of an angle that is known to be small.
    #[inline(always)]
    fn cos_small(self) -> Self {
        self.cos()
    }
    /// The tangent of an angle that is known to be small.
    #[inline(always)]
    fn tan_small(self) -> Self {
        self.tan()
    }
    /// `1 / (1 + exp(-x))`, without overflow.
    fn sigmoid(self) -> Self;
    /// `sigmoid(x)` and `sigmoid(-x)`, both to full precision.
    fn sigmoids(self) -> (Self, Self);
    /// `exp(-x^2)`, as exact as if the square were not rounded.
    fn bell(self) -> Self;
    /// The largest whole number that is not above `self`.
    fn floor(self) -> Self;
    /// The smallest whole number that is not below `self`.
    fn ceil(self) -> Self;
    /// The nearest whole number, with ties away from zero.
    fn round(self) -> Self;
    /// The angle of the point (`x`, `self`).
    fn atan2(self, x: Self) -> Self;
    /// `self` to the power of `y`.
    fn pow(self, y: Self) -> Self;
    /// The derivative of the inverse sine, `1 / sqrt(1 - x^2)`.
    #[inline(always)]
    fn asin_slope(self) -> Self {
        Self::all(1.0) / from_square(self).sqrt()
    }
    /// The derivative of the inverse hyperbolic tangent, `1 / (1 - x^2)`.
    #[inline(always)]
    fn atanh_slope(self) -> Self {
        Self::all(1.0) / from_square(self)
    }
    /// The derivative of the inverse hyperbolic cosine, `1 / sqrt(x^2 - 1)`, without the square of a large number. The
    /// two factors lose no digits near 1.
    #[inline(always)]
    fn acosh_slope(self) -> Self {
        let size = size(self);
        let is_large = size.gt(Self::all(LARGE));
        let small = Self::select(is_large, Self::all(2.0), size);
        let root = ((small - Self::all(1.0)) * (small + Self::all(1.0))).sqrt();
        Self::all(1.0) / Self::select(is_large, size, root)
    }

    /// True where `self < other`. False where either is NaN.
    fn lt(self, other: Self) -> Self::Mask;
    /// True where `self <= other`. False where either is NaN.
    fn le(self, other: Self) -> Self::Mask;
    /// True where both are equal. False where either is NaN.
    fn eq(self, other: Self) -> Self::Mask;
    /// True where both masks are.
    fn and(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// True where either mask is.
    fn or(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// `yes` where the mask is true, otherwise `no`. The value that is not selected may be infinite or NaN.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// As [`Number::select`]. Need not compute `yes` if the mask is known to be false.
    #[inline(always)]
    fn select_of(mask: Self::Mask, yes: impl FnOnce() -> Self, no: Self) -> Self {
        Self::select(mask, yes(), no)
    }

    /// `self` to the power of `n / 2`, for `n` from -8 to 8, by products, quotients and a square root, with the
    /// special cases of C.
    #[inline(always)]
    fn halves(self, n: i32) -> Self {
        if n % 2 == 0 {
            return halves(self, self, n);
        }
        let infinity = Self::all(f64::INFINITY);
        // As in C, infinity for its negative, and 0 for -0.
        let x = Self::select(self.eq(-infinity), infinity, self + Self::all(0.0));
        halves(x, x.sqrt(), n)
    }

    /// `self` to a whole power, by repeated multiplication.
    #[inline(always)]
    fn powi(self, n: u32) -> Self {
        (1..n).fold(self, |y, _| y * self)
    }

    /// True where `self > other`. False where either is NaN.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }
    /// True where `self >= other`. False where either is NaN.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }
    /// The smaller one. NaN if either is.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Self::select(Self::or(self.lt(other), self.is_nan()), self, other)
    }
    /// The larger one. NaN if either is.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::select(Self::or(self.gt(other), self.is_nan()), self, other)
    }
    /// True where this is NaN.
    fn is_nan(self) -> Self::Mask;
}

/// `x` to the power of `n / 2`. `root` is its square root, which is used if `n` is odd.
#[inline(always)]
fn halves<N: Number>(x: N, root: N, n: i32) -> N {
    let whole = |n: i32| match n {
        1 => x,
        2 => x * x,
        3 => x * x * x,
        _ => (x * x) * (x * x),
    };
    match (n.abs() / 2, n % 2, n < 0) {
        (0, 0, _) => N::all(1.0),
        (0, _, false) => root,
        (0, _, true) => N::all(1.0) / root,
        (by, 0, false) => whole(by),
        (by, _, false) => whole(by) * root,
        (1, 0, true) => N::all(1.0) / x,
        // In two steps, since the power itself may overflow where its inverse is representable.
        (by, 0, true) => N::all(1.0) / whole(by / 2) / whole(by - by / 2),
        (by, _, true) => N::all(1.0) / whole(by) / root,
    }
}

/// A value that exists for each type of number, such as a table of kernels.
#[doc(hidden)]
pub trait PerFloat {
    /// The type of the value.
    type Of<T: Float>;
    /// The value for `f32`.
    fn f32() -> Self::Of<f32>;
    /// The value for `f64`.
    fn f64() -> Self::Of<f64>;
}

/// An element that kernels move from array to array: a number, or the bits of a number of 16 bits.
pub trait Movable: Element + Default {
    /// `0`.
    const ZERO: Self;
    /// True for 0 and -0.
    fn is_zero(self) -> bool;
    /// The sum of two numbers. Bits are only added to 0, to which at most one number is added.
    fn plus(self, other: Self) -> Self;
}

/// The bits of a number in half precision or bfloat16.
impl Movable for u16 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn is_zero(self) -> bool {
        self << 1 == 0
    }
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        debug_assert_eq!(self, 0, "bits are added to nothing but 0");
        if other.is_zero() { 0 } else { other }
    }
}

/// A real number in memory that kernels compute with: `f32` or `f64`.
pub trait Float: Number<Mask = bool> + Movable + PartialOrd + std::fmt::Debug + std::iter::Sum {
    /// The distance from 1 to the next number.
    const EPSILON: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// Negative infinity.
    const NEG_INFINITY: Self;
    /// The largest finite number.
    const MAX: Self;
    /// The smallest positive normal number.
    const MIN_POSITIVE: Self;
    /// `1`.
    const ONE: Self;
    /// Angles below this, in radians, are small.
    const SMALL_ANGLE: Self;
    /// `self * a + b`, rounded once if the machine supports that.
    fn mul_add(self, a: Self, b: Self) -> Self;
    /// Selects the value for this type of number.
    #[doc(hidden)]
    fn choose<P: PerFloat>() -> P::Of<Self>;
    /// Runs work in the registers of this machine.
    #[doc(hidden)]
    fn in_registers<W: Work<Self>>(work: W) -> W::Output;
}

/// Implements the traits of numbers for a primitive type.
macro_rules! float {
    ($ty:ident, $functions:ident, $in_registers:ident) => {
        impl Number for $ty {
            type Mask = bool;

            #[inline(always)]
            fn all(v: f64) -> Self {
                v as Self
            }
            float!(@of $ty: abs sqrt floor ceil round);
            float!(@of $functions: exp exp_m1 ln ln_1p sinh cosh tanh asinh acosh atanh sigmoid erf);
            float!(@of $functions: sin cos tan asin acos atan sin_small cos_small tan_small bell);
            #[inline(always)]
            fn sigmoids(self) -> (Self, Self) {
                $functions::sigmoids(self)
            }
            #[inline(always)]
            fn atan2(self, x: Self) -> Self {
                $functions::atan2(self, x)
            }
            #[inline(always)]
            fn pow(self, y: Self) -> Self {
                $functions::pow(self, y)
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn and(a: bool, b: bool) -> bool {
                a & b
            }
            #[inline(always)]
            fn or(a: bool, b: bool) -> bool {
                a | b
            }
            #[inline(always)]
            fn select(mask: bool, yes: Self, no: Self) -> Self {
                if mask { yes } else { no }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $ty::is_nan(self)
            }
        }

        impl Movable for $ty {
            const ZERO: Self = 0.0;
            #[inline(always)]
            fn is_zero(self) -> bool {
                self == 0.0
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
        }

        impl Float for $ty {
            const EPSILON: Self = $ty::EPSILON;
            const INFINITY: Self = $ty::INFINITY;
            const NEG_INFINITY: Self = $ty::NEG_INFINITY;
            const MAX: Self = $ty::MAX;
            const MIN_POSITIVE: Self = $ty::MIN_POSITIVE;
            const ONE: Self = 1.0;
            const SMALL_ANGLE: Self = $functions::SMALL_ANGLE;
            #[inline(always)]
            fn mul_add(self, a: Self, b: Self) -> Self {
                $ty::mul_add(self, a, b)
            }
            #[inline(always)]
            fn choose<P: PerFloat>() -> P::Of<Self> {
                P::$ty()
            }
            #[inline]
            fn in_registers<W: Work<Self>>(work: W) -> W::Output {
                simd::$in_registers(work)
            }
        }
    };
    (@of $from:ident: $($f:ident)+) => {$(
        #[inline(always)]
        fn $f(self) -> Self {
            $from::$f(self)
        }
    )+};
}

float!(f32, single, in_registers_f32);
float!(f64, double, in_registers_f64);
