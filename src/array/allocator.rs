//! The allocator of buffers: a small cache for each thread in front of one shared store. Counts the bytes in use.

use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use super::account::Account;
use super::block::{BlockStack, MemoryBlock};
use super::store::{CLASSES, LARGEST_SMALL, Store, class, class_size};
use super::{fork, workspace};
use crate::environment::{self, WrongSetting};

/// Bytes in use, bytes cached for reuse, and the peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in live buffers.
    pub live: usize,
    /// Bytes taken from the system that are in no live buffer: free blocks, scratch memory of kernels, and rounding.
    pub cached: usize,
    /// The largest `live` since the start or the last [`reset_peak_memory`]. Blocks below 64 KiB are counted in
    /// batches.
    pub peak: usize,
}

/// False if every block is an allocation of its own, so that memory checkers see its bounds.
const IS_KEPT: bool = !cfg!(feature = "system-allocator");
/// Bytes of one size class that a thread caches at most, in two batches.
const KEEP: usize = 64 << 10;
/// A thread publishes its count once it differs by this many bytes.
const BATCH: isize = 64 << 10;

/// Free blocks of all threads, and the memory taken from the system.
static STORE: Mutex<Store> = Mutex::new(Store::new());
/// Bytes in live buffers of all threads. Each thread publishes its changes once they reach [`BATCH`].
static LIVE: AtomicIsize = AtomicIsize::new(0);
/// The largest `LIVE` since the start or [`reset_peak_memory`].
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The largest `LIVE` since [`take_step_peak`].
static STEP_PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The free blocks of this thread, and its uncounted bytes.
    static CACHE: Cache = const { Cache { lists: OnceCell::new(), uncounted: Cell::new(0) } };
}

/// Blocks of a class in a batch, at least one.
const fn batch_len(class: usize) -> u32 {
    (KEEP / class_size(class) / 2) as u32
}
const _: () = assert!(batch_len(CLASSES - 1) > 0);

/// Free blocks of one size class. `capacity` is the remaining capacity of the stack.
struct FreeList {
    /// Free blocks, taken and returned without a lock.
    stack: BlockStack,
    /// The number of blocks that the stack may still take.
    capacity: Cell<u32>,
    /// A full batch of blocks, or empty.
    spare: BlockStack,
}

impl FreeList {
    /// The free lists of a thread.
    #[cold]
    fn all() -> Box<[Self; CLASSES]> {
        super::begin_thread_locals();
        Box::new(
            [const { Self { stack: BlockStack::new(), capacity: Cell::new(0), spare: BlockStack::new() } };
                CLASSES],
        )
    }

    /// Takes a block from the spare batch, which becomes the stack.
    #[cold]
    fn take_spare(&self) -> Option<MemoryBlock> {
        if !self.spare.is_empty() {
            self.stack.swap(&self.spare);
            self.capacity.set(0);
        }
        self.stack.pop()
    }

    /// Starts a new stack with the block and keeps the full one as the spare batch. Returns the block if there is a
    /// spare batch already.
    #[cold]
    fn give_beside(&self, class: usize, block: MemoryBlock) -> Option<MemoryBlock> {
        if !self.spare.is_empty() {
            return Some(block);
        }
        self.spare.swap(&self.stack);
        self.stack.push(block);
        self.capacity.set(batch_len(class) - 1);
        None
    }
}

/// The cache of a thread. The lists are on the heap, because static thread-local storage is scarce for a library that
/// is loaded late (`tests/house/test_beside_others.py`).
struct Cache {
    /// Free blocks by size class. Made when the thread first allocates.
    lists: OnceCell<Box<[FreeList; CLASSES]>>,
    /// The change of the live bytes that is not yet in [`LIVE`]. May be negative.
    uncounted: Cell<isize>,
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Cache {
    /// The free blocks of a size class on this thread.
    #[inline]
    fn list(&self, class: usize) -> &FreeList {
        &self.lists.get_or_init(FreeList::all)[class]
    }

    /// Takes a free block of a size class from this thread, if it has one.
    #[inline]
    fn take(&self, class: usize) -> Option<MemoryBlock> {
        let list = self.list(class);
        let block = list.stack.pop().or_else(|| list.take_spare())?;
        list.capacity.set(list.capacity.get() + 1);
        Some(block)
    }

    /// Caches a block of a class, or returns it if the list is full.
    #[inline]
    fn give(&self, class: usize, block: MemoryBlock) -> Option<MemoryBlock> {
        let list = self.list(class);
        let Some(capacity) = list.capacity.get().checked_sub(1) else {
            return list.give_beside(class, block);
        };
        list.capacity.set(capacity);
        list.stack.push(block);
        None
    }

    /// Counts allocated or, if negative, freed bytes. Publishes the count once it is large.
    #[inline]
    fn count(&self, bytes: isize) {
        let uncounted = self.uncounted.get() + bytes;
        self.uncounted.set(uncounted);
        if uncounted.abs() >= BATCH {
            self.publish();
        }
    }

    /// Adds the bytes counted on this thread to the counts of the process.
    #[cold]
    fn publish(&self) {
        publish(self.uncounted.take());
    }

    /// Refills the empty list of one class, with a batch of another thread if the store has one. A batch moves
    /// without a loop over its blocks.
    fn fill(&self, class: usize, store: &mut Store) {
        let list = self.list(class);
        if let Some(batch) = store.take_batch(class) {
            list.stack.swap(&batch);
            list.capacity.set(0);
            return;
        }
        list.capacity.set(batch_len(class));
        while list.capacity.get() > 0
            && let Some(block) = store.take_free(class)
        {
            let _ = self.give(class, block); // the list is not full
        }
    }

    /// Caches a block of a class whose list is full. The spare batch moves to the store.
    fn give_over(&self, class: usize, block: MemoryBlock, store: &mut Store) {
        store.give_batch(class, self.list(class).spare.take(), batch_len(class) as usize);
        let _ = self.give(class, block); // the list is not full
    }

    /// Gives all blocks and counts of this thread to the store of the process.
    fn flush(&self) {
        self.publish();
        let mut store = lock();
        for (class, list) in self.lists.get().into_iter().flat_map(|lists| lists.iter().enumerate()) {
            store.give_batch(class, list.spare.take(), batch_len(class) as usize);
            while let Some(block) = list.stack.pop() {
                store.give(block);
            }
            list.capacity.set(batch_len(class));
        }
    }
}

/// Allocates the free lists of this thread. Without this call its first buffer does.
pub(super) fn begin_thread() {
    let _ = CACHE.try_with(|cache| cache.lists.get_or_init(FreeList::all).len());
}

/// Adds bytes to the live bytes of the process and raises the peaks.
fn publish(bytes: isize) {
    let live = LIVE.fetch_add(bytes, Ordering::SeqCst) + bytes;
    let live = live.max(0) as usize;
    PEAK.fetch_max(live, Ordering::Relaxed);
    if live > STEP_PEAK.load(Ordering::Relaxed) {
        STEP_PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

/// Locks the store. The first call guards against forks and reads the limit from the environment.
fn lock() -> MutexGuard<'static, Store> {
    static SETUP: Once = Once::new();
    SETUP.call_once(|| {
        guard_forks();
        super::reclaim::guard_forks();
        if let Ok(Some(bytes)) = limit_of_environment() {
            STORE.lock().unwrap_or_else(PoisonError::into_inner).set_limit(bytes);
        }
    });
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory limit from the environment, if it is set.
pub(crate) fn limit_of_environment() -> Result<Option<usize>, WrongSetting> {
    let expected = "a number of bytes, such as 1073741824, 1024M or 1G";
    environment::setting("KINNOR_MEMORY_LIMIT", expected, environment::bytes)
}

/// Registers fork handlers: a child must not inherit a store that another thread was changing.
fn guard_forks() {
    thread_local! {
        static HELD: Cell<fork::HeldGuard<MutexGuard<'static, Store>>> = const { Cell::new(None) };
    }
    /// Before a fork: locks the store, so that the child gets it in a consistent state.
    extern "C" fn before() {
        fork::hold(&HELD, STORE.lock().unwrap_or_else(PoisonError::into_inner));
    }
    /// After a fork, in parent and child: unlocks the store.
    extern "C" fn after() {
        drop(fork::release(&HELD));
    }
    fork::around(before, after, after);
}

/// Returns a block of at least `size` bytes and counts `bytes` of it as live. None if memory is exhausted.
#[inline]
pub(super) fn allocate(size: usize, bytes: usize) -> Option<MemoryBlock> {
    if IS_KEPT && size <= LARGEST_SMALL {
        let class = class(size);
        let kept = CACHE.try_with(|cache| {
            let block = cache.take(class)?;
            cache.count(bytes as isize);
            Some(block)
        });
        if let Ok(Some(block)) = kept {
            return Some(block);
        }
    }
    // As a last resort, free the cached scratch memory of kernels.
    allocate_from_store(size, bytes)
        .or_else(|| workspace::clear().then(|| allocate_from_store(size, bytes)).flatten())
}

/// Allocates a block from the store, and fills this thread's list of the size class.
#[cold]
fn allocate_from_store(size: usize, bytes: usize) -> Option<MemoryBlock> {
    let mut store = lock();
    let taken = match IS_KEPT {
        true => store.take(size)?,
        false => store.take_alone(size)?,
    };
    if IS_KEPT && taken.size() <= LARGEST_SMALL {
        let class = class(taken.size());
        let _ = CACHE.try_with(|cache| cache.fill(class, &mut store));
    }
    drop(store);
    let counted = CACHE.try_with(|cache| match bytes < BATCH as usize {
        true => cache.count(bytes as isize),
        false => publish(cache.uncounted.take() + bytes as isize),
    });
    counted.unwrap_or_else(|_| publish(bytes as isize));
    Some(taken)
}

/// Frees a block that came from [`allocate`] with the same count.
#[inline]
pub(super) fn free(block: MemoryBlock, bytes: usize) {
    let size = block.size();
    let mut left = Some(block);
    if IS_KEPT && size <= LARGEST_SMALL {
        let class = class(size);
        let _ = CACHE.try_with(|cache| {
            left = left.take().and_then(|block| cache.give(class, block));
            if left.is_none() {
                cache.count(-(bytes as isize));
            }
        });
    }
    if let Some(block) = left {
        free_to_store(block, bytes);
    }
}

/// Frees a block that this thread's list has no space for.
#[cold]
fn free_to_store(block: MemoryBlock, bytes: usize) {
    let mut left = Some(block);
    {
        let mut store = lock();
        let mut give_over = |cache: &Cache| {
            if let Some(block) = left.take_if(|block| IS_KEPT && block.size() <= LARGEST_SMALL) {
                cache.give_over(class(block.size()), block, &mut store);
            }
        };
        let _ = CACHE.try_with(&mut give_over);
        match left {
            Some(block) if IS_KEPT => store.give(block),
            Some(block) => store.give_alone(block),
            None => {}
        }
    }
    publish(-(bytes as isize));
}

/// Bytes in live buffers, exact for allocations of this thread.
fn live() -> isize {
    let _ = CACHE.try_with(Cache::publish);
    LIVE.load(Ordering::SeqCst)
}

impl Account {
    /// Opens an account. It is active until it is [closed](Account::close).
    pub(crate) fn open() -> Arc<Self> {
        Self::open_with(live)
    }
}

/// Returns how much memory buffers take.
pub fn memory_stats() -> MemoryStats {
    let _ = CACHE.try_with(Cache::publish);
    let mapped = lock().mapped();
    let live = LIVE.load(Ordering::Relaxed).max(0) as usize;
    MemoryStats { live, cached: mapped.saturating_sub(live), peak: PEAK.load(Ordering::Relaxed).max(live) }
}

/// Resets the peak of [`memory_stats`] to the current use.
pub fn reset_peak_memory() {
    let _ = CACHE.try_with(Cache::publish);
    PEAK.store(LIVE.load(Ordering::Relaxed).max(0) as usize, Ordering::Relaxed);
}

/// The largest `live` since the last call, including the current value.
pub(crate) fn take_step_peak() -> usize {
    let now = live();
    STEP_PEAK.swap(now.max(0) as usize, Ordering::Relaxed).max(now.max(0) as usize)
}

/// Returns all cached memory to the system, including scratch memory of kernels. Other threads keep up to 64 KiB of
/// each small size class.
pub fn clear_memory_cache() {
    workspace::clear();
    let _ = CACHE.try_with(Cache::flush);
    lock().clear();
}

/// Sets the largest number of bytes that buffers may take from the system. Allocation beyond it fails. None removes
/// the limit. The initial limit comes from `KINNOR_MEMORY_LIMIT`. Memory in use is not affected.
pub fn set_memory_limit(bytes: Option<usize>) {
    lock().set_limit(bytes.unwrap_or(usize::MAX));
}
