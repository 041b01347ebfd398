//! Memory that kernels borrow for the time of a call, and that functions keep from a forward to a backward run. All of it counts
//! for the limit on memory, and where there is none the kernel ends: see [`stop`](super::stop).

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::{Float, stop};
use crate::array::{OwnedBlock, Workspace};

/// Numbers that are zero at first and live until this is dropped, in memory that the thread keeps for the next call. The
/// first is at the start of a cache line.
pub struct Zeros<T> {
    memory: Workspace<T>,
    n: usize,
}

/// Room for `n` elements.
fn room<T>(n: usize) -> Workspace<T> {
    Workspace::new(n).unwrap_or_else(|error| stop::raise(error.into()))
}

// SAFETY: others only read, while the numbers' own thread keeps them.
unsafe impl<T: Sync> Sync for Zeros<T> {}

impl<T: Float> Zeros<T> {
    /// `n` of them.
    pub fn new(n: usize) -> Self {
        let memory = room::<T>(n);
        // SAFETY: there is room for so many.
        unsafe { memory.ptr().write_bytes(0, n) };
        Self { memory, n }
    }
}

impl<T> Deref for Zeros<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: the memory holds as many, which were written.
        unsafe { std::slice::from_raw_parts(self.memory.ptr(), self.n) }
    }
}

impl<T> DerefMut for Zeros<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.ptr(), self.n) }
    }
}

/// A list of plain values, in memory that the thread keeps for the next call.
pub struct List<T> {
    memory: Workspace<T>,
    n: usize,
    room: usize,
}

// SAFETY: others only read, while the list's own thread keeps it.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> List<T> {
    /// An empty list with room for `n`.
    pub fn with_capacity(n: usize) -> Self {
        const { assert!(!std::mem::needs_drop::<T>()) };
        Self { memory: room(n), n: 0, room: n }
    }

    /// The same value `n` times.
    pub fn repeat(v: T, n: usize) -> Self
    where
        T: Copy,
    {
        let mut list = Self::with_capacity(n);
        // SAFETY: there is room for `n` of them.
        (0..n).for_each(|i| unsafe { list.memory.ptr().add(i).write(v) });
        list.n = n;
        list
    }

    /// The values, unless one of them is an error.
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
        if self.n == self.room {
            self.grow();
        }
        // SAFETY: there is room for it.
        unsafe { self.memory.ptr().add(self.n).write(v) };
        self.n += 1;
    }

    /// Appends values.
    pub fn extend_from_slice(&mut self, values: &[T])
    where
        T: Copy,
    {
        while self.room - self.n < values.len() {
            self.grow();
        }
        // SAFETY: there is room for them, in memory of this list's own.
        unsafe { self.memory.ptr().add(self.n).copy_from_nonoverlapping(values.as_ptr(), values.len()) };
        self.n += values.len();
    }

    /// Appends the same value `n` times.
    pub fn extend_with(&mut self, v: T, n: usize)
    where
        T: Copy,
    {
        while self.room - self.n < n {
            self.grow();
        }
        // SAFETY: there is room for `n` of them.
        (self.n..self.n + n).for_each(|i| unsafe { self.memory.ptr().add(i).write(v) });
        self.n += n;
    }

    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.room).max(16);
        let memory = self::room::<T>(room);
        // SAFETY: both hold as many, and those of the old one are not looked at again.
        unsafe { memory.ptr().copy_from_nonoverlapping(self.memory.ptr(), self.n) };
        (self.memory, self.room) = (memory, room);
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        self.n = 0;
    }

    /// Drops all values but the first `n`.
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
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.memory.ptr(), self.n) }
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.memory.ptr(), self.n) }
    }
}

/// A list of plain values that a function keeps for its next run: in memory of its own, which grows and never shrinks.
pub struct SavedMemory<T> {
    room: Option<OwnedBlock>,
    n: usize,
    of: PhantomData<T>,
}

impl<T> Default for SavedMemory<T> {
    fn default() -> Self {
        const { assert!(!std::mem::needs_drop::<T>() && size_of::<T>() > 0 && align_of::<T>() <= 64) };
        Self { room: None, n: 0, of: PhantomData }
    }
}

impl<T: Copy> SavedMemory<T> {
    fn ptr(&self) -> *mut T {
        self.room.as_ref().map_or(std::ptr::dangling_mut(), |room| room.ptr().cast())
    }

    /// Has room for `n` values; the old ones stay.
    fn reserve(&mut self, n: usize) {
        if n <= self.room.as_ref().map_or(0, |room| room.bytes() / size_of::<T>()) {
            return;
        }
        let room = OwnedBlock::new(n.saturating_mul(size_of::<T>()))
            .unwrap_or_else(|error| stop::raise(error.into()));
        // SAFETY: both hold as many, and are different blocks.
        unsafe { room.ptr().cast::<T>().copy_from_nonoverlapping(self.ptr(), self.n) };
        self.room = Some(room);
    }

    /// Makes it `n` values long, new ones being `v`.
    pub fn resize(&mut self, n: usize, v: T) {
        self.reserve(n);
        // SAFETY: there is room for them.
        (self.n..n).for_each(|i| unsafe { self.ptr().add(i).write(v) });
        self.n = n;
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        self.n = 0;
    }

    /// Takes these values in place of the old ones.
    pub fn set(&mut self, values: impl ExactSizeIterator<Item = T>) {
        let n = values.len();
        self.n = 0;
        self.reserve(n);
        for (i, v) in values.take(n).enumerate() {
            // SAFETY: there is room for `n` of them.
            unsafe { self.ptr().add(i).write(v) };
            self.n = i + 1;
        }
    }
}

impl<T: Copy> Deref for SavedMemory<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.ptr(), self.n) }
    }
}

impl<T: Copy> DerefMut for SavedMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and it is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(), self.n) }
    }
}

/// Calls `f` with memory for `n` elements, their values undefined and the first at the start of a cache line. A call
/// within a call gets memory of its own.
pub fn with<T: Float, R>(n: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let memory = room::<T>(n);
    // SAFETY: the memory holds at least `n` elements, is aligned, and any bits are a `f32` or `f64`.
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
    fn what_is_saved_grows_and_stays() {
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
