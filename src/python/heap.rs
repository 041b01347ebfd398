//! The allocator for small Rust objects of the extension: `mimalloc`.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

use crate::array::headroom;

/// Alignment of every `mimalloc` block. Smaller or equal requests take its fast path; explicit alignment is slower.
const NATURAL: usize = 8;

/// The `mimalloc` allocator.
struct Heap;

/// Repeats an allocation that failed, each time with more addresses free. A small allocation that fails would abort the
/// process.
#[inline(always)]
fn or_again(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let start = allocate();
    if start.is_null() { again(size, allocate) } else { start }
}

/// Repeats a failed allocation, releasing reserved addresses before each attempt, until it succeeds or none are left.
#[cold]
fn again(size: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
    let mut start: *mut u8 = std::ptr::null_mut();
    while start.is_null() && size <= headroom::LARGEST && headroom::release() {
        start = allocate();
    }
    start
}

// SAFETY: each function returns null or a block with the requested size and alignment. Blocks are freed by the same
// allocator.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: `mimalloc` accepts any size and any power of two.
        or_again(size, || unsafe {
            if align <= NATURAL { mi_malloc(size) } else { mi_malloc_aligned(size, align) }.cast()
        })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let (size, align) = (layout.size(), layout.align());
        // SAFETY: as above.
        or_again(size, || unsafe {
            if align <= NATURAL { mi_zalloc(size) } else { mi_zalloc_aligned(size, align) }.cast()
        })
    }

    #[inline]
    unsafe fn dealloc(&self, ptr: *mut u8, _: Layout) {
        // SAFETY: the caller passes a live block of this allocator.
        unsafe { mi_free(ptr.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (ptr, align) = (ptr.cast(), layout.align());
        // SAFETY: as above. If it returns null, the old block is as it was.
        or_again(size, || unsafe {
            if align <= NATURAL { mi_realloc(ptr, size) } else { mi_realloc_aligned(ptr, size, align) }.cast()
        })
    }
}

/// The allocator of the extension, used by all of its Rust code.
#[global_allocator]
static HEAP: Heap = Heap;
