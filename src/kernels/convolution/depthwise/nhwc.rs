//! Depthwise convolution with one kernel for each channel, channels last.

use super::pixel_sums::{PixelDots, PixelSum, taps_of_row};
use super::plane::LANES;
use crate::kernels::convolution::correlation::{Correlation, WeightGradient};
use crate::kernels::convolution::isa;
use crate::kernels::convolution::window::Window;
use crate::kernels::gemm::kernels;
use crate::kernels::scratch::List;
use crate::kernels::threads::{Shared, parallel, ranges};
use crate::kernels::{Float, scratch};

/// The number of target elements that a thread computes at a time.
const GRAIN: usize = 1 << 13;
/// The number of rows in a partial sum of the gradient of the weight.
const ROWS: usize = 64;

/// Computes the sums of a convolution with one channel and one map in each group, channels last.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
pub(in super::super) unsafe fn run<T: Float>(sum: &Correlation<'_, T>) {
    let (g, w, n) = (sum.g, sum.window(), sum.g.group);
    let rows = w.targets.len();
    scratch::with(w.taps.len() * n, |weights: &mut [T]| {
        for (weights, tap) in weights.chunks_exact_mut(n).zip(&w.taps) {
            for (c, to) in weights.iter_mut().enumerate() {
                // SAFETY: the weights are valid.
                *to = unsafe { *sum.weight.add(c * g.taps() + tap) };
            }
        }
        let weights = Shared::read_only(weights.as_ptr());
        ranges(g.images * rows, (GRAIN / (w.width * n)).max(1), |some| {
            let mut taps = List::with_capacity(w.taps.len());
            for i in some {
                let (image, row) = (i / rows, i % rows);
                taps_of_row(w, row, n, &mut taps);
                let pixels = PixelSum {
                    window: w,
                    from: sum.source(image, 0, 0),
                    channels: n,
                    taps: &taps,
                    weights: weights.get(),
                    to: sum.target(image, 0, 0).wrapping_add(w.targets[row] * n),
                    end: sum.epilogue,
                };
                // SAFETY: each row has its own targets; the rest is guaranteed by the caller.
                unsafe {
                    (isa::kernels::<T>().pixel_sum)(&pixels);
                    sum.epilogue.tail.finish(pixels.to, 0, 1, w.width * n);
                }
            }
        });
    });
}

/// Computes the gradient of a convolution with one channel and one map in each group, channels last.
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the gradient meanwhile.
pub(in super::super) unsafe fn weight_gradient<T: Float>(gradient: &WeightGradient<'_, T>, w: &Window) {
    let (g, gw) = (gradient.g, Shared::new(gradient.gw));
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
                    x: gradient.x.wrapping_add(image * g.area() * n + first),
                    gy: gradient.gy.wrapping_add((image * g.positions() + row * w.width) * n + first),
                    channels: n,
                    lanes,
                    taps: &of_row,
                    sums: sums.as_mut_ptr(),
                };
                // SAFETY: the memory holds the sums; the rest is guaranteed by the caller.
                unsafe { (isa::kernels::<T>().pixel_dots)(&dots) };
                if i % ROWS == ROWS - 1 || i + 1 == g.images * rows {
                    total.iter_mut().zip(&*sums).for_each(|(t, s)| *t = *t + *s);
                }
            }
            for (t, c) in (0..taps).flat_map(|t| (0..lanes).map(move |c| (t, c))) {
                // SAFETY: each channel has its own part of the gradient.
                unsafe {
                    let (to, sum) = (gw.get().add((first + c) * taps + t), total[t * LANES + c]);
                    *to = if gradient.accumulate { *to + sum } else { sum };
                }
            }
        });
    });
}
