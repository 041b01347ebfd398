//! `deconvolution`: transposed convolution.

use crate::Result;
use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::convolution::Geometry;
use crate::ops::spatial::kernel_passes::{self, PassDirection};
use crate::ops::spatial::layout::{self, laid_out};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Deconvolution>()];

op! {
    /// Deconvolution, also called transposed convolution: the gradient by the input of the convolution with the same
    /// arguments, as a layer of its own. `y[k, o * stride + t * dilation - pad]` gets `w[c, k, t] x[c, o]` from each
    /// `c`, `t` and `o`, and `b[k]`.
    ///
    /// Args:
    ///     x: Input, shape (batch..., channels, spatial...), or (batch..., spatial..., channels) if `channel_last`.
    ///     weight: Weight `w`, shape (channels, maps / group, kernel...), or (channels, kernel..., maps / group).
    ///     bias: Bias `b`, shape (maps,); none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Elements cut off at both ends of each spatial axis of the output, none by default.
    ///     stride: Step in the output for each step in the input along each spatial axis, 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis, 1 by default.
    ///     group: Number of groups of channels and maps; each map reads only the channels of its group.
    ///     channel_last: Channels are the last axis of `x`, `weight` and the output.
    ///     output_padding: Elements added at the end of each spatial axis of the output, fewer than `stride`. Selects
    ///         one of the input sizes for which a convolution has the size of `x`.
    ///
    /// Returns:
    ///     Array of shape (batch..., maps, out...), or (batch..., out..., maps), where
    ///     `out = stride * (in - 1) + dilation * (kernel - 1) + 1 - 2 * pad + output_padding`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If the shapes do not fit together, or `pad` leaves nothing of the output.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0]]])
    ///     >>> w = nn.NdArray.from_numpy_array([[[1.0, 1.0, 1.0]]])
    ///     >>> F.deconvolution(x, w).data
    ///     array([[[1., 3., 3., 2.]]], dtype=float32)
    ///     >>> F.deconvolution(x, w, stride=(2,)).data
    ///     array([[[1., 1., 3., 2., 2.]]], dtype=float32)
    /// ```
    Deconvolution = deconvolution(x, weight, bias: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        channel_last: bool = false,
        output_padding: Option<Vec<i64>> = None,
    )
}

laid_out!(Deconvolution, output_padding: Option<Vec<i64>>);

impl Deconvolution {
    /// Checks the shapes. Returns the geometry and the output shape.
    fn geometry(&self, x: &Shape, w: &Shape) -> Result<(Geometry, Shape)> {
        self.layout().deconvolution(x, w, self.output_padding.as_deref())
    }
}

impl Compute for Deconvolution {
    const HOSTS_EPILOGUE: bool = true;
    const CACHED_INPUT: Option<usize> = Some(1);

    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        layout::open(arg, self.base_axis, x.get(0))
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (x0, w) = (x.get(0), x.get(1));
        let (g, shape) = self.geometry(x0, w)?;
        self.layout().check_bias(x.find(2), g.channels, [x0, w])?;
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
        let Ok((g, _)) = self.geometry(&s.x(0).shape(), &s.x(1).shape()) else { return Vec::new() };
        PassDirection::Deconvolution.gradient(&self.layout(), &g, s, None)
    }

    fn reads(&self, gx: usize) -> Reads {
        kernel_passes::reads(gx)
    }
}
