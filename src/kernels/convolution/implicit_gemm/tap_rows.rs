//! Copies the elements that short rows of positions read, channels first: a row of the right matrix for each channel
//! and tap.

use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::scratch::List;
use crate::kernels::simd::Vector;

/// Copies rows: the element for position `p` of row `i` goes to `to[(channel taps + tap) apart + i width + p]`.
/// Padding becomes zeros. Up to a register after each row is overwritten.
pub(in crate::kernels) struct TapRows<'a, T> {
    /// The positions and the elements that they read.
    pub(in super::super) window: &'a Window,
    /// The image and the number of each row of positions.
    pub(in super::super) rows: &'a [(usize, usize)],
    /// The first channel of the first image.
    pub(in super::super) from: *const T,
    /// The distance from a channel to the next.
    pub(in super::super) area: usize,
    /// The distance from an image to the next.
    pub(in super::super) image: usize,
    /// The number of channels.
    pub(in super::super) channels: usize,
    /// The destination of the first row.
    pub(in super::super) to: *mut T,
    /// The distance from the rows of a tap to the rows of the next.
    pub(in super::super) apart: usize,
}

impl<T: Float> TapRows<'_, T> {
    /// True for steps at which most elements of packed planes would not be read.
    pub(super) fn fit(window: &Window) -> bool {
        matches!(window.step, 2 | 4)
    }

    /// Copies the rows.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available, and the window must [fit](Self::fit) or have a
    /// step of one.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.window.step {
                1 => self.copy::<V, 1>(),
                2 => self.copy::<V, 2>(),
                _ => self.copy::<V, 4>(),
            }
        }
    }

    /// Copies the row of pixels that each tap reads.
    #[inline(always)]
    unsafe fn copy<V: Vector<T = T>, const STEP: usize>(&self) {
        let w = self.window;
        let starts = self.starts();
        let mut to = self.to;
        for channel in 0..self.channels {
            for starts in starts.chunks_exact(self.rows.len()) {
                for column in &w.columns {
                    // The last registers are written first. The excess of each is overwritten by those before.
                    for first in (0..w.width).step_by(V::WIDTH).rev() {
                        let offset = column.offset + (first * STEP) as isize;
                        // SAFETY: guaranteed by the caller; masks keep within a row of the image.
                        unsafe {
                            let from = self.from.add(channel * self.area).wrapping_offset(offset);
                            let masks: [V::Mask; STEP] = std::array::from_fn(|i| {
                                let at = offset + (i * V::WIDTH) as isize;
                                let end = w.length as isize - at;
                                V::between((-at).max(0) as usize, end.max(0) as usize)
                            });
                            let mut to = to.add(first);
                            for start in starts {
                                if *start == OUTSIDE {
                                    V::zero().store(to);
                                } else {
                                    let from = from.wrapping_offset(*start);
                                    let load =
                                        |i: usize| V::load_masked(from.wrapping_add(i * V::WIDTH), masks[i]);
                                    let seen = match STEP {
                                        1 => load(0),
                                        2 => V::evens(load(0), load(1)),
                                        _ => V::evens(V::evens(load(0), load(1)), V::evens(load(2), load(3))),
                                    };
                                    seen.store(to);
                                }
                                to = to.wrapping_add(w.width);
                            }
                        }
                    }
                    to = to.wrapping_add(self.apart);
                }
            }
        }
    }

    /// For each tap along the outer axes and each row: the start of the image row within a channel, or [`OUTSIDE`].
    fn starts(&self) -> List<isize> {
        let w = self.window;
        let mut starts = List::with_capacity(w.outer * self.rows.len());
        for tap in 0..w.outer {
            for (image, row) in self.rows {
                let base = w.bases[row * w.outer + tap];
                starts.push(if base == OUTSIDE { base } else { base + (image * self.image) as isize });
            }
        }
        starts
    }
}
