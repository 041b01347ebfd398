//! Functions that a result goes through on its way to memory.

use crate::kernels::Float;
use crate::kernels::simd::Vector;
use crate::kernels::threads::{Shared, ranges};

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
    pub(in crate::kernels) fn only_if(self, applies: bool) -> Self {
        if applies { self } else { Self::Identity }
    }

    /// Of one number.
    #[inline(always)]
    pub(in crate::kernels) fn of<T: Float>(self, v: T) -> T {
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
    pub(in crate::kernels) unsafe fn on<V: Vector>(self, v: V) -> V {
        match self {
            Self::Identity => v,
            // SAFETY: the caller's promise.
            Self::Relu => unsafe { v.relu() },
        }
    }
}

/// Functions of elements that have just been written, and are in the cache.
pub trait Rows: Sync {
    /// Takes `n` elements of a result through the functions, in place.
    ///
    /// # Safety
    /// The elements are those of the result for which this was made, from `at` on, and nobody else uses them meanwhile.
    unsafe fn finish(&self, at: *mut u8, n: usize);
}

/// A function for tests that tells how often it was applied.
#[cfg(test)]
pub(in crate::kernels) struct Twice<T>(pub(in crate::kernels) std::marker::PhantomData<T>);

#[cfg(test)]
impl<T: Float> Rows for Twice<T> {
    unsafe fn finish(&self, at: *mut u8, n: usize) {
        // SAFETY: the caller's promise.
        let row = unsafe { std::slice::from_raw_parts_mut(at.cast::<T>(), n) };
        for v in row {
            *v = *v + *v;
        }
    }
}

/// What a result goes through: first a function in registers, then others once rows of it are written.
#[derive(Clone, Copy)]
pub struct Then<'a> {
    /// In registers.
    pub activation: Activation,
    /// In the cache.
    pub rows: Option<&'a dyn Rows>,
}

impl Then<'_> {
    /// Nothing at all.
    pub const NOTHING: Self = Self { activation: Activation::Identity, rows: None };

    /// Takes all of a result through everything.
    pub(in crate::kernels) fn finish_all<T: Float>(self, all: &mut [T]) {
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

    /// Takes `m` rows of `n` elements, which are `row` apart, through what follows in the cache.
    ///
    /// # Safety
    /// As [`Rows::finish`].
    pub(in crate::kernels) unsafe fn finish<T>(self, at: *mut T, row: usize, m: usize, n: usize) {
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
