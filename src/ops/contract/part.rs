//! Parts of the arrays of an elementwise function: addresses and a length.

use crate::ops::Activation;

/// The same part of all arrays of an elementwise function. Pointers to arrays that are missing or not read may be
/// null or dangling.
#[derive(Clone, Copy)]
pub struct Part {
    /// Inputs.
    pub x: [*const u8; 2],
    /// The output: written by a forward loop, read by a backward loop.
    pub y: *mut u8,
    /// The gradient of the output.
    pub gy: *const u8,
    /// Destinations of the gradients of the inputs. Null if not requested.
    pub gx: [*mut u8; 2],
    /// True for gradients to be added to their destination.
    pub adds: [bool; 2],
    /// The number of elements of each array.
    pub n: usize,
}

impl Part {
    /// A part without arrays.
    pub(crate) const NOTHING: Self = Self {
        x: [std::ptr::null(); 2],
        y: std::ptr::null_mut(),
        gy: std::ptr::null(),
        gx: [std::ptr::null_mut(); 2],
        adds: [false; 2],
        n: 0,
    };

    /// `n` elements at an offset of `bytes`. Null pointers stay null. Pointers that are never dereferenced may become
    /// invalid.
    #[inline(always)]
    pub(crate) fn shifted(&self, bytes: usize, n: usize) -> Self {
        let shift = |p: *mut u8| if p.is_null() { p } else { p.wrapping_add(bytes) };
        let shift_const = |p: *const u8| shift(p.cast_mut()).cast_const();
        let Self { x, y, gy, gx, adds, .. } = *self;
        Self { x: x.map(shift_const), y: shift(y), gy: shift_const(gy), gx: gx.map(shift), adds, n }
    }
}

/// Pointers shared by the tasks of a loop. The loop must ensure that tasks write different elements.
#[derive(Clone, Copy)]
pub(crate) struct Whole(pub(crate) Part);

// SAFETY: these are only addresses. Each use of them is an unsafe operation with its own reason.
unsafe impl Sync for Whole {}

impl Whole {
    /// `n` elements from `start` on. Null pointers stay null. Pointers that are never dereferenced may become
    /// invalid.
    #[inline(always)]
    pub(crate) fn part<T>(&self, start: usize, n: usize) -> Part {
        self.shifted(start * size_of::<T>(), n)
    }

    /// As [`Whole::part`], at a byte offset.
    #[inline(always)]
    fn shifted(&self, bytes: usize, n: usize) -> Part {
        self.0.shifted(bytes, n)
    }
}

/// An in-place function of one array: element i of the result depends on element i and on the index.
pub trait ChunkedForward: Sync {
    /// Applies the function, and then the activation, in place to `n` elements at `at`, which is element `start` of the
    /// array.
    ///
    /// # Safety
    /// These must be elements of the array for which this was made, without concurrent access.
    unsafe fn run(&self, at: *mut u8, start: usize, n: usize, activation: Activation);
}
