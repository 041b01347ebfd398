//! The sums that make up convolution: positions by channels and taps, and their gradient by the weight.

use super::descriptor::Descriptor;
use super::geometry::{Geometry, Images};
use super::window::Window;
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;

/// `target[k, o] = sum over c, t of w[k, c, t] source[c, what o sees through t]`, for each image and group.
pub(super) struct Correlation<'a, T> {
    pub(super) g: &'a Geometry,
    pub(super) descriptor: &'a Descriptor,
    pub(super) source: *const T,
    pub(super) sources: Images,
    pub(super) target: *mut T,
    pub(super) targets: Images,
    pub(super) weight: *const T,
    /// Whether sources are the channels of the weight, as in a convolution, or its maps.
    pub(super) forward: bool,
    pub(super) epilogue: Epilogue<'a, T>,
}

// SAFETY: only addresses; those who use them promise that they may.
unsafe impl<T> Sync for Correlation<'_, T> {}

impl<T: Float> Correlation<'_, T> {
    pub(super) fn window(&self) -> &Window {
        &self.descriptor.window
    }

    pub(super) fn depth(&self) -> usize {
        self.sources.channels * self.window().taps.len()
    }

    /// Where channel `channel` of a group starts.
    pub(super) fn source(&self, image: usize, group: usize, channel: usize) -> *const T {
        let s = &self.sources;
        self.source.wrapping_add(image * s.image + group * s.group + channel * s.channel)
    }

    pub(super) fn target(&self, image: usize, group: usize, channel: usize) -> *mut T {
        let t = &self.targets;
        self.target.wrapping_add(image * t.image + group * t.group + channel * t.channel)
    }

    /// The bias of the targets of a group from `first` on.
    pub(super) fn bias(&self, group: usize, first: usize) -> Option<&'_ [T]> {
        self.epilogue.row_bias.map(|b| &b[group * self.targets.channels + first..])
    }

    /// What is done to the sums of a target of a group.
    pub(super) fn end(&self, group: usize, target: usize) -> Epilogue<'_, T> {
        Epilogue { row_bias: self.bias(group, target), ..self.epilogue }
    }
}

/// The gradient of the weight of each group from the input and the gradient of the output.
pub(super) struct WeightGradient<'a, T> {
    pub(super) g: &'a Geometry,
    pub(super) x: *const T,
    pub(super) gy: *const T,
    pub(super) gw: *mut T,
    pub(super) accumulate: bool,
}

// SAFETY: only addresses; those who use them promise that they may.
unsafe impl<T> Sync for WeightGradient<'_, T> {}

impl<T: Float> WeightGradient<'_, T> {
    pub(super) fn gy(&self, image: usize, group: usize, position: usize) -> *const T {
        let outputs = self.g.outputs();
        self.gy.wrapping_add(image * outputs.image + group * outputs.group + position * outputs.pixel)
    }
}
