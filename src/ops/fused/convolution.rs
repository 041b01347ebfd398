//! `fused_convolution`: padding, convolution, batch normalization, an addition and an activation.

use crate::Result;
use crate::ops::fused::activation::FusedActivation;
use crate::ops::fused::operation::{Fuse, Fused};
use crate::ops::fused::padded::PaddedConvolution;
use crate::ops::fused::steps::FusedSteps;
use crate::ops::normalizations::batch_normalization::BatchNormalization;
use crate::ops::spatial::convolution::Convolution;
use crate::ops::spatial::layout;
use crate::ops::{Declared, Entry, InputShapes, Value, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Fused<FusedConvolution>>()];

op! {
    /// Padding, convolution, batch normalization, an addition and an activation, as one function. All layers but the
    /// convolution are optional.
    ///
    /// Args:
    ///     x: Input, as of `convolution`.
    ///     weight: Weight, as of `convolution`.
    ///     bias: Bias, as of `convolution`; none by default.
    ///     beta: Offset of the batch normalization. Give all of `beta`, `gamma`, `mean` and `variance`, or none.
    ///     gamma: Scale of the batch normalization.
    ///     mean: Running mean, overwritten with `batch_stat`.
    ///     variance: Running variance, overwritten with `batch_stat`.
    ///     z: Array of the shape of the output that is added before the activation; none by default.
    ///     base_axis: The axis of the channels; the axes before it are the batch.
    ///     pad: Elements added at both ends of each spatial axis; or at either end of each axis, as in `pad`.
    ///     stride: As in `convolution`.
    ///     dilation: As in `convolution`.
    ///     group: As in `convolution`.
    ///     channel_last: As in `convolution`.
    ///     decay_rate: As in `batch_normalization`.
    ///     eps: As in `batch_normalization`.
    ///     batch_stat: As in `batch_normalization`.
    ///     nonlinearity: The activation: `identity`, `relu`, `sigmoid`, `tanh`, `leaky_relu`, `elu`, `relu6`.
    ///     nonlinearity_args: Its arguments: `alpha` of `leaky_relu` and `elu`.
    ///     pad_mode: As `mode` of `pad`.
    ///     constant_value: As in `pad`.
    ///
    /// Returns:
    ///     Array of the shape of the convolution's output.
    ///
    /// Raises:
    ///     ArgumentError: If the activation is unknown or has the wrong arguments, or an argument of a layer is out of
    ///         range. Also if only some inputs of the batch normalization are given.
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, w = nn.NdArray.from_numpy_array([[[1.0, -2.0, 3.0]]]), nn.NdArray.from_numpy_array([[[1.0]]])
    ///     >>> F.fused_convolution(x, w).data  # convolution and relu
    ///     array([[[1., 0., 3.]]], dtype=float32)
    /// ```
    FusedConvolution = fused_convolution(
        x, weight, bias: optional, beta: optional, gamma: optional, mean: optional, variance: optional, z: optional;
        base_axis: i64 = 1,
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        channel_last: bool = false,
        decay_rate: f64 = 0.9,
        eps: f64 = 1e-5,
        batch_stat: bool = true,
        nonlinearity: String = "relu",
        nonlinearity_args: Vec<f64> = [],
        pad_mode: String = "constant",
        constant_value: f64 = 0.0,
    )
}

impl Fuse for FusedConvolution {
    const WEIGHT: Option<usize> = Some(1);

    fn steps(&self) -> Result<FusedSteps> {
        let Self { base_axis, pad, stride, dilation, group, channel_last, .. } = self.clone();
        let Self { decay_rate, eps, batch_stat, pad_mode, constant_value, .. } = self.clone();
        let axes = vec![if channel_last { -1 } else { base_axis }];
        let convolution = Convolution { base_axis, pad, stride, dilation, group, channel_last };
        Ok(FusedSteps {
            name: Self::SPEC.name,
            convolution: Some(PaddedConvolution { convolution, pad_mode, constant_value }),
            normalization: BatchNormalization {
                axes,
                decay_rate,
                eps,
                batch_stat,
                output_stat: false,
                n_outputs: None,
            },
            activation: FusedActivation::new(Self::SPEC.name, &self.nonlinearity, &self.nonlinearity_args)?,
        })
    }

    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        let open = |arg: &'static str, value| match value {
            Value::None => layout::open(arg, self.base_axis, x.get(0)),
            value => value,
        };
        Self::SPEC.args.iter().zip(self.values()).map(|(arg, v)| (arg.info, open(arg.info, v))).collect()
    }
}
