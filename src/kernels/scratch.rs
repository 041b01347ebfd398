//! Memory that kernels borrow for the time of a call.

use std::ops::{Deref, DerefMut};

use super::Float;
use crate::array::Workspace;

/// Numbers that are zero at first and live until this is dropped, in memory that the thread keeps for the next call. The
/// first is at the start of a cache line.
pub struct Zeros<T> {
    memory: Memory<T>,
    n: usize,
}

enum Memory<T> {
    Kept(Workspace<T>),
    /// A limit was set on what buffers may take; a kernel in the middle of its work has no way to say so.
    Own(Vec<Line>),
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [f64; 8]);

impl<T> Memory<T> {
    fn new(n: usize) -> Self {
        let lines = || (n * size_of::<T>()).div_ceil(size_of::<Line>());
        Workspace::new(n).map_or_else(|_| Self::Own(vec![Line([0.0; 8]); lines()]), Self::Kept)
    }

    fn ptr(&self) -> *mut T {
        match self {
            Self::Kept(workspace) => workspace.ptr(),
            Self::Own(lines) => lines.as_ptr().cast_mut().cast(),
        }
    }
}

impl<T: Float> Zeros<T> {
    /// `n` of them.
    pub fn new(n: usize) -> Self {
        let memory = Memory::<T>::new(n);
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
    memory: Memory<T>,
    n: usize,
    room: usize,
}

// SAFETY: others only read, while the list's own thread keeps it.
unsafe impl<T: Sync> Sync for List<T> {}

impl<T> List<T> {
    /// An empty list with room for `n`.
    pub fn with_capacity(n: usize) -> Self {
        const { assert!(!std::mem::needs_drop::<T>()) };
        Self { memory: Memory::new(n), n: 0, room: n }
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

    #[cold]
    fn grow(&mut self) {
        let room = (2 * self.room).max(16);
        let memory = Memory::<T>::new(room);
        // SAFETY: both hold as many, and those of the old one are not looked at again.
        unsafe { memory.ptr().copy_from_nonoverlapping(self.memory.ptr(), self.n) };
        (self.memory, self.room) = (memory, room);
    }

    /// Drops all values.
    pub fn clear(&mut self) {
        self.n = 0;
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

/// Calls `f` with memory for `n` elements, their values undefined and the first at the start of a cache line. A call
/// within a call gets memory of its own.
pub fn with<T: Float, R>(n: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let memory = Memory::<T>::new(n);
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
    fn nested_calls_do_not_share_memory() {
        super::with(4, |a: &mut [f32]| {
            a.fill(1.0);
            super::with(4, |b: &mut [f64]| b.fill(2.0));
            assert_eq!(a, [1.0; 4]);
        });
    }
}
