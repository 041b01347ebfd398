//! What positions in short rows see of an image, channels first: a row for each channel and tap, as a product reads them.

use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::scratch::List;
use crate::kernels::simd::Vector;

/// An order to copy what rows of positions see of some channels: position `p` of row `i` goes to
/// `to[(channel taps + tap) apart + i width + p]`. Padding becomes zeros.
/// What lies behind a row is overwritten, up to a register.
pub(in crate::kernels) struct TapRows<'a, T> {
    pub(in super::super) window: &'a Window,
    /// Which row of positions each is, and of which image.
    pub(in super::super) rows: &'a [(usize, usize)],
    /// The first channel of the first image, and how far channels and images lie apart.
    pub(in super::super) from: *const T,
    pub(in super::super) area: usize,
    pub(in super::super) image: usize,
    pub(in super::super) channels: usize,
    pub(in super::super) to: *mut T,
    pub(in super::super) apart: usize,
}

impl<T: Float> TapRows<'_, T> {
    /// Whether rows that a window sees are copied so: where steps would leave most of the copies by planes unread.
    pub(super) fn fit(window: &Window) -> bool {
        matches!(window.step, 2 | 4)
    }

    /// Copies the rows.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory; the window [fits](Self::fit).
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.window.step {
                2 => self.copy::<V, 2>(),
                _ => self.copy::<V, 4>(),
            }
        }
    }

    #[inline(always)]
    unsafe fn copy<V: Vector<T = T>, const STEP: usize>(&self) {
        let w = self.window;
        let starts = self.starts();
        let mut to = self.to;
        for channel in 0..self.channels {
            for starts in starts.chunks_exact(self.rows.len()) {
                for column in &w.columns {
                    // From the last register of rows on: what one writes too much, those before it write again.
                    for first in (0..w.width).step_by(V::WIDTH).rev() {
                        let offset = column.offset + (first * STEP) as isize;
                        // SAFETY: the caller has the instructions and the memory; masks keep within a row of the image.
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

    /// For each tap along the outer axes and each row, where in a channel the row of the image begins, or [`OUTSIDE`].
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
