//! Kernels of depthwise convolution, channels first: sums over the taps of a plane, a register of columns in a few
//! rows at a time.

use std::ops::Range;

use super::plane::{ANY, Lanes, Plane, TALL, TapBlock};
use crate::kernels::Float;
use crate::kernels::convolution::descriptor::Descriptor;
use crate::kernels::convolution::window::Window;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::simd::Vector;

/// The number of adjacent planes, and the distances of their sources, targets and kernels.
#[derive(Clone, Copy)]
pub(in super::super) struct PlaneSteps {
    /// The number of planes.
    pub(in super::super) n: usize,
    /// The distance from the source of a plane to the source of the next plane.
    pub(in super::super) from: usize,
    /// The distance from the target of a plane to the target of the next plane.
    pub(in super::super) to: usize,
    /// The distance from the kernel of a plane to the kernel of the next plane.
    pub(in super::super) taps: usize,
}

/// Sums over a block of taps, for some rows of positions of some planes.
pub(in crate::kernels) struct SlidingSum<'a, T> {
    /// The source rows and the window.
    pub(super) sees: (&'a Plane, &'a Window),
    /// The block of taps.
    pub(in super::super) block: &'a TapBlock,
    /// The rows of positions.
    pub(in super::super) rows: Range<usize>,
    /// The planes.
    pub(in super::super) planes: PlaneSteps,
    /// The kernel of the first plane.
    pub(in super::super) weights: *const T,
    /// The source of the first plane.
    pub(in super::super) from: *const T,
    /// The destination of the first row.
    pub(in super::super) to: *mut T,
    /// The distance from the destination of a row to the next.
    pub(super) to_row: usize,
    /// The epilogue, which is applied to complete sums.
    pub(in super::super) end: Epilogue<'a, T>,
}

impl<T: Float> SlidingSum<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        // SAFETY: guaranteed by the caller. Same below.
        unsafe {
            match self.sees.1.step {
                1 => self.block::<V, 1>(),
                2 => self.block::<V, 2>(),
                _ => self.tiles::<V, ANY, 1, 1>(),
            }
        }
    }

    /// Chooses the code for the number of rows of the block of taps.
    #[inline(always)]
    unsafe fn block<V: Vector<T = T>, const STEP: usize>(&self) {
        // SAFETY: as above.
        unsafe {
            match self.block.rows {
                1 => self.columns::<V, STEP, 1>(),
                2 => self.columns::<V, STEP, 2>(),
                3 => self.columns::<V, STEP, 3>(),
                _ => self.columns::<V, STEP, 5>(),
            }
        }
    }

    /// Chooses the code for the number of columns of the block of taps.
    #[inline(always)]
    unsafe fn columns<V: Vector<T = T>, const STEP: usize, const R: usize>(&self) {
        // SAFETY: as above.
        unsafe {
            match self.block.columns {
                _ if V::IS_RARE => self.tiles::<V, STEP, R, 5>(),
                1 => self.tiles::<V, STEP, R, 1>(),
                2 => self.tiles::<V, STEP, R, 2>(),
                3 => self.tiles::<V, STEP, R, 3>(),
                _ => self.tiles::<V, STEP, R, 5>(),
            }
        }
    }

    /// Sums a block of `R` x `C` taps for all planes, a register of columns at a time.
    #[inline(always)]
    unsafe fn tiles<V: Vector<T = T>, const STEP: usize, const R: usize, const C: usize>(&self) {
        let (plane, w) = self.sees;
        let columns = self.block.columns_in::<V, C>();
        // SAFETY: as above; these taps and columns are there.
        unsafe {
            for j in (0..w.width).step_by(V::WIDTH) {
                let (lanes, whole) = Lanes::of(w, self.block, j);
                for p in 0..self.planes.n {
                    let kernel =
                        self.weights.wrapping_offset((p * self.planes.taps) as isize + self.block.element);
                    let weight = |r: usize, c: usize| {
                        V::all(*kernel.wrapping_offset(plane.tap(r, c.min(columns - 1))))
                    };
                    let weights: [[V; C]; R] = std::array::from_fn(|r| std::array::from_fn(|c| weight(r, c)));
                    if whole {
                        self.rows::<V, STEP, R, C, true>(weights, lanes, j, p);
                    } else {
                        self.rows::<V, STEP, R, C, false>(weights, lanes, j, p);
                    }
                }
            }
        }
    }

    /// Sums the taps for one register of columns and all rows of outputs.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // counts from the compiler, so that sums stay in registers
    unsafe fn rows<V: Vector<T = T>, const STEP: usize, const R: usize, const C: usize, const WHOLE: bool>(
        &self,
        weights: [[V; C]; R],
        lanes: [Lanes<V, STEP>; C],
        j: usize,
        p: usize,
    ) {
        let (plane, w, end) = (self.sees.0, self.sees.1, self.end.part(p, 0));
        let (source, to) = (p * self.planes.from, self.to.wrapping_add(p * self.planes.to + j));
        let [n, step, apart] = plane.seen::<STEP, R>(TALL);
        let columns = self.block.columns_in::<V, C>();
        for row in self.rows.clone().step_by(TALL) {
            let first = (row * plane.step) as isize + self.block.offset;
            let mut from = self.from.wrapping_offset(source as isize + first * w.length as isize);
            // SAFETY: as above; only rows of the source are read.
            unsafe {
                let mut sums = [V::zero(); TALL];
                for y in 0..n {
                    // Prefetches the next plane, which is too far away for the hardware prefetcher.
                    let next = from.wrapping_add(self.planes.from).wrapping_offset(lanes[0].at());
                    (0..STEP.max(1)).for_each(|i| V::prefetch(next.wrapping_add(i * V::WIDTH)));
                    if ((first + (y * apart) as isize) as usize) < plane.rows {
                        for c in 0..columns {
                            let x = lanes[c].load::<WHOLE>(from);
                            for i in 0..TALL {
                                if y >= i * step && y - i * step < R {
                                    sums[i] = x.mul_add(weights[y - i * step][c], sums[i]);
                                }
                            }
                        }
                    }
                    from = from.wrapping_add(apart * w.length);
                }
                let to = to.add((row - self.rows.start) * self.to_row);
                for i in 0..TALL {
                    if row + i < self.rows.end {
                        end.store(sums[i], to.add(i * self.to_row), w.width - j);
                    }
                }
            }
        }
    }
}

/// Stores the sums of several windows, whose targets are interleaved along rows.
pub(in crate::kernels) struct InterleaveWindows<'a, T> {
    /// The descriptors of the windows.
    pub(in super::super) descriptors: &'a [Descriptor],
    /// The rows of positions.
    pub(in super::super) rows: Range<usize>,
    /// The planes. The sums of different planes are contiguous.
    pub(in super::super) planes: PlaneSteps,
    /// The sums of the first window.
    pub(in super::super) from: *const T,
    /// The distance from the sums of a window to the sums of the next.
    pub(in super::super) apart: usize,
    /// The target of the first plane.
    pub(in super::super) to: *mut T,
    /// The epilogue, which is applied to complete sums.
    pub(in super::super) end: Epilogue<'a, T>,
}

impl<T: Float> InterleaveWindows<'_, T> {
    /// Stores the sums.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let places = (0..self.planes.n).flat_map(|p| self.rows.clone().map(move |row| (p, row)));
        for (i, (p, row)) in places.enumerate() {
            let (to, end) = (self.to.wrapping_add(p * self.planes.to), self.end.part(p, 0));
            // SAFETY: guaranteed by the caller.
            unsafe {
                if let [a, b] = self.descriptors {
                    self.weave::<V>([&a.window, &b.window], i, to.add(a.window.targets[row]), end);
                    continue;
                }
                for (k, w) in self.descriptors.iter().map(|descriptor| &descriptor.window).enumerate() {
                    let from = self.from.add(k * self.apart + i * w.width);
                    end.store_strided(
                        std::slice::from_raw_parts(from, w.width),
                        to.add(w.targets[row]),
                        w.apart,
                    );
                }
            }
        }
    }

    /// Stores row `i` of two windows.
    #[inline(always)]
    unsafe fn weave<V: Vector<T = T>>(
        &self,
        [a, b]: [&Window; 2],
        i: usize,
        to: *mut T,
        end: Epilogue<'_, T>,
    ) {
        // SAFETY: as above.
        unsafe {
            let (from, others) = (self.from.add(i * a.width), self.from.add(self.apart + i * b.width));
            for j in (0..a.width).step_by(V::WIDTH) {
                let x = V::load_masked(from.add(j), V::first(a.width - j));
                let y = V::load_masked(others.wrapping_add(j), V::first(b.width.saturating_sub(j)));
                let (n, (low, high)) = (a.width + b.width - 2 * j, V::weave(x, y));
                end.store(low, to.add(2 * j), n);
                end.store(high, to.wrapping_add(2 * j + V::WIDTH), n.saturating_sub(V::WIDTH));
            }
        }
    }
}
