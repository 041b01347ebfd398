//! The three sums over `x[c, o * stride + t * dilation - pad] * w[k, c, t] * gy[k, o]` that make up convolution: the
//! one over inputs is its output, and the other two are its gradients. Deconvolution is the same with the names moved.
//!
//! An image is unfolded into a matrix with one column a position, so that each sum is a product of matrices; with one
//! input channel in a group (depthwise) there is no matrix to speak of and the sums are taken directly.

use std::ops::Range;

use smallvec::SmallVec;

use super::gemm::{Matrix, MatrixMut, gemm};
use super::{Float, depthwise, scratch};

/// Elements of an unfolded matrix that are made at a time: some of them stay in the cache until they are used.
const BLOCK: usize = 1 << 20;
/// Positions that are unfolded at a time at least, or products would be too narrow.
const LEAST_POSITIONS: usize = 256;

/// Lengths or steps along spatial axes.
pub type Spatial = SmallVec<[usize; 3]>;

/// The sizes of a convolution. Each channel of the input has its own group of weights and outputs.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct Geometry {
    pub images: usize,
    /// Channels of the input, of all groups.
    pub channels: usize,
    /// Channels of the output, of all groups.
    pub maps: usize,
    pub group: usize,
    pub input: Spatial,
    pub kernel: Spatial,
    pub output: Spatial,
    pub pad: Spatial,
    pub stride: Spatial,
    pub dilation: Spatial,
    /// Whether channels are the last axis of the input, the weight and the output rather than the one before space.
    pub channel_last: bool,
}

/// Output positions next to each other along the last axis, as one element of the kernel sees them.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    /// The element of the kernel.
    pub tap: usize,
    /// The first position, counted from the start of the block.
    pub at: usize,
    /// Number of positions.
    pub len: usize,
    /// Those among them where the element lies on the input and not on padding.
    pub inside: Range<usize>,
    /// Where it lies on the input for the first of them; it moves on by the last stride.
    pub from: usize,
}

impl Geometry {
    pub(super) fn area(&self) -> usize {
        self.input.iter().product()
    }
    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
    pub(super) fn positions(&self) -> usize {
        self.output.iter().product()
    }
    pub(super) fn step(&self) -> usize {
        self.stride.last().copied().unwrap_or(1)
    }
    /// Rows of the unfolded matrix.
    fn depth(&self) -> usize {
        self.channels / self.group * self.taps()
    }

    /// Whether each position sees just the element of the input that lies under it.
    fn is_pointwise(&self) -> bool {
        let all = |v: &Spatial, n: usize| v.iter().all(|v| *v == n);
        all(&self.kernel, 1) && all(&self.stride, 1) && all(&self.pad, 0)
    }

    /// Positions in blocks that are unfolded at a time.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let n = self.positions();
        let len = (BLOCK / self.depth().max(1)).max(LEAST_POSITIONS);
        (0..n).step_by(len).map(move |start| start..(start + len).min(n))
    }

    /// What the kernel sees from the positions of a block.
    pub(super) fn reaches(&self, block: &Range<usize>) -> Vec<Reach> {
        let last = self.output.len() - 1;
        let width = self.output[last];
        let mut reaches = Vec::new();
        let mut start = block.start;
        while start < block.end {
            let end = block.end.min((start / width + 1) * width);
            for tap in 0..self.taps() {
                reaches.push(self.reach(
                    tap,
                    start / width,
                    start % width..start % width + (end - start),
                    start - block.start,
                ));
            }
            start = end;
        }
        reaches
    }

    fn reach(&self, tap: usize, row: usize, columns: Range<usize>, at: usize) -> Reach {
        let last = self.output.len() - 1;
        let (mut row, mut outer) = (row, tap / self.kernel[last]);
        let (mut from, mut area, mut on_input) = (0, self.input[last], true);
        for axis in (0..last).rev() {
            let (o, t) = (row % self.output[axis], outer % self.kernel[axis]);
            (row, outer) = (row / self.output[axis], outer / self.kernel[axis]);
            let place = (o * self.stride[axis] + t * self.dilation[axis]).wrapping_sub(self.pad[axis]);
            on_input &= place < self.input[axis];
            from += if on_input { place * area } else { 0 };
            area *= self.input[axis];
        }
        // On the input where `0 <= o * stride + offset - pad < input`.
        let (stride, pad) = (self.stride[last], self.pad[last]);
        let offset = tap % self.kernel[last] * self.dilation[last];
        let first = pad.saturating_sub(offset).div_ceil(stride).clamp(columns.start, columns.end);
        let end = (self.input[last] + pad).saturating_sub(offset).div_ceil(stride).clamp(first, columns.end);
        let len = columns.len();
        if !on_input || first == end {
            return Reach { tap, at, len, inside: 0..0, from: 0 };
        }
        let inside = first - columns.start..end - columns.start;
        Reach { tap, at, len, inside, from: from + first * stride + offset - pad }
    }

    /// The part of an input image that belongs to a group.
    fn input_at(&self, image: usize, group: usize) -> usize {
        let of_group = self.channels / self.group * group;
        image * self.channels * self.area()
            + if self.channel_last { of_group } else { of_group * self.area() }
    }

    /// The part of an output image that belongs to a group and starts with a position.
    fn output_at(&self, image: usize, group: usize, position: usize) -> usize {
        let (of_group, n) = (self.maps / self.group * group, self.positions());
        let within =
            if self.channel_last { position * self.maps + of_group } else { of_group * n + position };
        image * self.maps * n + within
    }

    /// Outputs as a matrix of maps by positions: the strides.
    fn output_strides(&self) -> (usize, usize) {
        if self.channel_last { (1, self.maps) } else { (self.positions(), 1) }
    }

    /// The unfolded matrix of `depth` by positions: the strides, for `n` positions in scratch memory.
    fn unfolded_strides(&self, n: usize) -> (usize, usize) {
        if self.channel_last { (1, self.depth()) } else { (n, 1) }
    }

    /// A pointwise input as the unfolded matrix that it is: the strides.
    fn pointwise_strides(&self) -> (usize, usize) {
        if self.channel_last { (1, self.channels) } else { (self.area(), 1) }
    }

    fn pointwise_at(&self, image: usize, group: usize, position: usize) -> usize {
        self.input_at(image, group) + position * if self.channel_last { self.channels } else { 1 }
    }

    fn weight<'a, T>(&self, w: &'a [T], group: usize) -> Matrix<'a, T> {
        let maps = self.maps / self.group;
        Matrix::of_rows(&w[group * maps * self.depth()..], maps, self.depth())
    }

    fn images_and_groups(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (images, group) = (self.images, self.group);
        (0..images).flat_map(move |image| (0..group).map(move |g| (image, g)))
    }

    fn is_depthwise(&self) -> bool {
        self.channels == self.group && self.group > 1
    }
}

/// Calls `f(image, group, block, columns)` with the unfolded matrix of each block of each image.
fn for_each_unfolded<T: Float>(
    g: &Geometry,
    x: &[T],
    mut f: impl FnMut(usize, usize, &Range<usize>, Matrix<'_, T>),
) {
    for block in g.blocks() {
        let n = block.len();
        if g.is_pointwise() {
            let (rs, cs) = g.pointwise_strides();
            for (image, group) in g.images_and_groups() {
                let x = &x[g.pointwise_at(image, group, block.start)..];
                f(image, group, &block, Matrix::new(x, g.depth(), n, rs, cs));
            }
            continue;
        }
        let reaches = g.reaches(&block);
        let (rs, cs) = g.unfolded_strides(n);
        scratch::with(g.depth() * n, |columns| {
            for (image, group) in g.images_and_groups() {
                unfold(g, &reaches, &x[g.input_at(image, group)..], n, columns);
                f(image, group, &block, Matrix::new(columns, g.depth(), n, rs, cs));
            }
        });
    }
}

/// Writes the output, or adds it to `y` where `accumulate` is set.
pub fn forward<T: Float>(g: &Geometry, y: &mut [T], accumulate: bool, x: &[T], w: &[T]) {
    if x.is_empty() || g.is_depthwise() {
        if !accumulate {
            y.fill(T::ZERO);
        }
        return depthwise::add_output(g, x, w, y);
    }
    let (maps, (rs, cs)) = (g.maps / g.group, g.output_strides());
    for_each_unfolded(g, x, |image, group, block, columns| {
        let y = &mut y[g.output_at(image, group, block.start)..];
        gemm(MatrixMut::new(y, maps, block.len(), rs, cs), accumulate, g.weight(w, group), columns);
    });
}

/// Adds the gradient of the input.
pub fn add_input_gradient<T: Float>(g: &Geometry, gy: &[T], w: &[T], gx: &mut [T]) {
    if gx.is_empty() {
        return;
    }
    if g.is_depthwise() {
        return depthwise::add_input_gradient(g, gy, w, gx);
    }
    let (maps, (rs, cs)) = (g.maps / g.group, g.output_strides());
    for block in g.blocks() {
        let n = block.len();
        let gy = |image, group| Matrix::new(&gy[g.output_at(image, group, block.start)..], maps, n, rs, cs);
        if g.is_pointwise() {
            let (rs, cs) = g.pointwise_strides();
            for (image, group) in g.images_and_groups() {
                let gx = &mut gx[g.pointwise_at(image, group, block.start)..];
                let gx = MatrixMut::new(gx, g.depth(), n, rs, cs);
                gemm(gx, true, g.weight(w, group).t(), gy(image, group));
            }
            continue;
        }
        let reaches = g.reaches(&block);
        let (rs, cs) = g.unfolded_strides(n);
        scratch::with(g.depth() * n, |columns| {
            for (image, group) in g.images_and_groups() {
                let product = MatrixMut::new(columns, g.depth(), n, rs, cs);
                gemm(product, false, g.weight(w, group).t(), gy(image, group));
                fold(g, &reaches, columns, n, &mut gx[g.input_at(image, group)..]);
            }
        });
    }
}

/// Adds the gradient of the weight.
pub fn add_weight_gradient<T: Float>(g: &Geometry, x: &[T], gy: &[T], gw: &mut [T]) {
    if x.is_empty() {
        return;
    }
    if g.is_depthwise() {
        return depthwise::add_weight_gradient(g, x, gy, gw);
    }
    let (maps, depth, (rs, cs)) = (g.maps / g.group, g.depth(), g.output_strides());
    for_each_unfolded(g, x, |image, group, block, columns| {
        let gy = Matrix::new(&gy[g.output_at(image, group, block.start)..], maps, block.len(), rs, cs);
        let gw = MatrixMut::of_rows(&mut gw[group * maps * depth..], maps, depth);
        gemm(gw, true, gy, columns.t());
    });
}

/// Writes the unfolded matrix of `n` positions of one group of one image: zero where the kernel lies on padding.
fn unfold<T: Float>(g: &Geometry, reaches: &[Reach], x: &[T], n: usize, columns: &mut [T]) {
    let (channels, taps, area, step) = (g.channels / g.group, g.taps(), g.area(), g.step());
    for r in reaches {
        if g.channel_last {
            for i in 0..r.len {
                let column = &mut columns[(r.at + i) * channels * taps + r.tap * channels..][..channels];
                if r.inside.contains(&i) {
                    let from = (r.from + (i - r.inside.start) * step) * g.channels;
                    column.copy_from_slice(&x[from..from + channels]);
                } else {
                    column.fill(T::ZERO);
                }
            }
            continue;
        }
        for c in 0..channels {
            let row = &mut columns[(c * taps + r.tap) * n + r.at..][..r.len];
            row[..r.inside.start].fill(T::ZERO);
            row[r.inside.end..].fill(T::ZERO);
            let row = &mut row[r.inside.clone()];
            let x = &x[c * area + r.from..];
            if step == 1 {
                row.copy_from_slice(&x[..row.len()]);
            } else {
                row.iter_mut().zip(x.iter().step_by(step)).for_each(|(y, x)| *y = *x);
            }
        }
    }
}

/// Adds each element of an unfolded matrix to the element of the input that it is a copy of.
fn fold<T: Float>(g: &Geometry, reaches: &[Reach], columns: &[T], n: usize, gx: &mut [T]) {
    let (channels, taps, area, step) = (g.channels / g.group, g.taps(), g.area(), g.step());
    for r in reaches {
        if g.channel_last {
            for i in r.inside.clone() {
                let column = &columns[(r.at + i) * channels * taps + r.tap * channels..][..channels];
                let to = (r.from + (i - r.inside.start) * step) * g.channels;
                gx[to..to + channels].iter_mut().zip(column).for_each(|(g, y)| *g = *g + *y);
            }
            continue;
        }
        for c in 0..channels {
            let row = &columns[(c * taps + r.tap) * n + r.at..][r.inside.clone()];
            let gx = &mut gx[c * area + r.from..];
            if step == 1 {
                gx.iter_mut().zip(row).for_each(|(g, y)| *g = *g + *y);
            } else {
                gx.iter_mut().step_by(step).zip(row).for_each(|(g, y)| *g = *g + *y);
            }
        }
    }
}
