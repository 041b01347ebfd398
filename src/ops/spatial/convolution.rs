//! `convolution`, and its gradient by the weight. The gradient by the input is a deconvolution.

use crate::array::Shape;
use crate::kernels::convolution::{Geometry, forward, input_gradient, weight_gradient};
use crate::kernels::{Epilogue, Float};
use crate::ops::spatial::deconvolution::Deconvolution;
use crate::ops::spatial::kernel_passes::{self, PassDirection};
use crate::ops::spatial::layout::{self, SpatialLayout, laid_out};
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, arrangement::array,
    one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Convolution>()];

op! {
    /// Convolution over one or more spatial axes (cross-correlation, as usual in deep learning):
    /// `y[k, o] = b[k] + sum over c, t of w[k, c, t] x[c, o * stride + t * dilation - pad]`.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...), or (batch..., spatial..., channels) if `channel_last`.
    ///     weight: Weight `w`, shape (maps, channels / group, kernel...), or (maps, kernel..., channels / group).
    ///     bias: Bias `b`, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Zeros added at both ends of each spatial axis, none by default.
    ///     stride: Step of the kernel along each spatial axis, 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis, 1 by default.
    ///     group: Number of groups of channels and maps; each map reads only the channels of its group.
    ///     channel_last: Channels are the last axis of `x`, `weight` and the output.
    ///
    /// Returns:
    ///     Array of shape (batch..., maps, out...), or (batch..., out..., maps), where
    ///     `out = floor((in + 2 * pad - dilation * (kernel - 1) - 1) / stride) + 1`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 3.0, 4.0]]])  # one example, one channel
    ///     >>> w = nn.NdArray.from_numpy_array([[[1.0, 1.0, 1.0]]])  # one map, one channel, a kernel of 3
    ///     >>> F.convolution(x, w).data
    ///     array([[[6., 9.]]], dtype=float32)
    ///     >>> F.convolution(x, w, pad=(1,), stride=(2,)).data
    ///     array([[[3., 9.]]], dtype=float32)
    /// ```
    Convolution = convolution(x, weight, bias: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        channel_last: bool = false,
    )
}

laid_out!(Convolution);

impl SpatialLayout<'_> {
    /// The gradient by the input of a convolution with geometry `g`.
    pub(crate) fn input_gradient(&self, g: &Geometry, gy: Sym, w: Sym) -> Sym {
        Sym::apply(Deconvolution::laid_out(self, Some(Self::output_padding(g))), &[gy, w])
    }

    /// The gradient by the weight, of shape `w`, of a convolution of `x`.
    pub(crate) fn weight_gradient(&self, gy: Sym, x: Sym, w: &Shape) -> Sym {
        let shape = w.iter().map(|d| *d as i64).collect();
        Sym::apply(ConvolutionFilterGrad::laid_out(self, shape), &[gy, x])
    }

    /// The convolution of `x` with `w`.
    pub(crate) fn convolve(&self, x: Sym, w: Sym) -> Sym {
        Sym::apply(Convolution::laid_out(self), &[x, w])
    }
}

impl Compute for Convolution {
    const HOSTS_EPILOGUE: bool = true;
    const CACHED_INPUT: Option<usize> = Some(1);

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        layout::open(arg, self.base_axis, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (layout, x0, w) = (self.layout(), x.get(0), x.get(1));
        let (g, shape) = layout.convolution(x0, w)?;
        layout.check_bias(x.find(2), g.maps, [x0, w])?;
        one(shape)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1).size_from(1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (g, _) = self.layout().convolution(run.x_shape(0), run.x_shape(1))?;
        PassDirection::Convolution.forward(&g, run)
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (g, _) = self.layout().convolution(run.x_shape(0), run.x_shape(1))?;
        PassDirection::Convolution.backward(&g, run)
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let layout = self.layout();
        let Ok((g, _)) = layout.convolution(&s.x(0).shape(), &s.x(1).shape()) else { return Vec::new() };
        PassDirection::Convolution.gradient(&layout, &g, s, None)
    }

    fn reads(&self, gx: usize) -> Reads {
        kernel_passes::reads(gx)
    }
}

op! {
    /// The gradient of a convolution by its weight.
    ///
    /// Args:
    ///     gy: Gradient of the output of the convolution.
    ///     x: Input of the convolution.
    ///     shape: Shape of the weight.
    ///     base_axis: As given to the convolution.
    ///     pad: As given to the convolution.
    ///     stride: As given to the convolution.
    ///     dilation: As given to the convolution.
    ///     group: As given to the convolution.
    ///     channel_last: As given to the convolution.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ShapeError: If `gy` does not have the shape of the output.
    ConvolutionFilterGrad = convolution_filter_grad(gy, x;
        shape: Vec<i64>,
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        channel_last: bool = false,
    )
}

laid_out!(ConvolutionFilterGrad, shape: Vec<i64>);

impl Compute for ConvolutionFilterGrad {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let weight = array::lengths("convolution_filter_grad", &self.shape)?;
        let (_, shape) = self.layout().convolution(x.get(1), &weight)?;
        if shape != *x.get(0) {
            let expected = format!("`gy` of shape {shape}");
            return Err(Error::shape("convolution_filter_grad", expected, [x.get(0), x.get(1)]));
        }
        one(weight)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (g, _) = self.layout().convolution(run.x_shape(1), run.y_shape(0))?;
        Ok(weight_gradient(&g, run.x(1), run.x(0), run.y(0), false)?)
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (g, _) = self.layout().convolution(run.x_shape(1), run.y_shape(0))?;
        let w = run.gy(0);
        if let Some(Grad { data, accumulate }) = run.gx(0) {
            forward(&g, run.x(1), w, data, Epilogue::plain(accumulate))?;
        }
        if let Some(Grad { data, accumulate }) = run.gx(1) {
            input_gradient(&g, run.x(0), w, data, Epilogue::plain(accumulate))?;
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (layout, gy, x, w) = (self.layout(), s.x(0), s.x(1), s.gy(0));
        let Ok((g, _)) = layout.convolution(&x.shape(), &w.shape()) else { return Vec::new() };
        vec![s.wants(0).then(|| layout.convolve(x, w)), s.wants(1).then(|| layout.input_gradient(&g, gy, w))]
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 0b10 } else { 0b01 })
    }
}

#[cfg(test)]
mod tests;
