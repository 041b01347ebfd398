//! Free blocks of memory by size, shared by all threads. Knows sizes and addresses; knows no buffers and no threads.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ptr::NonNull;

use super::system::{self, HUGE, PAGE};

/// Every block starts at a multiple of this and is as long: a cache line, and the widest vector register.
pub(super) const ALIGN: usize = 64;
/// Longer blocks have a mapping of their own; the others are cut from chunks.
const LARGEST_CUT: usize = 1 << 20;
/// Freed blocks may add this much to the largest need so far, and a quarter of it, before some go back to the system.
const SLACK: usize = 64 << 20;
/// Classes of sizes: 16 steps of 64 bytes, then 8 in each doubling, so that at most an eighth of a block is wasted.
pub(super) const CLASSES: usize = class(LARGEST_CUT) + 1;

/// The class of blocks of at least `size` bytes, for sizes from 1 to [`LARGEST_CUT`].
#[inline]
pub(super) const fn class(size: usize) -> usize {
    if size <= 1024 {
        return (size - 1) / 64;
    }
    let top = (size - 1).ilog2() as usize;
    16 + (top - 10) * 8 + (((size - 1) >> (top - 3)) & 7)
}

/// Bytes of the blocks of a class.
#[inline]
pub(super) const fn class_size(class: usize) -> usize {
    if class < 16 {
        return (class + 1) * 64;
    }
    let (doubling, step) = ((class - 16) / 8, (class - 16) % 8);
    (9 + step) << (doubling + 7)
}

/// A stack of free blocks of one size, each holding the address of the next.
#[derive(Clone, Copy)]
pub(super) struct BlockStack(Option<NonNull<u8>>);

// SAFETY: free blocks belong to whoever holds the stack.
unsafe impl Send for BlockStack {}

impl BlockStack {
    pub(super) const EMPTY: Self = Self(None);

    #[inline]
    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let block = self.0?;
        // SAFETY: a block in the stack starts with the address of the next.
        self.0 = unsafe { block.cast().read() };
        Some(block)
    }

    /// # Safety
    /// The block is aligned to [`ALIGN`], nobody uses it, and it is in no stack.
    #[inline]
    pub(super) unsafe fn push(&mut self, block: NonNull<u8>) {
        // SAFETY: the block is ours, and large enough for an address.
        unsafe { block.cast().write(self.0) };
        self.0 = Some(block);
    }
}

/// A huge page that blocks are cut from, front to back.
struct StoreChunk {
    start: NonNull<u8>,
    used: usize,
    free: usize,
}

/// What the system's allocator is asked for.
fn alone(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGN).ok()
}

/// Free blocks, and the mappings that they are parts of.
pub(super) struct Store {
    free: [BlockStack; CLASSES],
    large: BTreeMap<usize, BlockStack>,
    chunks: Vec<StoreChunk>,
    mapped: usize,
    limit: usize,
}

// SAFETY: the store owns its free blocks.
unsafe impl Send for Store {}

impl Store {
    pub(super) const fn new() -> Self {
        Self {
            free: [BlockStack::EMPTY; CLASSES],
            large: BTreeMap::new(),
            chunks: Vec::new(),
            mapped: 0,
            limit: usize::MAX,
        }
    }

    /// Bytes that the system has given and not got back.
    pub(super) fn mapped(&self) -> usize {
        self.mapped
    }

    /// Never to take more than this from the system.
    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// A block of at least `size` bytes and its true size. `peak` is the largest need so far.
    pub(super) fn take(&mut self, size: usize, peak: usize) -> Option<(NonNull<u8>, usize)> {
        if size <= LARGEST_CUT {
            let class = class(size);
            let size = class_size(class);
            let block = self.take_free(class).or_else(|| self.cut(size, peak))?;
            return Some((block, size));
        }
        let size = size.checked_next_multiple_of(PAGE)?;
        let fit = self.large.range_mut(size..=size + size / 8).next();
        if let Some((&size, stack)) = fit {
            let block = stack.pop();
            if stack.0.is_none() {
                self.large.remove(&size);
            }
            return Some((block?, size));
        }
        Some((self.map(size, peak)?, size))
    }

    /// A block of a class that was used before.
    pub(super) fn take_free(&mut self, class: usize) -> Option<NonNull<u8>> {
        self.free[class].pop()
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from [`Store::take`] with this true size, and nobody uses it any more.
    pub(super) unsafe fn give(&mut self, block: NonNull<u8>, size: usize) {
        let stack = if size <= LARGEST_CUT {
            &mut self.free[class(size)]
        } else {
            self.large.entry(size).or_insert(BlockStack::EMPTY)
        };
        // SAFETY: the caller gives the block away.
        unsafe { stack.push(block) };
    }

    /// A block of exactly so many bytes from the system's allocator.
    pub(super) fn take_alone(&mut self, size: usize) -> Option<NonNull<u8>> {
        if size > self.limit.saturating_sub(self.mapped) {
            return None;
        }
        // SAFETY: every block has a header, so none is empty.
        let block = NonNull::new(unsafe { std::alloc::alloc(alone(size)?) })?;
        self.mapped += size;
        Some(block)
    }

    /// Takes such a block back.
    ///
    /// # Safety
    /// The block came from [`Store::take_alone`] with this size, and nobody uses it any more.
    pub(super) unsafe fn give_alone(&mut self, block: NonNull<u8>, size: usize) {
        let Some(layout) = alone(size) else { return };
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
        self.mapped -= size;
    }

    /// Gives the system what it can have: large blocks, and chunks of which nothing is in use.
    pub(super) fn clear(&mut self) {
        self.unmap_large(usize::MAX);
        self.unmap_chunks();
    }

    fn cut(&mut self, size: usize, peak: usize) -> Option<NonNull<u8>> {
        let recent = self.chunks.len().saturating_sub(8);
        let at = if let Some(i) = self.chunks[recent..].iter().position(|c| HUGE - c.used >= size) {
            recent + i
        } else {
            let start = self.map(HUGE, peak)?;
            self.chunks.push(StoreChunk { start, used: 0, free: 0 });
            self.chunks.len() - 1
        };
        let chunk = &mut self.chunks[at];
        // SAFETY: the chunk has `size` bytes after those used.
        let block = unsafe { chunk.start.add(chunk.used) };
        chunk.used += size;
        Some(block)
    }

    fn map(&mut self, size: usize, peak: usize) -> Option<NonNull<u8>> {
        let want = self.mapped.checked_add(size)?;
        let bound = self.limit.min((peak + peak / 4).saturating_add(SLACK));
        if want > bound {
            self.unmap_large(want - bound);
        }
        if self.mapped + size > self.limit {
            self.unmap_chunks();
        }
        if self.mapped + size > self.limit {
            return None;
        }
        let block = system::map(size).or_else(|| {
            self.clear();
            system::map(size)
        })?;
        self.mapped += size;
        Some(block)
    }

    /// Unmaps free large blocks, the largest first, until `bytes` are gone.
    fn unmap_large(&mut self, bytes: usize) {
        let mut gone = 0;
        while gone < bytes
            && let Some(mut entry) = self.large.last_entry()
        {
            let size = *entry.key();
            if let Some(block) = entry.get_mut().pop() {
                // SAFETY: a large block is a mapping of its own, and this one is free.
                unsafe { system::unmap(block, size) };
                gone += size;
                self.mapped -= size;
            }
            // `take` expects a block in each stack that is listed.
            if entry.get().0.is_none() {
                entry.remove();
            }
        }
    }

    fn unmap_chunks(&mut self) {
        self.chunks.sort_unstable_by_key(|c| c.start);
        self.chunks.iter_mut().for_each(|c| c.free = 0);
        let chunks = &mut self.chunks;
        let home = |chunks: &[StoreChunk], block: NonNull<u8>| {
            chunks.partition_point(|c| c.start <= block) - 1 // blocks come from chunks, so there is one before
        };
        for (class, stack) in self.free.iter().enumerate() {
            let mut rest = *stack;
            while let Some(block) = rest.pop() {
                let at = home(chunks, block);
                chunks[at].free += class_size(class);
            }
        }
        for stack in &mut self.free {
            let mut rest = std::mem::replace(stack, BlockStack::EMPTY);
            while let Some(block) = rest.pop() {
                let chunk = &chunks[home(chunks, block)];
                if chunk.free < chunk.used {
                    // SAFETY: the block was free and has just left the old stack.
                    unsafe { stack.push(block) };
                }
            }
        }
        chunks.retain(|chunk| {
            let idle = chunk.free == chunk.used;
            if idle {
                // SAFETY: every block of the chunk was free and is in no stack any more.
                unsafe { system::unmap(chunk.start, HUGE) };
                self.mapped -= HUGE;
            }
            !idle
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_an_eighth() {
        for size in (1..=LARGEST_CUT).step_by(37).chain([64, 65, 1024, 1025, LARGEST_CUT]) {
            let got = class_size(class(size));
            assert!(got >= size && got.is_multiple_of(ALIGN), "{size} -> {got}");
            assert!(got - size < 64 || got - size <= size / 8, "{size} -> {got}");
            assert_eq!(class(got), class(size));
        }
        assert_eq!(class_size(CLASSES - 1), LARGEST_CUT);
    }

    #[test]
    fn blocks_alone_are_counted_and_limited() {
        let mut store = Store::new();
        store.set_limit(1000);
        let block = store.take_alone(999).expect("memory");
        assert!(block.as_ptr().align_offset(ALIGN) == 0 && store.mapped() == 999);
        assert_eq!((store.take_alone(2), store.take_alone(usize::MAX)), (None, None));
        // SAFETY: given back once.
        unsafe { store.give_alone(block, 999) };
        assert_eq!(store.mapped(), 0);
    }

    #[test]
    fn blocks_are_reused_and_go_back() {
        let mut store = Store::new();
        let sizes = [64, 100, 5000, 300_000, LARGEST_CUT, LARGEST_CUT + 1, 5 << 20];
        let blocks: Vec<_> = sizes.iter().map(|&n| store.take(n, 0).expect("memory")).collect();
        for (&(block, size), &asked) in blocks.iter().zip(&sizes) {
            assert!(size >= asked && block.as_ptr().align_offset(ALIGN) == 0);
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(7, size) };
        }
        let mapped = store.mapped();
        for &(block, size) in &blocks {
            // SAFETY: each is given back once.
            unsafe { store.give(block, size) };
        }
        let again: Vec<_> = sizes.iter().map(|&n| store.take(n, 0).expect("memory")).collect();
        assert_eq!(again, blocks);
        assert_eq!(store.mapped(), mapped);
        // One small block is kept: its chunk stays, all else goes.
        for &(block, size) in &again[1..] {
            // SAFETY: each is given back once.
            unsafe { store.give(block, size) };
        }
        store.clear();
        assert_eq!(store.mapped(), HUGE);
        // SAFETY: as above.
        unsafe { store.give(again[0].0, again[0].1) };
        store.clear();
        assert_eq!(store.mapped(), 0);
    }

    #[test]
    fn a_slightly_larger_block_serves_a_smaller_one_does_not() {
        let mut store = Store::new();
        let (block, size) = store.take(8 << 20, 0).expect("memory");
        // SAFETY: given back once.
        unsafe { store.give(block, size) };
        assert_eq!(store.take((8 << 20) - PAGE, 0), Some((block, size)));
        // SAFETY: given back once more.
        unsafe { store.give(block, size) };
        assert_ne!(store.take(4 << 20, 0).expect("memory").0, block);
    }

    #[test]
    fn what_was_trimmed_away_is_mapped_again() {
        let mut store = Store::new();
        let (block, size) = store.take(8 << 20, 0).expect("memory");
        // SAFETY: given back once.
        unsafe { store.give(block, size) };
        store.unmap_large(1);
        assert_eq!(store.mapped(), 0);
        let (block, size) = store.take(8 << 20, 0).expect("memory");
        // SAFETY: given back once.
        unsafe { store.give(block, size) };
        store.clear();
    }

    #[test]
    fn limits_hold_and_free_blocks_make_room() {
        let mut store = Store::new();
        store.set_limit(16 << 20);
        let (block, size) = store.take(12 << 20, 0).expect("memory");
        assert_eq!(store.take(8 << 20, 0), None);
        // SAFETY: given back once.
        unsafe { store.give(block, size) };
        assert!(store.take(8 << 20, 0).is_some());
        assert_eq!(store.mapped(), 8 << 20);
        assert_eq!(store.take(1 << 60, 0), None);
        assert_eq!(store.take(usize::MAX - 10, 0), None);
    }

    #[test]
    fn changing_sizes_do_not_pile_up() {
        let mut store = Store::new();
        let peak = 100 << 20;
        for i in 0..50 {
            let (block, size) = store.take(peak - i * (13 << 17), peak).expect("memory");
            // SAFETY: given back once.
            unsafe { store.give(block, size) };
        }
        assert!(store.mapped() <= peak + peak / 4 + SLACK);
    }
}
