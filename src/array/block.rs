//! Blocks of memory, each with one owner, and stacks of free ones. Knows addresses and sizes; knows not who has which.

use std::cell::Cell;
use std::ptr::NonNull;

/// Every block starts at a multiple of this and is as long at least: a cache line, and the widest vector register.
pub(super) const ALIGN: usize = 64;

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
    /// Memory that the system gave, or a part of it.
    ///
    /// # Safety
    /// `size` bytes, [`ALIGN`] at least, are there from `start` on, which is aligned to that; nothing else leads to them.
    pub(super) unsafe fn new(start: NonNull<u8>, size: usize) -> Self {
        Self { start, size }
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Where it starts, as a number.
    pub(super) fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// Where the next byte behind it is.
    pub(super) fn end(&self) -> usize {
        self.address() + self.size
    }

    /// How many bytes there are.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Takes the last `size` bytes, a multiple of [`ALIGN`]; what is left stays.
    pub(super) fn cut(&mut self, size: usize) -> Self {
        assert!(
            size.is_multiple_of(ALIGN) && ALIGN <= size && size + ALIGN <= self.size,
            "no part of a block"
        );
        self.size -= size;
        Self { start: self.start.map_addr(|start| start.saturating_add(self.size)), size }
    }

    /// Adds the block that lies behind it.
    pub(super) fn join(&mut self, Self { start, size }: Self) {
        assert!(self.end() == start.addr().get(), "blocks that are apart");
        self.size += size;
    }

    /// Where it starts and how many bytes it has, for who gives it back.
    pub(super) fn into_parts(self) -> (NonNull<u8>, usize) {
        (self.start, self.size)
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
