//! The kernels and the gradient rule of convolutions and deconvolutions with inputs `x`, `weight` and an optional
//! `bias`. Each direction is the gradient by the input of the other.

use crate::Result;
use crate::array::{Fingerprint, Shape};
use crate::kernels::channel_sums::add_sums_of;
use crate::kernels::convolution::in_bfloat16::{forward, input_gradient, weight_gradient};
use crate::kernels::convolution::{CachedWeight, DerivedCache, Geometry, Weight, caches_weight};
use crate::kernels::{Epilogue, Float};
use crate::ops::spatial::layout::SpatialLayout;
use crate::ops::{Backward, Grad, Reads, Run, Sym, Symbols};

/// The direction of an operation with the geometry of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PassDirection {
    /// It computes the output of the convolution.
    Convolution,
    /// It computes the gradient by the input of the convolution.
    Deconvolution,
}

/// The number of adjacent output elements with the same channel, as [`add_sums_of`] expects.
pub(crate) fn inner(channel_last: bool, spatial: &[usize]) -> usize {
    if channel_last { 1 } else { spatial.iter().product() }
}

/// A weight with its fingerprint, whose transformed form is cached if that pays.
fn weight<'a, T: Float>(
    g: &Geometry,
    w: &'a [T],
    fingerprint: Fingerprint,
    cache: impl FnOnce() -> &'a mut DerivedCache,
) -> Weight<'a, T> {
    if fingerprint.is_some() && caches_weight::<T>(g) {
        Weight::cached(w, fingerprint, cache())
    } else {
        w.into()
    }
}

/// The gradient of a bias: `gy` summed over all axes but the channels. The `spatial` axes follow the channels, unless
/// channels are last.
pub(crate) fn bias_gradient(gy: Sym, channel_last: bool, spatial: usize) -> Sym {
    let n = gy.shape().ndim();
    let channels = if channel_last { n - 1 } else { n - 1 - spatial };
    let axes: Vec<usize> = (0..n).filter(|a| *a != channels).collect();
    gy.sum(&axes, false)
}

/// The inputs that the gradient of input `gx` reads.
pub(crate) fn reads(gx: usize) -> Reads {
    [Reads::inputs(0b10), Reads::inputs(0b01), Reads::NOTHING][gx.min(2)]
}

impl PassDirection {
    /// Computes the output.
    pub(crate) fn forward<T: Float>(self, g: &Geometry, run: &mut Run<'_, T>) -> Result<()> {
        let g = &*g.with_long_rows();
        let bias = run.has(2).then(|| run.x(2));
        let epilogue = Epilogue { row_bias: bias, tail: run.tail(), ..Epilogue::NONE };
        let (x, w, y) = (run.values(0), run.x(1), run.y_values());
        let (of, input_cache) = (run.fingerprint(), run.input_cache());
        let w = weight(g, w, of, || &mut run.state::<CachedWeight>().forward).of(input_cache);
        match self {
            Self::Convolution => forward(g, x, w, y, epilogue)?,
            Self::Deconvolution => input_gradient(g, x, w, y, epilogue)?,
        }
        Ok(())
    }

    /// Computes the requested gradients.
    pub(crate) fn backward<T: Float>(self, g: &Geometry, run: &mut Backward<'_, T>) -> Result<()> {
        let g = &*g.with_long_rows();
        let gy = run.gy_values();
        if let Some((data, accumulate)) = run.gx_values(0) {
            let (w, of, epilogue) = (run.x(1), run.fingerprint(), Epilogue::plain(accumulate));
            let w = weight(g, w, of, || &mut run.state::<CachedWeight>().backward);
            match self {
                Self::Convolution => input_gradient(g, gy, w, data, epilogue)?,
                Self::Deconvolution => forward(g, gy, w, data, epilogue)?,
            }
        }
        if let Some(Grad { data, accumulate }) = run.gx(1) {
            match self {
                Self::Convolution => weight_gradient(g, run.values(0), gy, data, accumulate)?,
                Self::Deconvolution => weight_gradient(g, gy, run.values(0), data, accumulate)?,
            }
        }
        if let Some(gb) = run.gx(2) {
            let spatial = if self == Self::Convolution { &g.output } else { &g.input };
            add_sums_of(gy, gb.adding(), inner(g.channel_last, spatial));
        }
        Ok(())
    }

    /// The gradient rule. A depthwise weight is reshaped to `grouped`, with an axis for the channels of a group.
    pub(crate) fn gradient(
        self,
        layout: &SpatialLayout<'_>,
        g: &Geometry,
        s: &Symbols,
        grouped: Option<&Shape>,
    ) -> Vec<Option<Sym>> {
        let (x, w, gy) = (s.x(0), s.x(1), s.gy(0));
        let own = w.shape();
        let shape = grouped.unwrap_or(&own);
        let weight = || if grouped.is_some() { w.reshape(shape) } else { w };
        let by_input = || match self {
            Self::Convolution => layout.input_gradient(g, gy, weight()),
            Self::Deconvolution => layout.convolve(gy, weight()),
        };
        let by_weight = || {
            let (outputs, inputs) = if self == Self::Convolution { (gy, x) } else { (x, gy) };
            let gw = layout.weight_gradient(outputs, inputs, shape);
            if grouped.is_some() { gw.reshape(&own) } else { gw }
        };
        vec![
            s.wants(0).then(by_input),
            s.wants(1).then(by_weight),
            s.wants(2).then(|| bias_gradient(gy, g.channel_last, g.input.len())),
        ]
    }
}
