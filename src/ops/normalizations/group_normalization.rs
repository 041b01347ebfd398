//! Normalizations within each sample.

use crate::array::Shape;
use crate::ops::normalizations::layer_normalization::{Axes, Form, normalizes};
use crate::ops::{Entry, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<LayerNormalization>(),
    Entry::of::<InstanceNormalization>(),
    Entry::of::<GroupNormalization>(),
    Entry::of::<WeightStandardization>(),
];

/// For each of `n` axes, true if it is in `axes`.
fn among(n: usize, axes: &[usize]) -> Axes {
    (0..n).map(|i| axes.contains(&i)).collect()
}

op! {
    /// Layer normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for each
    /// sample.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Offset, of the shape of `x` with length one along `batch_axis`; none by default.
    ///     gamma: Scale, of the same shape; none by default.
    ///     batch_axis: Axis or axes of the samples.
    ///     eps: Added to the variance, not negative.
    ///     output_stat: Return the statistics too.
    ///
    /// Returns:
    ///     Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all axes
    ///     but `batch_axis`.
    ///
    /// Raises:
    ///     ArgumentError: If `eps` is negative or NaN.
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If beta or gamma has the wrong shape.
    ///
    /// Source:
    ///     Ba, Kiros and Hinton, Layer Normalization, 2016, arXiv:1607.06450.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 3.0], [10.0, 30.0]])
    ///     >>> F.layer_normalization(x).data.round(3)
    ///     array([[-1.,  1.],
    ///            [-1.,  1.]], dtype=float32)
    /// ```
    LayerNormalization = layer_normalization(
        x, beta: optional, gamma: optional; batch_axis: Vec<i64> = [0], eps: f64 = 1e-5, output_stat: bool = false
    )
}

impl LayerNormalization {
    /// The axes that are kept and scaled.
    fn form(&self, x: &Shape, _: Option<&Shape>) -> Result<Form> {
        let kept = among(x.ndim(), &x.axes("layer_normalization", Some(&self.batch_axis))?);
        let scaled = kept.iter().map(|kept| !kept).collect();
        Ok(Form::new(x, kept, scaled, self.eps, self.output_stat))
    }
}

op! {
    /// Instance normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for
    /// each channel of each sample.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Offset, with the length of `x` along `channel_axis` and optionally along `batch_axis`, and length one
    ///         along all other axes; none by default.
    ///     gamma: Scale, of the same shape; none by default.
    ///     channel_axis: Axis of the channels.
    ///     batch_axis: Axis or axes of the samples.
    ///     eps: Added to the variance, not negative.
    ///     output_stat: Return the statistics too.
    ///
    /// Returns:
    ///     Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all axes
    ///     but `batch_axis` and `channel_axis`.
    ///
    /// Raises:
    ///     ArgumentError: If `eps` is negative or NaN.
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If beta or gamma has the wrong shape.
    ///
    /// Source:
    ///     Ulyanov, Vedaldi and Lempitsky, Instance Normalization, 2016, arXiv:1607.08022.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 3.0], [10.0, 30.0]]])
    ///     >>> F.instance_normalization(x).data.round(3)
    ///     array([[[-1.,  1.],
    ///             [-1.,  1.]]], dtype=float32)
    /// ```
    InstanceNormalization = instance_normalization(
        x, beta: optional, gamma: optional;
        channel_axis: i64 = 1, batch_axis: Vec<i64> = [0], eps: f64 = 1e-5, output_stat: bool = false
    )
}

impl InstanceNormalization {
    /// The axes that are kept and scaled: per channel, or per sample and channel by the shape of `param`.
    fn form(&self, x: &Shape, param: Option<&Shape>) -> Result<Form> {
        let mut axes = x.axes("instance_normalization", Some(&self.batch_axis))?;
        let channel = x.axis("instance_normalization", self.channel_axis)?;
        axes.push(channel);
        let (kept, channel) = (among(x.ndim(), &axes), among(x.ndim(), &[channel]));
        let each = param
            .is_some_and(|param| *param == crate::ops::normalizations::layer_normalization::only(x, &kept));
        let scaled = if each { kept.clone() } else { channel };
        Ok(Form::new(x, kept, scaled, self.eps, self.output_stat))
    }
}

op! {
    /// Group normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for each
    /// group of channels of each sample.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Offset, of the shape of `x` with length one along all axes but `channel_axis`; none by default.
    ///     gamma: Scale, of the same shape; none by default.
    ///     num_groups: Number of groups. It must divide the number of channels.
    ///     channel_axis: Axis of the channels.
    ///     batch_axis: Axis or axes of the samples.
    ///     eps: Added to the variance, not negative.
    ///     output_stat: Return the statistics too.
    ///
    /// Returns:
    ///     Array of the shape of `x`; with `output_stat` also its mean and its variance: the axis of the channels
    ///     becomes two, of length `num_groups` and one, and all axes but `batch_axis` have length one.
    ///
    /// Raises:
    ///     ArgumentError: If `eps` is negative or NaN.
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If beta or gamma has the wrong shape.
    ///     ValueError: If `num_groups` does not divide the number of channels.
    ///
    /// Source:
    ///     Wu and He, Group Normalization, 2018, arXiv:1803.08494.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0], [3.0], [10.0], [30.0]]])  # four channels
    ///     >>> F.group_normalization(x, num_groups=2).data.round(3).ravel()
    ///     array([-1.,  1., -1.,  1.], dtype=float32)
    /// ```
    GroupNormalization = group_normalization(
        x, beta: optional, gamma: optional;
        num_groups: i64 = 1, channel_axis: i64 = 1, batch_axis: Vec<i64> = [0], eps: f64 = 1e-5,
        output_stat: bool = false
    )
}

impl GroupNormalization {
    /// The view with an axis of groups, and the axes that are kept and scaled.
    fn form(&self, x: &Shape, _: Option<&Shape>) -> Result<Form> {
        let axes = x.axes("group_normalization", Some(&self.batch_axis))?;
        let channel = x.axis("group_normalization", self.channel_axis)?;
        let groups = usize::try_from(self.num_groups).unwrap_or(0);
        if groups == 0 || !x[channel].is_multiple_of(groups) {
            let expected = format!("a divisor of the number of channels, {}", x[channel]);
            return Err(Error::argument("group_normalization", "num_groups", expected, self.num_groups));
        }
        // The channel axis is split in two: the groups, and the channels of each group.
        let groups_of = [groups, x[channel] / groups];
        let view: Shape = x[..channel].iter().chain(&groups_of).chain(&x[channel + 1..]).copied().collect();
        let batch = |i: usize| {
            axes.contains(&if i > channel { i - 1 } else { i }) && i != channel && i != channel + 1
        };
        let kept: Axes = (0..view.ndim()).map(|i| i == channel || batch(i)).collect();
        let scaled = (0..view.ndim()).map(|i| i == channel || i == channel + 1).collect();
        let params = crate::ops::normalizations::layer_normalization::only(x, &among(x.ndim(), &[channel]));
        let stats = crate::ops::normalizations::layer_normalization::only(&view, &kept);
        Ok(Form { view, kept, scaled, params, stats, eps: self.eps, output_stat: self.output_stat })
    }
}

op! {
    /// Weight standardization: `y = (w - mean) / sqrt(variance + eps)`, with a mean and a variance for each output map.
    ///
    /// Args:
    ///     w: Weight of any shape.
    ///     channel_axis: Axis of the output maps: 0 for a convolution, 1 for an affine layer.
    ///     eps: Added to the variance, not negative.
    ///     output_stat: Return the statistics too.
    ///
    /// Returns:
    ///     Array of the shape of `w`; with `output_stat` also its mean and its variance, with length one along all axes
    ///     but `channel_axis`.
    ///
    /// Raises:
    ///     ArgumentError: If `eps` is negative or NaN.
    ///     AxisError: If `w` has no such axis.
    ///
    /// Source:
    ///     Qiao, Wang, Liu, Shen and Yuille, Weight Standardization, 2019, arXiv:1903.10520.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> w = nn.NdArray.from_numpy_array([[1.0, 3.0], [10.0, 30.0]])
    ///     >>> F.weight_standardization(w).data.round(3)
    ///     array([[-1.,  1.],
    ///            [-1.,  1.]], dtype=float32)
    /// ```
    WeightStandardization = weight_standardization(
        w; channel_axis: i64 = 0, eps: f64 = 1e-5, output_stat: bool = false
    )
}

impl WeightStandardization {
    /// The axes that are kept: the channels.
    fn form(&self, w: &Shape, _: Option<&Shape>) -> Result<Form> {
        let kept = among(w.ndim(), &[w.axis("weight_standardization", self.channel_axis)?]);
        Ok(Form::new(w, kept, Axes::from_elem(false, w.ndim()), self.eps, self.output_stat))
    }
}

normalizes!(LayerNormalization InstanceNormalization GroupNormalization WeightStandardization);

#[cfg(test)]
mod tests {
    use super::Shape;
    use crate::ops::testing::{Tensor, check_forward, check_gradient};
    use crate::ops::{Op, Value, find};

    /// The value of `eps` in these tests.
    const EPS: Value = Value::Float(1e-3);

    /// An operation with these arguments; `present` has a bit for each given input.
    fn op(name: &str, values: &[Value], present: u64) -> Op {
        find(name).expect("is registered").bind(values, present).expect("binds")
    }

    /// Normalizes `x`, where `group(i)` is the index of the statistics of element `i`. Also returns those statistics.
    fn normalized(x: &Tensor, n: usize, group: &dyn Fn(usize) -> usize) -> [Vec<f64>; 3] {
        let all = 0..x.data.len();
        let mean_of = |f: &dyn Fn(usize) -> f64, g: usize| {
            let members = all.clone().filter(|i| group(*i) == g);
            members.clone().map(f).sum::<f64>() / members.count() as f64
        };
        let mean: Vec<_> = (0..n).map(|g| mean_of(&|i| x.data[i], g)).collect();
        let variance: Vec<_> = (0..n).map(|g| mean_of(&|i| (x.data[i] - mean[g]).powi(2), g)).collect();
        let unit = |i: usize| (x.data[i] - mean[group(i)]) / (variance[group(i)] + 1e-3).sqrt();
        [all.clone().map(unit).collect(), mean, variance]
    }

    /// A tensor with this shape and these elements.
    fn tensor(shape: &[usize], data: Vec<f64>) -> Tensor {
        Tensor { shape: Shape::from(shape), data }
    }

    /// Checks an operation on an input of shape (2, 6, 3), with parameters of shape `params`.
    fn check(
        name: &str,
        values: &[Value],
        stats: &[usize],
        params: &[usize],
        group: &dyn Fn(usize) -> usize,
    ) {
        let x = Tensor::sample([2, 6, 3], 1);
        let n = stats.iter().product();
        let [y, mean, variance] = normalized(&x, n, group);
        let outputs = [tensor(&[2, 6, 3], y), tensor(stats, mean), tensor(stats, variance)];
        let with = |output_stat| [values, &[EPS, Value::Bool(output_stat)]].concat();
        check_forward(&op(name, &with(true), 1), std::slice::from_ref(&x), &outputs);
        check_gradient(&op(name, &with(true), 1), std::slice::from_ref(&x), &[true]);
        if params.is_empty() {
            return;
        }
        let param =
            |seed| tensor(params, Tensor::sample([64], seed).data[..params.iter().product()].to_vec());
        let inputs = [x, param(2), param(3)];
        check_gradient(&op(name, &with(false), u64::MAX), &inputs, &[true; 3]);
        check_gradient(&op(name, &with(true), 0b101), &[inputs[0].clone(), inputs[2].clone()], &[true; 2]);
        let wrong = [&inputs[0].shape, &Shape::from([6]), &Shape::from([6])];
        assert!(op(name, &with(false), u64::MAX).shapes(&wrong).is_err());
    }

    #[test]
    fn layer_normalization_has_statistics_of_each_sample() {
        let axis = Value::Int(0);
        check("layer_normalization", &[axis], &[2, 1, 1], &[1, 6, 3], &|i| i / 18);
        let axes = Value::Ints(vec![0, 2]);
        check("layer_normalization", &[axes], &[2, 1, 3], &[1, 6, 1], &|i| i / 18 * 3 + i % 3);
    }

    #[test]
    fn instance_normalization_has_statistics_of_each_channel() {
        let values = [Value::Int(1), Value::Int(0)];
        for params in [[1, 6, 1], [2, 6, 1]] {
            check("instance_normalization", &values, &[2, 6, 1], &params, &|i| i / 3);
        }
        let last = [Value::Int(-1), Value::Int(0)];
        check("instance_normalization", &last, &[2, 1, 3], &[1, 1, 3], &|i| i / 18 * 3 + i % 3);
    }

    #[test]
    fn group_normalization_has_statistics_of_each_group() {
        let values = [Value::Int(2), Value::Int(1), Value::Int(0)];
        check("group_normalization", &values, &[2, 2, 1, 1], &[1, 6, 1], &|i| i / 9);
        let last = [Value::Int(3), Value::Int(2), Value::Int(0)];
        check("group_normalization", &last, &[2, 1, 3, 1], &[1, 1, 3], &|i| i / 18 * 3 + i % 3);
        for groups in [4, 0, -1] {
            let values =
                [&[Value::Int(groups), Value::Int(1), Value::Int(0), EPS][..], &[Value::Bool(false)]]
                    .concat();
            assert!(op("group_normalization", &values, 1).shapes(&[&Shape::from([2, 6, 3])]).is_err());
        }
    }

    #[test]
    fn weight_standardization_has_statistics_of_each_map() {
        check("weight_standardization", &[Value::Int(1)], &[1, 6, 1], &[], &|i| i / 3 % 6);
    }
}
