//! The gradient of the input as one product for all taps, whose results are added to the elements that the taps read.
//! Without padding, direct sums over the positions that read an element would also multiply the zeros around them.

use super::geometry::Geometry;
use crate::kernels::epilogue::{Activation, Epilogue};
use crate::kernels::gemm::{EvenSplit, Matrix, MatrixMut, gemm};
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{Shared, parallel};
use crate::kernels::{Float, scratch};

/// The number of results in a block, which stay in the second-level cache until they are added.
const RESULTS: usize = 1 << 16;

/// An axis of a convolution.
#[derive(Clone, Copy)]
struct AxisLayout {
    /// The length of the input.
    input: usize,
    /// The length of the kernel.
    kernel: usize,
    /// The number of positions.
    output: usize,
    /// The padding before the first element.
    pad: usize,
    /// The distance of adjacent positions.
    stride: usize,
    /// The distance of adjacent taps.
    dilation: usize,
}

impl AxisLayout {
    /// An axis of one element.
    const ONE: Self = Self { input: 1, kernel: 1, output: 1, pad: 0, stride: 1, dilation: 1 };

    /// The first position whose tap reads the input, the element that it reads, and the number of such positions.
    fn reads(self, tap: usize) -> (usize, usize, usize) {
        let ahead = tap * self.dilation;
        let first = self.pad.saturating_sub(ahead).div_ceil(self.stride);
        let element = first * self.stride + ahead - self.pad;
        let n = self.input.saturating_sub(element).div_ceil(self.stride);
        (first, element, n.min(self.output.saturating_sub(first)))
    }
}

/// The three axes of a convolution. Missing ones have one element.
fn axes(g: &Geometry) -> [AxisLayout; 3] {
    let mut axes = [AxisLayout::ONE; 3];
    let missing = 3 - g.input.len();
    for i in 0..g.input.len() {
        axes[missing + i] = AxisLayout {
            input: g.input[i],
            kernel: g.kernel[i],
            output: g.output[i],
            pad: g.pad[i],
            stride: g.stride[i],
            dilation: g.dilation[i],
        };
    }
    axes
}

/// Computes the gradient. Channels come before the spatial axes.
pub(super) fn input_gradient<T: Float>(
    g: &Geometry,
    gy: &[T],
    w: &[T],
    gx: &mut [T],
    epilogue: Epilogue<'_, T>,
) {
    let (channels, maps, taps) = (g.channels / g.group, g.maps / g.group, g.taps());
    let (area, n, to) = (g.area(), g.positions(), Shared::new(gx.as_mut_ptr()));
    let together = (RESULTS / (taps * n).max(1)).clamp(1, channels);
    let parts = EvenSplit::new(channels, channels.div_ceil(together));
    let axes = axes(g);
    parallel(g.images * g.group * parts.parts(), |task| {
        let (i, some) = (task / parts.parts(), parts.part(task % parts.parts()));
        let (image, group) = (i / g.group, i % g.group);
        let gy = Matrix::of_rows(&gy[(image * g.maps + group * maps) * n..][..maps * n], maps, n);
        let of_group = &w[group * maps * channels * taps..][..maps * channels * taps];
        let w = Matrix::new(&of_group[some.start * taps..], maps, some.len() * taps, channels * taps, 1);
        scratch::with(some.len() * taps * n + area, |memory: &mut [T]| {
            let (results, plane) = memory.split_at_mut(some.len() * taps * n);
            gemm(MatrixMut::of_rows(results, some.len() * taps, n), false, w.t(), gy);
            for (channel, results) in some.zip(results.chunks_exact(taps * n)) {
                plane.fill(T::ZERO);
                add_taps(axes, results, plane);
                let of_all = group * channels + channel;
                let first = (image * g.channels + of_all) * area;
                // SAFETY: the gradient has such a plane, and each task has its own.
                let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(first), area) };
                finish(plane, to, epilogue, of_all);
            }
        });
    });
}

/// Adds the results of all taps of a channel to the elements of a plane that they read.
fn add_taps<T: Float>([depth, height, width]: [AxisLayout; 3], results: &[T], plane: &mut [T]) {
    let n = depth.output * height.output * width.output;
    let mut all = results.chunks_exact(n);
    for z in 0..depth.kernel {
        let (z_first, z_element, z_n) = depth.reads(z);
        for y in 0..height.kernel {
            let (y_first, y_element, y_n) = height.reads(y);
            for x in 0..width.kernel {
                let (first, element, columns) = width.reads(x);
                let Some(results) = all.next().filter(|_| columns > 0) else { continue };
                for i in 0..z_n * y_n {
                    let (i, j) = (i / y_n, i % y_n);
                    let row = (z_first + i) * height.output + y_first + j;
                    let line = (z_element + i * depth.stride) * height.input + y_element + j * height.stride;
                    let row = &results[row * width.output + first..][..columns];
                    let line = &mut plane[line * width.input + element..][..=(columns - 1) * width.stride];
                    if width.stride == 1 {
                        add(row, line);
                    } else {
                        let line = line.iter_mut().step_by(width.stride);
                        line.zip(row).for_each(|(to, result)| *to = *to + *result);
                    }
                }
            }
        }
    }
}

/// Adds each result of a row to the element at the same index.
fn add<T: Float>(row: &[T], line: &mut [T]) {
    vectorised(
        #[inline(always)]
        move || line.iter_mut().zip(row).for_each(|(to, result)| *to = *to + *result),
    );
}

/// Writes the sums of a channel, with its bias and the functions that follow.
fn finish<T: Float>(sums: &[T], to: &mut [T], epilogue: Epilogue<'_, T>, channel: usize) {
    let Epilogue { accumulate, row_bias, tail, .. } = epilogue;
    if !accumulate && row_bias.is_none() && tail.activation == Activation::Identity {
        to.copy_from_slice(sums);
    } else {
        let bias = row_bias.map_or(T::ZERO, |bias| bias[channel]);
        for (to, sum) in to.iter_mut().zip(sums) {
            let sum = if row_bias.is_some() { *sum + bias } else { *sum };
            *to = tail.activation.of(if accumulate { *to + sum } else { sum });
        }
    }
    // SAFETY: the row belongs to the gradient, and was just written by this thread.
    unsafe { tail.finish(to.as_mut_ptr(), to.len(), 1, to.len()) };
}
