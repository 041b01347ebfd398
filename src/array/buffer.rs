//! Blocks of memory: aligned, counted, and kept for reuse when freed.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::allocator;
use super::store::ALIGN;
use crate::{Error, Result};

/// What comes before the bytes. It is as long as the alignment of blocks, so that the bytes are aligned too.
#[repr(C, align(64))]
struct Header {
    count: AtomicUsize,
    bytes: usize,
    /// Bytes of the whole block.
    size: usize,
}
const _: () = assert!(size_of::<Header>() == ALIGN);

/// A counted block of memory, aligned to 64 bytes. Clones share it; the last one frees it.
pub struct Buffer(NonNull<Header>);

// SAFETY: the header is only touched through atomics, and who may read or write the bytes is decided by the storage.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A block of at least `bytes` bytes, contents undefined.
    ///
    /// # Errors
    /// [`Error::Memory`] when the system has no more.
    pub fn new(bytes: usize) -> Result<Self> {
        let error = Error::Memory { bytes };
        let Some(size) = bytes.checked_add(size_of::<Header>()) else { return Err(error) };
        let Some((block, size)) = allocator::allocate(size, bytes) else { return Err(error) };
        let header = block.cast::<Header>();
        // SAFETY: the block is new, large enough for a header and aligned for it.
        unsafe { header.write(Header { count: AtomicUsize::new(1), bytes, size }) };
        Ok(Self(header))
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
        // The only holder need not pay for an atomic subtraction: nobody is left who could make another handle.
        if header.count.load(Ordering::Acquire) != 1 {
            if header.count.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        let (size, bytes) = (header.size, header.bytes);
        // SAFETY: this was the last handle, and the header holds what the allocator said.
        unsafe { allocator::free(self.0.cast(), size, bytes) };
    }
}
