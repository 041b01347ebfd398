//! Memory from the operating system: mapped in whole pages, huge ones where they fit. Knows no lists and no limits.

use std::ptr::NonNull;

use super::block::{ALIGN, MemoryBlock};

/// A huge page, and the size of a chunk that small blocks are cut from.
pub(super) const HUGE: usize = 2 << 20;
/// The granularity of mappings.
pub(super) const PAGE: usize = 4 << 10;
/// Whether any pages go back to the system, also some of a mapping, or of two that lie side by side.
pub(super) const TAKES_PARTS: bool = cfg!(all(unix, not(feature = "system-allocator")));

/// Pages wherever the system likes; mappings that follow each other lie side by side mostly. `None`: no more memory.
#[cfg(all(unix, not(feature = "system-allocator")))]
fn pages(length: usize) -> Option<*mut u8> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh private mapping.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.cast())
}

/// A block of `size` bytes; at a multiple of [`HUGE`] if there are that many. `None`: no more memory.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn map(size: usize) -> Option<MemoryBlock> {
    let size = size.max(ALIGN);
    let mut block = pages(size)?;
    let lead = block.align_offset(HUGE);
    // SAFETY: what is unmapped is the whole of a fresh mapping, or the part before and after the aligned block.
    unsafe {
        if size >= HUGE && lead > 0 {
            libc::munmap(block.cast(), size);
            let start = pages(size.checked_add(HUGE)?)?;
            let lead = start.align_offset(HUGE);
            block = start.add(lead);
            if lead > 0 {
                libc::munmap(start.cast(), lead);
            }
            if lead < HUGE {
                libc::munmap(block.add(size).cast(), HUGE - lead);
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

/// Gives a block back to the system.
///
/// # Safety
/// It is what `map` made, or whole pages of that if it [`TAKES_PARTS`].
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) unsafe fn unmap(block: MemoryBlock) {
    let (start, size) = block.into_parts();
    // SAFETY: the caller's promise, and nothing else leads to it.
    unsafe { libc::munmap(start.as_ptr().cast(), size) };
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
pub(super) unsafe fn unmap(block: MemoryBlock) {
    let (start, size) = block.into_parts();
    if let Some(layout) = layout(size) {
        // SAFETY: it is what `map` made with this layout, and nothing else leads to it.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}
