//! Memory blocks with one owner each, and stacks of free blocks. Knows addresses and sizes, not the owners.

use std::cell::Cell;
use std::ptr::NonNull;

/// Alignment and minimum size of every block: a cache line, and the widest vector register.
pub(super) const ALIGN: usize = 64;

/// A block of memory, owned exclusively. Dropping it leaks the memory.
#[must_use]
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MemoryBlock {
    /// The first byte.
    start: NonNull<u8>,
    /// The number of bytes.
    size: usize,
}

// SAFETY: memory belongs to no thread.
unsafe impl Send for MemoryBlock {}
// SAFETY: a shared reference only reads the address and the size.
unsafe impl Sync for MemoryBlock {}

impl MemoryBlock {
    /// Wraps memory from the system, or a part of it.
    ///
    /// # Safety
    /// `start` must be aligned to [`ALIGN`] and valid for `size` bytes, at least [`ALIGN`]. No other pointer to the
    /// memory may be used.
    pub(super) unsafe fn new(start: NonNull<u8>, size: usize) -> Self {
        Self { start, size }
    }

    /// The first byte.
    #[inline]
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The address of the first byte.
    pub(super) fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// The address after the last byte.
    pub(super) fn end(&self) -> usize {
        self.address() + self.size
    }

    /// The number of bytes.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Splits off the last `size` bytes, a multiple of [`ALIGN`].
    pub(super) fn cut(&mut self, size: usize) -> Self {
        assert!(
            size.is_multiple_of(ALIGN) && ALIGN <= size && size + ALIGN <= self.size,
            "no part of a block"
        );
        self.size -= size;
        Self { start: self.start.map_addr(|start| start.saturating_add(self.size)), size }
    }

    /// Appends the adjacent block that starts at its end.
    pub(super) fn join(&mut self, Self { start, size }: Self) {
        assert!(self.end() == start.addr().get(), "blocks that are apart");
        self.size += size;
    }

    /// Joins the blocks that were cut from a block of `size` bytes: this one, which is the first, and the parts, in any
    /// order. Panics if a part is missing or belongs to another block.
    pub(super) fn restored(self, size: usize, parts: &BlockStack) -> Self {
        let mut bytes = self.size;
        while let Some(part) = parts.pop() {
            assert!(
                self.end() <= part.address() && part.end() <= self.address() + size,
                "a part of another block"
            );
            bytes += part.size;
        }
        // Blocks do not overlap, so parts of that many bytes have no gaps.
        assert!(bytes == size, "a part is missing");
        Self { start: self.start, size }
    }

    /// Its address and size, for the code that frees it.
    pub(super) fn into_parts(self) -> (NonNull<u8>, usize) {
        (self.start, self.size)
    }
}

/// The header that a free block starts with.
struct Free {
    /// The next free block of the stack.
    next: Option<NonNull<Free>>,
    /// Bytes of the block, including this header.
    size: usize,
}
const _: () = assert!(size_of::<Free>() <= ALIGN && align_of::<Free>() <= ALIGN);

/// A stack of free blocks.
pub(super) struct BlockStack(Cell<Option<NonNull<Free>>>);

// SAFETY: the stack owns its blocks.
unsafe impl Send for BlockStack {}

impl BlockStack {
    /// An empty stack.
    pub(super) const fn new() -> Self {
        Self(Cell::new(None))
    }

    /// True if the stack has no block.
    pub(super) fn is_empty(&self) -> bool {
        self.0.get().is_none()
    }

    /// Takes the block that was pushed last.
    #[inline]
    pub(super) fn pop(&self) -> Option<MemoryBlock> {
        let start = self.0.get()?;
        // SAFETY: every block in the stack starts with this header.
        let Free { next, size } = unsafe { start.read() };
        self.0.set(next);
        Some(MemoryBlock { start: start.cast(), size })
    }

    /// Adds a block. Its first bytes become the link to the next.
    #[inline]
    pub(super) fn push(&self, MemoryBlock { start, size }: MemoryBlock) {
        let start = start.cast();
        // SAFETY: the stack owns the block, which is large enough and aligned.
        unsafe { start.write(Free { next: self.0.get(), size }) };
        self.0.set(Some(start));
    }

    /// Exchanges the blocks of two stacks.
    pub(super) fn swap(&self, other: &Self) {
        self.0.swap(&other.0);
    }

    /// Moves all blocks to a new stack.
    pub(super) fn take(&self) -> Self {
        Self(Cell::new(self.0.take()))
    }
}
