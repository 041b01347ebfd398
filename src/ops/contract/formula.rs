//! Formulas of elementwise operations, as their authors write them.

use crate::Result;
use crate::kernels::{Dual, Number};
use crate::ops::contract::facts::ALL_INTEGERS;
use crate::ops::{Activation, Declared, Loops, Reads};

/// An elementwise function of one input.
pub trait Unary: Declared {
    /// The values that [`Unary::df`] reads.
    const READS: Reads = Reads::INPUTS;

    /// See [`Compute::ACTIVATION`](crate::ops::Compute::ACTIVATION).
    const ACTIVATION: Option<Activation> = None;

    /// True if a nonzero derivative exists anywhere.
    const IS_DIFFERENTIABLE: bool = true;

    /// True if the function compares elements with a number, and returns truth values. Integers are compared in `f64`.
    const COMPARES: bool = false;

    /// True if the function is the identity: integers keep their type, see
    /// [`Compute::moves`](crate::ops::Compute::moves).
    const MOVES: bool = false;

    /// The range of its constants, see [`Compute::constants`](crate::ops::Compute::constants), if each result for a
    /// whole number is that number, its absolute value or a constant. Integers keep their values then.
    const SELECTS: Option<[i64; 2]> = None;

    /// True if [`Unary::limit`] depends on arguments.
    const HAS_LIMIT: bool = false;

    /// A number that may be a result, too, for a function that selects. Integers keep their values only if it is whole.
    fn limit(&self) -> f64 {
        0.0
    }

    /// The integers that are results themselves, on their side of a [`Unary::limit`].
    fn within_limit(&self) -> [i64; 2] {
        ALL_INTEGERS
    }

    /// Returns [`Error::Argument`](crate::Error::Argument) for arguments out of range, if there is such a check.
    const CHECK: Option<fn(&Self) -> Result<()>> = None;

    /// The function.
    fn f<N: Number>(&self, x: N) -> N;

    /// Its derivative at `x`, given also `y = f(x)`. Derived from `f` by default. Implement it if that saves work or
    /// if dual numbers give a wrong result, and read only the values in [`Unary::READS`].
    #[inline(always)]
    fn df<N: Number>(&self, x: N, y: N) -> N {
        let _ = y;
        self.f(Dual::variable(x)).d
    }

    /// The gradient of the input, given the gradient of the output: `gy * df(x, y)`.
    ///
    /// Implement it for a function with branches. A branch that is not taken contributes zero for any `gy`, so select
    /// it ([`Number::select`], `sloped`) and never multiply by zero.
    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, x: N, y: N) -> N {
        gy * self.df(x, y)
    }

    /// The loops that run over arrays. May return the loops of a simpler formula for some arguments.
    fn loops(&self, double: bool) -> Loops {
        Loops::unary(self, double)
    }

    /// True if the function is a long chain of dependent steps, so several registers are processed together.
    const IS_LONG: bool = false;

    /// True if the `_small` functions below take fewer steps.
    const IS_OF_ANGLES: bool = false;

    /// `f` for angles that are known to be small.
    #[inline(always)]
    fn f_small<N: Number>(&self, x: N) -> N {
        self.f(x)
    }

    /// `df` for angles that are known to be small.
    #[inline(always)]
    fn df_small<N: Number>(&self, x: N, y: N) -> N {
        self.df(x, y)
    }
}

/// An elementwise function of two inputs with broadcasting.
pub trait Binary: Declared {
    /// The values that [`Binary::df`] reads.
    const READS: Reads = Reads::INPUTS;

    /// True if a nonzero derivative exists anywhere.
    const IS_DIFFERENTIABLE: bool = true;

    /// True if the function compares elements, and returns truth values. Integers are compared in `f64`.
    const COMPARES: bool = false;

    /// True if each result is an element of an input. Integers keep their values then.
    const SELECTS: bool = false;

    /// True if both inputs must have the same number of axes, as for losses: (n, 1) against (n,) is a silent error.
    const SAME_NDIM: bool = false;

    /// Returns [`Error::Argument`](crate::Error::Argument) for arguments out of range, if there is such a check.
    const CHECK: Option<fn(&Self) -> Result<()>> = None;

    /// The function.
    fn f<N: Number>(&self, a: N, b: N) -> N;

    /// Its derivatives by `a` and by `b`, given also `y = f(a, b)`.
    #[inline(always)]
    fn df<N: Number>(&self, a: N, b: N, y: N) -> (N, N) {
        let _ = y;
        (self.f(Dual::variable(a), Dual::constant(b)).d, self.f(Dual::constant(a), Dual::variable(b)).d)
    }

    /// The gradients of both inputs, given the gradient of the output. See [`Unary::gx`].
    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, y: N) -> (N, N) {
        let (da, db) = self.df(a, b, y);
        (gy * da, gy * db)
    }
}
