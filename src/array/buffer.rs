//! Reference-counted memory: aligned blocks that are cached for reuse when freed, or borrowed memory that is kept
//! alive.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::account::Payer;
use super::allocator;
use super::block::{ALIGN, MemoryBlock};
use crate::{Error, Result};

/// The header before the bytes. Its size equals the alignment of blocks, so that the bytes are aligned, too.
#[repr(C, align(64))]
struct Header {
    /// The number of clones.
    count: AtomicUsize,
    /// The number of bytes that were requested.
    bytes: usize,
    /// The block that the header starts. None if the bytes are borrowed.
    block: Option<MemoryBlock>,
    /// Keeps borrowed bytes alive.
    owner: Option<Box<dyn Send + Sync>>,
    /// The account that the bytes are charged to.
    payer: Payer,
}
const _: () = assert!(size_of::<Header>() == ALIGN);

/// A reference-counted block of memory, aligned to 64 bytes unless it is borrowed. The last clone frees it.
pub struct Buffer {
    /// The header, which may be apart from borrowed bytes.
    header: NonNull<Header>,
    /// The first byte.
    start: NonNull<u8>,
}

// SAFETY: the header is only changed through atomics. The storage synchronizes access to the bytes.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates at least `bytes` bytes. The contents are undefined.
    ///
    /// # Errors
    /// [`Error::Memory`] if the system has no more memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let refused = || Error::Memory { bytes };
        let size = bytes.checked_add(size_of::<Header>()).ok_or_else(refused)?;
        let payer = Payer::current().ok_or_else(refused)?;
        payer.add(bytes as isize);
        let Some(block) = allocator::allocate(size, bytes) else {
            payer.add(-(bytes as isize));
            return Err(refused());
        };
        let header = block.start().cast::<Header>();
        // SAFETY: the new block is aligned and large enough for a header, and the bytes follow the header.
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

    /// Borrows memory. `owner` is dropped with the last clone, at any time and on any thread.
    ///
    /// # Safety
    /// While `owner` lives, `start` must be valid for reads and writes of `bytes` bytes.
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

    /// The first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The header with owner count and size.
    fn header(&self) -> &Header {
        // SAFETY: a live buffer has a live header.
        unsafe { self.header.as_ref() }
    }

    /// The number of bytes that were requested.
    pub fn bytes(&self) -> usize {
        self.header().bytes
    }

    /// Copies `bytes` bytes from `start` on to a new buffer.
    pub(super) fn copy_of(&self, start: usize, bytes: usize) -> Result<Self> {
        assert!(start <= self.bytes() && bytes <= self.bytes() - start, "bytes that are not there");
        let copy = Self::new(bytes)?;
        // SAFETY: the source holds that many bytes, and the copy is new.
        unsafe { self.ptr().add(start).copy_to_nonoverlapping(copy.ptr(), bytes) };
        Ok(copy)
    }

    /// True if the address is one of its bytes, or one past the end.
    pub(super) fn contains(&self, ptr: *const u8) -> bool {
        (self.ptr().addr()..=self.ptr().addr() + self.bytes()).contains(&ptr.addr())
    }

    /// Removes the buffer from its account, if this is the only handle.
    pub(super) fn write_off(&mut self) {
        if self.is_shared() {
            return;
        }
        // SAFETY: this is the only handle, and no other thread can make one.
        let payer = unsafe { &mut (*self.header.as_ptr()).payer };
        std::mem::replace(payer, Payer::Nobody).add(-(self.bytes() as isize));
    }

    /// True if the bytes are borrowed.
    pub(super) fn is_borrowed(&self) -> bool {
        self.header().owner.is_some()
    }

    /// True if there is another handle, for example a view in Python.
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
        // The last holder needs no atomic subtraction: no other thread can make a handle. Model:
        // `a_buffer_is_freed_after_its_last_use`.
        if header.count.load(Ordering::Acquire) != 1 {
            if header.count.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            fence(Ordering::Acquire);
        }
        // SAFETY: this was the last handle. The header of borrowed memory is a box. The fields of another header are
        // moved out before the block is freed.
        let Header { bytes, block, payer, .. } = unsafe {
            if header.block.is_none() {
                drop(Box::from_raw(self.header.as_ptr()));
                return;
            }
            self.header.read()
        };
        if let Some(block) = block {
            allocator::free(block, bytes);
        }
        payer.add(-(bytes as isize));
    }
}
