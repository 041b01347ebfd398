//! The operands of the sums of a convolution: the output or the gradient of the input, and the gradient of the weight.

use super::descriptor::Descriptor;
use super::geometry::{Geometry, Images};
use super::window::Window;
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::Kernels;

/// `target[k, o] = sum over c, t of w[k, c, t] source[c, position of tap t at o]`, for each image and group. Source
/// and target are the input and the output, or for the gradient of the input, the other way round.
pub(super) struct Correlation<'a, T: 'static> {
    /// The sizes of the convolution.
    pub(super) g: &'a Geometry,
    /// The window and the layouts that follow from the sizes.
    pub(super) descriptor: &'a Descriptor,
    /// The kernels of implicit GEMM. With those for words of pairs, sources and weights are such words.
    pub(super) kernels: &'static Kernels<T>,
    /// The array that is read: the input, or the gradient of the output.
    pub(super) source: *const T,
    /// The strides of the source.
    pub(super) sources: Images,
    /// The array that is written: the output, or the gradient of the input.
    pub(super) target: *mut T,
    /// True if the target is of bfloat16, which implicit GEMM with channels first writes.
    pub(super) is_narrow: bool,
    /// The strides of the target.
    pub(super) targets: Images,
    /// The weight of all groups.
    pub(super) weight: *const T,
    /// If tiles of AMX multiply, the number of source channels of a group before they became words. The weight is then
    /// the one of these channels, not of words.
    pub(super) in_tiles: Option<usize>,
    /// True if sources are input channels: for the output.
    pub(super) forward: bool,
    /// The epilogue, which is applied to each sum before it is stored.
    pub(super) epilogue: Epilogue<'a, T>,
}

// SAFETY: these are only addresses. Users of the addresses ensure safe access.
unsafe impl<T> Sync for Correlation<'_, T> {}

impl<T: Float> Correlation<'_, T> {
    /// The taps and positions of the sums.
    pub(super) fn window(&self) -> &Window {
        &self.descriptor.window
    }

    /// The number of products in each sum: source channels times taps.
    pub(super) fn depth(&self) -> usize {
        self.sources.channels * self.window().taps.len()
    }

    /// The first element of a source channel.
    pub(super) fn source(&self, image: usize, group: usize, channel: usize) -> *const T {
        let s = &self.sources;
        self.source.wrapping_add(image * s.image + group * s.group + channel * s.channel)
    }

    /// The first element of a channel of the result, which must be of type `T`.
    pub(super) fn target(&self, image: usize, group: usize, channel: usize) -> *mut T {
        debug_assert!(!self.is_narrow);
        self.target.wrapping_add(self.target_index(image, group, channel))
    }

    /// The index of the first element of a channel of the result.
    pub(super) fn target_index(&self, image: usize, group: usize, channel: usize) -> usize {
        let t = &self.targets;
        image * t.image + group * t.group + channel * t.channel
    }

    /// The bias of the target channels of a group from `first` on.
    pub(super) fn bias(&self, group: usize, first: usize) -> Option<&'_ [T]> {
        self.epilogue.row_bias.map(|b| &b[group * self.targets.channels + first..])
    }

    /// The epilogue of a target channel.
    pub(super) fn end(&self, group: usize, target: usize) -> Epilogue<'_, T> {
        Epilogue { row_bias: self.bias(group, target), ..self.epilogue }
    }
}

/// The gradient of the weight from the input and the gradient of the output.
pub(super) struct WeightGradient<'a, T: 'static> {
    /// The sizes of the convolution.
    pub(super) g: &'a Geometry,
    /// The kernels of implicit GEMM. With those for words of pairs, `x` and `gy` are such words.
    pub(super) kernels: &'static Kernels<T>,
    /// The input.
    pub(super) x: *const T,
    /// The gradient of the output.
    pub(super) gy: *const T,
    /// The gradient of the weight, which is written.
    pub(super) gw: *mut T,
    /// True if tiles of AMX multiply. All words must be finite.
    pub(super) in_tiles: bool,
    /// True if the gradient is added to `gw`, not stored.
    pub(super) accumulate: bool,
}

// SAFETY: these are only addresses. Users of the addresses ensure safe access.
unsafe impl<T> Sync for WeightGradient<'_, T> {}

impl<T: Float> WeightGradient<'_, T> {
    /// The output gradients at a position, for the channels of a group.
    pub(super) fn gy(&self, image: usize, group: usize, position: usize) -> *const T {
        let outputs = self.g.outputs();
        self.gy.wrapping_add(image * outputs.image + group * outputs.group + position * outputs.pixel)
    }
}
