//! Convolution of each channel with one kernel of its own, channels last: sums over the taps of a pixel, a register of
//! channels at a time.

use super::nchw::LANES;
use crate::kernels::convolution::implicit_gemm::Correlation;
use crate::kernels::convolution::implicit_gemm::weight_gradient::WeightGradient;
use crate::kernels::convolution::isa;
use crate::kernels::convolution::window::{OUTSIDE, Window};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::kernels;
use crate::kernels::scratch::List;
use crate::kernels::simd::Vector;
use crate::kernels::threads::{Shared, parallel, ranges};
use crate::kernels::{Float, scratch};

/// Pixels that are summed up together where every tap lies on the image.
const TOGETHER: usize = 4;
/// Elements of the target that a thread takes at a time.
const GRAIN: usize = 1 << 13;
/// Taps whose sums are kept in registers together.
const TAPS: usize = 9;
/// Rows of positions whose products are summed up before they are joined to others.
const ROWS: usize = 64;

/// Where a tap lies in the source, from the first position of a row; and which of the weights it is.
type PixelTap = (isize, usize);

/// The taps of a row of positions on rows of the image, by column of the kernel first.
fn taps_of_row(w: &Window, row: usize, pixel: usize, to: &mut List<PixelTap>) {
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
pub(in crate::kernels) struct Pixels<'a, T> {
    window: &'a Window,
    from: *const T,
    /// Distance of pixels, which is the number of channels.
    channels: usize,
    taps: &'a [PixelTap],
    weights: *const T,
    to: *mut T,
    /// With a bias for each channel.
    end: Epilogue<'a, T>,
}

impl<T: Float> Pixels<'_, T> {
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
    window: &'a Window,
    x: *const T,
    gy: *const T,
    channels: usize,
    /// Of this register of channels, how many there are.
    lanes: usize,
    taps: &'a [PixelTap],
    sums: *mut T,
}

impl<T: Float> PixelDots<'_, T> {
    /// Adds the products.
    ///
    /// # Safety
    /// As [`Pixels::run`].
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

impl<T: Float> Correlation<'_, T> {
    /// Computes the sums of a convolution with one channel and one map in each group, channels last.
    ///
    /// # Safety
    /// As [`Correlation::run`].
    pub(super) unsafe fn slide_pixels(&self) {
        let (g, w, n) = (self.g, self.window(), self.g.group);
        let rows = w.targets.len();
        scratch::with(w.taps.len() * n, |weights: &mut [T]| {
            for (weights, tap) in weights.chunks_exact_mut(n).zip(&w.taps) {
                for (c, to) in weights.iter_mut().enumerate() {
                    // SAFETY: the weights are there.
                    *to = unsafe { *self.weight.add(c * g.taps() + tap) };
                }
            }
            let weights = Shared::read_only(weights.as_ptr());
            ranges(g.images * rows, (GRAIN / (w.width * n)).max(1), |some| {
                let mut taps = List::with_capacity(w.taps.len());
                for i in some {
                    let (image, row) = (i / rows, i % rows);
                    taps_of_row(w, row, n, &mut taps);
                    let pixels = Pixels {
                        window: w,
                        from: self.source(image, 0, 0),
                        channels: n,
                        taps: &taps,
                        weights: weights.get(),
                        to: self.target(image, 0, 0).wrapping_add(w.targets[row] * n),
                        end: self.epilogue,
                    };
                    // SAFETY: each row has its own targets; the rest is the caller's promise.
                    unsafe {
                        (isa::kernels::<T>().pixels)(&pixels);
                        self.epilogue.tail.finish(pixels.to, 0, 1, w.width * n);
                    }
                }
            });
        });
    }
}

impl<T: Float> WeightGradient<'_, T> {
    /// Computes the gradient of a convolution with one channel and one map in each group, channels last.
    ///
    /// # Safety
    /// As [`WeightGradient::run`].
    pub(super) unsafe fn slide_pixels(&self, w: &Window) {
        let (g, gw) = (self.g, Shared::new(self.gw));
        let (n, taps, rows, wide) = (g.group, g.taps(), w.targets.len(), kernels::<T>().panel() / 2);
        parallel(n.div_ceil(wide), |register| {
            let first = register * wide;
            let lanes = wide.min(n - first);
            let mut of_row = List::with_capacity(taps);
            scratch::with(2 * taps * LANES, |memory: &mut [T]| {
                let (total, sums) = memory.split_at_mut(taps * LANES);
                total.fill(T::ZERO);
                for i in 0..g.images * rows {
                    if i % ROWS == 0 {
                        sums.fill(T::ZERO);
                    }
                    let (image, row) = (i / rows, i % rows);
                    taps_of_row(w, row, n, &mut of_row);
                    let dots = PixelDots {
                        window: w,
                        x: self.x.wrapping_add(image * g.area() * n + first),
                        gy: self.gy.wrapping_add((image * g.positions() + row * w.width) * n + first),
                        channels: n,
                        lanes,
                        taps: &of_row,
                        sums: sums.as_mut_ptr(),
                    };
                    // SAFETY: there is room for the sums; the rest is the caller's promise.
                    unsafe { (isa::kernels::<T>().pixel_dots)(&dots) };
                    if i % ROWS == ROWS - 1 || i + 1 == g.images * rows {
                        total.iter_mut().zip(&*sums).for_each(|(t, s)| *t = *t + *s);
                    }
                }
                for (t, c) in (0..taps).flat_map(|t| (0..lanes).map(move |c| (t, c))) {
                    // SAFETY: each channel has its own part of the gradient.
                    unsafe {
                        let (to, sum) = (gw.get().add((first + c) * taps + t), total[t * LANES + c]);
                        *to = if self.accumulate { *to + sum } else { sum };
                    }
                }
            });
        });
    }
}
