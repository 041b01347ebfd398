//! Copies the patches of some positions to the rows of a matrix in the cache (im2col), channels last.

use std::ops::Range;

use super::packed_planes::{clear, copy};
use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::simd::Vector;

/// Copies patches: element (tap, channel) of position `i` goes to `to[i apart + tap channels + channel]`. Padding
/// becomes zeros. Elements between the rows are overwritten, and up to [`SLACK`](super::packed_planes::SLACK) elements
/// after the last one.
pub(in crate::kernels) struct Im2Row<'a, T> {
    /// The positions and the elements that they read.
    pub(in super::super) window: &'a Window,
    /// The first channel of the image.
    pub(in super::super) from: *const T,
    /// The number of channels.
    pub(in super::super) channels: usize,
    /// The distance of neighbouring pixels in the image.
    pub(in super::super) pixel: usize,
    /// The positions whose patches are copied.
    pub(in super::super) positions: Range<usize>,
    /// The destination of the first patch.
    pub(in super::super) to: *mut T,
    /// The distance from a patch to the next, in elements.
    pub(in super::super) apart: usize,
}

impl<T: Float> Im2Row<'_, T> {
    /// Copies the patches.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let w = self.window;
        let (mut start, end) = (self.positions.start, self.positions.end);
        let mut at = 0;
        while start < end {
            let (row, first) = (start / w.width, start % w.width);
            let n = (w.width - first).min(end - start);
            let bases = &w.bases[row * w.outer..][..w.outer];
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.row::<V>(bases, first, n, at);
            }
            start += n;
            at += n;
        }
    }

    /// Copies the patches of `n` positions of a row.
    #[inline(always)]
    unsafe fn row<V: Vector<T = T>>(&self, bases: &[isize], first: usize, n: usize, at: usize) {
        let w = self.window;
        for i in 0..n {
            let mut to = self.to.wrapping_add((at + i) * self.apart);
            for base in bases {
                for column in &w.columns {
                    let o = first + i;
                    // SAFETY: guaranteed by the caller, and positions `start` to `end` are within the image.
                    unsafe {
                        if *base == OUTSIDE || o < column.start || o >= column.end {
                            clear::<V>(to, self.channels);
                        } else {
                            let place = (base + (o * w.step) as isize + column.offset) as usize;
                            copy::<V>(self.from.add(place * self.pixel), 1, self.channels, to);
                        }
                    }
                    to = to.wrapping_add(self.channels);
                }
            }
        }
    }
}
