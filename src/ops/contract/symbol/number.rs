//! Arithmetic of symbols: each step of a formula becomes an operation of the graph. Constants are folded.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::Sym;
use crate::kernels::Number;
use crate::ops::pointwise::activation::{Sigmoid, Tanh};
use crate::ops::pointwise::arithmetic::{
    Add2, AddScalar, Div2, Mul2, MulScalar, Pow2, RDivScalar, RPowScalar, RSubScalar, Sub2,
};
use crate::ops::pointwise::comparison::{
    Equal, EqualScalar, Greater, GreaterEqual, GreaterEqualScalar, GreaterScalar, LessEqualScalar, LessScalar,
};
use crate::ops::pointwise::logical::{LogicalAnd, LogicalOr};
use crate::ops::pointwise::math::{Abs, Ceil, Erf, Exp, Floor, IsNaN, Log, Round};
use crate::ops::pointwise::powers::PowScalar;
use crate::ops::pointwise::selection::Where;
use crate::ops::pointwise::trigonometry::{
    ACos, ACosh, ACoshSlope, ASin, ASinSlope, ASinh, ATan, ATan2, ATanh, ATanhSlope, Cos, Cosh, Sin, Sinh,
    Tan,
};

/// Applies the operation for its operands: two variables, or a variable and a constant on either side.
macro_rules! arithmetic {
    ($trait:ident $f:ident, $fold:expr, $nodes:expr, $right:expr, $left:expr) => {
        impl $trait for Sym {
            type Output = Self;
            fn $f(self, o: Self) -> Self {
                match (self, o) {
                    (Self::Const(a), Self::Const(b)) => Self::Const($fold(a, b)),
                    (Self::Node(_), Self::Node(_)) => Self::binary($nodes, self, o),
                    (Self::Node(_), Self::Const(c)) => $right(self, c),
                    (Self::Const(c), Self::Node(_)) => $left(c, o),
                }
            }
        }
    };
}

/// `x + val`. Adds no operation if `val` is zero.
fn plus(x: Sym, val: f64) -> Sym {
    if val == 0.0 { x } else { Sym::unary(AddScalar { val, inplace: false }, x) }
}

/// `x * val`. Adds no operation if `val` is 0 or 1.
fn times(x: Sym, val: f64) -> Sym {
    match val {
        0.0 => Sym::Const(0.0),
        1.0 => x,
        _ => Sym::unary(MulScalar { val, inplace: false }, x),
    }
}

arithmetic!(Add add, |a, b| a + b, Add2 { inplace: false }, plus, |c, x| plus(x, c));
arithmetic!(Sub sub, |a, b| a - b, Sub2 { inplace: false }, |x, c: f64| plus(x, -c), |c, x| {
    Sym::unary(RSubScalar { val: c }, x)
});
arithmetic!(Mul mul, |a, b| a * b, Mul2 { inplace: false }, times, |c, x| times(x, c));
arithmetic!(Div div, |a, b| a / b, Div2 { inplace: false }, |x, c: f64| times(x, 1.0 / c), |c: f64, x| {
    if c == 0.0 { Sym::Const(0.0) } else { Sym::unary(RDivScalar { val: c }, x) }
});

impl Neg for Sym {
    type Output = Self;
    fn neg(self) -> Self {
        match self {
            Self::Const(c) => Self::Const(-c),
            Self::Node(_) => Self::unary(MulScalar { val: -1.0, inplace: false }, self),
        }
    }
}

/// Functions of one symbol by the operations that compute them. Folded for constants.
macro_rules! functions {
    ($($f:ident = $op:ident;)+) => {$(
        fn $f(self) -> Self {
            match self {
                Self::Const(c) => Self::Const(Number::$f(c)),
                Self::Node(_) => Self::unary($op {}, self),
            }
        }
    )+};
}

/// A comparison: `1` if it holds, otherwise `0`. Folded for constants.
macro_rules! comparison {
    ($f:ident, $nodes:expr, $right:expr, $left:expr) => {
        fn $f(self, other: Self) -> Self {
            match (self, other) {
                (Self::Const(a), Self::Const(b)) => Self::Const(f64::from(u8::from(Number::$f(a, b)))),
                (Self::Node(_), Self::Node(_)) => $nodes(self, other),
                (Self::Node(_), Self::Const(c)) => $right(self, c),
                (Self::Const(c), Self::Node(_)) => $left(c, other),
            }
        }
    };
}

impl Number for Sym {
    type Mask = Self;

    fn all(v: f64) -> Self {
        Self::Const(v)
    }

    functions! {
        asin_slope = ASinSlope; acosh_slope = ACoshSlope; atanh_slope = ATanhSlope;
        abs = Abs; exp = Exp; ln = Log; sin = Sin; cos = Cos; tan = Tan; asin = ASin; acos = ACos; atan = ATan;
        sinh = Sinh; cosh = Cosh; tanh = Tanh; asinh = ASinh; acosh = ACosh; atanh = ATanh; erf = Erf;
        sigmoid = Sigmoid; floor = Floor; ceil = Ceil; round = Round;
    }

    fn sqrt(self) -> Self {
        self.pow(Self::Const(0.5))
    }
    fn exp_m1(self) -> Self {
        self.exp() - Self::Const(1.0)
    }
    fn ln_1p(self) -> Self {
        (self + Self::Const(1.0)).ln()
    }
    fn powi(self, n: u32) -> Self {
        self.pow(Self::Const(f64::from(n)))
    }
    fn halves(self, n: i32) -> Self {
        self.pow(Self::Const(f64::from(n) / 2.0))
    }
    fn sigmoids(self) -> (Self, Self) {
        (self.sigmoid(), (-self).sigmoid())
    }
    fn bell(self) -> Self {
        (-(self * self)).exp()
    }
    fn atan2(self, x: Self) -> Self {
        match (self, x) {
            (Self::Const(y), Self::Const(x)) => Self::Const(y.atan2(x)),
            _ => Self::binary(ATan2 {}, self, x),
        }
    }
    fn pow(self, y: Self) -> Self {
        match (self, y) {
            (Self::Const(a), Self::Const(b)) => Self::Const(a.powf(b)),
            (Self::Node(_), Self::Const(1.0)) => self,
            (Self::Node(_), Self::Const(0.0)) => Self::Const(1.0),
            (Self::Node(_), Self::Const(val)) => Self::unary(PowScalar { val, inplace: false }, self),
            (Self::Const(val), Self::Node(_)) => Self::unary(RPowScalar { val }, y),
            (Self::Node(_), Self::Node(_)) => Self::binary(Pow2 { inplace: false }, self, y),
        }
    }

    comparison!(
        lt,
        |a, b| Self::binary(Greater {}, b, a),
        |x, val| Self::unary(LessScalar { val }, x),
        |val, x| Self::unary(GreaterScalar { val }, x)
    );
    comparison!(
        le,
        |a, b| Self::binary(GreaterEqual {}, b, a),
        |x, val| Self::unary(LessEqualScalar { val }, x),
        |val, x| Self::unary(GreaterEqualScalar { val }, x)
    );
    comparison!(
        eq,
        |a, b| Self::binary(Equal {}, a, b),
        |x, val| Self::unary(EqualScalar { val }, x),
        |val, x| Self::unary(EqualScalar { val }, x)
    );
    fn and(a: Self, b: Self) -> Self {
        match (a, b) {
            (Self::Const(0.0), _) | (_, Self::Const(0.0)) => Self::Const(0.0),
            (Self::Const(_), m) | (m, Self::Const(_)) => m,
            _ => Self::binary(LogicalAnd {}, a, b),
        }
    }
    fn or(a: Self, b: Self) -> Self {
        match (a, b) {
            (Self::Const(0.0), m) | (m, Self::Const(0.0)) => m,
            (Self::Const(_), _) | (_, Self::Const(_)) => Self::Const(1.0),
            _ => Self::binary(LogicalOr {}, a, b),
        }
    }
    fn select(mask: Self, yes: Self, no: Self) -> Self {
        match mask {
            Self::Const(0.0) => no,
            Self::Const(_) => yes,
            Self::Node(_) => Self::apply(Where {}, &[mask, yes, no]),
        }
    }
    fn select_of(mask: Self, yes: impl FnOnce() -> Self, no: Self) -> Self {
        if let Self::Const(0.0) = mask { no } else { Self::select(mask, yes(), no) }
    }
    fn is_nan(self) -> Self {
        match self {
            Self::Const(c) => Self::Const(f64::from(u8::from(c.is_nan()))),
            Self::Node(_) => Self::unary(IsNaN {}, self),
        }
    }
}
