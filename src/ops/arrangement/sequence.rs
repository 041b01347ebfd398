//! Operations that create sequences of numbers: arange, linspace.

use crate::array::Shape;
use crate::kernels::{Float, map};
use crate::ops::{Compute, Entry, InputShapes, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Arange>(), Entry::of::<Linspace>()];

op! {
    /// Evenly spaced numbers from `start` up to but not including `stop`: `y[i] = start + i * step`.
    ///
    /// Args:
    ///     start: The first number.
    ///     stop: The number to stop before.
    ///     step: The distance between numbers.
    ///
    /// Returns:
    ///     Array with one axis. Empty if steps from `start` lead away from `stop`.
    ///
    /// Raises:
    ///     ArgumentError: If `step` is zero or a number is not finite.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> y = F.arange(1.0, 3.0, 0.5)
    ///     >>> y.forward()
    ///     >>> y.d
    ///     array([1. , 1.5, 2. , 2.5], dtype=float32)
    /// ```
    Arange = arange(; start: f64, stop: f64, step: f64 = 1.0)
}

impl Compute for Arange {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        let n = ((self.stop - self.start) / self.step).ceil();
        if self.step == 0.0 || !n.is_finite() || !self.step.is_finite() {
            let got = format!("{} from {} to {}", self.step, self.start, self.stop);
            return Err(Error::argument("arange", "step", "other than zero, between finite numbers", got));
        }
        let shape = Shape::from([n.max(0.0) as usize]);
        shape.checked_size()?;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let number = |i: usize| T::of(self.start + i as f64 * self.step);
        map::fill(run.y(0), number);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        Vec::new()
    }
}

op! {
    /// Evenly spaced numbers from `start` to `stop`, both included.
    ///
    /// Args:
    ///     start: The first number.
    ///     stop: The last number.
    ///     num: Number of elements.
    ///
    /// Returns:
    ///     Array of shape (num,).
    ///
    /// Raises:
    ///     ArgumentError: If `num` is negative.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> y = F.linspace(0.0, 1.0, 5)
    ///     >>> y.forward()
    ///     >>> y.d
    ///     array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    /// ```
    Linspace = linspace(; start: f64, stop: f64, num: i64)
}

impl Compute for Linspace {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        let n = usize::try_from(self.num)
            .map_err(|_| Error::argument("linspace", "num", "zero or more", self.num))?;
        Shape::from([n]).checked_size()?;
        one([n])
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let last = (self.num - 1).max(1) as f64;
        let number = |i: usize| {
            let t = i as f64 / last;
            T::of(self.start * (1.0 - t) + self.stop * t)
        };
        map::fill(run.y(0), number);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        Vec::new()
    }
}
