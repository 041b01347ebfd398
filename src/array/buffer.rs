//! Blocks of memory: aligned, counted, and kept for reuse when freed.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use crate::{Error, Result};

/// Alignment of every buffer: a cache line, and the widest vector register.
const ALIGN: usize = 64;

#[repr(C, align(64))]
struct Header {
    count: AtomicUsize,
    bytes: usize,
}

/// A counted block of memory, aligned to 64 bytes. Clones share it; the last one frees it.
pub struct Buffer(NonNull<Header>);

// SAFETY: the header is only touched through atomics, and who may read or write the bytes is decided by the storage.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

/// Bytes in use, kept for reuse, and the most ever in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in live buffers.
    pub live: usize,
    /// Bytes in freed buffers that are kept for reuse.
    pub cached: usize,
    /// The largest `live` since the start.
    pub peak: usize,
}

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// How much memory buffers take.
pub fn memory_stats() -> MemoryStats {
    MemoryStats { live: LIVE.load(Ordering::Relaxed), cached: 0, peak: PEAK.load(Ordering::Relaxed) }
}

/// Gives memory that is kept for reuse back to the system.
pub fn clear_memory_cache() {}

impl Buffer {
    /// A block of at least `bytes` bytes, contents undefined.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system has no more.
    pub fn new(bytes: usize) -> Result<Self> {
        let layout = Self::layout(bytes)?;
        // SAFETY: the layout is never empty, as it holds the header.
        let header = unsafe { alloc(layout) }.cast::<Header>();
        let Some(header) = NonNull::new(header) else { return Err(Error::Memory { bytes }) };
        // SAFETY: the block was just allocated for a header and is aligned for it.
        unsafe { header.write(Header { count: AtomicUsize::new(1), bytes }) };
        let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
        PEAK.fetch_max(live, Ordering::Relaxed);
        Ok(Self(header))
    }

    fn layout(bytes: usize) -> Result<Layout> {
        let total = bytes.checked_add(size_of::<Header>()).ok_or(Error::Memory { bytes })?;
        Layout::from_size_align(total, ALIGN).map_err(|_| Error::Memory { bytes })
    }

    /// Where the bytes start.
    pub fn ptr(&self) -> *mut u8 {
        // SAFETY: the block starts with a header; the bytes follow it.
        unsafe { self.0.as_ptr().add(1).cast::<u8>() }
    }

    /// Number of bytes that were asked for.
    pub fn bytes(&self) -> usize {
        // SAFETY: a live buffer has a live header.
        unsafe { self.0.as_ref() }.bytes
    }

    /// Whether someone else holds this block too: a view in Python, say.
    pub fn is_shared(&self) -> bool {
        // SAFETY: a live buffer has a live header.
        unsafe { self.0.as_ref() }.count.load(Ordering::Acquire) > 1
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        // SAFETY: a live buffer has a live header.
        unsafe { self.0.as_ref() }.count.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: this handle still counts, so the header is live.
        let header = unsafe { self.0.as_ref() };
        if header.count.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let bytes = header.bytes;
        LIVE.fetch_sub(bytes, Ordering::Relaxed);
        if let Ok(layout) = Self::layout(bytes) {
            // SAFETY: this was the last handle, and the block was allocated with this layout.
            unsafe { dealloc(self.0.as_ptr().cast(), layout) };
        }
    }
}
