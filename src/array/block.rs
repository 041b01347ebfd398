//! Blocks of memory, each with one owner, and stacks of free ones. Knows addresses and sizes; knows not who has which.

use std::cell::Cell;
use std::ptr::NonNull;

/// Every block starts at a multiple of this and is as long at least: a cache line, and the widest vector register.
pub(super) const ALIGN: usize = 64;

/// Bit in the size of a block: it is all that the system gave at once.
const WHOLE: usize = 1 << (usize::BITS - 1);

/// Memory that belongs to whoever has this, and that nothing else leads to. It is lost if it is dropped.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemoryBlock {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: memory belongs to no thread.
unsafe impl Send for MemoryBlock {}
// SAFETY: a shared one only says where the memory is.
unsafe impl Sync for MemoryBlock {}

impl MemoryBlock {
    /// A part of what the system gave.
    ///
    /// # Safety
    /// `size` bytes, [`ALIGN`] at least, are there from `start` on, which is aligned to that; nothing else leads to them.
    pub(super) unsafe fn part(start: NonNull<u8>, size: usize) -> Self {
        Self { start, size }
    }

    /// All that [`map`](super::system::map) got from the system.
    ///
    /// # Safety
    /// As [`MemoryBlock::part`], and it is all.
    pub(super) unsafe fn whole(start: NonNull<u8>, size: usize) -> Self {
        Self { start, size: size | WHOLE }
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many bytes there are.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size & !WHOLE
    }

    /// Where it starts and how many bytes it has, if it can go back to the system.
    pub(super) fn into_whole(self) -> Option<(NonNull<u8>, usize)> {
        let Self { start, size } = self;
        (size & WHOLE != 0).then_some((start, size & !WHOLE))
    }
}

/// What a free block starts with.
struct Free {
    next: Option<NonNull<Free>>,
    size: usize,
}
const _: () = assert!(size_of::<Free>() <= ALIGN && align_of::<Free>() <= ALIGN);

/// A stack of free blocks.
pub(super) struct BlockStack(Cell<Option<NonNull<Free>>>);

// SAFETY: the blocks belong to the stack.
unsafe impl Send for BlockStack {}

impl BlockStack {
    pub(super) const fn new() -> Self {
        Self(Cell::new(None))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    #[inline]
    pub(super) fn pop(&self) -> Option<MemoryBlock> {
        let start = self.0.get()?;
        // SAFETY: a block in the stack starts so.
        let Free { next, size } = unsafe { start.read() };
        self.0.set(next);
        Some(MemoryBlock { start: start.cast(), size })
    }

    #[inline]
    pub(super) fn push(&self, MemoryBlock { start, size }: MemoryBlock) {
        let start = start.cast();
        // SAFETY: the block is the stack's now, and every block is long enough and aligned.
        unsafe { start.write(Free { next: self.0.get(), size }) };
        self.0.set(Some(start));
    }

    /// Has the blocks of the other one, and that has its.
    pub(super) fn swap(&self, other: &Self) {
        self.0.swap(&other.0);
    }

    /// Moves all of them to another stack.
    pub(super) fn take(&self) -> Self {
        Self(Cell::new(self.0.take()))
    }
}
