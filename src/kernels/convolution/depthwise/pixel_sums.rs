//! Kernels of depthwise convolution, channels last: sums over the taps of pixels, a register of channels at a time.

use super::plane::LANES;
use crate::kernels::Float;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::scratch::List;
use crate::kernels::simd::Vector;

/// The number of pixels that are computed together if all taps are within the image.
const TOGETHER: usize = 4;
/// The number of taps with sums in registers at the same time.
const TAPS: usize = 9;

/// A tap: its offset from the first position of a row, and the index of its weight.
type PixelTap = (isize, usize);

/// Finds the taps of a row of positions that are in rows of the image, column by column of the kernel.
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

/// The positions of a row for which every column of the kernel is within the image.
fn inside(w: &Window) -> (usize, usize) {
    let start = w.columns.iter().map(|c| c.start).max().unwrap_or(0);
    let end = w.columns.iter().map(|c| c.end).min().unwrap_or(0);
    (start, end.max(start))
}

/// Sums over the taps of a row of positions: `to[o apart + c] = sum over taps t of weights[t, c] x[position of t at o,
/// c]`.
pub(in crate::kernels) struct PixelSum<'a, T> {
    /// The positions and the elements that they read.
    pub(super) window: &'a Window,
    /// The source.
    pub(super) from: *const T,
    /// The number of channels, which is the distance of pixels.
    pub(super) channels: usize,
    /// The taps whose source rows are within the image.
    pub(super) taps: &'a [PixelTap],
    /// The weights, with channels last.
    pub(super) weights: *const T,
    /// The target of the first position.
    pub(super) to: *mut T,
    /// The epilogue, with a bias for each channel.
    pub(super) end: Epilogue<'a, T>,
}

impl<T: Float> PixelSum<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// The instruction set of `V` and the memory must be available.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let w = self.window;
        let (start, end) = inside(w);
        let whole = end - (end - start) % TOGETHER;
        // SAFETY: guaranteed by the caller, and positions between `start` and `end` see all taps.
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

    /// Computes `P` positions from `o` on, for which all these taps are within the image.
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

/// Adds to `sums[t]`, a register of channels, the products of a row of `gy` and the elements of `x` at tap `t`.
pub(in crate::kernels) struct PixelDots<'a, T> {
    /// The positions and the elements that they read.
    pub(super) window: &'a Window,
    /// The input.
    pub(super) x: *const T,
    /// The row of the gradient of the output.
    pub(super) gy: *const T,
    /// The number of channels, which is the distance of pixels.
    pub(super) channels: usize,
    /// The number of channels in the register.
    pub(super) lanes: usize,
    /// The taps whose source rows are within the image.
    pub(super) taps: &'a [PixelTap],
    /// The sums that are added to.
    pub(super) sums: *mut T,
}

impl<T: Float> PixelDots<'_, T> {
    /// Adds the products of gradients and pixels to the sum of each tap.
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
                // The last chunk repeats some taps, so that it needs no code of its own.
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
