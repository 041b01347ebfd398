//! `depthwise_convolution`: convolution of each channel with its own kernels.

use crate::array::Shape;
use crate::kernels::convolution::Geometry;
use crate::kernels::convolution::in_sixteen_bits::{self, DepthwiseGradients};
use crate::kernels::{Float, Stored};
use crate::ops::spatial::kernel_passes::{self, PassDirection};
use crate::ops::spatial::layout::{self, SpatialLayout};
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<DepthwiseConvolution>()];

op! {
    /// Depthwise convolution: each channel has its own kernels.
    /// `y[k, o] = b[k] + sum over t of w[k, t] x[k // multiplier, o * stride + t * dilation - pad]`.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...).
    ///     weight: Weight `w`, shape (channels * multiplier, kernel...).
    ///     bias: Bias `b`, shape (channels * multiplier,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Zeros added at both ends of each spatial axis, none by default.
    ///     stride: Step of the kernel along each spatial axis, 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis, 1 by default.
    ///     multiplier: Number of outputs of each channel.
    ///
    /// Returns:
    ///     Array of shape (batch..., channels * multiplier, out...), with `out` as in `convolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If the shapes do not fit together, or the kernel does not fit into the padded input.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]])  # two channels
    ///     >>> w = nn.NdArray.from_numpy_array([[1.0, 1.0], [10.0, 10.0]])  # a kernel of 2 for each
    ///     >>> F.depthwise_convolution(x, w).data
    ///     array([[[  3.,   5.],
    ///             [ 90., 110.]]], dtype=float32)
    /// ```
    DepthwiseConvolution = depthwise_convolution(x, weight, bias: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        multiplier: i64 = 1,
    )
}

/// The weight for a convolution with one group for each channel: (maps, 1, kernel...).
fn grouped(w: &Shape) -> Shape {
    w[..1].iter().copied().chain([1]).chain(w[1..].iter().copied()).collect()
}

impl DepthwiseConvolution {
    /// Checks the shapes. Returns the arguments of an equivalent grouped convolution.
    fn layout(&self, x: &Shape, w: &Shape) -> Result<SpatialLayout<'_>> {
        let op = "depthwise_convolution";
        let base = x.axis(op, self.base_axis)?;
        if w.ndim() != x.ndim() - base {
            let expected = format!("a weight with {} axes for this input and `base_axis`", x.ndim() - base);
            return Err(Error::shape(op, expected, [x, w]));
        }
        let maps = usize::try_from(self.multiplier).ok().and_then(|m| m.checked_mul(x[base]));
        if self.multiplier < 1 || x[base] == 0 || maps != Some(w[0]) {
            let expected = format!(
                "a weight of {} maps ({} channels, one at least, times multiplier {})",
                maps.map_or_else(|| "so many".into(), |m| m.to_string()),
                x[base],
                self.multiplier
            );
            return Err(Error::shape(op, expected, [x, w]));
        }
        Ok(SpatialLayout {
            op,
            base_axis: self.base_axis,
            pad: self.pad.as_deref(),
            stride: self.stride.as_deref(),
            dilation: self.dilation.as_deref(),
            group: x[base] as i64,
            channel_last: false,
        })
    }

    /// Checks the shapes. Returns the geometry and the output shape.
    fn geometry(&self, x: &Shape, w: &Shape) -> Result<(Geometry, Shape)> {
        self.layout(x, w)?.convolution(x, &grouped(w))
    }
}

impl Compute for DepthwiseConvolution {
    const HOSTS_EPILOGUE: bool = true;

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        layout::open(arg, self.base_axis, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (x0, w) = (x.get(0), x.get(1));
        let (g, shape) = self.geometry(x0, w)?;
        self.layout(x0, w)?.check_bias(x.find(2), g.maps, [x0, w])?;
        one(shape)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1).size_from(1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (g, _) = self.geometry(run.x_shape(0), run.x_shape(1))?;
        PassDirection::Convolution.forward(&g, run)
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (g, _) = self.geometry(run.x_shape(0), run.x_shape(1))?;
        PassDirection::Convolution.backward(&g, run)
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;
    const WIDENED: u64 = 0b110;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let (g, _) = self.geometry(run.x_shape(0), run.x_shape(1))?;
        let bias = run.has(2).then(|| run.wide(2));
        in_sixteen_bits::forward(&g.with_long_rows(), run.x(0), run.wide(1), bias, run.y(0))?;
        Ok(())
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        let (g, _) = self.geometry(run.x_shape(0), run.x_shape(1))?;
        let by_input = run.gx(0).map(|gx| (run.wide(1), gx.data));
        let by_weight = run.gx_wide(1).map(|gw| (run.x(0), gw.adding()));
        let by_bias = run.gx_wide(2).map(Grad::adding);
        let gradients = DepthwiseGradients { gy: run.gy(0), by_input, by_weight, by_bias };
        gradients.run(&g.with_long_rows())?;
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, w) = (s.x(0).shape(), s.x(1).shape());
        let (Ok(layout), Ok((g, _))) = (self.layout(&x, &w), self.geometry(&x, &w)) else {
            return Vec::new();
        };
        PassDirection::Convolution.gradient(&layout, &g, s, Some(&grouped(&w)))
    }

    fn reads(&self, gx: usize) -> Reads {
        kernel_passes::reads(gx)
    }
}
