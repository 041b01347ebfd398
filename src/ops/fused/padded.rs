//! A convolution whose input may be padded first.

use crate::Result;
use crate::array::{DType, Shape};
use crate::kernels::rounding::round;
use crate::kernels::{Float, scratch};
use crate::ops::arrangement::regrid::Rearranged;
use crate::ops::arrangement::slicing::Pad;
use crate::ops::fused::layer::{Within, memory, run};
use crate::ops::spatial::convolution::Convolution;
use crate::ops::{Compute, InputShapes, Memory, State};

/// A convolution whose input may be padded first.
#[derive(Clone)]
pub(super) struct PaddedConvolution {
    /// The convolution, with its padding as an argument.
    pub(super) convolution: Convolution,
    /// How elements of the padding are made, such as `reflect`.
    pub(super) pad_mode: String,
    /// The number that padding of mode `constant` holds.
    pub(super) constant_value: f64,
}

impl PaddedConvolution {
    /// The padding and the convolution without padding. None if the convolution's own zero padding suffices.
    pub(super) fn frame(&self, x: &Shape) -> Option<(Rearranged<Pad>, Convolution)> {
        let Self { convolution, pad_mode: mode, constant_value } = self;
        let spatial = x.ndim().saturating_sub(x.axis("", convolution.base_axis).ok()? + 1);
        let pad = convolution.pad.as_ref().filter(|pad| !pad.is_empty())?;
        let are_zeros = mode == "constant" && *constant_value == 0.0;
        if are_zeros && pad.len() == spatial {
            return None;
        }
        let mut width = pad.clone();
        if pad.len() == spatial {
            width = pad.iter().flat_map(|p| [*p, *p]).collect();
            width.extend(if convolution.channel_last { &[0, 0][..] } else { &[] });
        }
        let (mode, constant_value) = (mode.clone(), *constant_value);
        let frame = Rearranged(Pad { pad_width: width, mode, constant_value });
        Some((frame, Convolution { pad: None, ..convolution.clone() }))
    }

    /// Calls `work` with the convolution, its input and the padding. If there is padding, the input is a padded copy of
    /// `x` in scratch memory. Its elements are written only if `reads`, and rounded to the type `rounds`.
    pub(super) fn framed<T: Float>(
        &self,
        x: Memory<'_>,
        reads: bool,
        rounds: Option<DType>,
        work: impl FnOnce(&Convolution, Memory<'_>, Option<&Rearranged<Pad>>) -> Result<()>,
    ) -> Result<()> {
        let Some((frame, convolution)) = self.frame(x.shape) else { return work(&self.convolution, x, None) };
        let shapes = frame.shapes(&InputShapes { x: &[x.shape], present: u64::MAX, values: None })?;
        scratch::with(shapes[0].size(), |buffer: &mut [T]| {
            let framed = memory(buffer, &shapes[0]);
            if reads {
                frame.forward(&mut run::<T>((&[x], 1), &[framed], &mut State::default(), Within::PLAIN))?;
                round(buffer, rounds);
            }
            work(&convolution, framed, Some(&frame))
        })
    }
}
