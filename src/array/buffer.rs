//! Blocks of memory: aligned, counted, and kept for reuse when freed; or someone else's, kept alive.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::account::Payer;
use super::allocator;
use super::block::{ALIGN, MemoryBlock};
use crate::{Error, Result};

/// What comes before the bytes. It is as long as the alignment of blocks, so that the bytes are aligned too.
#[repr(C, align(64))]
struct Header {
    count: AtomicUsize,
    bytes: usize,
    /// The block that it is the start of; none where the bytes are someone else's.
    block: Option<MemoryBlock>,
    /// Keeps the bytes of someone else alive.
    owner: Option<Box<dyn Send + Sync>>,
    /// Who pays for it.
    payer: Payer,
}
const _: () = assert!(size_of::<Header>() == ALIGN);

/// A counted block of memory, aligned to 64 bytes unless it is borrowed. Clones share it; the last one frees it.
pub struct Buffer {
    header: NonNull<Header>,
    start: NonNull<u8>,
}

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
        let Some(payer) = Payer::current() else { return Err(error) };
        payer.add(bytes as isize);
        let Some(block) = allocator::allocate(size, bytes) else {
            payer.add(-(bytes as isize));
            return Err(error);
        };
        let header = block.start().cast::<Header>();
        // SAFETY: the block is new, large enough for a header and aligned for it; the bytes follow.
        let start = unsafe {
            header.write(Header {
                count: AtomicUsize::new(1),
                bytes,
                block: Some(block),
                owner: None,
                payer,
            });
            header.add(1).cast()
        };
        Ok(Self { header, start })
    }

    /// Memory of someone else. `owner` is dropped with the last clone, at any time and on any thread.
    ///
    /// # Safety
    /// While `owner` lives, `bytes` bytes at `start` must be there to be read and written.
    pub unsafe fn borrowed(start: NonNull<u8>, bytes: usize, owner: Box<dyn Send + Sync>) -> Self {
        let header = Header {
            count: AtomicUsize::new(1),
            bytes,
            block: None,
            owner: Some(owner),
            payer: Payer::Nobody,
        };
        Self { header: NonNull::from(Box::leak(Box::new(header))), start }
    }

    /// Where the bytes start.
    pub fn ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn header(&self) -> &Header {
        // SAFETY: a live buffer has a live header.
        unsafe { self.header.as_ref() }
    }

    /// Number of bytes that were asked for.
    pub fn bytes(&self) -> usize {
        self.header().bytes
    }

    /// A buffer of its own with `bytes` of the bytes, from `start` on.
    pub(super) fn copy_of(&self, start: usize, bytes: usize) -> Result<Self> {
        assert!(start <= self.bytes() && bytes <= self.bytes() - start, "bytes that are not there");
        let copy = Self::new(bytes)?;
        // SAFETY: as many bytes are there, and the others are new.
        unsafe { self.ptr().add(start).copy_to_nonoverlapping(copy.ptr(), bytes) };
        Ok(copy)
    }

    /// Whether the address is one of its bytes, or just behind them.
    pub(super) fn contains(&self, ptr: *const u8) -> bool {
        (self.ptr().addr()..=self.ptr().addr() + self.bytes()).contains(&ptr.addr())
    }

    /// Has nobody pay for it any more, if this is the only handle.
    pub(super) fn write_off(&mut self) {
        if self.is_shared() {
            return;
        }
        // SAFETY: nobody else has a handle, and nobody can make one.
        let payer = unsafe { &mut (*self.header.as_ptr()).payer };
        std::mem::replace(payer, Payer::Nobody).add(-(self.bytes() as isize));
    }

    /// Whether the bytes are someone else's.
    pub(super) fn is_borrowed(&self) -> bool {
        self.header().owner.is_some()
    }

    /// Whether someone else holds this block too: a view in Python, say.
    pub fn is_shared(&self) -> bool {
        let header = self.header();
        header.count.load(Ordering::Acquire) > 1 || header.owner.is_some()
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        self.header().count.fetch_add(1, Ordering::Relaxed);
        Self { header: self.header, start: self.start }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let header = self.header();
        // The only holder need not pay for an atomic subtraction: nobody is left who could make another handle.
        if header.count.load(Ordering::Acquire) != 1 {
            if header.count.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        if header.block.is_none() {
            // SAFETY: this was the last handle, and the header of borrowed memory was a box.
            drop(unsafe { Box::from_raw(self.header.as_ptr()) });
            return;
        }
        // SAFETY: this was the last handle. What the header holds is taken out of it, and it is gone with the block.
        let Header { bytes, block, payer, .. } = unsafe { self.header.read() };
        if let Some(block) = block {
            allocator::free(block, bytes);
        }
        payer.add(-(bytes as isize));
    }
}
