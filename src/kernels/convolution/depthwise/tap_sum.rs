//! Kernels of depthwise convolution, channels first: all taps of a position are summed in registers, for a single row
//! of positions and for kernels with dilated rows.

use std::ops::Range;

use super::plane::TALL;
use super::sliding_sum::PlaneSteps;
use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::simd::Vector;

/// The number of registers of a long row that are summed together.
const LONG: usize = 8;

/// Sums over all taps, for some rows of adjacent positions of some planes.
pub(in crate::kernels) struct TapSum<'a, T> {
    /// The positions and the elements that they read.
    pub(super) window: &'a Window,
    /// The rows of positions.
    pub(super) rows: Range<usize>,
    /// The planes.
    pub(super) planes: PlaneSteps,
    /// The kernel of the first plane.
    pub(super) weights: *const T,
    /// The source of the first plane.
    pub(super) from: *const T,
    /// The destination of the first row.
    pub(super) to: *mut T,
    /// The distance from the destination of a row to the next.
    pub(super) to_row: usize,
    /// The epilogue, which is applied to complete sums.
    pub(super) end: Epilogue<'a, T>,
}

impl<T: Float> TapSum<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        for p in 0..self.planes.n {
            // SAFETY: guaranteed by the caller. Same below.
            unsafe {
                if self.rows.len() == 1 {
                    self.row::<V>(p);
                } else {
                    self.rows::<V>(p);
                }
            }
        }
    }

    /// True if registers from position `start` to position `end` read the source through all columns of taps.
    #[inline(always)]
    fn is_whole(&self, start: usize, end: usize) -> bool {
        self.window.columns.iter().all(|column| column.start <= start && column.end >= end)
    }

    /// Sums a row of a plane, several registers at a time.
    #[inline(always)]
    unsafe fn row<V: Vector<T = T>>(&self, p: usize) {
        let mut j = 0;
        while j < self.window.width {
            let is_whole = |n: usize| self.is_whole(j, j + n * V::WIDTH);
            // SAFETY: as above.
            unsafe {
                j += V::WIDTH
                    * if is_whole(LONG) {
                        self.sum::<V, LONG, true, true>(p, self.rows.start, j)
                    } else if is_whole(LONG / 2) {
                        self.sum::<V, { LONG / 2 }, true, true>(p, self.rows.start, j)
                    } else if is_whole(1) {
                        self.sum::<V, 1, true, true>(p, self.rows.start, j)
                    } else {
                        self.sum::<V, 1, true, false>(p, self.rows.start, j)
                    };
            }
        }
    }

    /// Sums some rows of a plane, a register of several rows at a time.
    #[inline(always)]
    unsafe fn rows<V: Vector<T = T>>(&self, p: usize) {
        for j in (0..self.window.width).step_by(V::WIDTH) {
            let is_whole = self.is_whole(j, j + V::WIDTH);
            for row in self.rows.clone().step_by(TALL) {
                // SAFETY: as above.
                unsafe {
                    if is_whole {
                        self.sum::<V, TALL, false, true>(p, row, j);
                    } else {
                        self.sum::<V, TALL, false, false>(p, row, j);
                    }
                }
            }
        }
    }

    /// Sums `N` registers from row `row` and position `j` on: neighbours in one row if `IS_ROW`, else of adjacent rows.
    /// `WHOLE` requires that all lanes read the source. Returns `N`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // counts from the compiler, so that sums stay in registers
    unsafe fn sum<V: Vector<T = T>, const N: usize, const IS_ROW: bool, const WHOLE: bool>(
        &self,
        p: usize,
        row: usize,
        j: usize,
    ) -> usize {
        let w = self.window;
        let (kernel, from) =
            (self.weights.wrapping_add(p * self.planes.taps), self.from.wrapping_add(p * self.planes.from));
        let columns = w.columns.len();
        // SAFETY: as above; only elements of rows of the source are read.
        unsafe {
            let mut sums = [V::zero(); N];
            for o in 0..w.outer {
                let mut starts = [OUTSIDE; N];
                for i in 0..N {
                    if IS_ROW || row + i < self.rows.end {
                        starts[i] = w.bases[if IS_ROW { row } else { row + i } * w.outer + o];
                    }
                }
                if IS_ROW && starts[0] == OUTSIDE {
                    continue;
                }
                if o == 0 && !IS_ROW {
                    // The next plane is too far away for the hardware prefetcher.
                    for i in 0..N {
                        let next = from.wrapping_add(self.planes.from + (row + i) * w.length + j);
                        V::prefetch(next);
                    }
                }
                for c in 0..columns {
                    let weight = V::all(*kernel.add(w.taps[o * columns + c]));
                    let column = w.columns[c];
                    let lane = [column.start, column.end].map(|at| at.saturating_sub(j).min(V::WIDTH));
                    let mask = V::between(lane[0], lane[1]);
                    let first = from.wrapping_offset(j as isize + column.offset);
                    for i in 0..N {
                        if !IS_ROW && starts[i] == OUTSIDE {
                            continue;
                        }
                        let at = first.wrapping_offset(starts[i]);
                        let at = if IS_ROW { at.wrapping_add(i * V::WIDTH) } else { at };
                        let x = if WHOLE { V::load(at) } else { V::load_masked(at, mask) };
                        sums[i] = x.mul_add(weight, sums[i]);
                    }
                }
            }
            let end = self.end.part(p, 0);
            let to = self.to.wrapping_add(p * self.planes.to + (row - self.rows.start) * self.to_row + j);
            for i in 0..N {
                if IS_ROW {
                    end.store(sums[i], to.add(i * V::WIDTH), w.width - j - i * V::WIDTH);
                } else if row + i < self.rows.end {
                    end.store(sums[i], to.add(i * self.to_row), w.width - j);
                }
            }
        }
        N
    }
}
