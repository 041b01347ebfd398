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
/// Whether any pages go back to the system, also some of a mapping, or of two that lie side by side.
pub(super) const TAKES_PARTS: bool = cfg!(all(unix, not(feature = "system-allocator")));

/// Bytes of a page of the system, a multiple of [`PAGE`]: often 16 or 64 KiB on 64-bit ARM. `munmap` rounds to whole ones.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn page() -> usize {
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    // SAFETY: it reads a constant of the system.
    let told = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0);
    let bytes = if told.is_power_of_two() { told.max(PAGE) } else { PAGE };
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// As above, where mappings are not the system's: they go back as wholes.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) fn page() -> usize {
    PAGE
}

/// Pages wherever the system likes; mappings that follow each other lie side by side mostly. `None`: no more memory.
#[cfg(all(unix, not(feature = "system-allocator")))]
fn pages(length: usize) -> Option<*mut u8> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.cast())
}

/// Reserved addresses without memory behind them. Dropping them makes them available again.
pub(super) struct Addresses {
    start: NonZeroUsize,
    bytes: usize,
}

impl Addresses {
    /// Reserves addresses. `None`: there are no more.
    #[cfg(unix)]
    pub(super) fn reserve(bytes: usize) -> Option<Self> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh private mapping, which nothing reads.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, kind, -1, 0) };
        let start = NonZeroUsize::new(start.addr()).filter(|_| start != libc::MAP_FAILED)?;
        Some(Self { start, bytes })
    }

    /// As above, where addresses cannot be reserved.
    #[cfg(not(unix))]
    pub(super) fn reserve(bytes: usize) -> Option<Self> {
        Some(Self { start: NonZeroUsize::MIN, bytes })
    }

    /// The first address, for [`Addresses::from_start`]. Until then the addresses stay reserved.
    pub(super) fn into_start(self) -> usize {
        std::mem::ManuallyDrop::new(self).start.get()
    }

    /// Reserved addresses by the first one. `None` if that is zero.
    ///
    /// # Safety
    /// [`Addresses::into_start`] must have returned `start` for as many bytes, and it must not be used again.
    pub(super) unsafe fn from_start(start: usize, bytes: usize) -> Option<Self> {
        Some(Self { start: NonZeroUsize::new(start)?, bytes })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        #[cfg(unix)]
        // SAFETY: the mapping belongs to this value, and nothing reads it.
        unsafe {
            libc::munmap(std::ptr::without_provenance_mut(self.start.get()), self.bytes);
        }
    }
}

/// True if the system would give so many bytes of addresses now.
pub(crate) fn has_addresses(bytes: usize) -> bool {
    Addresses::reserve(bytes).is_some()
}

/// A block of `size` bytes; at a multiple of [`HUGE`] if there are that many. `None`: no more memory.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn map(size: usize) -> Option<MemoryBlock> {
    super::headroom::check().ok()?;
    let size = size.max(ALIGN);
    let length = size.checked_next_multiple_of(page())?;
    let mut block = pages(length)?;
    let lead = block.align_offset(HUGE);
    // SAFETY: what is unmapped is the whole of a fresh mapping, or the part before and after the aligned block.
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

/// Gives a block back to the system, or returns it if the system refuses: a process has a limit of mappings, and a hole makes
/// two of one.
///
/// # Safety
/// It is what `map` made, or whole pages of the system of that if it [`TAKES_PARTS`].
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) unsafe fn unmap(block: MemoryBlock) -> Option<MemoryBlock> {
    let (start, size) = block.into_parts();
    // SAFETY: the caller's promise, and nothing else leads to it. A block that stays is the only way to its memory again.
    unsafe {
        let refused = libc::munmap(start.as_ptr().cast(), size) != 0;
        refused.then(|| MemoryBlock::new(start, size))
    }
}

#[cfg(any(not(unix), feature = "system-allocator"))]
fn layout(size: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(size, ALIGN).ok()
}

/// As above, where there are no mappings to be had, or a tool is to see where each ends.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) fn map(size: usize) -> Option<MemoryBlock> {
    let size = size.max(ALIGN);
    // SAFETY: the size is not zero; the block is all that is allocated.
    unsafe { NonNull::new(std::alloc::alloc(layout(size)?)).map(|start| MemoryBlock::new(start, size)) }
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) unsafe fn unmap(block: MemoryBlock) -> Option<MemoryBlock> {
    let (start, size) = block.into_parts();
    if let Some(layout) = layout(size) {
        // SAFETY: it is what `map` made with this layout, and nothing else leads to it.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
    None
}
