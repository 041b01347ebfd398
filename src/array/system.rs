//! Memory from the operating system: mapped in whole pages, huge ones where they fit. Knows no lists and no limits.

use std::ptr::NonNull;

/// A huge page, and the size of a chunk that small blocks are cut from.
pub(super) const HUGE: usize = 2 << 20;
/// The granularity of mappings.
pub(super) const PAGE: usize = 4 << 10;

/// Maps `size` bytes, a multiple of [`PAGE`]; at a multiple of [`HUGE`] if there are that many. `None`: no more memory.
#[cfg(unix)]
pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
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
    if slack == 0 {
        return NonNull::new(start);
    }
    let lead = start.align_offset(HUGE);
    // SAFETY: what is unmapped is the part of the fresh mapping before and after the aligned block.
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
        libc::madvise(block.cast(), size, libc::MADV_HUGEPAGE);
        NonNull::new(block)
    }
}

/// Gives a block back to the system.
///
/// # Safety
/// The block came from [`map`] with this size, and nobody uses it any more.
#[cfg(unix)]
pub(super) unsafe fn unmap(block: NonNull<u8>, size: usize) {
    // SAFETY: the caller promises that the mapping is whole and unused.
    unsafe { libc::munmap(block.as_ptr().cast(), size) };
}

#[cfg(not(unix))]
fn layout(size: usize) -> Option<std::alloc::Layout> {
    std::alloc::Layout::from_size_align(size, if size >= HUGE { HUGE } else { PAGE }).ok()
}

/// As above, where there are no mappings to be had.
#[cfg(not(unix))]
pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
    let layout = layout(size)?;
    // SAFETY: sizes are never zero.
    NonNull::new(unsafe { std::alloc::alloc(layout) })
}

/// As above.
///
/// # Safety
/// The block came from [`map`] with this size, and nobody uses it any more.
#[cfg(not(unix))]
pub(super) unsafe fn unmap(block: NonNull<u8>, size: usize) {
    if let Some(layout) = layout(size) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
    }
}
