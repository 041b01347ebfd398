//! Parts of the arrays of an elementwise function: addresses and a length, which move together.

/// The same part of all arrays of an elementwise function. What a function does not have, or does not read, may be a null
/// or dangling pointer.
#[derive(Clone, Copy)]
pub struct Part {
    /// Inputs.
    pub x: [*const u8; 2],
    /// The output: written by a forward loop, read by a backward loop.
    pub y: *mut u8,
    /// Its gradient.
    pub gy: *const u8,
    /// Where the gradients of the inputs go; null where one is not wanted.
    pub gx: [*mut u8; 2],
    /// Whether they are added to what is there.
    pub adds: [bool; 2],
    /// Elements of each.
    pub n: usize,
}

impl Part {
    /// Nothing at all.
    pub(crate) const NOTHING: Self = Self {
        x: [std::ptr::null(); 2],
        y: std::ptr::null_mut(),
        gy: std::ptr::null(),
        gx: [std::ptr::null_mut(); 2],
        adds: [false; 2],
        n: 0,
    };

    /// `n` elements, `bytes` further on; null pointers stay null, and others that nothing follows may go astray.
    #[inline(always)]
    pub(crate) fn shifted(&self, bytes: usize, n: usize) -> Self {
        let shift = |p: *mut u8| if p.is_null() { p } else { p.wrapping_add(bytes) };
        let shift_const = |p: *const u8| shift(p.cast_mut()).cast_const();
        let Self { x, y, gy, gx, adds, .. } = *self;
        Self { x: x.map(shift_const), y: shift(y), gy: shift_const(gy), gx: gx.map(shift), adds, n }
    }
}

/// Pointers that the pieces of a loop share; which piece writes what is up to the loop.
#[derive(Clone, Copy)]
pub(crate) struct Whole(pub(crate) Part);

// SAFETY: only addresses; each use of them is an unsafe operation with its own reason.
unsafe impl Sync for Whole {}

impl Whole {
    /// `n` elements from `start` on; null pointers stay null, and others that nothing follows may go astray.
    #[inline(always)]
    pub(crate) fn part<T>(&self, start: usize, n: usize) -> Part {
        self.shifted(start * size_of::<T>(), n)
    }

    /// As [`Whole::part`], from so many bytes on.
    #[inline(always)]
    fn shifted(&self, bytes: usize, n: usize) -> Part {
        self.0.shifted(bytes, n)
    }
}

/// A function of one array whose elements depend on those in their place, and on where that is.
pub trait Pieces: Sync {
    /// Takes the `n` elements at `at`, the first of which is element `start` of the array, through the function in place.
    ///
    /// # Safety
    /// They are elements of the array for which this was made, and nobody else uses them meanwhile.
    unsafe fn run(&self, at: *mut u8, start: usize, n: usize);
}
