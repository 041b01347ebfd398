//! Scratch memory for one kernel call, and memory that functions keep from a forward to a backward run. All of it
//! counts for the memory limit. If allocation fails the kernel unwinds, see [`stop`](super::stop).

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::{Float, Movable, stop};
use crate::array::{OwnedBlock, Workspace};

/// Zero-initialized scratch memory, aligned to a cache line. The thread caches the memory for the next call.
pub struct Zeros<T> {
    /// The memory.
    memory: Workspace<T>,
    /// The number of values.
    n: usize,
}

/// Scratch memory for `n` elements.
fn allocate<T>(n: usize) -> Workspace<T> {
    Workspace::new(n).unwrap_or_else(|error| stop::raise(error.into()))
}

// SAFETY: other threads only read, while the owning thread keeps the memory.
unsafe impl<T: Sync> Sync for Zeros<T> {}

impl<T: Float> Zeros<T> {
    /// Creates `n` zeros.
    pub fn new(n: usize) -> Self {
        let memory = allocate::<T>(n);
        // SAFETY: the memory holds `n` elements.
        unsafe { memory.ptr().write_bytes(0, n) };
        Self { memory, n }
    }
}

impl<T> Deref for Zeros<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds `n` initialized elements.
        unsafe { std::slice::from_raw_parts(self.memory.ptr(), self.n) }
    }
}

impl<T> DerefMut for Zeros<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.ptr(), self.n) }
    }
}

/// A list of plain values in scratch memory, which the thread caches for the next call.
pub struct List<T> {
    /// The memory.
    memory: Workspace<T>,
    /// The number of values.
    n: usize,
    /// The number of values for which there is memory.
    capacity: usize,
}

// SAFETY: other threads only read, while the owning thread keeps the memory.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> List<T> {
    /// An empty list with capacity for `n` values.
    pub fn with_capacity(n: usize) -> Self {
        const { assert!(!std::mem::needs_drop::<T>()) };
        Self { memory: allocate(n), n: 0, capacity: n }
    }

    /// A list of `n` copies of a value.
    pub fn repeat(v: T, n: usize) -> Self
    where
        T: Copy,
    {
        let mut list = Self::with_capacity(n);
        list.extend_with(v, n);
        list
    }

    /// Collects the values, or returns the first error.
    pub fn of<E>(values: impl ExactSizeIterator<Item = Result<T, E>>) -> Result<Self, E> {
        let mut list = Self::with_capacity(values.len());
        for v in values {
            list.push(v?);
        }
        Ok(list)
    }

    /// Appends a value.
    #[inline(always)]
    pub fn push(&mut self, v: T) {
        if self.n == self.capacity {
            self.grow();
        }
        // SAFETY: the capacity suffices.
        unsafe { self.memory.ptr().add(self.n).write(v) };
        self.n += 1;
    }

    /// Appends values.
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Copy,
    {
        while self.capacity - self.n < values.len() {
            self.grow();
        }
        // SAFETY: the capacity suffices, and the list's memory is its own.
        unsafe { self.memory.ptr().add(self.n).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        self.n += values.len();
    }

    /// Appends `n` copies of a value.
    pub fn extend_with(&mut self, v: T, n: usize)
    where
        T: Copy,
    {
        while self.capacity - self.n < n {
            self.grow();
        }
        // With the address in a register, copies of bytes are one call that fills memory.
        let end = self.memory.ptr().wrapping_add(self.n);
        // SAFETY: the capacity suffices.
        (0..n).for_each(|i| unsafe { end.add(i).write(v) });
        self.n += n;
    }

    /// Doubles the capacity.
    #[cold]
    fn grow(&mut self) {
        let capacity = (2 * self.capacity).max(16);
        let memory = allocate::<T>(capacity);
        // SAFETY: both hold that many values, and the old ones are not used again.
        unsafe { memory.ptr().copy_from_nonoverlapping(self.memory.ptr(), self.n) };
        (self.memory, self.capacity) = (memory, capacity);
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.n = 0;
    }

    /// Removes all values but the first `n`.
    pub fn truncate(&mut self, n: usize) {
        self.n = self.n.min(n);
    }
}

impl<T> FromIterator<T> for List<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let values = values.into_iter();
        let mut list = Self::with_capacity(values.size_hint().0);
        values.for_each(|v| list.push(v));
        list
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `n` values were written.
        unsafe { std::slice::from_raw_parts(self.memory.ptr(), self.n) }
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.ptr(), self.n) }
    }
}

/// A list of plain values that a function keeps for its next run. Its memory grows and never shrinks.
pub struct SavedMemory<T> {
    /// The memory. None until the first value is stored.
    memory: Option<OwnedBlock>,
    /// The number of values.
    n: usize,
    /// The type of the values.
    of: PhantomData<T>,
}

impl<T> Default for SavedMemory<T> {
    fn default() -> Self {
        const { assert!(!std::mem::needs_drop::<T>() && size_of::<T>() > 0 && align_of::<T>() <= 64) };
        Self { memory: None, n: 0, of: PhantomData }
    }
}

impl<T: Copy> SavedMemory<T> {
    /// The address of the first value. Dangling if there is no memory yet.
    fn ptr(&self) -> *mut T {
        self.memory.as_ref().map_or(std::ptr::dangling_mut(), |memory| memory.ptr().cast())
    }

    /// Ensures memory for `n` values and keeps the old ones.
    fn reserve(&mut self, n: usize) {
        if n <= self.memory.as_ref().map_or(0, |memory| memory.bytes() / size_of::<T>()) {
            return;
        }
        let memory = OwnedBlock::new(n.saturating_mul(size_of::<T>()))
            .unwrap_or_else(|error| stop::raise(error.into()));
        // SAFETY: both hold that many values and are different blocks.
        unsafe { memory.ptr().cast::<T>().copy_from_nonoverlapping(self.ptr(), self.n) };
        self.memory = Some(memory);
    }

    /// Resizes to `n` values, appending copies of `v`.
    pub fn resize(&mut self, n: usize, v: T) {
        self.reserve(n);
        // SAFETY: the memory suffices.
        (self.n..n).for_each(|i| unsafe { self.ptr().add(i).write(v) });
        self.n = n;
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.n = 0;
    }

    /// Replaces the values.
    pub fn set(&mut self, values: impl ExactSizeIterator<Item = T>) {
        let n = values.len();
        self.n = 0;
        self.reserve(n);
        for (i, v) in values.take(n).enumerate() {
            // SAFETY: the memory is `n`.
            unsafe { self.ptr().add(i).write(v) };
            self.n = i + 1;
        }
    }
}

impl<T: Copy> Deref for SavedMemory<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `n` values were written.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.n) }
    }
}

impl<T: Copy> DerefMut for SavedMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(), self.n) }
    }
}

/// Calls `f` with uninitialized scratch memory for `n` elements, aligned to a cache line. Nested calls get different
/// memory.
pub fn with<T: Movable, R>(n: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let memory = allocate::<T>(n);
    // SAFETY: the memory holds at least `n` aligned elements, and any bits are a valid number.
    f(unsafe { std::slice::from_raw_parts_mut(memory.ptr(), n) })
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_grow_and_keep_their_values() {
        let list: super::List<usize> = (0..1000).filter(|i| i % 2 == 0).collect();
        assert!(list.iter().copied().eq((0..1000).step_by(2)));
        let mut few = super::List::with_capacity(1);
        (0..3).for_each(|i| few.push((i, 2.0)));
        assert_eq!(*few, [(0, 2.0), (1, 2.0), (2, 2.0)]);
        few.clear();
        assert!(few.is_empty());
    }

    #[test]
    fn saved_memory_grows_and_keeps_its_values() {
        let mut saved = super::SavedMemory::default();
        saved.resize(2, 1_u32);
        saved.resize(1000, 2);
        assert!(saved.iter().copied().eq([1, 1].into_iter().chain([2; 998])));
        saved.set((0..5).map(|i| i * i));
        assert_eq!(*saved, [0, 1, 4, 9, 16]);
        saved.resize(3, 0);
        assert_eq!(*saved, [0, 1, 4]);
        saved.clear();
        assert!(saved.is_empty());
    }

    #[test]
    fn nested_calls_do_not_share_memory() {
        super::with(4, |a: &mut [f32]| {
            a.fill(1.0);
            super::with(4, |b: &mut [f64]| b.fill(2.0));
            assert_eq!(a, [1.0; 4]);
        });
    }
}
