//! The sizes of a convolution and the strides of its arrays.

use std::borrow::Cow;

use smallvec::SmallVec;

/// Lengths or strides of the spatial axes.
pub type Spatial = SmallVec<[usize; 3]>;

/// The shape of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Geometry {
    /// The number of images.
    pub images: usize,
    /// Input channels of all groups.
    pub channels: usize,
    /// Output channels of all groups.
    pub maps: usize,
    /// The number of groups.
    pub group: usize,
    /// The size of an input image.
    pub input: Spatial,
    /// The size of the kernel.
    pub kernel: Spatial,
    /// The size of an output image.
    pub output: Spatial,
    /// The padding before the first element of each axis.
    pub pad: Spatial,
    /// The distance of adjacent output positions, in input elements.
    pub stride: Spatial,
    /// The distance of adjacent kernel elements, in input elements.
    pub dilation: Spatial,
    /// True if the channels of the input, the weight and the output are the last axis (NHWC), not before space (NCHW).
    pub channel_last: bool,
}

impl Geometry {
    /// The number of pixels of an input image.
    pub(in crate::kernels) fn area(&self) -> usize {
        self.input.iter().product()
    }
    /// The number of elements of a kernel.
    pub(in crate::kernels) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
    /// The number of pixels of an output image.
    pub(in crate::kernels) fn positions(&self) -> usize {
        self.output.iter().product()
    }
    /// Panics unless the arrays have these sizes. The safety of every access relies on it.
    pub(super) fn check(&self, x: usize, w: usize, y: usize) {
        let (channels, maps) = (self.channels / self.group, self.maps / self.group);
        let fits = x == self.images * self.channels * self.area()
            && w == self.group * maps * channels * self.taps()
            && y == self.images * self.maps * self.positions();
        assert!(fits, "arrays of {x}, {w} and {y} elements for {self:?}");
    }

    /// The same convolution without last axes of one element. Otherwise, each row would have one position.
    pub fn with_long_rows(&self) -> Cow<'_, Self> {
        let is_one =
            |i: usize| self.input[i] == 1 && self.kernel[i] == 1 && self.output[i] == 1 && self.pad[i] == 0;
        let n = (1..self.input.len()).rev().find(|i| !is_one(*i)).map_or(1, |i| i + 1);
        if n >= self.input.len() {
            return Cow::Borrowed(self);
        }
        let mut less = self.clone();
        for axes in [
            &mut less.input,
            &mut less.kernel,
            &mut less.output,
            &mut less.pad,
            &mut less.stride,
            &mut less.dilation,
        ] {
            axes.truncate(n);
        }
        Cow::Owned(less)
    }

    /// True if each group has one input channel.
    pub(super) fn is_depthwise(&self) -> bool {
        self.channels == self.group && self.group > 1
    }

    /// True if kernels have one element, and each position reads the pixel at its own place.
    pub(super) fn reads_each_pixel(&self) -> bool {
        self.taps() == 1 && self.stride.iter().all(|s| *s == 1) && self.pad.iter().all(|p| *p == 0)
    }

    /// True if the input and the output of each image are one pixel, so that images are rows of channels.
    pub(super) fn is_one_pixel(&self) -> bool {
        let is_one = self.area() == 1 && self.taps() == 1 && self.positions() == 1;
        is_one && self.pad.iter().all(|pad| *pad == 0)
    }

    /// True if each group has one input and one output channel, and channels are last.
    pub(super) fn is_pixelwise(&self) -> bool {
        self.is_depthwise() && self.channel_last && self.maps == self.group
    }
}

/// The strides of an array of images, and the number of channels in a group.
#[derive(Clone, Copy)]
pub(super) struct Images {
    /// Channels of a group.
    pub(super) channels: usize,
    /// The distance from an image to the next.
    pub(super) image: usize,
    /// The distance from a group of channels to the next.
    pub(super) group: usize,
    /// The distance from a channel to the next.
    pub(super) channel: usize,
    /// The distance from a pixel to the next.
    pub(super) pixel: usize,
}

impl Geometry {
    /// The strides of an array of images with this many channels and pixels.
    pub(super) fn array(&self, channels: usize, area: usize) -> Images {
        let (channel, pixel) = if self.channel_last { (1, channels) } else { (area, 1) };
        let of_group = channels / self.group;
        Images { channels: of_group, image: channels * area, group: of_group * channel, channel, pixel }
    }

    /// The strides of the input, with all groups.
    pub(super) fn inputs(&self) -> Images {
        self.array(self.channels, self.area())
    }

    /// The strides of the output, with all groups.
    pub(super) fn outputs(&self) -> Images {
        self.array(self.maps, self.positions())
    }

    /// The strides of a weight along output channels, input channels and taps.
    pub(super) fn weight_strides(&self) -> (usize, usize, usize) {
        let (channels, taps) = (self.channels / self.group, self.taps());
        if self.channel_last { (channels * taps, 1, channels) } else { (channels * taps, taps, 1) }
    }
}
