//! `fused_batch_normalization`: batch normalization, an addition and an activation.

use crate::ops::fused::activation::FusedActivation;
use crate::ops::fused::operation::{Fuse, Fused};
use crate::ops::fused::steps::FusedSteps;
use crate::ops::normalizations::batch_normalization::BatchNormalization;
use crate::ops::{Declared, Entry, InputShapes, Value, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Fused<FusedBatchNormalization>>()];

op! {
    /// Batch normalization, an addition and an activation, as one function:
    /// `y = relu(batch_normalization(x, ...) + z)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Offset, as in `batch_normalization`.
    ///     gamma: Scale, as in `batch_normalization`.
    ///     mean: Running mean, overwritten with `batch_stat`.
    ///     variance: Running variance, overwritten with `batch_stat`.
    ///     z: Array of the shape of `x` to add before the activation; none by default.
    ///     axes: Axes with separate statistics for each index.
    ///     decay_rate: Share of the running statistics that stays in each run, from 0 to 1.
    ///     eps: Added to the variance, not negative.
    ///     batch_stat: Use the statistics of `x`, else the running ones.
    ///     nonlinearity: The activation: `relu`.
    ///     output_stat: Return the statistics of `x` too.
    ///     n_outputs: Number of outputs, 1 or 3: 3 is the same as `output_stat`.
    ///
    /// Returns:
    ///     Array of the shape of `x`; with `output_stat` also its mean and its variance.
    ///
    /// Raises:
    ///     ArgumentError: If `nonlinearity` is not `relu`, or an argument of `batch_normalization` is out of range.
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If an input has the wrong shape.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 10.0], [3.0, 30.0]])
    ///     >>> beta = nn.NdArray.from_numpy_array([[0.0, 0.0]])
    ///     >>> gamma = nn.NdArray.from_numpy_array([[1.0, 1.0]])
    ///     >>> mean = nn.NdArray.from_numpy_array([[2.0, 20.0]])
    ///     >>> variance = nn.NdArray.from_numpy_array([[1.0, 100.0]])
    ///     >>> F.fused_batch_normalization(x, beta, gamma, mean, variance, batch_stat=False).data.round(3)
    ///     array([[0., 0.],
    ///            [1., 1.]], dtype=float32)
    /// ```
    FusedBatchNormalization = fused_batch_normalization(
        x, beta: optional, gamma: optional, mean: optional, variance: optional, z: optional;
        axes: Vec<i64> = [1], decay_rate: f64 = 0.9, eps: f64 = 1e-5, batch_stat: bool = true,
        nonlinearity: String = "relu", output_stat: bool = false, n_outputs: Option<i64> = None
    )
}

impl Fuse for FusedBatchNormalization {
    const WEIGHT: Option<usize> = None;

    fn steps(&self) -> Result<FusedSteps> {
        if self.nonlinearity != "relu" {
            let got = format!("{:?}", self.nonlinearity);
            return Err(Error::argument(Self::SPEC.name, "nonlinearity", "\"relu\"", got));
        }
        let Self { axes, decay_rate, eps, batch_stat, output_stat, n_outputs, .. } = self.clone();
        let normalization = BatchNormalization { axes, decay_rate, eps, batch_stat, output_stat, n_outputs };
        let activation = FusedActivation::new(Self::SPEC.name, &self.nonlinearity, &[])?;
        Ok(FusedSteps { name: Self::SPEC.name, convolution: None, normalization, activation })
    }

    // NNabla's function has no arguments for the outputs or for missing inputs: all are present.
    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        let args = Self::SPEC.args.iter().map(|arg| arg.info).zip(self.values());
        let missing = [(1, "no_bias"), (2, "no_scale"), (3, "no_mean"), (4, "no_variance")];
        let missing = missing.into_iter().filter(|(i, _)| x.find(*i).is_none());
        args.filter(|(name, _)| !matches!(*name, "output_stat" | "n_outputs"))
            .chain(missing.map(|(_, name)| (name, Value::Bool(true))))
            .collect()
    }
}
