//! Where buffers get memory: a small cache in each thread before one store for all. Counts what is in use.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use super::store::{BlockStack, CLASSES, Store, class, class_size};
use super::workspace;
use crate::environment::{self, WrongSetting};

/// Bytes in use, kept for reuse, and the most ever in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in live buffers.
    pub live: usize,
    /// Bytes that were taken from the system and are in no live buffer: free blocks, what kernels work in and keep for
    /// the next call, and what rounding adds.
    pub cached: usize,
    /// The largest `live` since the start or the last [`reset_peak_memory`]. Blocks below 64 KiB are counted in batches.
    pub peak: usize,
}

/// Longer blocks go straight to the store.
const LARGEST_KEPT: usize = 32 << 10;
/// Where each block is an allocation of its own, so that a tool sees its ends, threads keep none.
const IS_KEPT: bool = !cfg!(feature = "system-allocator");
/// Classes that threads keep.
const KEPT: usize = class(LARGEST_KEPT) + 1;
const _: () = assert!(KEPT < CLASSES);
/// Bytes of one class that a thread keeps.
const KEEP: usize = 64 << 10;
/// A thread publishes its count when it is this far off.
const BATCH: isize = 64 << 10;

static STORE: Mutex<Store> = Mutex::new(Store::new());
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The largest `LIVE` since [`take_step_peak`].
static STEP_PEAK: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CACHE: Cache = const { Cache { kept: [const { Cell::new(FreeList { stack: BlockStack::EMPTY, room: 0 }) }; KEPT], uncounted: Cell::new(0) } };
}

/// Free blocks of one class: `room` is how many more may come.
#[derive(Clone, Copy)]
struct FreeList {
    stack: BlockStack,
    room: u32,
}

/// What a thread keeps for itself.
struct Cache {
    kept: [Cell<FreeList>; KEPT],
    uncounted: Cell<isize>,
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Cache {
    #[inline]
    fn take(&self, class: usize) -> Option<NonNull<u8>> {
        let mut kept = self.kept[class].get();
        let block = kept.stack.pop()?;
        kept.room += 1;
        self.kept[class].set(kept);
        Some(block)
    }

    /// Keeps a block if there is room.
    ///
    /// # Safety
    /// As [`BlockStack::push`]; the block is of that class.
    #[inline]
    unsafe fn give(&self, class: usize, block: NonNull<u8>) -> bool {
        let mut kept = self.kept[class].get();
        if kept.room == 0 {
            return false;
        }
        // SAFETY: the caller's promise.
        unsafe { kept.stack.push(block) };
        kept.room -= 1;
        self.kept[class].set(kept);
        true
    }

    #[inline]
    fn count(&self, bytes: isize) {
        let uncounted = self.uncounted.get() + bytes;
        self.uncounted.set(uncounted);
        if uncounted.abs() >= BATCH {
            self.publish();
        }
    }

    #[cold]
    fn publish(&self) {
        publish(self.uncounted.take());
    }

    /// Empties one class into the store and makes room for as many blocks as a thread may keep.
    fn empty(&self, class: usize, store: &mut Store) {
        let mut kept = self.kept[class].get();
        while let Some(block) = kept.stack.pop() {
            // SAFETY: the block was free and left this cache.
            unsafe { store.give(block, class_size(class)) };
        }
        kept.room = (KEEP / class_size(class)) as u32;
        self.kept[class].set(kept);
    }

    /// Fills one class to half, so that neither a run of frees nor one of allocations comes back at once.
    fn balance(&self, class: usize, store: &mut Store) {
        self.empty(class, store);
        for _ in 0..KEEP / class_size(class) / 2 {
            let Some(block) = store.take_free(class) else { break };
            // SAFETY: the block is free and has just left the store.
            unsafe { self.give(class, block) };
        }
    }

    fn flush(&self) {
        self.publish();
        let mut store = lock();
        for class in 0..KEPT {
            self.empty(class, &mut store);
        }
    }
}

fn publish(bytes: isize) {
    let live = LIVE.fetch_add(bytes, Ordering::SeqCst) + bytes;
    let live = live.max(0) as usize;
    PEAK.fetch_max(live, Ordering::Relaxed);
    if live > STEP_PEAK.load(Ordering::Relaxed) {
        STEP_PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

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

/// The most that buffers may take, if the environment says so.
pub(crate) fn limit_of_environment() -> Result<Option<usize>, WrongSetting> {
    let expected = "a number of bytes, such as 1073741824, 1024M or 1G";
    environment::setting("KINNOR_MEMORY_LIMIT", expected, environment::bytes)
}

/// A child must not inherit a store that another thread was in the middle of changing.
#[cfg(unix)]
fn guard_forks() {
    thread_local! {
        static HELD: Cell<Option<MutexGuard<'static, Store>>> = const { Cell::new(None) };
    }
    extern "C" fn before() {
        let guard = STORE.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = HELD.try_with(|held| held.set(Some(guard)));
    }
    extern "C" fn after() {
        let _ = HELD.try_with(Cell::take);
    }
    // SAFETY: the functions only take and give back the lock.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

#[cfg(not(unix))]
fn guard_forks() {}

/// A block of at least `size` bytes and its true size, of which `bytes` count as live. `None`: no more memory.
#[inline]
pub(super) fn allocate(size: usize, bytes: usize) -> Option<(NonNull<u8>, usize)> {
    if IS_KEPT && size <= LARGEST_KEPT {
        let class = class(size);
        let kept = CACHE.try_with(|cache| {
            let block = cache.take(class)?;
            cache.count(bytes as isize);
            Some(block)
        });
        if let Ok(Some(block)) = kept {
            return Some((block, class_size(class)));
        }
    }
    // Where nothing is left, what kernels keep for their next call is worth less than what is asked for.
    allocate_from_store(size, bytes)
        .or_else(|| workspace::clear().then(|| allocate_from_store(size, bytes)).flatten())
}

#[cold]
fn allocate_from_store(size: usize, bytes: usize) -> Option<(NonNull<u8>, usize)> {
    let mut store = lock();
    let taken = match IS_KEPT {
        true => store.take(size, PEAK.load(Ordering::Relaxed))?,
        false => (store.take_alone(size)?, size),
    };
    if IS_KEPT && taken.1 <= LARGEST_KEPT {
        let class = class(taken.1);
        let _ = CACHE.try_with(|cache| cache.balance(class, &mut store));
    }
    drop(store);
    let counted = CACHE.try_with(|cache| match bytes < BATCH as usize {
        true => cache.count(bytes as isize),
        false => publish(cache.uncounted.take() + bytes as isize),
    });
    counted.unwrap_or_else(|_| publish(bytes as isize));
    Some(taken)
}

/// Takes a block back.
///
/// # Safety
/// It came from [`allocate`] with this true size and this count, and nobody uses it any more.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, size: usize, bytes: usize) {
    if IS_KEPT && size <= LARGEST_KEPT {
        let class = class(size);
        let kept = CACHE.try_with(|cache| {
            // SAFETY: the caller gives the block away.
            let kept = unsafe { cache.give(class, block) };
            if kept {
                cache.count(-(bytes as isize));
            }
            kept
        });
        if kept == Ok(true) {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { free_to_store(block, size, bytes) };
}

#[cold]
unsafe fn free_to_store(block: NonNull<u8>, size: usize, bytes: usize) {
    {
        let mut store = lock();
        if IS_KEPT {
            // SAFETY: the caller's promise.
            unsafe { store.give(block, size) };
        } else {
            // SAFETY: as above; there are no blocks of another kind then.
            unsafe { store.give_alone(block, size) };
        }
        if IS_KEPT && size <= LARGEST_KEPT {
            let class = class(size);
            let _ = CACHE.try_with(|cache| cache.balance(class, &mut store));
        }
    }
    publish(-(bytes as isize));
}

/// Bytes in live buffers, exact for what this thread did.
pub(super) fn live() -> isize {
    let _ = CACHE.try_with(Cache::publish);
    LIVE.load(Ordering::SeqCst)
}

/// How much memory buffers take.
pub fn memory_stats() -> MemoryStats {
    let _ = CACHE.try_with(Cache::publish);
    let mapped = lock().mapped();
    let live = LIVE.load(Ordering::Relaxed).max(0) as usize;
    MemoryStats { live, cached: mapped.saturating_sub(live), peak: PEAK.load(Ordering::Relaxed).max(live) }
}

/// Starts the count of the largest use of memory anew.
pub fn reset_peak_memory() {
    let _ = CACHE.try_with(Cache::publish);
    PEAK.store(LIVE.load(Ordering::Relaxed).max(0) as usize, Ordering::Relaxed);
}

/// The largest `live` since the last call, with that of now.
pub(crate) fn take_step_peak() -> usize {
    let now = live();
    STEP_PEAK.swap(now.max(0) as usize, Ordering::Relaxed).max(now.max(0) as usize)
}

/// Gives memory that is kept for reuse back to the system, what kernels keep to work in among it. Other threads keep up
/// to 64 KiB of each small size.
pub fn clear_memory_cache() {
    workspace::clear();
    let _ = CACHE.try_with(Cache::flush);
    lock().clear();
}

/// The most that buffers may take from the system, in bytes; beyond it allocation fails. `None`: no limit, as at the
/// start unless the environment says `KINNOR_MEMORY_LIMIT`. What is in use already stays.
pub fn set_memory_limit(bytes: Option<usize>) {
    lock().set_limit(bytes.unwrap_or(usize::MAX));
}
