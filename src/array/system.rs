//! Memory from the operating system: mapped in whole pages, huge ones where they fit. Knows no lists and no limits.

use std::ptr::NonNull;

use super::block::{ALIGN, MemoryBlock};

/// A huge page, and the size of a chunk that small blocks are cut from.
pub(super) const HUGE: usize = 2 << 20;
/// The granularity of mappings.
pub(super) const PAGE: usize = 4 << 10;

/// A block of `size` bytes; at a multiple of [`HUGE`] if there are that many. `None`: no more memory.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn map(size: usize) -> Option<MemoryBlock> {
    let size = size.max(ALIGN);
    let slack = if size >= HUGE { HUGE } else { 0 };
    let length = size.checked_add(slack)?;
    // SAFETY: a fresh private mapping, wherever the system likes.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let lead = if slack > 0 { start.align_offset(HUGE) } else { 0 };
    // SAFETY: what is unmapped is the part of the fresh mapping before and after the aligned block, which is the rest.
    unsafe {
        let block = start.add(lead);
        if lead > 0 {
            libc::munmap(start.cast(), lead);
        }
        if lead < slack {
            libc::munmap(block.add(size).cast(), slack - lead);
        }
        // Only advice: a system without huge pages is slower at the first touch, no more.
        #[cfg(target_os = "linux")]
        if slack > 0 {
            libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE);
        }
        Some(MemoryBlock::whole(NonNull::new(block)?, size))
    }
}

/// Gives a block back to the system, if it is all of a mapping.
#[cfg(all(unix, not(feature = "system-allocator")))]
pub(super) fn unmap(block: MemoryBlock) {
    if let Some((start, size)) = block.into_whole() {
        // SAFETY: it is what `map` made, and nothing else leads to it.
        unsafe { libc::munmap(start.as_ptr().cast(), size) };
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
    unsafe { NonNull::new(std::alloc::alloc(layout(size)?)).map(|start| MemoryBlock::whole(start, size)) }
}

/// As above.
#[cfg(any(not(unix), feature = "system-allocator"))]
pub(super) fn unmap(block: MemoryBlock) {
    let Some((start, size)) = block.into_whole() else { return };
    if let Some(layout) = layout(size) {
        // SAFETY: it is what `map` made with this layout, and nothing else leads to it.
        unsafe { std::alloc::dealloc(start.as_ptr(), layout) };
    }
}
