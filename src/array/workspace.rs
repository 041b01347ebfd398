//! Scratch memory for kernels, cached by thread between calls: packed matrices, partial sums, packed images. Knows
//! bytes and threads, not kernels.
//!
//! Each thread owns a shelf of blocks and takes the first free one. So nested calls get different blocks, and equal
//! calls get the same blocks again. Any thread may free a block that is not in use. Shelves are never freed. The shelf
//! of a thread that ended goes to the next new thread. Model: `a_shelf_has_one_owner`.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::block::MemoryBlock;
use super::out_of_memory::OutOfMemory;
use super::{account, allocator};

/// Blocks that a thread caches: the depth of nested calls.
const DEPTH: usize = 6;
/// Largest block that a thread caches, in bytes. Larger ones are freed after each call, so that arrays can use the
/// memory.
const KEEP: usize = 256 << 10;
/// Largest small block, in bytes. Small blocks have their own slots, so that short lists do not occupy slots of large
/// blocks.
const SMALL: usize = 8 << 10;
/// Smallest block, in bytes.
const LEAST: usize = 512;
/// Number of slots for small blocks.
const SMALL_DEPTH: usize = 16;

/// A slot for a block, locked while the block is in use. No thread waits for it.
type Slot = Mutex<OwnedBlock>;

/// Allocates a block. Cached memory does not count as live.
fn allocate(bytes: usize) -> Option<OwnedBlock> {
    if account::is_short() { None } else { OwnedBlock::new(bytes).ok() }
}

/// The cached blocks of one thread.
struct Shelf {
    /// True while a thread or a function owns it.
    owned: AtomicBool,
    /// Slots for blocks above [`SMALL`], and for data that a function caches.
    slots: [Slot; DEPTH],
    /// Slots for blocks up to [`SMALL`].
    small: [Slot; SMALL_DEPTH],
    /// The next shelf of the list.
    next: AtomicPtr<Shelf>,
}

/// All shelves, as an append-only list: a lock could be held by another thread when the process forks.
static SHELVES: AtomicPtr<Shelf> = AtomicPtr::new(std::ptr::null_mut());

/// All shelves.
fn shelves() -> impl Iterator<Item = &'static Shelf> {
    let at = |shelf: &AtomicPtr<Shelf>| {
        // SAFETY: shelves are leaked.
        unsafe { shelf.load(Ordering::Acquire).as_ref() }
    };
    std::iter::successors(at(&SHELVES), move |shelf| at(&shelf.next))
}

/// An exclusively owned shelf: of a thread, or of a function that caches data in it.
pub(super) struct Own(&'static Shelf);

thread_local! {
    /// The shelf of this thread.
    static OWN: Own = Own::new();
}

impl Own {
    /// Takes a shelf that no thread owns, or makes one.
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

    /// Lends memory for `n` elements. The flag is true if it is the memory of the last call, unchanged. None if there
    /// is no memory.
    pub(super) fn lend<T>(&self, n: usize) -> Option<(Workspace<T>, bool)> {
        let bytes = n.max(1).checked_mul(size_of::<T>())?;
        let mut slot = self.0.slots.iter().find_map(Mutex::try_lock)?;
        let is_there = slot.bytes() >= bytes;
        if !is_there {
            *slot = OwnedBlock::default(); // freed before the larger block is allocated
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

/// Creates the shelf of this thread. Without this call the first use does.
pub(super) fn begin_thread() {
    let _ = OWN.try_with(|_| ());
}

/// Frees the unused blocks of a shelf. Returns true if there were any.
fn clear_shelf(shelf: &Shelf) -> bool {
    let slots = shelf.slots.iter().chain(&shelf.small).filter_map(Mutex::try_lock);
    slots.fold(false, |any, mut slot| any | (std::mem::take(&mut *slot).bytes() > 0))
}

/// Frees the unused blocks of all threads. Returns true if there were any.
pub(super) fn clear() -> bool {
    shelves().fold(false, |any, shelf| clear_shelf(shelf) | any)
}

/// Scratch memory for elements of type `T`, uninitialized and aligned to a cache line, until it is dropped.
pub(crate) struct Workspace<T> {
    /// The memory, cached or owned.
    memory: WorkspaceMemory,
    /// Makes the type `!Send`: the memory belongs to the thread that made it.
    elements: PhantomData<*mut T>,
}

/// The memory of a workspace: a cached block, or one that is freed with it.
enum WorkspaceMemory {
    /// Cached in a slot, which stays locked.
    Kept(MutexGuard<'static, OwnedBlock>),
    /// Freed with the workspace.
    Own(OwnedBlock),
}

impl<T> Workspace<T> {
    /// Allocates scratch memory for `n` elements.
    ///
    /// # Errors
    /// [`OutOfMemory`] if allocation fails.
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
                *slot = OwnedBlock::default(); // freed before the larger block is allocated
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

/// Scratch memory that belongs to no shelf, for data that outlives a call. It counts for the limit, but not as live.
#[derive(Default)]
pub(crate) struct OwnedBlock(Option<MemoryBlock>);

impl OwnedBlock {
    /// Allocates at least `bytes` bytes, aligned to a cache line.
    ///
    /// # Errors
    /// [`OutOfMemory`] if allocation fails.
    pub(crate) fn new(bytes: usize) -> Result<Self, OutOfMemory> {
        let block = allocator::allocate(bytes.max(1), 0).ok_or(OutOfMemory { bytes })?;
        Ok(Self(Some(block)))
    }

    /// The first byte.
    #[inline]
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.0.as_ref().map_or(std::ptr::null_mut(), |block| block.start().as_ptr())
    }

    /// The number of bytes.
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
            // SAFETY: the workspace holds four elements.
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
        // Another test may clear all caches in between.
        assert!((0..9).any(|_| nested() == nested()));
    }

    #[test]
    fn large_workspaces_are_refused_or_not_cached() {
        assert!(Workspace::<f64>::new(usize::MAX / 4).is_err());
        assert!(Workspace::<f64>::new(usize::MAX / 64).is_err());
        let large = Workspace::<u8>::new(KEEP + 1).expect("memory");
        assert!(matches!(large.memory, WorkspaceMemory::Own(_)));
    }
}
