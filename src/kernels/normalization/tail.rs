//! A fused tail: normalization by given statistics, addition of an array, and an activation.

use super::InPlace;
use crate::kernels::epilogue::{Activation, RowFunctions};
use crate::kernels::simd::row::each;
use crate::kernels::simd::{Vector, Work};
use crate::kernels::threads::Shared;
use crate::kernels::{Float, Tail};

/// Normalizes each element of a result, adds the element of another array, and applies the activation.
pub struct NormalizeAdd<'a, T> {
    /// The start of the result, which is as long as `other`.
    result: Shared<T>,
    /// The statistics. None to normalize nothing.
    normalize: Option<&'a InPlace<T>>,
    /// The array that is added, if any.
    other: Option<&'a [T]>,
    /// The activation, which is applied last.
    activation: Activation,
}

impl<'a, T: Float> NormalizeAdd<'a, T> {
    /// The tail for the elements of `result`.
    ///
    /// # Panics
    /// If the other array has another length.
    pub fn new(
        result: *mut T,
        n: usize,
        normalize: Option<&'a InPlace<T>>,
        other: Option<&'a [T]>,
        activation: Activation,
    ) -> Self {
        assert!(other.is_none_or(|other| other.len() == n), "an array that is not as long as the result");
        Self { result: Shared::new(result), normalize, other, activation }
    }

    /// The tail of the kernel that writes the result.
    pub fn tail(&self) -> Tail<'_> {
        if self.normalize.is_none() && self.other.is_none() {
            return Tail { activation: self.activation, rows: None };
        }
        Tail { activation: Activation::Identity, rows: Some(self) }
    }
}

impl<T: Float> RowFunctions for NormalizeAdd<'_, T> {
    unsafe fn finish(&self, at: *mut u8, n: usize) {
        let at = at.cast::<T>();
        let start = (at.addr() - self.result.get().addr()) / size_of::<T>();
        if let Some(by) = self.normalize {
            let activation = self.activation.only_if(self.other.is_none());
            // SAFETY: guaranteed by the caller.
            unsafe { by.normalize(at, start, n, activation) };
            if self.other.is_none() {
                return;
            }
        }
        let other = self.other.map(|other| other[start..start + n].as_ptr());
        if other.is_some() || self.activation != Activation::Identity {
            T::in_registers(AddRow { at, other, activation: self.activation, n });
        }
    }
}

/// A row of the result, and of the array that is added.
struct AddRow<T> {
    /// The first element of the row.
    at: *mut T,
    /// The first element that is added, if any.
    other: Option<*const T>,
    /// The activation, which is applied last.
    activation: Activation,
    /// The number of elements.
    n: usize,
}

impl<T: Float> Work<T> for AddRow<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Self { at: y, other, activation, n } = self;
        // SAFETY: both rows have `n` elements, and the instructions are there.
        unsafe {
            match other {
                Some(other) => each::<V>(
                    n,
                    #[inline(always)]
                    |at| at.store(activation.on(at.load(y).add(at.load(other))), y),
                ),
                None => each::<V>(
                    n,
                    #[inline(always)]
                    |at| at.store(activation.on(at.load(y)), y),
                ),
            }
        }
    }
}
