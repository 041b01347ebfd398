//! Array elements that several threads change individually. Knows addresses, not the work.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Shared;
use crate::kernels::Float;

/// Elements that threads read and write individually, for operations whose values decide the target. Threads should
/// change different elements: of two concurrent changes to one element, one is lost.
pub struct SharedCells<'a, T> {
    /// The first element.
    first: Shared<T>,
    /// The number of elements.
    n: usize,
    /// Borrows the elements.
    of: PhantomData<&'a mut [T]>,
}

impl<'a, T: Float> SharedCells<'a, T> {
    /// Wraps the elements of an array.
    pub fn of(all: &'a mut [T]) -> Self {
        Self { first: Shared::new(all.as_mut_ptr()), n: all.len(), of: PhantomData }
    }

    /// Replaces an element by `f` of it.
    ///
    /// # Panics
    /// If the index is out of bounds.
    #[inline(always)]
    pub fn change(&self, i: usize, f: impl FnOnce(T) -> T) {
        assert!(i < self.n, "an element that an array has not");
        // SAFETY: the index is in bounds, and while the array is borrowed every access is atomic.
        unsafe {
            let at = self.first.get().add(i);
            if size_of::<T>() == size_of::<f32>() {
                let cell = AtomicU32::from_ptr(at.cast());
                let v = f(std::mem::transmute_copy(&cell.load(Ordering::Relaxed)));
                cell.store(std::mem::transmute_copy(&v), Ordering::Relaxed);
            } else {
                let cell = AtomicU64::from_ptr(at.cast());
                let v = f(std::mem::transmute_copy(&cell.load(Ordering::Relaxed)));
                cell.store(std::mem::transmute_copy(&v), Ordering::Relaxed);
            }
        }
    }

    /// Adds to an element.
    #[inline(always)]
    pub fn add(&self, i: usize, v: T) {
        self.change(i, |before| before + v);
    }
}

#[cfg(test)]
mod tests {
    use super::SharedCells;
    use crate::kernels::threads;

    #[test]
    fn threads_change_elements_of_their_own() {
        let mut single = vec![1.0_f32; 5000];
        let mut double = vec![2.0_f64; 5000];
        let (a, b) = (SharedCells::of(&mut single), SharedCells::of(&mut double));
        threads::ranges(5000, 7, |some| {
            for i in some {
                a.add(i, i as f32);
                b.change(i, |v| v * i as f64);
            }
        });
        assert!(single.iter().enumerate().all(|(i, v)| *v == 1.0 + i as f32));
        assert!(double.iter().enumerate().all(|(i, v)| *v == 2.0 * i as f64));
    }

    #[test]
    #[should_panic(expected = "an element that an array has not")]
    fn elements_beyond_the_last_are_refused() {
        SharedCells::of(&mut [0.0_f32; 3]).add(3, 1.0);
    }
}
