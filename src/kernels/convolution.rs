//! The three sums over `x[c, o * stride + t * dilation - pad] * w[k, c, t] * gy[k, o]` that make up convolution: the
//! one over inputs is its output, and the other two are its gradients. Deconvolution is the same with the names moved.
//!
//! The sums are products of matrices, of blocks of an image that are unfolded in the cache; with one input channel in a
//! group (depthwise) there is no matrix to speak of and the sums are taken directly.

mod direct;
mod strip;
mod unfold;
mod weight;
mod window;

use std::ops::Range;

use smallvec::SmallVec;

use super::channels::add_bias;
use super::{Float, depthwise};
use crate::Result;
use direct::Correlation;
pub(super) use strip::Layout;
pub(super) use unfold::Unfold;
use weight::WeightGradient;
use window::Window;

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

    /// Every access stands on this.
    fn check(&self, x: usize, w: usize, y: usize) {
        let (channels, maps) = (self.channels / self.group, self.maps / self.group);
        let fits = x == self.images * self.channels * self.area()
            && w == self.group * maps * channels * self.taps()
            && y == self.images * self.maps * self.positions();
        assert!(fits, "arrays of {x}, {w} and {y} elements for {self:?}");
    }

    fn is_depthwise(&self) -> bool {
        self.channels == self.group && self.group > 1
    }
}

/// Writes the output, or adds it to `y` where `accumulate` is set, and a bias for each map.
pub fn forward<T: Float>(
    g: &Geometry,
    x: &[T],
    w: &[T],
    bias: Option<&[T]>,
    y: &mut [T],
    accumulate: bool,
) -> Result<()> {
    if g.is_depthwise() {
        if !accumulate {
            y.fill(T::ZERO);
        }
        depthwise::add_output(g, x, w, y);
        if let Some(bias) = bias {
            add_bias(y, bias, if g.channel_last { 1 } else { g.positions() });
        }
        return Ok(());
    }
    let sum = Correlation {
        g,
        window: &g.forward_window(),
        source: x.as_ptr(),
        sources: g.inputs(),
        target: y.as_mut_ptr(),
        targets: g.outputs(),
        weight: w.as_ptr(),
        forward: true,
        bias,
        accumulate,
    };
    // SAFETY: the slices are as large as the geometry says, which is checked; `y` is borrowed alone.
    g.check(x.len(), w.len(), y.len());
    unsafe { sum.run() }
}

/// Writes the gradient of the input, or adds it to `gx` where `accumulate` is set; and a bias for each channel, as the
/// same sum is the output of a deconvolution.
pub fn input_gradient<T: Float>(
    g: &Geometry,
    gy: &[T],
    w: &[T],
    bias: Option<&[T]>,
    gx: &mut [T],
    accumulate: bool,
) -> Result<()> {
    if g.is_depthwise() {
        if !accumulate {
            gx.fill(T::ZERO);
        }
        depthwise::add_input_gradient(g, gy, w, gx);
        if let Some(bias) = bias {
            add_bias(gx, bias, if g.channel_last { 1 } else { g.area() });
        }
        return Ok(());
    }
    g.check(gx.len(), w.len(), gy.len());
    for window in g.backward_windows() {
        let sum = Correlation {
            g,
            window: &window,
            source: gy.as_ptr(),
            sources: g.outputs(),
            target: gx.as_mut_ptr(),
            targets: g.inputs(),
            weight: w.as_ptr(),
            forward: false,
            bias,
            accumulate,
        };
        // SAFETY: as above.
        unsafe { sum.run()? };
    }
    Ok(())
}

/// Writes the gradient of the weight, or adds it to `gw` where `accumulate` is set.
pub fn weight_gradient<T: Float>(
    g: &Geometry,
    x: &[T],
    gy: &[T],
    gw: &mut [T],
    accumulate: bool,
) -> Result<()> {
    if (x.is_empty() || gy.is_empty() || g.is_depthwise()) && !accumulate {
        gw.fill(T::ZERO);
    }
    if x.is_empty() || gy.is_empty() {
        return Ok(());
    }
    if g.is_depthwise() {
        depthwise::add_weight_gradient(g, x, gy, gw);
        return Ok(());
    }
    g.check(x.len(), gw.len(), gy.len());
    let sum = WeightGradient { g, x: x.as_ptr(), gy: gy.as_ptr(), gw: gw.as_mut_ptr(), accumulate };
    // SAFETY: as above.
    unsafe { sum.run() }
}

#[cfg(test)]
mod tests;
