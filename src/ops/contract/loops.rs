//! The loops of elementwise functions, over any part of their arrays.

use std::cell::Cell;

#[cfg(target_arch = "x86_64")]
use half::{bf16, f16};

use crate::array::DType;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::simd::vectorised_loop;
use crate::kernels::{Float, Movable, map, sixteen_bits, threads};
use crate::ops::contract::part::{Part, Whole};
use crate::ops::{Binary, Reads, Unary};

/// A loop over parts of arrays. The first argument is the formula.
type Loop = unsafe fn(*const (), &Part);

/// The loops of an elementwise function, for arrays of one shape and one type.
#[derive(Clone, Copy)]
pub struct Loops {
    /// The address of the operation.
    formula: *const (),
    /// Computes the output.
    forward: Loop,
    /// Compute the gradient of each input.
    backward: [Loop; 2],
    /// The loops for the output and the gradients of arrays in bfloat16, and in half precision.
    of_sixteen_bits: [Option<(Loop, [Loop; 2])>; 2],
    /// For each input, true if its gradient equals the gradient of the output.
    pub passes: [bool; 2],
}

// SAFETY: the formula is a `Unary` or `Binary`, which threads may share.
unsafe impl Send for Loops {}
// SAFETY: as above.
unsafe impl Sync for Loops {}

impl Loops {
    /// The loops of a function of one variable.
    pub(crate) fn unary<C: Unary>(op: &C, double: bool) -> Self {
        let is_constant = C::IS_DIFFERENTIABLE && C::READS == Reads::NOTHING;
        Self::new::<C, OfOne>(op, double, [is_constant && op.df(0.0_f64, 0.0) == 1.0, false])
    }

    /// The loops of a function of two variables.
    pub(crate) fn binary<C: Binary>(op: &C, double: bool) -> Self {
        let is_constant = C::IS_DIFFERENTIABLE && C::READS == Reads::NOTHING;
        let (da, db) = if is_constant { op.df(0.0_f64, 0.0, 0.0) } else { (0.0, 0.0) };
        Self::new::<C, OfTwo>(op, double, [da == 1.0, db == 1.0])
    }

    /// The loops of the formula `F` of an operation, for `f64` if `double`, else for `f32`.
    fn new<C, F: Formula<C>>(op: &C, double: bool, passes: [bool; 2]) -> Self {
        let (forward, backward): (Loop, [Loop; 2]) = match double {
            true => (run::<C, F, f64, f64, OUTPUT>, [run::<C, F, f64, f64, 0>, run::<C, F, f64, f64, 1>]),
            false => (run::<C, F, f32, f32, OUTPUT>, [run::<C, F, f32, f32, 0>, run::<C, F, f32, f32, 1>]),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let of_sixteen_bits = [None; 2];
        #[cfg(target_arch = "x86_64")]
        let of_sixteen_bits: [Option<(Loop, [Loop; 2])>; 2] = match double {
            true => [None; 2],
            false => [
                Some((
                    run::<C, F, f32, bf16, OUTPUT>,
                    [run::<C, F, f32, bf16, 0>, run::<C, F, f32, bf16, 1>],
                )),
                Some((run::<C, F, f32, f16, OUTPUT>, [run::<C, F, f32, f16, 0>, run::<C, F, f32, f16, 1>])),
            ],
        };
        Self { formula: (&raw const *op).cast(), forward, backward, of_sixteen_bits, passes }
    }

    /// The loops for arrays of a type of 16 bits, if this machine has them. They compute in `f32` and round each
    /// result.
    pub(crate) fn of_sixteen_bits(&self, stored: DType) -> Option<Self> {
        let [bfloat16, half] = self.of_sixteen_bits;
        let loops = if stored == DType::BF16 { bfloat16 } else { half };
        let (forward, backward) = loops.filter(|_| sixteen_bits::has_registers(stored))?;
        Some(Self { forward, backward, ..*self })
    }

    /// Computes a part of the output, which may alias an input.
    ///
    /// # Safety
    /// The operation that returned these loops must be alive, and each pointer that is used must be valid for `n`
    /// elements of the type.
    #[inline(always)]
    pub unsafe fn forward(&self, part: &Part) {
        // SAFETY: guaranteed by the caller.
        unsafe { (self.forward)(self.formula, part) };
    }

    /// Computes a part of the requested gradients. The gradient of the first input may alias the gradient of the
    /// output, if no other is requested.
    ///
    /// # Safety
    /// As [`Loops::forward`].
    #[inline(always)]
    pub unsafe fn backward(&self, part: &Part) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            if !part.gx[0].is_null() {
                (self.backward[0])(self.formula, part);
            }
            if !part.gx[1].is_null() {
                (self.backward[1])(self.formula, part);
            }
        }
    }

    /// Runs one of the loops over whole arrays, on several threads if that pays. The arrays have one shape, or the
    /// inputs are broadcast by the broadcast.
    ///
    /// # Safety
    /// As [`Loops::forward`], for arrays of elements `T`, or of their bits, that have the shapes of the broadcast.
    pub(crate) unsafe fn over<T: Movable>(&self, way: Way, broadcast: Option<&BroadcastLayout>, all: Part) {
        // SAFETY: guaranteed by the caller, and a tile is within the arrays.
        unsafe {
            let run = |part: &Part| match way {
                Way::Forward => self.forward(part),
                Way::Backward => self.backward(part),
            };
            let Some(broadcast) = broadcast else {
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
            broadcast.tiles(a, b, &|start, a, b, n| {
                run(&Part { x: [a.cast(), b.cast()], ..whole.part::<T>(start, n) });
            });
        }
    }
}

/// Selects one of the loops.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

/// Elements that are computed before any of them is written: one or two full registers. If one loop writes chunks of
/// this size and the next reads the same chunks, the processor forwards them from its store buffer.
const LANES: usize = 16;
/// The elements computed together if registers are short, to divide [`LANES`].
const FEW: usize = 4;
/// The largest number of elements of [`LoopElement::LANES`].
const MOST_LANES: usize = 32;
/// The elements computed before any is written, for formulas with long chains of dependent steps. There out-of-order
/// execution does not reach the next register.
const MANY: usize = 4 * LANES;

/// Stands for the output, where inputs are numbers.
const OUTPUT: usize = 2;

/// Elements in memory, as the loops of a type of numbers read and write them.
trait LoopElement<T>: Copy {
    /// `1`.
    const ONE: Self;
    /// The elements that are computed before any of them is written.
    const LANES: usize;

    /// True if all angles are known to be small.
    fn are_small(x: &[Cell<Self>]) -> bool;

    /// Writes or adds `f` of the elements of each of `x` at the same index, up to the last multiple of
    /// [`LoopElement::LANES`]. Computes `TOGETHER` elements before any is written as long as enough are left. `f` must
    /// be `#[inline(always)]`.
    fn put_by<const TOGETHER: usize, const N: usize>(
        of: &OperandElements<'_, Self>,
        x: [&[Cell<Self>]; N],
        f: impl Fn([T; N]) -> T,
    );

    /// As [`LoopElement::put_by`], a few elements at a time.
    #[inline(always)]
    fn put<const N: usize>(of: &OperandElements<'_, Self>, x: [&[Cell<Self>]; N], f: impl Fn([T; N]) -> T) {
        Self::put_by::<LANES, N>(of, x, f);
    }
}

impl<T: Float> LoopElement<T> for T {
    const ONE: Self = <T as Float>::ONE;
    const LANES: usize = LANES;

    #[inline(always)]
    fn are_small(x: &[Cell<Self>]) -> bool {
        map::are_small(x)
    }

    #[inline(always)]
    fn put_by<const TOGETHER: usize, const N: usize>(
        of: &OperandElements<'_, Self>,
        x: [&[Cell<Self>]; N],
        f: impl Fn([T; N]) -> T,
    ) {
        of.put_by::<TOGETHER, N>(x, f);
    }
}

/// Implements [`LoopElement`] for types of 16 bits.
#[cfg(target_arch = "x86_64")]
macro_rules! stored_in_sixteen_bits {
    ($($ty:ident)+) => {$(
        impl LoopElement<f32> for $ty {
            const ONE: Self = Self::ONE;
            const LANES: usize = sixteen_bits::LANES;

            #[inline(always)]
            fn are_small(x: &[Cell<Self>]) -> bool {
                // Magnitudes of numbers are ordered as their bits are.
                let limit = Self::from_f32_const(<f32 as Float>::SMALL_ANGLE).to_bits();
                x.iter().fold(true, |all, x| all & (x.get().to_bits() << 1 < limit << 1))
            }

            #[inline(always)]
            fn put_by<const TOGETHER: usize, const N: usize>(
                of: &OperandElements<'_, Self>,
                x: [&[Cell<Self>]; N],
                f: impl Fn([f32; N]) -> f32,
            ) {
                sixteen_bits::put_in_registers::<Self, N>(x, of.to, of.add, f);
            }
        }
    )+};
}
#[cfg(target_arch = "x86_64")]
stored_in_sixteen_bits!(bf16 f16);

/// The arrays that one loop reads and writes, `n` elements of each. They may alias: an element is read before the
/// element at the same index is written. Arrays that are not read are empty.
#[derive(Clone, Copy)]
struct OperandElements<'a, T> {
    /// The inputs.
    x: [&'a [Cell<T>]; 2],
    /// The output.
    y: &'a [Cell<T>],
    /// The gradient of the output.
    gy: &'a [Cell<T>],
    /// The destination: the output, or the gradient of an input.
    to: &'a [Cell<T>],
    /// True if the results are added to the destination.
    add: bool,
}

/// The values that a loop reads.
#[derive(Clone, Copy)]
struct Read {
    /// True for each input that is read.
    x: [bool; 2],
    /// True if the output is read.
    y: bool,
    /// True if the gradient of the output is read.
    gy: bool,
}

impl Part {
    /// The arrays that a loop reads. It writes to `to`.
    ///
    /// # Safety
    /// As [`Loops::forward`].
    #[inline(always)]
    unsafe fn elements<'a, T>(&self, read: Read, to: *mut u8, add: bool) -> OperandElements<'a, T> {
        let of = |at: *const u8, is_used: bool| -> &'a [Cell<T>] {
            // SAFETY: used pointers are valid for the elements, as the caller guarantees.
            if is_used { unsafe { std::slice::from_raw_parts(at.cast(), self.n) } } else { &[] }
        };
        let [x0, x1] = self.x;
        let x = [of(x0, read.x[0]), of(x1, read.x[1])];
        OperandElements { x, y: of(self.y, read.y), gy: of(self.gy, read.gy), to: of(to, true), add }
    }
}

impl<T: Float> OperandElements<'_, T> {
    /// See [`LoopElement::put_by`].
    #[inline(always)]
    fn put_by<const TOGETHER: usize, const N: usize>(&self, x: [&[Cell<T>]; N], f: impl Fn([T; N]) -> T) {
        assert!(x.iter().all(|x| x.len() == self.to.len()), "arrays of different lengths");
        let x = x.map(<[_]>::as_ptr);
        self.put_at::<TOGETHER>(
            #[inline(always)]
            move |i| {
                let mut v = [T::ZERO; N];
                for j in 0..N {
                    // SAFETY: all are as long as the destination, which has this element.
                    v[j] = unsafe { &*x[j].add(i) }.get();
                }
                f(v)
            },
        );
    }

    /// As [`OperandElements::put_by`], with a function of the index.
    #[inline(always)]
    #[allow(clippy::redundant_closure)] // see below
    fn put_at<const TOGETHER: usize>(&self, f: impl Fn(usize) -> T) {
        let whole = self.to.len() / LANES * LANES;
        vectorised_loop::<T, _>(
            #[inline(always)]
            move |is_short| {
                let mut start = 0;
                while start < whole {
                    if is_short {
                        self.put_some::<FEW>(
                            start,
                            #[inline(always)]
                            |i| f(i),
                        );
                        start += FEW;
                        continue;
                    }
                    // A reference to a long formula would not be inlined, and so not be vectorized.
                    if TOGETHER > LANES && start + TOGETHER <= whole {
                        self.put_some::<TOGETHER>(
                            start,
                            #[inline(always)]
                            |i| f(i),
                        );
                        start += TOGETHER;
                    } else {
                        self.put_some::<LANES>(
                            start,
                            #[inline(always)]
                            |i| f(i),
                        );
                        start += LANES;
                    }
                }
            },
        );
    }

    /// Writes or adds `N` elements from `start` on, which must exist.
    #[inline(always)]
    fn put_some<const N: usize>(&self, start: usize, f: impl Fn(usize) -> T) {
        let mut lanes = [T::ZERO; N];
        for (k, lane) in lanes.iter_mut().enumerate() {
            *lane = f(start + k);
        }
        // SAFETY: `N` elements exist from `start` on, and an array of cells has the layout of a cell of an array.
        let to = unsafe { &*self.to.as_ptr().add(start).cast::<Cell<[T; N]>>() };
        if self.add {
            let before = to.get();
            for k in 0..N {
                lanes[k] = before[k] + lanes[k];
            }
        }
        to.set(lanes);
    }
}

impl<S> OperandElements<'_, S> {
    /// Processes the elements that [`LoopElement::put_by`] leaves over, padded to full lanes in temporary memory.
    ///
    /// # Safety
    /// As [`Loops::forward`], for a loop that writes `y` if it reads no gradient, otherwise each `gx` that is not
    /// null.
    #[inline(never)]
    unsafe fn rest<T: Float>(self, formula: *const (), work: Loop)
    where
        S: LoopElement<T>,
    {
        let start = self.to.len() / S::LANES * S::LANES;
        let before = if self.add { self.to } else { &[] };
        let all = [self.x[0], self.x[1], self.y, self.gy, before];
        let buffers = [const { [const { Cell::new(S::ONE) }; MOST_LANES] }; 5];
        all.iter()
            .zip(&buffers)
            .for_each(|(from, buffer)| copy(from.get(start..).unwrap_or_default(), buffer));
        let [x0, x1, y, gy, to] = buffers.each_ref().map(|buffer| buffer.as_ptr().cast_mut().cast::<u8>());
        let y = if self.gy.is_empty() { to } else { y };
        let part = Part { x: [x0, x1], y, gy, gx: [to; 2], adds: [self.add; 2], n: S::LANES };
        // SAFETY: the formula is alive, and each array holds all lanes.
        unsafe { work(formula, &part) };
        copy(&buffers[4], &self.to[start..]);
    }
}

/// Copies the elements that both have.
#[inline(always)]
fn copy<S>(from: &[Cell<S>], to: &[Cell<S>]) {
    // SAFETY: both have that many elements, and cells may be written while they are shared.
    unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr().cast_mut(), from.len().min(to.len())) };
}

/// Makes loops from a formula `C`.
trait Formula<C> {
    /// The number of inputs.
    const INPUTS: usize;
    /// The values that the gradients read.
    const READS: Reads;

    /// Computes the output.
    fn forward<T: Float, S: LoopElement<T>>(op: &C, of: &OperandElements<'_, S>);

    /// Computes the gradient of input `I`.
    fn backward<T: Float, S: LoopElement<T>, const I: usize>(op: &C, of: &OperandElements<'_, S>);
}

/// The loop for the gradient of input `WAY`, or for the output.
unsafe fn run<C, F: Formula<C>, T: Float, S: LoopElement<T>, const WAY: usize>(
    formula: *const (),
    part: &Part,
) {
    let is_two = F::INPUTS == 2;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let of: OperandElements<'_, S> = if WAY == OUTPUT {
            part.elements(Read { x: [true, is_two], y: false, gy: false }, part.y, false)
        } else {
            let x = F::READS.input(0);
            let read = Read { x: [x, x && is_two], y: F::READS.output(0), gy: true };
            part.elements(read, part.gx[WAY], part.adds[WAY])
        };
        let op = &*formula.cast::<C>();
        if WAY == OUTPUT {
            F::forward::<T, S>(op, &of);
        } else {
            F::backward::<T, S, WAY>(op, &of);
        }
        if !of.to.len().is_multiple_of(S::LANES) {
            of.rest::<T>(formula, run::<C, F, T, S, WAY>);
        }
    }
}

/// A [`Unary`].
struct OfOne;

impl<C: Unary> Formula<C> for OfOne {
    const INPUTS: usize = 1;
    const READS: Reads = C::READS;

    #[inline(always)]
    fn forward<T: Float, S: LoopElement<T>>(op: &C, of: &OperandElements<'_, S>) {
        let x = of.x[0];
        if C::IS_OF_ANGLES && S::are_small(x) {
            S::put(
                of,
                [x],
                #[inline(always)]
                move |[x]: [T; 1]| op.f_small(x),
            );
        } else if C::IS_LONG {
            S::put_by::<MANY, 1>(
                of,
                [x],
                #[inline(always)]
                move |[x]: [T; 1]| op.f(x),
            );
        } else {
            S::put(
                of,
                [x],
                #[inline(always)]
                move |[x]: [T; 1]| op.f(x),
            );
        }
    }

    #[inline(always)]
    fn backward<T: Float, S: LoopElement<T>, const I: usize>(op: &C, of: &OperandElements<'_, S>) {
        if I > 0 {
            return;
        }
        // Arrays that are not read may be missing, so another array is passed in their place.
        let x = if C::READS.input(0) { of.x[0] } else { of.gy };
        let y = if C::READS.output(0) { of.y } else { of.gy };
        if C::IS_OF_ANGLES && S::are_small(x) {
            S::put(
                of,
                [of.gy, x, y],
                #[inline(always)]
                move |[gy, x, y]: [T; 3]| gy * op.df_small(x, y),
            );
        } else {
            S::put(
                of,
                [of.gy, x, y],
                #[inline(always)]
                move |[gy, x, y]: [T; 3]| if C::IS_DIFFERENTIABLE { op.gx(gy, x, y) } else { T::ZERO },
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
    fn forward<T: Float, S: LoopElement<T>>(op: &C, of: &OperandElements<'_, S>) {
        S::put(
            of,
            of.x,
            #[inline(always)]
            move |[a, b]: [T; 2]| op.f(a, b),
        );
    }

    #[inline(always)]
    fn backward<T: Float, S: LoopElement<T>, const I: usize>(op: &C, of: &OperandElements<'_, S>) {
        // Arrays that are not read may be missing, so the gradient of the output is passed in their place.
        let [a, b] = if C::READS.input(0) { of.x } else { [of.gy; 2] };
        let y = if C::READS.output(0) { of.y } else { of.gy };
        S::put(
            of,
            [of.gy, a, b, y],
            #[inline(always)]
            move |[gy, a, b, y]: [T; 4]| {
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
