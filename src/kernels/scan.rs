//! Running sums and products along the middle axis of `outer` blocks of `n` rows of `inner` elements.

use super::Float;
use crate::array::Shape;

/// How to run along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    outer: usize,
    n: usize,
    inner: usize,
    /// Without the element itself.
    exclusive: bool,
    /// From the end to the start.
    reverse: bool,
}

impl Scan {
    /// Along `axis` of an array of shape `shape`.
    pub fn new(shape: &Shape, axis: usize) -> Self {
        let (outer, inner) = (shape.size_to(axis), shape.size_from(axis + 1));
        Self { outer, n: shape[axis], inner, exclusive: false, reverse: false }
    }

    /// Without the element itself, if set.
    pub fn exclusive(self, exclusive: bool) -> Self {
        Self { exclusive, ..self }
    }

    /// From the end to the start, if set.
    pub fn reverse(self, reverse: bool) -> Self {
        Self { reverse, ..self }
    }

    /// Calls `f(row, row before)` in the order of the run, with the offsets of rows.
    fn rows(self, mut f: impl FnMut(usize, Option<usize>)) {
        for block in (0..self.outer).map(|o| o * self.n * self.inner) {
            for step in 0..self.n {
                let row =
                    |step: usize| block + self.inner * if self.reverse { self.n - 1 - step } else { step };
                f(row(step), step.checked_sub(1).map(row));
            }
        }
    }

    /// `y[i] = op(y[i - 1], x[i])`, or of `x[i - 1]` if exclusive; the first of these is `first`.
    #[inline(always)]
    pub fn run<T: Float>(self, x: &[T], y: &mut [T], first: T, op: impl Fn(T, T) -> T) {
        self.rows(|row, before| {
            for j in 0..self.inner {
                y[row + j] = match (before, self.exclusive) {
                    (None, true) => first,
                    (None, false) => x[row + j],
                    (Some(before), true) => op(y[before + j], x[before + j]),
                    (Some(before), false) => op(y[before + j], x[row + j]),
                };
            }
        });
    }

    /// The gradient `gx` of running products of `x`: exact also where an element is zero.
    ///
    /// The products before an element are multiplied by the sum of what its later products come to without it, which
    /// is itself run from the other end: `s[i] = gy[i] + x[i + 1] s[i + 1]`.
    pub fn product_gradient<T: Float>(self, x: &[T], gy: &[T], gx: &mut [T]) {
        let mut later = vec![T::ZERO; x.len()];
        self.reverse(!self.reverse).rows(|row, after| {
            for j in row..row + self.inner {
                later[j] = match (after.map(|after| after + j - row), self.exclusive) {
                    (None, true) => T::ZERO,
                    (None, false) => gy[j],
                    (Some(after), true) => gy[after] + x[after] * later[after],
                    (Some(after), false) => gy[j] + x[after] * later[after],
                };
            }
        });
        self.exclusive(true).run(x, gx, T::ONE, |a, b| a * b);
        gx.iter_mut().zip(later).for_each(|(g, later)| *g = *g * later);
    }
}
