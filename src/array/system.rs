//! Memory from the operating system: mapped in whole pages, huge ones where they fit. Knows no lists and no limits.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
#[cfg(all(unix, not(feature = "system-allocator")))]
use std::sync::atomic::{AtomicUsize, Ordering};

use super::block::{ALIGN, MemoryBlock};

/// A huge page, and the size of a chunk that small blocks are cut from.
pub(super) const HUGE: usize = 2 << 20;
/// The granularity of free memory. The pages of the system may be longer: see [`page`].
pub(super) const PAGE: usize = 4 << 10;
/// True if any range of pages can be returned to the system, also part of a mapping or a range over two adjacent ones.
pub(super) const TAKES_PARTS: bool = cfg!(all(unix, not(feature = "system-allocator")));

/// Bytes of a system page, a multiple of [`PAGE`]: often 16 or 64 KiB on 64-bit ARM. `munmap` rounds to whole pages.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn page() -> usize {
    /// The size of a page; 0 before the first call.
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    // SAFETY: it reads a constant of the system.
    let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    let bytes = if bytes.is_power_of_two() { bytes.max(PAGE) } else { PAGE };
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// The size of a page, for memory that does not come from `mmap`. Such blocks are returned as a whole.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) fn page() -> usize {
    PAGE
}

/// Maps pages at an address that the system chooses. Successive mappings are mostly adjacent. None if memory is
/// exhausted.
#[cfg(all(unix, not(feature = "system-allocator")))]
fn pages(length: usize) -> Option<*mut u8> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.cast())
}

/// Reserved addresses without memory behind them. Dropping the value releases them.
pub(super) struct Addresses {
    /// The first address.
    start: NonZeroUsize,
    /// The number of addresses.
    #[cfg(unix)]
    bytes: usize,
}

impl Addresses {
    /// Reserves addresses. None if the address space is exhausted.
    #[cfg(unix)]
    pub(super) fn reserve(bytes: usize) -> Option<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh private mapping, which is never read.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, kind, -1, 0) };
        let start = NonZeroUsize::new(start.addr()).filter(|_| start != libc::MAP_FAILED)?;
        Some(Self { start, bytes })
    }

    /// Succeeds without reserving anything, on systems that cannot reserve addresses.
    #[cfg(not(unix))]
    pub(super) fn reserve(_bytes: usize) -> Option<Self> {
        Some(Self { start: NonZeroUsize::MIN })
    }

    /// The first address, for [`Addresses::from_start`]. The addresses stay reserved.
    pub(super) fn into_start(self) -> usize {
        std::mem::ManuallyDrop::new(self).start.get()
    }

    /// Reserved addresses, given the first one. None if that is zero.
    ///
    /// # Safety
    /// [`Addresses::into_start`] must have returned `start` for the same number of bytes, and `start` must not be used
    /// again.
    #[cfg_attr(not(unix), allow(unused_variables))] // nothing was reserved
    pub(super) unsafe fn from_start(start: usize, bytes: usize) -> Option<Self> {
        Some(Self {
            start: NonZeroUsize::new(start)?,
            #[cfg(unix)]
            bytes,
        })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: the mapping belongs to this value, and is never read.
        unsafe {
            libc::munmap(std::ptr::without_provenance_mut(self.start.get()), self.bytes);
        }
    }
}

/// True if the system has `bytes` bytes of address space left.
pub(crate) fn has_addresses(bytes: usize) -> bool {
    Addresses::reserve(bytes).is_some()
}

/// Maps a block of `size` bytes, aligned to [`HUGE`] if it is at least that large. None if memory is exhausted.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn map(size: usize) -> Option<MemoryBlock> {
    super::headroom::check().ok()?;
    let size = size.max(ALIGN);
    let length = size.checked_next_multiple_of(page())?;
    let mut block = pages(length)?;
    let lead = block.align_offset(HUGE);
    // SAFETY: it unmaps a whole fresh mapping, or the part before and after the aligned block.
    unsafe {
        if size >= HUGE && lead > 0 {
            libc::munmap(block.cast(), length);
            let start = pages(length.checked_add(HUGE)?)?;
            let lead = start.align_offset(HUGE);
            block = start.add(lead);
            if lead > 0 {
                libc::munmap(start.cast(), lead);
            }
            if lead < HUGE {
                libc::munmap(block.add(length).cast(), HUGE - lead);
            }
        }
        // Only advice: a system without huge pages is slower at the first touch, no more.
        #[cfg(target_os = "linux")]
        if size >= HUGE {
            libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE);
        }
        Some(MemoryBlock::new(NonNull::new(block)?, size))
    }
}

/// Returns a block to the system. If the system refuses, the caller gets the block: a hole splits a mapping, and the
/// number of mappings of a process is limited.
///
/// # Safety
/// The block came from `map` or, if [`TAKES_PARTS`], consists of whole system pages of such blocks.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) unsafe fn unmap(block: MemoryBlock) -> Option<MemoryBlock> {
    let (start, size) = block.into_parts();
    // SAFETY: guaranteed by the caller, and no other pointer to it exists. A refused block stays valid and is the only
    // owner.
    unsafe {
        let refused = libc::munmap(start.as_ptr().cast(), size) != 0;
        refused.then(|| MemoryBlock::new(start, size))
    }
}

/// The size and alignment as the standard allocator takes them; None if they are too large.
#[cfg(any(not(unix), feature = "system-allocator"))]
fn layout(size: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(size, ALIGN).ok()
}

/// Allocates a block of its own, on systems without `mmap` or for tools that check the bounds of each allocation.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) fn map(size: usize) -> Option<MemoryBlock> {
    let size = size.max(ALIGN);
    // SAFETY: the size is not zero; the block is all that is allocated.
    unsafe { NonNull::new(std::alloc::alloc(layout(size)?)).map(|start| MemoryBlock::new(start, size)) }
}

/// Frees a block. Never refused, so that the result is None.
///
/// # Safety
/// The block came from `map`.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) unsafe fn unmap(block: MemoryBlock) -> Option<MemoryBlock> {
    let (start, size) = block.into_parts();
    if let Some(layout) = layout(size) {
        // SAFETY: it came from `map` with this layout, and no other pointer to it exists.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
    None
}
