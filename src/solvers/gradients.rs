//! Operations on gradients outside of an update: decay, clipping, scaling, and checks for infinity and NaN.

use super::check;
use super::solver::{Hooks, Parameter, Solver, Source, cells, real};
use crate::array::{Access, DType, Storage};
use crate::kernels::update::{self, Cells, Squares};
use crate::{Error, Result};

impl<P: Source> Solver<P> {
    /// Adds `rate` times the values to the gradients.
    pub(super) fn add_to_gradients(&self, rate: f64, hooks: Hooks<'_>) -> Result<()> {
        let prepare = |_: &_, data: &Storage, grad: &Storage| {
            data.prepare(real(data))?;
            grad.prepare(real(grad))
        };
        self.each("weight_decay", hooks, prepare, |_, _, data, grad| {
            let (w, g) = (cells(data, Access::Read)?, cells(grad, Access::ReadWrite)?);
            add_scaled(w, g, rate);
            grad.wrote();
            Ok(true)
        })
    }

    /// Multiplies the gradients by `scale`.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is not finite; otherwise as [`Solver::update`].
    pub fn scale_grad(&self, scale: f64, hooks: Hooks<'_>) -> Result<()> {
        if !scale.is_finite() {
            return Err(Error::argument(self.op("scale_grad"), "scale", "a finite number", scale));
        }
        self.each("scale_grad", hooks, with_gradient, |_, _, _, grad| {
            scale_all(cells(grad, Access::ReadWrite)?, scale);
            grad.wrote();
            Ok(true)
        })
    }

    /// Scales down each gradient whose L2 norm exceeds `clip_norm` to that norm. 0 disables clipping.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is negative or not finite; otherwise as [`Solver::update`].
    pub fn clip_grad_by_norm(&self, clip_norm: f64, hooks: Hooks<'_>) -> Result<()> {
        check(&self.op("clip_grad_by_norm"), "clip_norm", clip_norm)?;
        if clip_norm == 0.0 {
            return Ok(());
        }
        self.each("clip_grad_by_norm", hooks, with_gradient, |_, _, _, grad| {
            let squares = squares(cells(grad, Access::Read)?);
            if squares.norm() > clip_norm {
                scale_to(cells(grad, Access::ReadWrite)?, squares, clip_norm);
                grad.wrote();
            }
            Ok(true)
        })
    }

    /// Returns the L2 norm over all gradients, and scales all of them down to `max_norm` if it is larger.
    ///
    /// A norm that is infinite or NaN is returned and leaves the gradients unchanged. 0 disables clipping.
    ///
    /// # Errors
    /// [`Error::Argument`] if `max_norm` is negative or NaN; otherwise as [`Solver::update`].
    pub fn clip_grad_by_global_norm(&self, max_norm: f64) -> Result<f64> {
        const METHOD: &str = "clip_grad_by_global_norm";
        if max_norm.is_nan() || max_norm < 0.0 {
            let expected = "a number that is not negative";
            return Err(Error::argument(self.op(METHOD), "max_norm", expected, max_norm));
        }
        let mut all = Squares::NONE;
        self.each(METHOD, Hooks::none(), with_gradient, |_, _, _, grad| {
            all = all.plus(squares(cells(grad, Access::Read)?));
            Ok(true)
        })?;
        let norm = all.norm();
        if norm.is_finite() && norm > max_norm && max_norm > 0.0 {
            self.each(METHOD, Hooks::none(), with_gradient, |_, _, _, grad| {
                scale_to(cells(grad, Access::ReadWrite)?, all, max_norm);
                grad.wrote();
                Ok(true)
            })?;
        }
        Ok(norm)
    }

    /// True if any gradient has an infinite element.
    ///
    /// # Errors
    /// As [`Solver::update`].
    pub fn check_inf_grad(&self, hooks: Hooks<'_>) -> Result<bool> {
        self.any("check_inf_grad", Trouble::Infinite, hooks)
    }

    /// True if any gradient has a NaN element.
    ///
    /// # Errors
    /// As [`Solver::update`].
    pub fn check_nan_grad(&self, hooks: Hooks<'_>) -> Result<bool> {
        self.any("check_nan_grad", Trouble::NotANumber, hooks)
    }

    /// True if any gradient has an infinite or NaN element.
    ///
    /// # Errors
    /// As [`Solver::update`].
    pub fn check_inf_or_nan_grad(&self, hooks: Hooks<'_>) -> Result<bool> {
        self.any("check_inf_or_nan_grad", Trouble::Either, hooks)
    }

    /// True if any gradient has an element of the kind `trouble`.
    fn any(&self, method: &str, trouble: Trouble, hooks: Hooks<'_>) -> Result<bool> {
        let mut found = false;
        self.each(method, hooks, with_gradient, |_, _, _, grad| {
            found = troubled(cells(grad, Access::Read)?, trouble);
            Ok(!found)
        })?;
        Ok(found)
    }
}

/// Prepares a pass that reads and writes the gradient only.
fn with_gradient<P>(_: &Parameter<P>, _: &Storage, grad: &Storage) -> Result<()> {
    grad.prepare(real(grad))
}

/// The kind of invalid element to look for.
#[derive(Clone, Copy)]
enum Trouble {
    Infinite,
    NotANumber,
    Either,
}

/// Calls a function for the type in which to compute with these elements.
macro_rules! computing {
    ($cells:expr, $T:ident => $body:expr) => {
        if $cells.dtype() == DType::F64 {
            type $T = f64;
            $body
        } else {
            type $T = f32;
            $body
        }
    };
}

/// `g += rate * w`
fn add_scaled(w: Cells, g: Cells, rate: f64) {
    computing!(g, T => update::map::<T>(w, g, |w, g| g + rate as T * w));
}

/// Multiplies a gradient by a number.
fn scale_all(g: Cells, scale: f64) {
    computing!(g, T => update::map::<T>(g, g, |g, _| g * scale as T));
}

/// Scales a gradient so that its norm, the root of `squares`, becomes `norm`.
fn scale_to(g: Cells, squares: Squares, norm: f64) {
    let [unit, root] = squares.root();
    if unit == 1.0 {
        return scale_all(g, norm / root);
    }
    let factor = norm / root;
    computing!(g, T => update::map::<T>(g, g, |g, _| g / unit as T * factor as T));
}

/// The sum of squares of a gradient.
fn squares(g: Cells) -> Squares {
    computing!(g, T => update::sum_of_squares::<T>(g))
}

/// True if a gradient has an element of the kind `trouble`.
fn troubled(g: Cells, trouble: Trouble) -> bool {
    computing!(g, T => match trouble {
        Trouble::Infinite => update::any(g, |x: T| x.abs() == T::INFINITY),
        Trouble::NotANumber => update::any(g, |x: T| x.is_nan()),
        Trouble::Either => update::any(g, |x: T| x.is_nan() || x.abs() == T::INFINITY),
    })
}
