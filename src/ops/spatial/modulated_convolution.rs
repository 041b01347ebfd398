//! `modulated_convolution`: convolution whose weight is scaled for each sample.

use crate::array::Shape;
use crate::kernels::convolution::modulated;
use crate::kernels::{Epilogue, Float};
use crate::ops::spatial::kernel_passes::bias_gradient;
use crate::ops::spatial::layout::{self, has_layout};
use crate::ops::{Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ModulatedConvolution>()];

op! {
    /// Convolution whose weight is scaled by a factor for each sample and input channel:
    /// `y[n, k, o] = b[k] + sum over c, t of s[n, c] w[k, c, t] x[n, c, o * stride + t * dilation - pad]`.
    ///
    /// Equals the convolution of `s * x` up to rounding. It is faster if an image has more positions than the weight
    /// has maps.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...), or (batch..., spatial..., channels) if `channel_last`.
    ///     weight: Weight `w`, shape (maps, channels / group, kernel...), or (maps, kernel..., channels / group).
    ///     scale: Scale `s` of the channels of each sample, shape (batch..., channels).
    ///     bias: Bias `b`, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Zeros added at both ends of each spatial axis, none by default.
    ///     stride: Step of the kernel along each spatial axis, 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis, 1 by default.
    ///     group: Number of groups of channels and maps; each map reads only the channels of its group.
    ///     channel_last: Channels are the last axis of `x`, `weight` and the output.
    ///
    /// Returns:
    ///     Array of the shape of the output of `convolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    ///
    /// Source:
    ///     Karras et al., Analyzing and Improving the Image Quality of StyleGAN, 2020, arXiv:1912.04958, without its
    ///     demodulation.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0], [3.0, 4.0]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[[1.0], [1.0]]])
    ///     >>> scale = nn.NdArray.from_numpy_array([[10.0, 1.0]])
    ///     >>> F.modulated_convolution(x, w, scale).data
    ///     array([[[13., 24.]]], dtype=float32)
    /// ```
    ModulatedConvolution = modulated_convolution(x, weight, scale, bias: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        channel_last: bool = false,
    )
}

has_layout!(ModulatedConvolution);

/// The shape of `scale`, and the same with an axis of length one for each spatial axis.
fn scales(x: &Shape, spatial: usize, channel_last: bool) -> (Shape, Shape) {
    let base = x.ndim() - spatial - 1;
    let channels = if channel_last { x[x.ndim() - 1] } else { x[base] };
    let is_kept = |axis: usize| axis < base || axis == if channel_last { x.ndim() - 1 } else { base };
    let wide = (0..x.ndim()).map(|axis| if is_kept(axis) { x[axis] } else { 1 }).collect();
    (x[..base].iter().copied().chain([channels]).collect(), wide)
}

impl Compute for ModulatedConvolution {
    const HOSTS_EPILOGUE: bool = true;
    const HAS_BACKWARD: bool = false;

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        layout::open(arg, self.base_axis, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (layout, x0, w, s) = (self.layout(), x.get(0), x.get(1), x.get(2));
        let (g, shape) = layout.convolution(x0, w)?;
        layout.check_bias(x.find(3), g.maps, [x0, w])?;
        let (expected, _) = scales(x0, g.input.len(), self.channel_last);
        if *s != expected {
            let expected = format!("a scale of shape {expected}");
            return Err(Error::shape(Self::SPEC.name, expected, [x0, w, s]));
        }
        one(shape)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1).size_from(1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (g, _) = self.layout().convolution(run.x_shape(0), run.x_shape(1))?;
        let bias = run.has(3).then(|| run.x(3));
        let epilogue = Epilogue { row_bias: bias, tail: run.tail(), ..Epilogue::NONE };
        Ok(modulated(&g, run.x(0), run.x(1), run.x(2), run.y(0), epilogue)?)
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (layout, x, w, scale, gy) = (self.layout(), s.x(0), s.x(1), s.x(2), s.gy(0));
        let Ok((g, _)) = layout.convolution(&x.shape(), &w.shape()) else { return Vec::new() };
        let (narrow, wide) = scales(&x.shape(), g.input.len(), self.channel_last);
        let factor = || scale.reshape(&wide).broadcast(&x.shape());
        let of_scaled = (s.wants(0) || s.wants(2)).then(|| layout.input_gradient(&g, gy, w));
        vec![
            of_scaled.filter(|_| s.wants(0)).map(|gx| gx * factor()),
            s.wants(1).then(|| layout.weight_gradient(gy, x * factor(), &w.shape())),
            of_scaled.filter(|_| s.wants(2)).map(|gx| (gx * x).sum_to(&wide).reshape(&narrow)),
            s.wants(3).then(|| bias_gradient(gy, self.channel_last, g.output.len())),
        ]
    }

    fn reads(&self, gx: usize) -> Reads {
        [Reads::inputs(0b110), Reads::inputs(0b101), Reads::inputs(0b011), Reads::NOTHING][gx.min(3)]
    }
}
