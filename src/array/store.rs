//! The shared store of free memory: small blocks by size class, larger ones by address. Knows sizes and addresses,
//! not buffers or threads.

use super::block::{BlockStack, MemoryBlock};
use super::demand::{Demand, SLACK};
use super::spans::FreeSpans;
use super::system::{self, HUGE, PAGE};

/// Largest block that is cut from a slab. Larger ones are whole pages.
pub(super) const LARGEST_SMALL: usize = 32 << 10;
/// Bytes of a slab, which small blocks are cut from.
const SLAB: usize = 256 << 10;
/// Number of size classes: 16 steps of 64 bytes, then 8 for each doubling. At most an eighth of a block is wasted.
pub(super) const CLASSES: usize = class(LARGEST_SMALL) + 1;

/// The size class for blocks of at least `size` bytes, from 1 to [`LARGEST_SMALL`].
#[inline]
pub(super) const fn class(size: usize) -> usize {
    if size <= 1024 {
        return (size - 1) / 64;
    }
    let top = (size - 1).ilog2() as usize;
    16 + (top - 10) * 8 + (((size - 1) >> (top - 3)) & 7)
}

/// Bytes of a block of a class.
#[inline]
pub(super) const fn class_size(class: usize) -> usize {
    if class < 16 {
        return (class + 1) * 64;
    }
    let (doubling, step) = ((class - 16) / 8, (class - 16) % 8);
    (9 + step) << (doubling + 7)
}

/// Pages that small blocks are cut from, last block first.
struct BlockSlab {
    /// The unused remainder, at the start of the slab.
    rest: MemoryBlock,
    /// Its free blocks, while slabs are cleared.
    parts: BlockStack,
    /// Bytes of these blocks.
    free: usize,
}

impl BlockSlab {
    /// Bytes of the slab that were cut into blocks.
    fn used(&self) -> usize {
        SLAB - self.rest.size()
    }
}

/// Free blocks, and the memory taken from the system.
pub(super) struct Store {
    /// Free blocks of each size class.
    free: [BlockStack; CLASSES],
    /// Batches of free blocks that threads returned, for other threads to take, and the bytes of each.
    batches: [Vec<(BlockStack, usize)>; CLASSES],
    /// Bytes of these blocks and batches.
    small: usize,
    /// The value of `small` after slabs were last searched for idle ones, or its smallest value since.
    searched: usize,
    /// How much memory recent work used in blocks of the size classes.
    small_demand: Demand,
    /// Free runs of pages, for slabs and blocks above [`LARGEST_SMALL`].
    spans: FreeSpans,
    /// The memory that blocks of the size classes are cut from.
    slabs: Vec<BlockSlab>,
    /// How much memory recent work used in slabs and blocks above [`LARGEST_SMALL`].
    demand: Demand,
    /// Bytes taken from the system and not returned.
    mapped: usize,
    /// The largest `mapped` allowed.
    limit: usize,
}

impl Store {
    /// A store without memory and without a limit.
    pub(super) const fn new() -> Self {
        Self {
            free: [const { BlockStack::new() }; CLASSES],
            batches: [const { Vec::new() }; CLASSES],
            small: 0,
            searched: 0,
            small_demand: Demand::new(),
            spans: FreeSpans::new(),
            slabs: Vec::new(),
            demand: Demand::new(),
            mapped: 0,
            limit: usize::MAX,
        }
    }

    /// Bytes taken from the system and not returned.
    pub(super) fn mapped(&self) -> usize {
        self.mapped
    }

    /// Sets the largest number of bytes to take from the system.
    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Bytes in blocks and slabs, free blocks of the size classes among them.
    fn used(&self) -> usize {
        self.mapped - self.spans.bytes()
    }

    /// Takes a block of at least `size` bytes.
    pub(super) fn take(&mut self, size: usize) -> Option<MemoryBlock> {
        if size <= LARGEST_SMALL {
            let class = class(size);
            return self.take_free(class).or_else(|| self.cut(class_size(class)));
        }
        self.take_span(size.checked_next_multiple_of(PAGE)?)
    }

    /// Takes a used block of a class.
    pub(super) fn take_free(&mut self, class: usize) -> Option<MemoryBlock> {
        if self.free[class].is_empty() {
            (self.free[class], _) = self.batches[class].pop()?;
        }
        let block = self.free[class].pop()?;
        self.set_small(self.small - block.size());
        Some(block)
    }

    /// Takes a batch of a class that came from [`Store::give_batch`].
    pub(super) fn take_batch(&mut self, class: usize) -> Option<BlockStack> {
        let (batch, bytes) = self.batches[class].pop()?;
        self.set_small(self.small - bytes);
        Some(batch)
    }

    /// Returns a batch of `blocks` blocks of a class, unless it is empty.
    pub(super) fn give_batch(&mut self, class: usize, batch: BlockStack, blocks: usize) {
        if batch.is_empty() {
            return;
        }
        let bytes = blocks * class_size(class);
        self.batches[class].push((batch, bytes));
        self.set_small(self.small + bytes);
        self.unmap_idle_slabs();
    }

    /// Sets the bytes of free small blocks.
    #[inline]
    fn set_small(&mut self, bytes: usize) {
        self.small = bytes;
        self.searched = self.searched.min(bytes);
        self.small_demand.note(self.slabs.len() * SLAB - bytes);
    }

    /// Returns a block that came from [`Store::take`].
    pub(super) fn give(&mut self, block: MemoryBlock) {
        let size = block.size();
        if size <= LARGEST_SMALL {
            debug_assert!(class_size(class(size)) == size, "a block that was not taken");
            self.free[class(size)].push(block);
            self.set_small(self.small + size);
            self.unmap_idle_slabs();
        } else {
            self.spans.give(block);
            self.demand.note(self.used());
            self.unmap_idle();
        }
    }

    /// Returns free memory to the system, if there is clearly more than recent work used again.
    #[inline]
    fn unmap_idle(&mut self) {
        let idle = self.demand.idle(self.used(), self.spans.bytes());
        if idle > 0 {
            self.unmap(idle);
        }
    }

    /// Returns idle slabs to the system, if there are clearly more free small blocks than recent work used again.
    #[inline]
    fn unmap_idle_slabs(&mut self) {
        // Slabs that had a used block are searched again once more blocks are free.
        if self.small > self.searched + SLACK
            && self.small_demand.idle(self.slabs.len() * SLAB - self.small, self.small) > 0
        {
            self.clear_slabs();
            self.unmap_idle();
        }
    }

    /// Maps a block of exactly `size` bytes, not shared with others.
    pub(super) fn take_alone(&mut self, size: usize) -> Option<MemoryBlock> {
        if size > self.limit.saturating_sub(self.mapped) {
            return None;
        }
        let block = system::map(size)?;
        self.mapped += block.size();
        Some(block)
    }

    /// Unmaps a block of [`Store::take_alone`].
    pub(super) fn give_alone(&mut self, block: MemoryBlock) {
        let size = block.size();
        // SAFETY: it is all of what the system gave.
        if unsafe { system::unmap(block) }.is_none() {
            self.mapped -= size;
        }
    }

    /// Returns as much memory to the system as possible.
    pub(super) fn clear(&mut self) {
        self.clear_slabs();
        self.demand.note(self.used());
        self.unmap(usize::MAX);
    }

    /// Returns up to this many free bytes to the system.
    fn unmap(&mut self, bytes: usize) {
        self.mapped -= self.spans.unmap(bytes);
    }

    /// Takes a span of free memory, and maps new memory if none is long enough.
    fn take_span(&mut self, size: usize) -> Option<MemoryBlock> {
        let block = match self.spans.take(size) {
            Some(block) => block,
            None => {
                self.map(size)?;
                self.spans.take(size)?
            }
        };
        self.demand.note(self.used());
        Some(block)
    }

    /// Cuts a block from a recent slab, or from a new one.
    fn cut(&mut self, size: usize) -> Option<MemoryBlock> {
        let recent = self.slabs.len().saturating_sub(8);
        let at = if let Some(i) = self.slabs[recent..].iter().position(|slab| slab.rest.size() > size) {
            recent + i
        } else {
            let rest = self.take_span(SLAB)?;
            self.slabs.push(BlockSlab { rest, parts: BlockStack::new(), free: 0 });
            self.slabs.len() - 1
        };
        Some(self.slabs[at].rest.cut(size))
    }

    /// Has the system give `size` bytes, rounded up to whole pages of the system, in one piece.
    fn map(&mut self, size: usize) -> Option<()> {
        let size = size.checked_next_multiple_of(system::page())?;
        let high = self.demand.high();
        let bound = self.limit.min((high + high / 4).saturating_add(SLACK));
        let available = |mapped: usize, bound: usize| bound.saturating_sub(mapped);
        // The remainder of a huge page serves the next block.
        let whole = size.checked_next_multiple_of(HUGE)?;
        if whole > available(self.mapped, bound) {
            self.unmap(whole - available(self.mapped, bound));
        }
        if size > available(self.mapped, self.limit) {
            self.clear();
        }
        let available = available(self.mapped, self.limit);
        if size > available {
            return None;
        }
        let length = if whole > available { size } else { whole };
        let block = system::map(length).or_else(|| {
            self.clear();
            system::map(size)
        })?;
        self.mapped += block.size();
        self.spans.add(block);
        Some(())
    }

    /// Turns slabs without used blocks into free pages.
    fn clear_slabs(&mut self) {
        let slabs = &mut self.slabs;
        slabs.sort_unstable_by_key(|slab| slab.rest.address());
        for (free, batches) in self.free.iter().zip(&mut self.batches) {
            for stack in [free.take()].into_iter().chain(batches.drain(..).map(|(batch, _)| batch)) {
                while let Some(block) = stack.pop() {
                    let at = slabs.partition_point(|slab| slab.rest.address() <= block.address()) - 1;
                    slabs[at].free += block.size();
                    slabs[at].parts.push(block);
                }
            }
        }
        for slab in slabs.extract_if(.., |slab| slab.free == slab.used()) {
            self.spans.give(slab.rest.restored(SLAB, &slab.parts));
        }
        self.small = 0;
        for slab in slabs {
            self.small += std::mem::take(&mut slab.free);
            while let Some(block) = slab.parts.pop() {
                self.free[class(block.size())].push(block);
            }
        }
        self.searched = self.small;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::block::ALIGN;

    #[test]
    fn classes_waste_at_most_an_eighth() {
        for size in (1..=LARGEST_SMALL).step_by(37).chain([64, 65, 1024, 1025, LARGEST_SMALL]) {
            let got = class_size(class(size));
            assert!(got >= size && got.is_multiple_of(ALIGN), "{size} -> {got}");
            assert!(got - size < 64 || got - size <= size / 8, "{size} -> {got}");
            assert_eq!(class(got), class(size));
        }
        assert_eq!(class_size(CLASSES - 1), LARGEST_SMALL);
    }

    #[test]
    fn separate_blocks_are_counted_and_limited() {
        let mut store = Store::new();
        store.set_limit(1000);
        let block = store.take_alone(999).expect("memory");
        assert!(block.start().align_offset(ALIGN) == 0 && store.mapped() == 999);
        assert_eq!((store.take_alone(2), store.take_alone(usize::MAX)), (None, None));
        store.give_alone(block);
        assert_eq!(store.mapped(), 0);
    }

    #[test]
    fn blocks_are_reused_and_returned_to_the_system() {
        let mut store = Store::new();
        let sizes = [64, 100, 5000, LARGEST_SMALL, LARGEST_SMALL + 1, 300_000, 5 << 20];
        let blocks: Vec<_> = sizes.iter().map(|&n| store.take(n).expect("memory")).collect();
        for (block, &asked) in blocks.iter().zip(&sizes) {
            assert!(block.size() >= asked && block.start().align_offset(ALIGN) == 0);
            // SAFETY: the block has that many bytes.
            unsafe { block.start().write_bytes(7, block.size()) };
        }
        let (mapped, starts) = (store.mapped(), blocks.iter().map(MemoryBlock::start).collect::<Vec<_>>());
        for block in blocks {
            store.give(block);
        }
        let mut again: Vec<_> = sizes.iter().map(|&n| store.take(n).expect("memory")).collect();
        assert_eq!(again.iter().map(MemoryBlock::start).collect::<Vec<_>>(), starts);
        assert_eq!(store.mapped(), mapped);
        // One small block stays in use, so its slab stays. All else is returned.
        again.drain(1..).for_each(|block| store.give(block));
        store.clear();
        assert_eq!(store.mapped(), if system::TAKES_PARTS { SLAB } else { HUGE });
        for block in again {
            store.give(block);
        }
        store.clear();
        assert_eq!(store.mapped(), 0);
    }

    #[test]
    fn a_batch_comes_back_whole_or_block_by_block() {
        let mut store = Store::new();
        let class = class(100);
        let batch = |store: &mut Store, n: usize| {
            let batch = BlockStack::new();
            (0..n).for_each(|_| batch.push(store.take(100).expect("memory")));
            batch
        };
        let len = |batch: BlockStack| std::iter::from_fn(|| batch.pop()).count();
        for n in [3, 2, 4] {
            let blocks = batch(&mut store, n);
            store.give_batch(class, blocks, n);
        }
        store.give_batch(class, BlockStack::new(), 3); // an empty batch
        assert_eq!(store.take_batch(class).map(len), Some(4)); // which is not stored
        let singles = batch(&mut store, 3);
        store.give_batch(class, singles.take(), 3);
        assert!(singles.is_empty());
        assert_eq!([store.take_batch(class).map(len), store.take_batch(class).map(len)], [Some(3), None]);
        assert_eq!(len(batch(&mut store, 2)), 2);
    }

    #[test]
    fn batches_go_back_to_the_system() {
        let mut store = Store::new();
        let blocks = BlockStack::new();
        (0..5).for_each(|_| blocks.push(store.take(64).expect("memory")));
        store.give_batch(class(64), blocks, 5);
        assert_eq!(store.mapped(), HUGE);
        store.clear();
        assert_eq!((store.mapped(), store.take_batch(class(64)).is_none()), (0, true));
    }

    #[test]
    fn a_larger_block_serves_a_smaller_one_and_is_whole_again() {
        let mut store = Store::new();
        let block = store.take(8 << 20).expect("memory");
        let start = block.start();
        store.give(block);
        let blocks = [3 << 20, 100_000, 4 << 20].map(|size| store.take(size).expect("memory"));
        assert!(blocks[0].end() == start.addr().get() + (8 << 20) && store.mapped() == 8 << 20);
        for block in blocks {
            store.give(block);
        }
        assert_eq!(store.take(8 << 20).expect("memory").start(), start);
    }

    #[test]
    fn unmapped_memory_is_mapped_again() {
        let mut store = Store::new();
        let block = store.take(8 << 20).expect("memory");
        store.give(block);
        store.unmap(1);
        assert_eq!(store.mapped(), if system::TAKES_PARTS { 6 << 20 } else { 0 });
        let block = store.take(8 << 20).expect("memory");
        store.give(block);
        store.clear();
    }

    #[test]
    fn limits_hold_and_free_blocks_are_unmapped_first() {
        let mut store = Store::new();
        store.set_limit(16 << 20);
        let block = store.take(12 << 20).expect("memory");
        assert_eq!(store.take(8 << 20), None);
        store.give(block);
        assert!(store.take(8 << 20).is_some());
        assert!(store.mapped() <= 16 << 20);
        assert_eq!(store.take(1 << 60), None);
        assert_eq!(store.take(usize::MAX - 10), None);
    }

    #[test]
    fn blocks_of_changing_sizes_do_not_accumulate() {
        let mut store = Store::new();
        let peak = 100 << 20;
        for i in 0..50 {
            let block = store.take(peak - i * (13 << 17)).expect("memory");
            store.give(block);
        }
        assert!(store.mapped() <= peak + peak / 4 + SLACK);
    }

    #[test]
    fn idle_memory_is_returned_but_not_what_steps_use_again() {
        let mut store = Store::new();
        let model: Vec<_> = (0..10).map(|_| store.take(50 << 20).expect("memory")).collect();
        let step = |store: &mut Store| {
            let values: Vec<_> = (0..10).map(|_| store.take(20 << 20).expect("memory")).collect();
            let most = store.mapped();
            for block in values {
                store.give(block);
            }
            (most, store.mapped())
        };
        let (used, model_size) = (700 << 20, 500 << 20);
        // Nothing is known after the first step. The others keep their memory mapped.
        let (most, left) = step(&mut store);
        assert!(most == used && left < model_size + SLACK, "{most} {left}");
        let (most, left) = step(&mut store);
        assert!(most == left && most >= used && most < used + SLACK, "{most} {left}");
        assert_eq!([step(&mut store), step(&mut store)], [(most, left); 2]);
        // Without the model, the memory that its steps used is idle as well.
        for block in model {
            store.give(block);
        }
        assert!(store.mapped() <= SLACK, "{}", store.mapped());
    }

    #[test]
    fn idle_small_blocks_are_returned() {
        let mut store = Store::new();
        let mut blocks: Vec<_> = (0..200_000).map(|_| store.take(1000).expect("memory")).collect();
        let most = store.mapped();
        let last = blocks.split_off(199_999);
        for (i, block) in blocks.into_iter().enumerate() {
            store.give(block);
            assert!(i % 1000 > 0 || store.small <= 3 * SLACK, "{}", store.small);
        }
        assert!(store.mapped() < most && store.mapped() <= 3 * SLACK, "{}", store.mapped());
        for block in last {
            store.give(block);
        }
        store.clear();
        assert_eq!((store.mapped(), store.small), (0, 0));
    }
}
