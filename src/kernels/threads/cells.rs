//! Elements that several threads change one by one. Knows where they are; knows nothing of who changes which.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Shared;
use crate::kernels::Float;

/// Elements that threads read and write one by one, as few operations must: who writes where is decided by values. Threads are to
/// change different ones: of two changes to one element at the same time, one is lost.
pub struct SharedCells<'a, T> {
    first: Shared<T>,
    n: usize,
    of: PhantomData<&'a mut [T]>,
}

impl<'a, T: Float> SharedCells<'a, T> {
    /// The elements of an array.
    pub fn of(all: &'a mut [T]) -> Self {
        Self { first: Shared::new(all.as_mut_ptr()), n: all.len(), of: PhantomData }
    }

    /// Puts `f` of an element in its place.
    ///
    /// # Panics
    /// There is no such element.
    #[inline(always)]
    pub fn change(&self, i: usize, f: impl FnOnce(T) -> T) {
        assert!(i < self.n, "an element that an array has not");
        // SAFETY: there is such an element, a number of that size, and while it is lent to this all look at it in this way.
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
