//! `depthwise_deconvolution`: deconvolution of each channel with its own kernel, with sums over groups of channels.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::convolution::Geometry;
use crate::ops::spatial::kernel_passes::{self, PassDirection};
use crate::ops::spatial::layout::{self, SpatialLayout};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<DepthwiseDeconvolution>()];

op! {
    /// Depthwise deconvolution: each channel has its own kernel, and the outputs of `divisor` channels are summed.
    /// `y[k, o * stride + t * dilation - pad]` gets `w[c, t] x[c, o]` from each `c` with `c // divisor = k`, and
    /// `b[k]`.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...).
    ///     weight: Weight `w`, shape (channels, kernel...).
    ///     bias: Bias `b`, shape (channels / divisor,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Elements cut off at both ends of each spatial axis of the output, none by default.
    ///     stride: Step in the output for each step in the input along each spatial axis, 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis, 1 by default.
    ///     divisor: Number of channels of each output.
    ///
    /// Returns:
    ///     Array of shape (batch..., channels / divisor, out...), with `out` as in `deconvolution`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If the shapes do not fit together, or `pad` leaves nothing of the output.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0], [3.0, 4.0]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[1.0, 1.0], [10.0, 10.0]])
    ///     >>> F.depthwise_deconvolution(x, w).data
    ///     array([[[ 1.,  3.,  2.],
    ///             [30., 70., 40.]]], dtype=float32)
    /// ```
    DepthwiseDeconvolution = depthwise_deconvolution(x, weight, bias: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        divisor: i64 = 1,
    )
}

/// The weight for a deconvolution in groups: (channels, 1, kernel...).
fn grouped(w: &Shape) -> Shape {
    w[..1].iter().copied().chain([1]).chain(w[1..].iter().copied()).collect()
}

impl DepthwiseDeconvolution {
    /// Checks the shapes. Returns the arguments of an equivalent grouped deconvolution.
    fn layout(&self, x: &Shape, w: &Shape) -> Result<SpatialLayout<'_>> {
        let op = "depthwise_deconvolution";
        let base = x.axis(op, self.base_axis)?;
        if w.ndim() != x.ndim() - base || w[0] != x[base] {
            let expected = format!("a weight of {} channels and {} axes", x[base], x.ndim() - base);
            return Err(Error::shape(op, expected, [x, w]));
        }
        let channels = x[base] as i64;
        if self.divisor < 1 || channels == 0 || channels % self.divisor != 0 {
            let expected = format!("a divisor of the number of channels, which is {channels}");
            return Err(Error::argument(op, "divisor", expected, self.divisor));
        }
        Ok(SpatialLayout {
            op,
            base_axis: self.base_axis,
            pad: self.pad.as_deref(),
            stride: self.stride.as_deref(),
            dilation: self.dilation.as_deref(),
            group: channels / self.divisor,
            channel_last: false,
        })
    }

    /// Checks the shapes. Returns the geometry and the output shape.
    fn geometry(&self, x: &Shape, w: &Shape) -> Result<(Geometry, Shape)> {
        self.layout(x, w)?.deconvolution(x, &grouped(w), None)
    }
}

impl Compute for DepthwiseDeconvolution {
    const HOSTS_EPILOGUE: bool = true;

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        layout::open(arg, self.base_axis, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (x0, w) = (x.get(0), x.get(1));
        let (g, shape) = self.geometry(x0, w)?;
        self.layout(x0, w)?.check_bias(x.find(2), g.channels, [x0, w])?;
        one(shape)
    }

    fn multiplications(&self, x: &InputShapes<'_>, _: &Shape) -> usize {
        x.get(0).size() * x.get(1).size_from(1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (g, _) = self.geometry(run.x_shape(0), run.x_shape(1))?;
        PassDirection::Deconvolution.forward(&g, run)
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (g, _) = self.geometry(run.x_shape(0), run.x_shape(1))?;
        PassDirection::Deconvolution.backward(&g, run)
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, w) = (s.x(0).shape(), s.x(1).shape());
        let (Ok(layout), Ok((g, _))) = (self.layout(&x, &w), self.geometry(&x, &w)) else {
            return Vec::new();
        };
        PassDirection::Deconvolution.gradient(&layout, &g, s, Some(&grouped(&w)))
    }

    fn reads(&self, gx: usize) -> Reads {
        kernel_passes::reads(gx)
    }
}
