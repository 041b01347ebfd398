//! The loops of elementwise functions: over any part of their arrays, whoever cuts these into parts.

use crate::kernels::simd::vectorised;
use crate::kernels::{Float, map, threads};
use crate::ops::{Binary, Reads, Unary};

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

/// A function of one array whose elements depend on those in their place, and on where that is.
pub trait Pieces: Sync {
    /// Takes the `n` elements at `at`, the first of which is element `start` of the array, through the function in place.
    ///
    /// # Safety
    /// They are elements of the array for which this was made, and nobody else uses them meanwhile.
    unsafe fn run(&self, at: *mut u8, start: usize, n: usize);
}

/// A loop over parts of arrays; the first argument is the formula.
type Loop = unsafe fn(*const (), &Part);

/// The loops of an elementwise function, for arrays of one shape and one type: what runs after all is decided.
#[derive(Clone, Copy)]
pub struct Loops {
    formula: *const (),
    forward: Loop,
    backward: Loop,
    /// Of each input, whether its gradient is that of the output as it is.
    pub passes: [bool; 2],
}

// SAFETY: the formula is a `Unary` or `Binary`, which threads may share.
unsafe impl Send for Loops {}
// SAFETY: as above.
unsafe impl Sync for Loops {}

impl Loops {
    pub(crate) fn unary<C: Unary>(op: &C, double: bool) -> Self {
        let is_constant = C::IS_DIFFERENTIABLE && C::READS == Reads::NOTHING;
        let passes = [is_constant && op.df(0.0_f64, 0.0) == 1.0, false];
        let (forward, backward): (Loop, Loop) = match double {
            true => (forward1::<C, f64>, backward1::<C, f64>),
            false => (forward1::<C, f32>, backward1::<C, f32>),
        };
        Self { formula: (&raw const *op).cast(), forward, backward, passes }
    }

    pub(crate) fn binary<C: Binary>(op: &C, double: bool) -> Self {
        let is_constant = C::IS_DIFFERENTIABLE && C::READS == Reads::NOTHING;
        let (da, db) = if is_constant { op.df(0.0_f64, 0.0, 0.0) } else { (0.0, 0.0) };
        let passes = [da == 1.0, db == 1.0];
        let (forward, backward): (Loop, Loop) = match double {
            true => (forward2::<C, f64>, backward2::<C, f64>),
            false => (forward2::<C, f32>, backward2::<C, f32>),
        };
        Self { formula: (&raw const *op).cast(), forward, backward, passes }
    }

    /// Computes a part of the output. It may be the memory of an input.
    ///
    /// # Safety
    /// The operation that gave these loops must still be there, and each pointer that it uses must be good for `n` elements
    /// of the type.
    #[inline(always)]
    pub unsafe fn forward(&self, part: &Part) {
        // SAFETY: the caller's promise.
        unsafe { (self.forward)(self.formula, part) };
    }

    /// Computes a part of the gradients that are wanted. That of the first input may be the memory of the output's, if it is
    /// the only one.
    ///
    /// # Safety
    /// As [`Loops::forward`].
    #[inline(always)]
    pub unsafe fn backward(&self, part: &Part) {
        // SAFETY: the caller's promise.
        unsafe { (self.backward)(self.formula, part) };
    }
}

/// Elements that are computed before any of them is written: a register, or two, full of them. What one loop writes in such
/// pieces the next one reads in the same, and has it from the processor's store buffer.
const LANES: usize = 16;

/// `y[i] = f(i)` or `y[i] += f(i)`, for `i` from 0 to the last multiple of [`LANES`] up to `n`. `y` may be the memory of what
/// `f(i)` reads at `i`.
///
/// # Safety
/// `y` must hold `n` elements.
#[inline(always)]
unsafe fn put<T: Float>(y: *mut T, n: usize, add: bool, f: impl Fn(usize) -> T) {
    let whole = n / LANES * LANES;
    vectorised(
        #[inline(always)]
        || {
            let mut start = 0;
            while start < whole {
                let mut lanes = [T::ZERO; LANES];
                for (k, lane) in lanes.iter_mut().enumerate() {
                    *lane = f(start + k);
                }
                // SAFETY: there are that many elements from `start` on.
                unsafe {
                    let y = y.add(start).cast::<[T; LANES]>();
                    if add {
                        let before = y.read_unaligned();
                        for k in 0..LANES {
                            lanes[k] = before[k] + lanes[k];
                        }
                    }
                    y.write_unaligned(lanes);
                }
                start += LANES;
            }
        },
    );
}

/// Which values a loop reads.
#[derive(Clone, Copy)]
struct Read {
    x: bool,
    y: bool,
    gy: bool,
}

/// What [`put`] leaves over: the last elements, among others that count for nothing, in memory where they fill all lanes.
///
/// # Safety
/// As [`Loops::forward`].
#[inline(never)]
unsafe fn rest<T: Float>(formula: *const (), part: &Part, work: Loop, read: Read) {
    let (start, n) = (part.n / LANES * LANES, part.n % LANES);
    let mut rooms = [[T::ONE; LANES]; 6];
    let [x0, x1, y, gy, gx0, gx1] = &mut rooms;
    let enter = |room: &mut [T; LANES], from: *const u8, is_read: bool| {
        if is_read && !from.is_null() {
            // SAFETY: what is read holds the elements, by the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from.cast::<T>().add(start), room.as_mut_ptr(), n) };
        }
    };
    let leave = |room: &[T; LANES], to: *mut u8| {
        if !to.is_null() {
            // SAFETY: as above, of what is written.
            unsafe { std::ptr::copy_nonoverlapping(room.as_ptr(), to.cast::<T>().add(start), n) };
        }
    };
    enter(x0, part.x[0], read.x);
    enter(x1, part.x[1], read.x);
    enter(y, part.y, read.y);
    enter(gy, part.gy, read.gy);
    enter(gx0, part.gx[0], part.adds[0]);
    enter(gx1, part.gx[1], part.adds[1]);
    let sink = |room: &mut [T; LANES], gx: *mut u8| if gx.is_null() { gx } else { room.as_mut_ptr().cast() };
    let inner = Part {
        x: [x0.as_ptr().cast(), x1.as_ptr().cast()],
        y: y.as_mut_ptr().cast(),
        gy: gy.as_ptr().cast(),
        gx: [sink(gx0, part.gx[0]), sink(gx1, part.gx[1])],
        adds: part.adds,
        n: LANES,
    };
    // SAFETY: each array holds all lanes.
    unsafe { work(formula, &inner) };
    if read.gy {
        leave(gx0, part.gx[0]);
        leave(gx1, part.gx[1]);
    } else {
        leave(y, part.y);
    }
}

unsafe fn forward1<C: Unary, T: Float>(formula: *const (), part: &Part) {
    // SAFETY: see `Loops::forward`.
    let op = unsafe { &*formula.cast::<C>() };
    let (x, y, n) = (part.x[0].cast::<T>(), part.y.cast::<T>(), part.n);
    // SAFETY: both hold `n` elements.
    unsafe {
        if C::IS_OF_ANGLES && map::are_small(x, n) {
            put(
                y,
                n,
                false,
                #[inline(always)]
                move |i| op.f_small(x.add(i).read()),
            );
        } else {
            put(
                y,
                n,
                false,
                #[inline(always)]
                move |i| op.f(x.add(i).read()),
            );
        }
    }
    if !n.is_multiple_of(LANES) {
        // SAFETY: the caller's promise.
        unsafe { rest::<T>(formula, part, forward1::<C, T>, Read { x: true, y: false, gy: false }) };
    }
}

unsafe fn backward1<C: Unary, T: Float>(formula: *const (), part: &Part) {
    // SAFETY: see `Loops::forward`.
    let op = unsafe { &*formula.cast::<C>() };
    let gy = part.gy.cast::<T>();
    let (gx, n, add) = (part.gx[0].cast::<T>(), part.n, part.adds[0]);
    if gx.is_null() {
        return;
    }
    // What is not read may be gone: something that is there stands in for it.
    let x = if C::READS.input(0) { part.x[0].cast() } else { gy };
    let y = if C::READS.output(0) { part.y.cast_const().cast() } else { gy };
    // SAFETY: all hold `n` elements.
    unsafe {
        if C::IS_OF_ANGLES && map::are_small(x, n) {
            put(
                gx,
                n,
                add,
                #[inline(always)]
                move |i| gy.add(i).read() * op.df_small(x.add(i).read(), y.add(i).read()),
            );
        } else {
            put(
                gx,
                n,
                add,
                #[inline(always)]
                move |i| {
                    if C::IS_DIFFERENTIABLE {
                        gy.add(i).read() * op.df(x.add(i).read(), y.add(i).read())
                    } else {
                        T::ZERO
                    }
                },
            );
        }
    }
    if !n.is_multiple_of(LANES) {
        let read = Read { x: C::READS.input(0), y: C::READS.output(0), gy: true };
        // SAFETY: the caller's promise.
        unsafe { rest::<T>(formula, part, backward1::<C, T>, read) };
    }
}

unsafe fn forward2<C: Binary, T: Float>(formula: *const (), part: &Part) {
    // SAFETY: see `Loops::forward`.
    let op = unsafe { &*formula.cast::<C>() };
    let (a, b) = (part.x[0].cast::<T>(), part.x[1].cast::<T>());
    // SAFETY: all hold `n` elements, and each is read before it is written.
    unsafe {
        put(
            part.y.cast::<T>(),
            part.n,
            false,
            #[inline(always)]
            move |i| op.f(a.add(i).read(), b.add(i).read()),
        );
    }
    if !part.n.is_multiple_of(LANES) {
        // SAFETY: the caller's promise.
        unsafe { rest::<T>(formula, part, forward2::<C, T>, Read { x: true, y: false, gy: false }) };
    }
}

unsafe fn backward2<C: Binary, T: Float>(formula: *const (), part: &Part) {
    // SAFETY: the caller's promise.
    unsafe {
        gradient_of::<C, T, 0>(formula, part);
        gradient_of::<C, T, 1>(formula, part);
    }
}

unsafe fn gradient_of<C: Binary, T: Float, const I: usize>(formula: *const (), part: &Part) {
    // SAFETY: see `Loops::forward`.
    let op = unsafe { &*formula.cast::<C>() };
    let gy = part.gy.cast::<T>();
    let (gx, n, add) = (part.gx[I].cast::<T>(), part.n, part.adds[I]);
    if gx.is_null() {
        return;
    }
    // What is not read may be gone: the gradient of the output stands in for it.
    let (a, b) = if C::READS.input(0) { (part.x[0].cast(), part.x[1].cast()) } else { (gy, gy) };
    let y = if C::READS.output(0) { part.y.cast_const().cast() } else { gy };
    // SAFETY: all hold `n` elements.
    unsafe {
        put(
            gx,
            n,
            add,
            #[inline(always)]
            move |i| {
                if C::IS_DIFFERENTIABLE {
                    let (da, db) = op.df(a.add(i).read(), b.add(i).read(), y.add(i).read());
                    gy.add(i).read() * if I == 0 { da } else { db }
                } else {
                    T::ZERO
                }
            },
        );
    }
    if !n.is_multiple_of(LANES) {
        let mut alone = *part;
        alone.gx[1 - I] = std::ptr::null_mut();
        let read = Read { x: C::READS.input(0), y: C::READS.output(0), gy: true };
        // SAFETY: the caller's promise.
        unsafe { rest::<T>(formula, &alone, gradient_of::<C, T, I>, read) };
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

    /// Runs a loop over all of it, elements of `size` bytes, on several threads where that pays.
    pub(crate) fn each(self, size: usize, work: &(dyn Fn(&Self) + Sync)) {
        let (n, whole) = (self.n, Whole(self));
        threads::ranges(n, map::GRAIN, |range| work(&whole.shifted(range.start * size, range.len())));
    }
}
