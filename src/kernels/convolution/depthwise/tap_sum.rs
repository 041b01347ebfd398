//! Kernels of depthwise convolution, channels first, for a single row of positions: all taps are summed in registers.

use super::sliding_sum::PlaneSteps;
use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::simd::Vector;

/// The number of registers of a long row that are summed together.
const LONG: usize = 8;

/// Sums over all taps, for the row of adjacent positions of some planes.
pub(in crate::kernels) struct TapSum<'a, T> {
    /// The positions, which form a single row, and the elements that they read.
    pub(super) window: &'a Window,
    /// The planes.
    pub(super) planes: PlaneSteps,
    /// The kernel of the first plane.
    pub(super) weights: *const T,
    /// The source of the first plane.
    pub(super) from: *const T,
    /// The destination of the first plane.
    pub(super) to: *mut T,
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
            unsafe { self.row::<V>(p) };
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
                        self.sum::<V, LONG, true>(p, j)
                    } else if is_whole(LONG / 2) {
                        self.sum::<V, { LONG / 2 }, true>(p, j)
                    } else if is_whole(1) {
                        self.sum::<V, 1, true>(p, j)
                    } else {
                        self.sum::<V, 1, false>(p, j)
                    };
            }
        }
    }

    /// Sums `N` neighbouring registers from position `j` on. `WHOLE` requires that all lanes read the source. Returns
    /// `N`.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // counts from the compiler, so that sums stay in registers
    unsafe fn sum<V: Vector<T = T>, const N: usize, const WHOLE: bool>(&self, p: usize, j: usize) -> usize {
        let w = self.window;
        let (kernel, from) =
            (self.weights.wrapping_add(p * self.planes.taps), self.from.wrapping_add(p * self.planes.from));
        let columns = w.columns.len();
        // SAFETY: as above; only elements of rows of the source are read.
        unsafe {
            let mut sums = [V::zero(); N];
            for (o, start) in w.bases.iter().enumerate().filter(|(_, start)| **start != OUTSIDE) {
                for c in 0..columns {
                    let weight = V::all(*kernel.add(w.taps[o * columns + c]));
                    let column = w.columns[c];
                    let lane = [column.start, column.end].map(|at| at.saturating_sub(j).min(V::WIDTH));
                    let mask = V::between(lane[0], lane[1]);
                    let first = from.wrapping_offset(start + j as isize + column.offset);
                    for i in 0..N {
                        let at = first.wrapping_add(i * V::WIDTH);
                        let x = if WHOLE { V::load(at) } else { V::load_masked(at, mask) };
                        sums[i] = x.mul_add(weight, sums[i]);
                    }
                }
            }
            let (end, to) = (self.end.part(p, 0), self.to.wrapping_add(p * self.planes.to + j));
            for i in 0..N {
                end.store(sums[i], to.add(i * V::WIDTH), w.width - j - i * V::WIDTH);
            }
        }
        N
    }
}
