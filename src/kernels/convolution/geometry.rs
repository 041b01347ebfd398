//! The sizes of a convolution and the strides of its arrays.

use smallvec::SmallVec;

/// Lengths or steps along spatial axes.
pub type Spatial = SmallVec<[usize; 3]>;

/// The sizes of a convolution. Each channel of the input has its own group of weights and outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl Geometry {
    pub(in crate::kernels) fn area(&self) -> usize {
        self.input.iter().product()
    }
    pub(in crate::kernels) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
    pub(in crate::kernels) fn positions(&self) -> usize {
        self.output.iter().product()
    }
    /// Every access stands on this.
    pub(super) fn check(&self, x: usize, w: usize, y: usize) {
        let (channels, maps) = (self.channels / self.group, self.maps / self.group);
        let fits = x == self.images * self.channels * self.area()
            && w == self.group * maps * channels * self.taps()
            && y == self.images * self.maps * self.positions();
        assert!(fits, "arrays of {x}, {w} and {y} elements for {self:?}");
    }

    pub(super) fn is_depthwise(&self) -> bool {
        self.channels == self.group && self.group > 1
    }

    /// True if inputs and outputs are one pixel each, so that images are rows of channels.
    pub(super) fn is_one_pixel(&self) -> bool {
        let is_one = self.area() == 1 && self.taps() == 1 && self.positions() == 1;
        is_one && self.pad.iter().all(|pad| *pad == 0)
    }

    /// Whether each group has one channel and one map, and channels are last.
    pub(super) fn is_pixelwise(&self) -> bool {
        self.is_depthwise() && self.channel_last && self.maps == self.group
    }
}

/// An array of images: channels of one group, and how far apart things are.
#[derive(Clone, Copy)]
pub(super) struct Images {
    pub(super) channels: usize,
    pub(super) image: usize,
    pub(super) group: usize,
    pub(super) channel: usize,
    pub(super) pixel: usize,
}

impl Geometry {
    pub(super) fn array(&self, channels: usize, area: usize) -> Images {
        let (channel, pixel) = if self.channel_last { (1, channels) } else { (area, 1) };
        let of_group = channels / self.group;
        Images { channels: of_group, image: channels * area, group: of_group * channel, channel, pixel }
    }

    pub(super) fn inputs(&self) -> Images {
        self.array(self.channels, self.area())
    }

    pub(super) fn outputs(&self) -> Images {
        self.array(self.maps, self.positions())
    }

    /// The distance of weights of neighbouring maps, channels and taps.
    pub(super) fn weight_strides(&self) -> (usize, usize, usize) {
        let (channels, taps) = (self.channels / self.group, self.taps());
        if self.channel_last { (channels * taps, 1, channels) } else { (channels * taps, taps, 1) }
    }
}
