//! Convolution of each channel with one kernel of its own, channels last: sums over the taps of a pixel, a register of
//! channels at a time.

use super::plane::LANES;
use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::scratch::List;
use crate::kernels::simd::Vector;

/// Pixels that are summed up together where every tap lies on the image.
const TOGETHER: usize = 4;
/// Taps whose sums are kept in registers together.
const TAPS: usize = 9;

/// Where a tap lies in the source, from the first position of a row; and which of the weights it is.
type PixelTap = (isize, usize);

/// The taps of a row of positions on rows of the image, by column of the kernel first.
pub(super) fn taps_of_row(w: &Window, row: usize, pixel: usize, to: &mut List<PixelTap>) {
    to.clear();
    for (i, column) in w.columns.iter().enumerate() {
        for (outer, base) in w.bases[row * w.outer..][..w.outer].iter().enumerate() {
            if *base != OUTSIDE {
                to.push(((base + column.offset) * pixel as isize, outer * w.columns.len() + i));
            }
        }
    }
}

/// The positions of a row that see every column of the kernel on the image.
fn inside(w: &Window) -> (usize, usize) {
    let start = w.columns.iter().map(|c| c.start).max().unwrap_or(0);
    let end = w.columns.iter().map(|c| c.end).min().unwrap_or(0);
    (start, end.max(start))
}

/// An order to sum up the taps of a row of positions: `to[o apart + c] = sum over taps of weights[t, c] x[...]`.
pub(in crate::kernels) struct PixelSum<'a, T> {
    pub(super) window: &'a Window,
    pub(super) from: *const T,
    /// Distance of pixels, which is the number of channels.
    pub(super) channels: usize,
    pub(super) taps: &'a [PixelTap],
    pub(super) weights: *const T,
    pub(super) to: *mut T,
    /// With a bias for each channel.
    pub(super) end: Epilogue<'a, T>,
}

impl<T: Float> PixelSum<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let w = self.window;
        let (start, end) = inside(w);
        let whole = end - (end - start) % TOGETHER;
        // SAFETY: the caller's promise; positions between `start` and `end` see all taps.
        unsafe {
            for o in (0..start).chain(whole..w.width) {
                let mut taps = List::with_capacity(self.taps.len());
                for tap in self.taps {
                    let column = w.columns[tap.1 % w.columns.len()];
                    if o >= column.start && o < column.end {
                        taps.push(*tap);
                    }
                }
                self.some::<V, 1>(o, &taps);
            }
            for o in (start..whole).step_by(TOGETHER) {
                self.some::<V, TOGETHER>(o, self.taps);
            }
        }
    }

    /// `P` positions from `o` on that all see these taps.
    #[inline(always)]
    unsafe fn some<V: Vector<T = T>, const P: usize>(&self, o: usize, taps: &[PixelTap]) {
        let (step, apart) = (self.window.step * self.channels, self.window.apart * self.channels);
        let (from, to) = (self.from.wrapping_add(o * step), self.to.wrapping_add(o * apart));
        for c in (0..self.channels).step_by(V::WIDTH) {
            // SAFETY: as above; masks keep within the channels.
            unsafe {
                let mask = V::first(self.channels - c);
                let mut sums = [V::zero(); P];
                for (at, t) in taps {
                    let weight = V::load_masked(self.weights.add(t * self.channels + c), mask);
                    let from = from.offset(*at).add(c);
                    for (i, sum) in sums.iter_mut().enumerate() {
                        *sum = V::load_masked(from.add(i * step), mask).mul_add(weight, *sum);
                    }
                }
                for (i, mut v) in sums.into_iter().enumerate() {
                    let to = to.add(i * apart + c);
                    if let Some(bias) = self.end.row_bias {
                        v = v.add(V::load_masked(bias.as_ptr().add(c), mask));
                    }
                    if self.end.accumulate {
                        v = v.add(V::load_masked(to, mask));
                    }
                    self.end.tail.activation.on(v).store_masked(to, mask);
                }
            }
        }
    }
}

/// An order to add to `sums[t]`, a register of channels each, the products of a row of `gy` with what tap `t` sees.
pub(in crate::kernels) struct PixelDots<'a, T> {
    pub(super) window: &'a Window,
    pub(super) x: *const T,
    pub(super) gy: *const T,
    pub(super) channels: usize,
    /// Of this register of channels, how many there are.
    pub(super) lanes: usize,
    pub(super) taps: &'a [PixelTap],
    pub(super) sums: *mut T,
}

impl<T: Float> PixelDots<'_, T> {
    /// Adds the products.
    ///
    /// # Safety
    /// As [`PixelSum::run`].
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let (w, n) = (self.window, self.channels);
        let (start, end) = inside(w);
        // SAFETY: as above.
        unsafe {
            let mask = V::first(self.lanes);
            for taps in self.taps.chunks(TAPS) {
                // The last of several chunks sees some taps twice rather than having code of its own.
                let at: [isize; TAPS] = std::array::from_fn(|t| taps[t % taps.len()].0);
                let mut parts = [V::zero(); TAPS];
                for o in start..end {
                    let g = V::load_masked(self.gy.add(o * n), mask);
                    let x = self.x.wrapping_add(o * w.step * n);
                    for (part, at) in parts.iter_mut().zip(at) {
                        *part = V::load_masked(x.offset(at), mask).mul_add(g, *part);
                    }
                }
                for ((_, t), part) in taps.iter().zip(parts) {
                    let to = self.sums.add(t * LANES);
                    part.add(V::load(to)).store(to);
                }
            }
            for (at, t) in self.taps {
                let column = w.columns[t % w.columns.len()];
                let to = self.sums.add(t * LANES);
                let mut sum = V::load(to);
                for o in (column.start..start.min(column.end)).chain(end.max(column.start)..column.end) {
                    let g = V::load_masked(self.gy.add(o * n), mask);
                    sum = V::load_masked(self.x.offset(*at).add(o * w.step * n), mask).mul_add(g, sum);
                }
                sum.store(to);
            }
        }
    }
}
