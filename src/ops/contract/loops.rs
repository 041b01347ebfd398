//! The loops of elementwise functions: over any part of their arrays, whoever cuts these into parts.

use std::cell::Cell;

use crate::kernels::pairing::Pairing;
use crate::kernels::simd::vectorised;
use crate::kernels::{Float, map, threads};
use crate::ops::contract::part::{Part, Whole};
use crate::ops::{Binary, Reads, Unary};

/// A loop over parts of arrays; the first argument is the formula.
type Loop = unsafe fn(*const (), &Part);

/// The loops of an elementwise function, for arrays of one shape and one type: what runs after all is decided.
#[derive(Clone, Copy)]
pub struct Loops {
    formula: *const (),
    forward: Loop,
    /// By input.
    backward: [Loop; 2],
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
        Self::new::<C, OfOne>(op, double, [is_constant && op.df(0.0_f64, 0.0) == 1.0, false])
    }

    pub(crate) fn binary<C: Binary>(op: &C, double: bool) -> Self {
        let is_constant = C::IS_DIFFERENTIABLE && C::READS == Reads::NOTHING;
        let (da, db) = if is_constant { op.df(0.0_f64, 0.0, 0.0) } else { (0.0, 0.0) };
        Self::new::<C, OfTwo>(op, double, [da == 1.0, db == 1.0])
    }

    fn new<C, F: Formula<C>>(op: &C, double: bool, passes: [bool; 2]) -> Self {
        let (forward, backward): (Loop, [Loop; 2]) = match double {
            true => (run::<C, F, f64, OUTPUT>, [run::<C, F, f64, 0>, run::<C, F, f64, 1>]),
            false => (run::<C, F, f32, OUTPUT>, [run::<C, F, f32, 0>, run::<C, F, f32, 1>]),
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
        unsafe {
            if !part.gx[0].is_null() {
                (self.backward[0])(self.formula, part);
            }
            if !part.gx[1].is_null() {
                (self.backward[1])(self.formula, part);
            }
        }
    }

    /// Runs one of the loops over whole arrays, on several threads where that pays: of one shape, or of inputs that meet so.
    ///
    /// # Safety
    /// As [`Loops::forward`], of arrays of elements `T` that have the shapes of the pairing.
    pub(crate) unsafe fn over<T: Float>(&self, way: Way, pairing: Option<&Pairing>, all: Part) {
        // SAFETY: the caller's promise; a tile lies within the arrays.
        unsafe {
            let run = |part: &Part| match way {
                Way::Forward => self.forward(part),
                Way::Backward => self.backward(part),
            };
            let Some(pairing) = pairing else {
                if all.n <= map::GRAIN {
                    if all.n > 0 {
                        run(&all);
                    }
                    return;
                }
                let whole = Whole(all);
                return threads::ranges(all.n, map::GRAIN, |range| {
                    run(&whole.part::<T>(range.start, range.len()));
                });
            };
            let whole = Whole(all);
            let [a, b] = all.x.map(<*const u8>::cast::<T>);
            pairing.tiles(a, b, &|start, a, b, n| {
                run(&Part { x: [a.cast(), b.cast()], ..whole.part::<T>(start, n) });
            });
        }
    }
}

/// Which of the loops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// Elements that are computed before any of them is written: a register, or two, full of them. What one loop writes in such
/// pieces the next one reads in the same, and has it from the processor's store buffer.
const LANES: usize = 16;
/// The same of formulas of many steps that wait for each other: the machine does not see as far as the next register.
const MANY: usize = 4 * LANES;

/// Stands for the output, where inputs are numbers.
const OUTPUT: usize = 2;

/// What one loop reads and writes, `n` elements of each. Several may be the same memory: an element is read before that in
/// its place is written. What is not read is empty.
#[derive(Clone, Copy)]
struct OperandElements<'a, T> {
    x: [&'a [Cell<T>]; 2],
    y: &'a [Cell<T>],
    gy: &'a [Cell<T>],
    to: &'a [Cell<T>],
    /// Whether what comes out is added to what is there.
    add: bool,
}

/// Which values a loop reads.
#[derive(Clone, Copy)]
struct Read {
    x: [bool; 2],
    y: bool,
    gy: bool,
}

impl Part {
    /// What a loop reads, and writes to `to`.
    ///
    /// # Safety
    /// As [`Loops::forward`].
    #[inline(always)]
    unsafe fn elements<'a, T>(&self, read: Read, to: *mut u8, add: bool) -> OperandElements<'a, T> {
        let of = |at: *const u8, is_used: bool| -> &'a [Cell<T>] {
            // SAFETY: what is used holds the elements, by the caller's promise.
            if is_used { unsafe { std::slice::from_raw_parts(at.cast(), self.n) } } else { &[] }
        };
        let [x0, x1] = self.x;
        let x = [of(x0, read.x[0]), of(x1, read.x[1])];
        OperandElements { x, y: of(self.y, read.y), gy: of(self.gy, read.gy), to: of(to, true), add }
    }
}

impl<T: Float> OperandElements<'_, T> {
    /// Writes or adds `f` of the elements that each of `x` has in a place, up to the last multiple of [`LANES`]. `f` must be
    /// `#[inline(always)]`.
    #[inline(always)]
    fn put<const N: usize>(&self, x: [&[Cell<T>]; N], f: impl Fn([T; N]) -> T) {
        self.put_by::<LANES, N>(x, f);
    }

    /// As [`OperandElements::put`], as many elements at a time while there are so many.
    #[inline(always)]
    fn put_by<const TOGETHER: usize, const N: usize>(&self, x: [&[Cell<T>]; N], f: impl Fn([T; N]) -> T) {
        assert!(x.iter().all(|x| x.len() == self.to.len()), "arrays of different lengths");
        let x = x.map(<[_]>::as_ptr);
        self.put_at::<TOGETHER>(
            #[inline(always)]
            move |i| {
                let mut v = [T::ZERO; N];
                for j in 0..N {
                    // SAFETY: all are as long as what is written, which has that element.
                    v[j] = unsafe { &*x[j].add(i) }.get();
                }
                f(v)
            },
        );
    }

    /// As [`OperandElements::put_by`], by places.
    #[inline(always)]
    fn put_at<const TOGETHER: usize>(&self, f: impl Fn(usize) -> T) {
        let whole = self.to.len() / LANES * LANES;
        vectorised(
            #[inline(always)]
            move || {
                let mut start = 0;
                while TOGETHER > LANES && start + TOGETHER <= whole {
                    self.put_some::<TOGETHER>(start, &f);
                    start += TOGETHER;
                }
                while start < whole {
                    self.put_some::<LANES>(start, &f);
                    start += LANES;
                }
            },
        );
    }

    /// Writes or adds `N` elements from one on, of as many that there are.
    #[inline(always)]
    fn put_some<const N: usize>(&self, start: usize, f: impl Fn(usize) -> T) {
        let mut lanes = [T::ZERO; N];
        for (k, lane) in lanes.iter_mut().enumerate() {
            *lane = f(start + k);
        }
        // SAFETY: there are that many from `start` on, and a cell of an array lies in memory as cells do.
        let to = unsafe { &*self.to.as_ptr().add(start).cast::<Cell<[T; N]>>() };
        if self.add {
            let before = to.get();
            for k in 0..N {
                lanes[k] = before[k] + lanes[k];
            }
        }
        to.set(lanes);
    }

    /// What [`OperandElements::put`] leaves over: the last elements, among others that count for nothing, in memory where they fill all
    /// lanes.
    ///
    /// # Safety
    /// As [`Loops::forward`], of a loop that writes `y` if it reads no gradient, or else each `gx` that there is.
    #[inline(never)]
    unsafe fn rest(self, formula: *const (), work: Loop) {
        let start = self.to.len() / LANES * LANES;
        let before = if self.add { self.to } else { &[] };
        let all = [self.x[0], self.x[1], self.y, self.gy, before];
        let rooms = [const { [const { Cell::new(T::ONE) }; LANES] }; 5];
        all.iter().zip(&rooms).for_each(|(from, room)| copy(from.get(start..).unwrap_or_default(), room));
        let [x0, x1, y, gy, to] = rooms.each_ref().map(|room| room.as_ptr().cast_mut().cast::<u8>());
        let y = if self.gy.is_empty() { to } else { y };
        let part = Part { x: [x0, x1], y, gy, gx: [to; 2], adds: [self.add; 2], n: LANES };
        // SAFETY: the formula is there, and each array holds all lanes.
        unsafe { work(formula, &part) };
        copy(&rooms[4], &self.to[start..]);
    }
}

/// Copies elements, as many as both have.
#[inline(always)]
fn copy<T: Float>(from: &[Cell<T>], to: &[Cell<T>]) {
    // SAFETY: both have as many, and what is in cells may be written wherever they are.
    unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr().cast_mut(), from.len().min(to.len())) };
}

/// How a formula `C` makes loops.
trait Formula<C> {
    /// Inputs.
    const INPUTS: usize;
    /// What the gradients read.
    const READS: Reads;

    /// Computes the output.
    fn forward<T: Float>(op: &C, of: &OperandElements<'_, T>);

    /// Computes the gradient of input `I`.
    fn backward<T: Float, const I: usize>(op: &C, of: &OperandElements<'_, T>);
}

/// The loop for the gradient of input `WAY`, or for the output.
unsafe fn run<C, F: Formula<C>, T: Float, const WAY: usize>(formula: *const (), part: &Part) {
    let is_two = F::INPUTS == 2;
    // SAFETY: the caller's promise.
    unsafe {
        let of: OperandElements<'_, T> = if WAY == OUTPUT {
            part.elements(Read { x: [true, is_two], y: false, gy: false }, part.y, false)
        } else {
            let x = F::READS.input(0);
            let read = Read { x: [x, x && is_two], y: F::READS.output(0), gy: true };
            part.elements(read, part.gx[WAY], part.adds[WAY])
        };
        let op = &*formula.cast::<C>();
        if WAY == OUTPUT {
            F::forward(op, &of);
        } else {
            F::backward::<T, WAY>(op, &of);
        }
        if !of.to.len().is_multiple_of(LANES) {
            of.rest(formula, run::<C, F, T, WAY>);
        }
    }
}

/// A [`Unary`].
struct OfOne;

impl<C: Unary> Formula<C> for OfOne {
    const INPUTS: usize = 1;
    const READS: Reads = C::READS;

    #[inline(always)]
    fn forward<T: Float>(op: &C, of: &OperandElements<'_, T>) {
        let x = of.x[0];
        if C::IS_OF_ANGLES && map::are_small(x) {
            of.put(
                [x],
                #[inline(always)]
                move |[x]| op.f_small(x),
            );
        } else if C::IS_LONG {
            of.put_by::<MANY, 1>(
                [x],
                #[inline(always)]
                move |[x]| op.f(x),
            );
        } else {
            of.put(
                [x],
                #[inline(always)]
                move |[x]| op.f(x),
            );
        }
    }

    #[inline(always)]
    fn backward<T: Float, const I: usize>(op: &C, of: &OperandElements<'_, T>) {
        if I > 0 {
            return;
        }
        // What is not read may be gone: something that is there stands in for it.
        let x = if C::READS.input(0) { of.x[0] } else { of.gy };
        let y = if C::READS.output(0) { of.y } else { of.gy };
        if C::IS_OF_ANGLES && map::are_small(x) {
            of.put(
                [of.gy, x, y],
                #[inline(always)]
                move |[gy, x, y]| gy * op.df_small(x, y),
            );
        } else {
            of.put(
                [of.gy, x, y],
                #[inline(always)]
                move |[gy, x, y]| if C::IS_DIFFERENTIABLE { op.gx(gy, x, y) } else { T::ZERO },
            );
        }
    }
}

/// A [`Binary`].
struct OfTwo;

impl<C: Binary> Formula<C> for OfTwo {
    const INPUTS: usize = 2;
    const READS: Reads = C::READS;

    #[inline(always)]
    fn forward<T: Float>(op: &C, of: &OperandElements<'_, T>) {
        of.put(
            of.x,
            #[inline(always)]
            move |[a, b]| op.f(a, b),
        );
    }

    #[inline(always)]
    fn backward<T: Float, const I: usize>(op: &C, of: &OperandElements<'_, T>) {
        // What is not read may be gone: the gradient of the output stands in for it.
        let [a, b] = if C::READS.input(0) { of.x } else { [of.gy; 2] };
        let y = if C::READS.output(0) { of.y } else { of.gy };
        of.put(
            [of.gy, a, b, y],
            #[inline(always)]
            move |[gy, a, b, y]| {
                if C::IS_DIFFERENTIABLE {
                    let (ga, gb) = op.gx(gy, a, b, y);
                    if I == 0 { ga } else { gb }
                } else {
                    T::ZERO
                }
            },
        );
    }
}
