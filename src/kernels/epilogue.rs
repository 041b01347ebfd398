//! Epilogues: operations on a result before it is written to memory, passed from the operation down to the registers.
//! Knows numbers, slices and registers, not products.

use super::Float;
use super::simd::Vector;
use super::threads::{Shared, ranges};

/// Elements of a whole result that a thread processes at a time.
const ALL: usize = 1 << 14;

/// The activation of a sum before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Leaves the sum unchanged.
    Identity,
    /// Replaces negative numbers by zero, as `relu` does. Zeros keep their sign, and NaN stays.
    Relu,
}

impl Activation {
    /// This activation, or the identity.
    pub(super) fn only_if(self, applies: bool) -> Self {
        if applies { self } else { Self::Identity }
    }

    /// Applies the activation to one number.
    #[inline(always)]
    pub(super) fn of<T: Float>(self, v: T) -> T {
        match self {
            Self::Relu if v < T::ZERO => T::ZERO,
            Self::Relu | Self::Identity => v,
        }
    }

    /// Applies the activation to a register of numbers.
    ///
    /// # Safety
    /// The instructions of `V` must be available.
    #[inline(always)]
    pub(super) unsafe fn on<V: Vector>(self, v: V) -> V {
        match self {
            Self::Identity => v,
            // SAFETY: guaranteed by the caller.
            Self::Relu => unsafe { v.relu() },
        }
    }
}

/// Functions of elements that have just been written, and are in the cache.
pub trait RowFunctions: Sync {
    /// Applies the functions in place to `n` elements of a result.
    ///
    /// # Safety
    /// The elements from `at` on must belong to the result for which this was made, without concurrent access.
    unsafe fn finish(&self, at: *mut u8, n: usize);
}

/// The elementwise functions at the end of an epilogue, for any type of number: an activation in registers, then
/// functions of written rows.
#[derive(Clone, Copy)]
pub struct Tail<'a> {
    /// The activation, which is applied to sums in registers before they are written.
    pub activation: Activation,
    /// Functions of rows, which are applied after a row is written, while it is in the cache.
    pub rows: Option<&'a dyn RowFunctions>,
}

impl Tail<'_> {
    /// No function.
    pub const NOTHING: Self = Self { activation: Activation::Identity, rows: None };

    /// The part that a product applies itself, if `applies`. The rest follows once rows are complete.
    pub(super) fn in_registers(self, applies: bool) -> Self {
        Self { activation: self.activation.only_if(applies), rows: None }
    }

    /// Applies all functions to a whole result.
    pub(super) fn finish_all<T: Float>(self, all: &mut [T]) {
        let at = Shared::new(all.as_mut_ptr());
        if self.rows.is_none() && self.activation == Activation::Identity {
            return;
        }
        // SAFETY: the ranges are disjoint parts of the result.
        ranges(all.len(), ALL, |some| unsafe {
            let some = std::slice::from_raw_parts_mut(at.get().add(some.start), some.len());
            for v in &mut *some {
                *v = self.activation.of(*v);
            }
            self.finish(some.as_mut_ptr(), 0, 1, some.len());
        });
    }

    /// Applies `rows` in place to `m` rows of `n` elements that have been written. Rows are `row` elements
    /// apart.
    ///
    /// # Safety
    /// As [`RowFunctions::finish`].
    pub(super) unsafe fn finish<T>(self, at: *mut T, row: usize, m: usize, n: usize) {
        let Some(rows) = self.rows else { return };
        // SAFETY: guaranteed by the caller.
        unsafe {
            if row == n {
                rows.finish(at.cast(), m * n);
            } else {
                (0..m).for_each(|i| rows.finish(at.add(i * row).cast(), n));
            }
        }
    }
}

/// The operations on the sums of a product or a convolution before they are written.
///
/// A product first adds the previous result, then the biases. A convolution adds the bias first.
#[derive(Clone, Copy)]
pub struct Epilogue<'a, T> {
    /// Adds the previous result.
    pub accumulate: bool,
    /// Adds a number to each row of a product, or to each target (map or channel) of a convolution.
    pub row_bias: Option<&'a [T]>,
    /// Adds a number to each column of a product.
    pub column_bias: Option<&'a [T]>,
    /// Functions applied last.
    pub tail: Tail<'a>,
}

impl<'a, T> Epilogue<'a, T> {
    /// No operation: the result is overwritten.
    pub const NONE: Self = Self::plain(false);

    /// Overwrites the result, or adds to it.
    pub const fn plain(accumulate: bool) -> Self {
        Self { accumulate, row_bias: None, column_bias: None, tail: Tail::NOTHING }
    }

    /// The epilogue for the result from element (i, j) on.
    #[inline]
    pub(super) fn part(self, i: usize, j: usize) -> Self {
        let from = |bias: Option<&'a [T]>, at: usize| bias.map(|bias| &bias[at..]);
        Self { row_bias: from(self.row_bias, i), column_bias: from(self.column_bias, j), ..self }
    }

    /// The epilogue for the transpose of the result.
    pub(super) fn transposed(self) -> Self {
        Self { row_bias: self.column_bias, column_bias: self.row_bias, ..self }
    }

    /// The epilogue for one part of a sum that is computed in several: later parts add to the stored sum of the
    /// first, and the final operations follow the last.
    #[inline(always)]
    pub(super) fn of_part(self, is_first: bool, is_last: bool) -> Self {
        let accumulate = self.accumulate || !is_first;
        if is_last { Self { accumulate, ..self } } else { Self::plain(accumulate) }
    }
}

/// A function for tests that shows how often it was applied.
#[cfg(test)]
pub(super) struct Twice<T>(pub(super) std::marker::PhantomData<T>);

#[cfg(test)]
impl<T: Float> RowFunctions for Twice<T> {
    unsafe fn finish(&self, at: *mut u8, n: usize) {
        // SAFETY: guaranteed by the caller.
        let row = unsafe { std::slice::from_raw_parts_mut(at.cast::<T>(), n) };
        for v in row {
            *v = *v + *v;
        }
    }
}
