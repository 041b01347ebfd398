//! What a result goes through on its way to memory: one description of it, from the operation down to the registers. Knows
//! numbers, slices and registers; knows no products.

use super::Float;
use super::simd::Vector;
use super::threads::{Shared, ranges};

/// Elements of a whole result that a thread takes at a time.
const ALL: usize = 1 << 14;

/// What happens to a sum before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// What is below zero becomes zero, as `relu` does: zeros keep their sign, and NaN stays.
    Relu,
}

impl Activation {
    /// This, or nothing.
    pub(super) fn only_if(self, applies: bool) -> Self {
        if applies { self } else { Self::Identity }
    }

    /// Of one number.
    #[inline(always)]
    pub(super) fn of<T: Float>(self, v: T) -> T {
        match self {
            Self::Relu if v < T::ZERO => T::ZERO,
            Self::Relu | Self::Identity => v,
        }
    }

    /// Of a register of numbers.
    ///
    /// # Safety
    /// The instructions of `V` are there.
    #[inline(always)]
    pub(super) unsafe fn on<V: Vector>(self, v: V) -> V {
        match self {
            Self::Identity => v,
            // SAFETY: the caller's promise.
            Self::Relu => unsafe { v.relu() },
        }
    }
}

/// Functions of elements that have just been written, and are in the cache.
pub trait RowFunctions: Sync {
    /// Takes `n` elements of a result through the functions, in place.
    ///
    /// # Safety
    /// The elements are those of the result for which this was made, from `at` on, and nobody else uses them meanwhile.
    unsafe fn finish(&self, at: *mut u8, n: usize);
}

/// The elementwise functions that end an epilogue, whatever the type of the numbers: first one in registers, then others
/// once rows of the result are written.
#[derive(Clone, Copy)]
pub struct Tail<'a> {
    /// In registers.
    pub activation: Activation,
    /// In the cache.
    pub rows: Option<&'a dyn RowFunctions>,
}

impl Tail<'_> {
    /// No function at all.
    pub const NOTHING: Self = Self { activation: Activation::Identity, rows: None };

    /// What of it a product does itself, if it `applies`: the rest comes once rows are whole.
    pub(super) fn in_registers(self, applies: bool) -> Self {
        Self { activation: self.activation.only_if(applies), rows: None }
    }

    /// Takes all of a result through everything.
    pub(super) fn finish_all<T: Float>(self, all: &mut [T]) {
        let at = Shared::new(all.as_mut_ptr());
        if self.rows.is_none() && self.activation == Activation::Identity {
            return;
        }
        // SAFETY: the ranges are parts of the result, each its own.
        ranges(all.len(), ALL, |some| unsafe {
            let some = std::slice::from_raw_parts_mut(at.get().add(some.start), some.len());
            for v in &mut *some {
                *v = self.activation.of(*v);
            }
            self.finish(some.as_mut_ptr(), 0, 1, some.len());
        });
    }

    /// Takes `m` rows of `n` elements, which are `row` apart, through the functions that run in the cache.
    ///
    /// # Safety
    /// As [`RowFunctions::finish`].
    pub(super) unsafe fn finish<T>(self, at: *mut T, row: usize, m: usize, n: usize) {
        let Some(rows) = self.rows else { return };
        // SAFETY: the caller's promise.
        unsafe {
            if row == n {
                rows.finish(at.cast(), m * n);
            } else {
                (0..m).for_each(|i| rows.finish(at.add(i * row).cast(), n));
            }
        }
    }
}

/// What is done to the sums of a product or of a convolution on their way to memory.
///
/// A product adds what the result holds first, then the biases; a convolution adds the bias first.
#[derive(Clone, Copy)]
pub struct Epilogue<'a, T> {
    /// Adds what the result holds.
    pub accumulate: bool,
    /// Adds a number to each row of a product, or to each target (map or channel) of a convolution.
    pub row_bias: Option<&'a [T]>,
    /// Adds a number to each column of a product.
    pub column_bias: Option<&'a [T]>,
    /// Goes through these functions.
    pub tail: Tail<'a>,
}

impl<'a, T> Epilogue<'a, T> {
    /// Nothing is done: the result is overwritten.
    pub const NONE: Self = Self::plain(false);

    /// The result is overwritten, or added to.
    pub const fn plain(accumulate: bool) -> Self {
        Self { accumulate, row_bias: None, column_bias: None, tail: Tail::NOTHING }
    }

    /// For the result from an element on.
    #[inline]
    pub(super) fn part(self, i: usize, j: usize) -> Self {
        let from = |bias: Option<&'a [T]>, at: usize| bias.map(|bias| &bias[at..]);
        Self { row_bias: from(self.row_bias, i), column_bias: from(self.column_bias, j), ..self }
    }

    /// For the transpose of the result.
    pub(super) fn transposed(self) -> Self {
        Self { row_bias: self.column_bias, column_bias: self.row_bias, ..self }
    }

    /// For one of the parts that a sum is computed in: later parts add to what the first has stored, and what is done once
    /// is done with the last.
    #[inline(always)]
    pub(super) fn of_part(self, is_first: bool, is_last: bool) -> Self {
        let accumulate = self.accumulate || !is_first;
        if is_last { Self { accumulate, ..self } } else { Self::plain(accumulate) }
    }
}

/// A function for tests that tells how often it was applied.
#[cfg(test)]
pub(super) struct Twice<T>(pub(super) std::marker::PhantomData<T>);

#[cfg(test)]
impl<T: Float> RowFunctions for Twice<T> {
    unsafe fn finish(&self, at: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        let row = unsafe { std::slice::from_raw_parts_mut(at.cast::<T>(), n) };
        for v in row {
            *v = *v + *v;
        }
    }
}
