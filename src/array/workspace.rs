//! Memory that kernels borrow for the time of a call and that each thread keeps for the next one: what they pack
//! matrices into, parts of sums, strips of images. Knows bytes and threads; knows no kernels.
//!
//! Each thread owns a shelf of blocks and takes the first that nobody uses, so that a call within a call gets a block of
//! its own and the same calls find the same blocks again. Anyone may clear a block that is not in use. Shelves are never
//! freed; one whose thread has ended goes to the next new thread.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::block::MemoryBlock;
use super::{account, allocator};

/// Blocks that a thread keeps: as many calls deep.
const DEPTH: usize = 6;
/// Bytes of a block that a thread keeps; longer ones go back after each call, so that arrays may have their memory.
const KEEP: usize = 256 << 10;
/// Bytes of what is small: short lists are kept apart, so that they do not take the places of large blocks, which would
/// be many then. They have at least so many bytes, and there are so many of them.
const SMALL: usize = 8 << 10;
const LEAST: usize = 512;
const SMALL_DEPTH: usize = 16;

/// A place for a block, which is locked while the block is in use. Nobody waits for it.
type Slot = Mutex<OwnedBlock>;

/// A block of its own. What is kept for reuse does not count as live.
fn allocate(bytes: usize) -> Option<OwnedBlock> {
    if account::is_short() { None } else { OwnedBlock::new(bytes).ok() }
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
        let shelf: &'static mut Shelf = Box::leak(Box::new(Shelf {
            owned: AtomicBool::new(true),
            slots: std::array::from_fn(|_| Slot::default()),
            small: std::array::from_fn(|_| Slot::default()),
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
        let mut slot = self.0.slots.iter().find_map(Mutex::try_lock)?;
        let is_there = slot.bytes() >= bytes;
        if !is_there {
            *slot = OwnedBlock::default(); // before there is more
            *slot = allocate(bytes)?;
        }
        Some((Workspace { memory: WorkspaceMemory::Kept(slot), elements: PhantomData }, is_there))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        clear_shelf(self.0);
        self.0.owned.store(false, Ordering::Release);
    }
}

/// Makes the shelf of this thread: otherwise the first call that works in memory of its own does.
pub(super) fn begin_thread() {
    let _ = OWN.try_with(|_| ());
}

/// Frees what is not in use; whether there was anything.
fn clear_shelf(shelf: &Shelf) -> bool {
    let slots = shelf.slots.iter().chain(&shelf.small).filter_map(Mutex::try_lock);
    slots.fold(false, |any, mut slot| any | (std::mem::take(&mut *slot).bytes() > 0))
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
    memory: WorkspaceMemory,
    /// It belongs to its thread.
    elements: PhantomData<*mut T>,
}

/// What a workspace is: a block that a slot keeps, or one that is freed with it.
enum WorkspaceMemory {
    Kept(MutexGuard<'static, OwnedBlock>),
    Own(OwnedBlock),
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
        let slots =
            |own: &Own| -> &'static [Slot] { if bytes <= SMALL { &own.0.small } else { &own.0.slots } };
        let slot = OWN.try_with(|own| slots(own).iter().find_map(Mutex::try_lock)).unwrap_or(None);
        let memory = match slot {
            Some(slot) if slot.bytes() >= bytes => WorkspaceMemory::Kept(slot),
            Some(mut slot) => {
                *slot = OwnedBlock::default(); // before there is more
                let block = allocate(bytes).ok_or(error)?;
                if bytes <= KEEP {
                    *slot = block;
                    WorkspaceMemory::Kept(slot)
                } else {
                    WorkspaceMemory::Own(block)
                }
            }
            None => WorkspaceMemory::Own(allocate(bytes).ok_or(error)?),
        };
        Ok(Self { memory, elements: PhantomData })
    }

    /// The first element.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut T {
        match &self.memory {
            WorkspaceMemory::Kept(block) => block.ptr().cast(),
            WorkspaceMemory::Own(block) => block.ptr().cast(),
        }
    }
}

/// Memory that belongs to nobody's shelf, for what outlives a call: like a workspace it counts for the limit, and is not live.
#[derive(Default)]
pub(crate) struct OwnedBlock(Option<MemoryBlock>);

impl OwnedBlock {
    /// Room for so many bytes, the first at the start of a cache line.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the system has no more.
    pub(crate) fn new(bytes: usize) -> Result<Self, OutOfMemory> {
        let block = allocator::allocate(bytes.max(1), 0).ok_or(OutOfMemory { bytes })?;
        Ok(Self(Some(block)))
    }

    /// The first byte.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.0.as_ref().map_or(std::ptr::null_mut(), |block| block.start().as_ptr())
    }

    /// How many bytes there are.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, MemoryBlock::size)
    }
}

impl Drop for OwnedBlock {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            allocator::free(block, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEEP, Workspace, WorkspaceMemory};

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
        assert!(matches!(large.memory, WorkspaceMemory::Own(_)));
    }
}
