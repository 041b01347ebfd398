//! Products without packing, one element at a time.

use super::operand::{MatrixOperand, Strided};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::{Float, stop};

impl<T: Float> Epilogue<'_, T> {
    /// The final value of element (i, j), from its sum and its previous value.
    pub(super) fn of(&self, mut sum: T, before: T, i: usize, j: usize) -> T {
        if self.accumulate {
            sum = sum + before;
        }
        for (bias, at) in [(self.row_bias, i), (self.column_bias, j)] {
            if let Some(bias) = bias {
                sum = sum + bias[at];
            }
        }
        self.tail.activation.of(sum)
    }
}

/// Computes element by element, as the fallback: for results with gaps in both directions, or without memory for
/// packing.
///
/// # Safety
/// As [`multiply`](super::multiply).
pub(super) unsafe fn one_by_one<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: MatrixOperand<T>,
    b: MatrixOperand<T>,
    c: Strided<T>,
    epilogue: Epilogue<'_, T>,
) {
    for i in 0..m {
        stop::poll();
        for j in 0..n {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let mut sum = T::ZERO;
                for p in 0..k {
                    sum = *a.at(i, p) * *b.at(p, j) + sum;
                }
                let c = c.p.offset(i as isize * c.row + j as isize * c.col);
                *c = epilogue.of(sum, *c, i, j);
                epilogue.tail.finish(c, 1, 1, 1);
            }
        }
    }
}
