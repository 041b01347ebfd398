//! Memory that kernels borrow for the time of a call and that each thread keeps for the next one: what they pack
//! matrices into, parts of sums, strips of images. Knows bytes and threads; knows no kernels.
//!
//! Each thread owns a shelf of blocks and takes the first that nobody uses, so that a call within a call gets a block of
//! its own and the same calls find the same blocks again. Anyone may clear a block that is not in use. Shelves are never
//! freed; one whose thread has ended goes to the next new thread.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::{account, allocator};

/// Blocks that a thread keeps: as many calls deep.
const DEPTH: usize = 6;
/// Bytes of a block that a thread keeps.
const KEEP: usize = 32 << 20;
/// Bytes of what is small: short lists are kept apart, so that they do not take the places of large blocks, which would
/// be many then. They have at least so many bytes, and there are so many of them.
const SMALL: usize = 8 << 10;
const LEAST: usize = 512;
const SMALL_DEPTH: usize = 16;

/// A block of its own. What is kept for reuse does not count as live.
fn allocate(bytes: usize) -> Option<RawBlock> {
    if account::is_short() { None } else { allocator::allocate(bytes, 0) }
}

/// A block and its true size.
type RawBlock = (NonNull<u8>, usize);

struct Slot {
    taken: AtomicBool,
    block: UnsafeCell<Option<RawBlock>>,
}

// SAFETY: only whoever has `taken` the slot touches the block.
unsafe impl Sync for Slot {}
// SAFETY: a block belongs to no thread.
unsafe impl Send for Slot {}

impl Slot {
    fn take(&self) -> bool {
        !self.taken.swap(true, Ordering::Acquire)
    }

    fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }

    /// Frees the block of a slot that was taken.
    ///
    /// # Safety
    /// The caller has taken the slot, and nobody uses the block.
    unsafe fn clear(&self) -> bool {
        // SAFETY: the caller's promise.
        let block = unsafe { (*self.block.get()).take() };
        block.is_some_and(|(block, size)| {
            // SAFETY: the block came from the allocator with this size and this count.
            unsafe { allocator::free(block, size, 0) };
            true
        })
    }
}

struct Shelf {
    owned: AtomicBool,
    slots: [Slot; DEPTH],
    small: [Slot; SMALL_DEPTH],
    next: AtomicPtr<Shelf>,
}

/// All shelves, as a list that only grows: a lock could be held by another thread when the process forks.
static SHELVES: AtomicPtr<Shelf> = AtomicPtr::new(std::ptr::null_mut());

fn shelves() -> impl Iterator<Item = &'static Shelf> {
    let at = |shelf: &AtomicPtr<Shelf>| {
        // SAFETY: shelves are leaked.
        unsafe { shelf.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(at(&SHELVES), move |shelf| at(&shelf.next))
}

/// A shelf of one's own: that of a thread, or of a function that keeps what is in it.
pub(super) struct Own(&'static Shelf);

thread_local! {
    static OWN: Own = Own::new();
}

impl Own {
    pub(super) fn new() -> Self {
        if let Some(shelf) = shelves().find(|shelf| !shelf.owned.swap(true, Ordering::Acquire)) {
            return Self(shelf);
        }
        let slot = || Slot { taken: AtomicBool::new(false), block: UnsafeCell::new(None) };
        let shelf: &'static mut Shelf = Box::leak(Box::new(Shelf {
            owned: AtomicBool::new(true),
            slots: std::array::from_fn(|_| slot()),
            small: std::array::from_fn(|_| slot()),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }));
        let mut first = SHELVES.load(Ordering::Acquire);
        loop {
            *shelf.next.get_mut() = first;
            match SHELVES.compare_exchange(first, shelf, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Self(shelf),
                Err(now) => first = now,
            }
        }
    }

    /// Memory for `n` elements, and whether it is that of the last time, as it was left. None: there is none.
    pub(super) fn lend<T>(&self, n: usize) -> Option<(Workspace<T>, bool)> {
        let bytes = n.max(1).checked_mul(size_of::<T>())?;
        let slot = self.0.slots.iter().find(|slot| slot.take())?;
        let lend = |block| Workspace { block, slot: Some(slot), elements: PhantomData };
        // SAFETY: the slot is taken by this thread. So below.
        if let Some(block) = unsafe { *slot.block.get() }.filter(|(_, size)| *size >= bytes) {
            return Some((lend(block), true));
        }
        // SAFETY: as above; nobody uses a block that was not lent.
        unsafe { slot.clear() };
        let Some(block) = allocate(bytes) else {
            slot.give_back();
            return None;
        };
        // SAFETY: as above.
        unsafe { *slot.block.get() = Some(block) };
        Some((lend(block), false))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        clear_shelf(self.0);
        self.0.owned.store(false, Ordering::Release);
    }
}

/// Frees what is not in use; whether there was anything.
fn clear_shelf(shelf: &Shelf) -> bool {
    let mut any = false;
    for slot in shelf.slots.iter().chain(&shelf.small).filter(|slot| slot.take()) {
        // SAFETY: the slot was just taken.
        any |= unsafe { slot.clear() };
        slot.give_back();
    }
    any
}

/// Frees what threads keep and do not use at the moment; whether there was anything.
pub(super) fn clear() -> bool {
    shelves().fold(false, |any, shelf| clear_shelf(shelf) | any)
}

/// There is no memory, or a limit does not let it be had.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cannot allocate {bytes} bytes")]
pub struct OutOfMemory {
    /// Bytes that were asked for.
    pub bytes: usize,
}

/// Memory for some elements, their values undefined and the first at the start of a cache line, until it is dropped.
pub(crate) struct Workspace<T> {
    block: RawBlock,
    /// The slot that keeps it; without one it is freed.
    slot: Option<&'static Slot>,
    /// It belongs to its thread.
    elements: PhantomData<*mut T>,
}

impl<T> Workspace<T> {
    /// Room for `n` elements.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the system has no more.
    pub(crate) fn new(n: usize) -> Result<Self, OutOfMemory> {
        let error = OutOfMemory { bytes: n.saturating_mul(size_of::<T>()) };
        let Some(bytes) = n.max(1).checked_mul(size_of::<T>()) else { return Err(error) };
        let bytes = bytes.max(LEAST);
        let slots = |own: &Own| if bytes <= SMALL { &own.0.small[..] } else { &own.0.slots };
        let slot = OWN.try_with(|own| slots(own).iter().find(|slot| slot.take())).unwrap_or(None);
        if let Some(slot) = slot {
            // SAFETY: the slot is taken by this thread.
            let kept = unsafe { &mut *slot.block.get() };
            if let Some(block) = kept.filter(|(_, size)| *size >= bytes) {
                return Ok(Self { block, slot: Some(slot), elements: PhantomData });
            }
            // SAFETY: as above; nobody uses a block that was not lent.
            unsafe { slot.clear() };
        }
        let Some(block) = allocate(bytes) else {
            slot.inspect(|slot| slot.give_back());
            return Err(error);
        };
        let slot = match slot {
            Some(slot) if bytes <= KEEP => {
                // SAFETY: the slot is taken by this thread.
                unsafe { *slot.block.get() = Some(block) };
                Some(slot)
            }
            _ => {
                slot.inspect(|slot| slot.give_back());
                None
            }
        };
        Ok(Self { block, slot, elements: PhantomData })
    }

    /// The first element.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut T {
        self.block.0.as_ptr().cast()
    }
}

impl<T> Drop for Workspace<T> {
    fn drop(&mut self) {
        match self.slot {
            Some(slot) => slot.give_back(),
            // SAFETY: the block came from the allocator with this size and this count, and nobody else has it.
            None => unsafe { allocator::free(self.block.0, self.block.1, 0) },
        }
    }
}

/// Memory that belongs to nobody's shelf, for what outlives a call: like a workspace it counts for the limit, and is not live.
pub(crate) struct OwnedBlock {
    block: RawBlock,
}

// SAFETY: a block belongs to no thread.
unsafe impl Send for OwnedBlock {}
// SAFETY: it only says where the block is.
unsafe impl Sync for OwnedBlock {}

impl OwnedBlock {
    /// Room for so many bytes, the first at the start of a cache line.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the system has no more.
    pub(crate) fn new(bytes: usize) -> Result<Self, OutOfMemory> {
        let block = allocator::allocate(bytes.max(1), 0).ok_or(OutOfMemory { bytes })?;
        Ok(Self { block })
    }

    /// The first byte.
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.block.0.as_ptr()
    }

    /// How many bytes there are.
    pub(crate) fn bytes(&self) -> usize {
        self.block.1
    }
}

impl Drop for OwnedBlock {
    fn drop(&mut self) {
        // SAFETY: the block came from the allocator with this size and this count, and nobody else has it.
        unsafe { allocator::free(self.block.0, self.block.1, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::{KEEP, Workspace};

    #[test]
    fn calls_within_calls_have_memory_of_their_own_and_the_next_call_finds_it_again() {
        let fill = |w: &Workspace<f32>, v: f32| {
            // SAFETY: there is room for four.
            unsafe { w.ptr().cast::<[f32; 4]>().write([v; 4]) };
        };
        let nested = || {
            let all: Vec<Workspace<f32>> = (0..9).map(|_| Workspace::new(4).expect("memory")).collect();
            all.iter().enumerate().for_each(|(i, w)| fill(w, i as f32));
            for (i, w) in all.iter().enumerate() {
                // SAFETY: as above, and written.
                assert_eq!(unsafe { w.ptr().cast::<[f32; 4]>().read() }, [i as f32; 4]);
                assert_eq!(w.ptr() as usize % 64, 0);
            }
            all[0].ptr()
        };
        // Another test may clear all in between.
        assert!((0..9).any(|_| nested() == nested()));
    }

    #[test]
    fn what_is_too_large_is_refused_or_not_kept() {
        assert!(Workspace::<f64>::new(usize::MAX / 4).is_err());
        assert!(Workspace::<f64>::new(usize::MAX / 64).is_err());
        let large = Workspace::<u8>::new(KEEP + 1).expect("memory");
        assert!(large.slot.is_none());
    }
}
