//! Normalizations over a batch.

use crate::array::{Element, Shape};
use crate::kernels::normalization::InPlace;
use crate::kernels::scratch::List;
use crate::kernels::{Float, Stored};
use crate::ops::normalizations::layer_normalization::{Axes, Form, info, normalizes, reads};
use crate::ops::{
    Backward, ChunkedForward, Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value,
    op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<BatchNormalization>(), Entry::of::<TensorNormalization>()];

op! {
    /// Batch normalization: `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with a mean and a variance for each
    /// index of `axes`.
    ///
    /// With `batch_stat`, mean and variance are computed from `x`, and each forward run updates the running statistics:
    /// `mean = decay_rate * mean + (1 - decay_rate) * mean(x)`, and likewise the variance, with its unbiased estimate.
    /// Without `batch_stat`, the running statistics are used and do not change.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Offset, of the shape of `x` with length one along all other axes; none by default.
    ///     gamma: Scale, of the same shape; none by default.
    ///     mean: Running mean, of the same shape. With `batch_stat` it is updated, and optional.
    ///     variance: Running variance, of the same shape. With `batch_stat` it is updated, and optional.
    ///     axes: Axes with separate statistics for each index.
    ///     decay_rate: Weight of the old running statistics in an update, from 0 to 1.
    ///     eps: Added to the variance, not negative.
    ///     batch_stat: Use the statistics of `x`; if off, the running statistics.
    ///     output_stat: Return the statistics of `x` too.
    ///     n_outputs: Number of outputs, 1 or 3: 3 is the same as `output_stat`.
    ///
    /// Returns:
    ///     Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all
    ///     other axes. Gradients flow through them.
    ///
    /// Raises:
    ///     ArgumentError: If `decay_rate` or `eps` is out of range.
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If another input has the wrong shape.
    ///     ValueError: If running statistics are needed and missing, or `output_stat` is set without `batch_stat`.
    ///
    /// Source:
    ///     Ioffe and Szegedy, Batch Normalization, 2015, arXiv:1502.03167.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 10.0], [3.0, 30.0]])
    ///     >>> F.batch_normalization(x).data.round(3)
    ///     array([[-1., -1.],
    ///            [ 1.,  1.]], dtype=float32)
    ///     >>> mean = nn.NdArray.from_numpy_array([[1.0, 20.0]])
    ///     >>> variance = nn.NdArray.from_numpy_array([[4.0, 100.0]])
    ///     >>> F.batch_normalization(x, mean=mean, variance=variance, batch_stat=False).data.round(3)
    ///     array([[ 0., -1.],
    ///            [ 1.,  1.]], dtype=float32)
    /// ```
    BatchNormalization = batch_normalization(
        x, beta: optional, gamma: optional, mean: optional, variance: optional;
        axes: Vec<i64> = [1], decay_rate: f64 = 0.9, eps: f64 = 1e-5, batch_stat: bool = true,
        output_stat: bool = false, n_outputs: Option<i64> = None
    )
}

impl BatchNormalization {
    /// The axes that are kept and scaled, and whether statistics are outputs.
    fn form(&self, x: &Shape) -> Result<Form> {
        let axes = x.axes("batch_normalization", Some(&self.axes))?;
        let kept: Axes = (0..x.ndim()).map(|i| axes.contains(&i)).collect();
        // NNabla's operation always has three outputs, and its function requests one or three of them.
        let output_stat = self.output_stat || self.n_outputs == Some(3);
        Ok(Form::new(x, kept.clone(), kept, self.eps, output_stat))
    }

    /// The kernel that normalizes elements in place by the running statistics, as an epilogue of another kernel. None
    /// if the elements of a channel are too scattered in memory.
    pub(crate) fn in_place<'a, T: Float>(&self, run: Run<'a, T>) -> Option<&'a InPlace<T>> {
        let form = self.form(run.x_shape(0)).ok()?;
        let real = |x: &[T]| -> List<f64> { x.iter().map(|v| v.real()).collect() };
        let (mean, variance) = (real(run.x(3)), real(run.x(4)));
        form.in_place_by(run, &mean, &variance)
    }

    /// The error for an argument out of range.
    fn refuse(arg: &str, expected: &str, got: impl std::fmt::Display) -> Error {
        Error::argument("batch_normalization", arg, expected, got)
    }
}

impl Compute for BatchNormalization {
    const HOSTS_EPILOGUE: bool = true;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let form = self.form(x.get(0))?;
        if let Some(n) = self.n_outputs.filter(|n| !matches!(n, 1 | 3)) {
            return Err(Self::refuse("n_outputs", "1 or 3", n));
        }
        if !(0.0..=1.0).contains(&self.decay_rate) {
            return Err(Self::refuse("decay_rate", "from 0 to 1", self.decay_rate));
        }
        if form.output_stat && !self.batch_stat {
            return Err(Self::refuse("output_stat", "False where batch_stat is False", "True"));
        }
        for (i, name) in [(3, "mean"), (4, "variance")] {
            match x.find(i) {
                None if !self.batch_stat => {
                    return Err(Self::refuse(name, "an array where batch_stat is False", "None"));
                }
                Some(given) if *given != form.stats => {
                    let expected = format!("{name} of shape {}", form.stats);
                    return Err(Error::shape("batch_normalization", expected, [given]));
                }
                _ => {}
            }
        }
        form.shapes(&Self::SPEC, x)
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;
    // All but `x`.
    const WIDENED: u64 = 0b11110;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let form = self.form(run.x_shape(0))?;
        if !self.batch_stat {
            let real = |x: &[E::Wide]| -> List<f64> { x.iter().map(|v| v.real()).collect() };
            form.forward_by(run, &real(run.wide(3)), &real(run.wide(4)));
            return Ok(());
        }
        let moments = form.forward(run);
        let count = form.layout().count();
        if run.is_recomputation() || count == 0 {
            return Ok(());
        }
        // One element has no unbiased variance. Its own variance, zero, is used instead.
        let unbiased = count as f64 / (count - 1).max(1) as f64;
        for (i, batch, factor) in [(3, &moments.mean, 1.0), (4, &moments.variance, unbiased)] {
            if run.has(i) {
                for (r, b) in run.overwrite_wide(i).iter_mut().zip(&**batch) {
                    *r = E::Wide::of(self.decay_rate * r.real() + (1.0 - self.decay_rate) * b * factor);
                }
            }
        }
        Ok(())
    }

    fn fits_epilogue(&self, x: &InputShapes<'_>) -> bool {
        !self.batch_stat && self.form(x.get(0)).is_ok_and(|form| form.layout().cycle().is_some())
    }

    fn chunked_forward<'a, T: Float>(&self, run: Run<'a, T>) -> Option<&'a (dyn ChunkedForward + 'static)> {
        self.in_place(run).map(|chunked| chunked as &(dyn ChunkedForward + 'static))
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        self.form(run.x_shape(0))?.backward("batch_normalization", run, !self.batch_stat)
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        self.form(&s.gy(0).shape()).map_or_else(|_| vec![None], |form| form.gradient(s, !self.batch_stat))
    }

    // The kernel has saved values that depend on the statistics. The formula reads the statistics themselves.
    fn reads(&self, gx: usize) -> Reads {
        match (gx, self.batch_stat) {
            (_, true) => reads(gx),
            (0 | 3, false) => Reads::inputs(0b10100),
            (2, false) => Reads::inputs(0b11001),
            (4, false) => Reads::inputs(0b11101),
            _ => Reads::NOTHING,
        }
    }

    // The running mean and variance.
    /// True for the running mean and variance, which `forward` updates.
    fn overwrites(&self, i: usize) -> bool {
        self.batch_stat && matches!(i, 3 | 4)
    }

    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        info(&Self::SPEC, self.values(), x)
    }
}

op! {
    /// Normalization with a mean and a variance for each index of `axes`:
    /// `y = (x - mean) / sqrt(variance + eps) * gamma + beta`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     beta: Offset, of the shape of `x` with length one along all other axes; none by default.
    ///     gamma: Scale, of the same shape; none by default.
    ///     axes: Axes with separate statistics for each index.
    ///     eps: Added to the variance, not negative.
    ///     output_stat: Return the statistics too.
    ///
    /// Returns:
    ///     Array of the shape of `x`; with `output_stat` also its mean and its variance, with length one along all
    ///     other axes.
    ///
    /// Raises:
    ///     ArgumentError: If `eps` is negative or NaN.
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If beta or gamma has the wrong shape.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 3.0], [10.0, 30.0]])
    ///     >>> F.tensor_normalization(x, axes=0).data.round(3)
    ///     array([[-1.,  1.],
    ///            [-1.,  1.]], dtype=float32)
    /// ```
    TensorNormalization = tensor_normalization(
        x, beta: optional, gamma: optional; axes: Vec<i64> = [1], eps: f64 = 1e-5, output_stat: bool = false
    )
}

impl TensorNormalization {
    /// The axes that are kept and scaled, and whether statistics are outputs.
    fn form(&self, x: &Shape, _: Option<&Shape>) -> Result<Form> {
        let axes = x.axes("tensor_normalization", Some(&self.axes))?;
        let kept: Axes = (0..x.ndim()).map(|i| axes.contains(&i)).collect();
        Ok(Form::new(x, kept.clone(), kept, self.eps, self.output_stat))
    }
}

normalizes!(TensorNormalization);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, forward};
    use crate::ops::{Call, Memory, Op, State, find};

    /// A batch normalization; `present` has a bit for each given input.
    fn batch(axes: &[i64], batch_stat: bool, output_stat: bool, present: u64) -> Op {
        let values = [
            Value::Ints(axes.to_vec()),
            Value::Float(0.7),
            Value::Float(1e-3),
            Value::Bool(batch_stat),
            Value::Bool(output_stat),
            Value::None,
        ];
        find("batch_normalization").expect("is registered").bind(&values, present).expect("binds")
    }

    /// Mean and variance of `x`, of shape (2, 3, 4), for each index of the middle axis.
    fn moments(x: &Tensor) -> (Vec<f64>, Vec<f64>) {
        let of = |c: usize| (0..24).filter(move |i| i / 4 % 3 == c).map(|i| x.data[i]);
        let mean = |c: usize| of(c).sum::<f64>() / 8.0;
        let variance = |c: usize| of(c).map(|v| (v - mean(c)).powi(2)).sum::<f64>() / 8.0;
        ((0..3).map(mean).collect(), (0..3).map(variance).collect())
    }

    /// Input, shift, scale, running mean and running variance.
    fn inputs() -> [Tensor; 5] {
        let channel = |data: &[f64]| Tensor::new([1, 3, 1], data);
        let (beta, gamma) = (channel(&[0.5, -1.0, 2.0]), channel(&[1.5, 0.3, -0.7]));
        [Tensor::sample([2, 3, 4], 1), beta, gamma, channel(&[0.1, -0.2, 0.3]), channel(&[1.0, 2.0, 0.5])]
    }

    /// The input normalized by these statistics, in plain loops.
    fn normalized(x: &[Tensor; 5], mean: &[f64], variance: &[f64]) -> Tensor {
        let unit = |i: usize| {
            let c = i / 4 % 3;
            (x[0].data[i] - mean[c]) / (variance[c] + 1e-3).sqrt() * x[2].data[c] + x[1].data[c]
        };
        Tensor { shape: x[0].shape.clone(), data: (0..24).map(unit).collect() }
    }

    #[test]
    fn batch_statistics_normalize_and_are_outputs() {
        let x = inputs();
        let (mean, variance) = moments(&x[0]);
        let y = normalized(&x, &mean, &variance);
        check_forward(&batch(&[1], true, false, u64::MAX), &x, std::slice::from_ref(&y));
        let outputs = [y, Tensor::new([1, 3, 1], &mean), Tensor::new([1, 3, 1], &variance)];
        check_forward(&batch(&[-2], true, true, u64::MAX), &x, &outputs);
        for output_stat in [false, true] {
            check_gradient(&batch(&[1], true, output_stat, u64::MAX), &x, &[true; 5]);
            check_gradient(&batch(&[1], true, output_stat, 1), &x[..1], &[true]);
            check_gradient(&batch(&[1], true, output_stat, 0b101), &[x[0].clone(), x[2].clone()], &[true; 2]);
            let last =
                [Tensor::sample([2, 3, 4], 2), Tensor::sample([2, 1, 4], 3), Tensor::sample([2, 1, 4], 4)];
            check_gradient(&batch(&[0, 2], true, output_stat, 0b111), &last, &[true; 3]);
        }
    }

    #[test]
    fn running_statistics_are_updated_once_and_not_by_a_recomputation() {
        let mut x = inputs();
        let (mean, variance) = moments(&x[0]);
        let moved = |old: &Tensor, batch: &[f64], factor: f64| -> Vec<f64> {
            old.data.iter().zip(batch).map(|(r, b)| 0.7 * r + 0.3 * b * factor).collect()
        };
        let expected = [moved(&x[3], &mean, 1.0), moved(&x[4], &variance, 8.0 / 7.0)];
        let (op, mut y, mut state) = (batch(&[1], true, false, u64::MAX), vec![0.0; 24], State::default());
        assert_eq!([0, 2, 3, 4].map(|i| op.facts().overwrites(i)), [false, false, true, true]);
        assert!(!batch(&[1], false, false, u64::MAX).facts().overwrites(3));
        for recompute in [false, true] {
            let shape = x[0].shape.clone();
            let memory = |x: &mut Tensor| (x.data.as_mut_ptr().cast::<u8>(), x.shape.clone());
            let held = x.each_mut().map(memory);
            let memory = held.each_ref().map(|(ptr, shape)| Memory { ptr: *ptr, shape });
            let output = [Memory { ptr: y.as_mut_ptr().cast(), shape: &shape }];
            let call = Call { recompute, ..Call::new(&memory, &output, &mut state, true) };
            // SAFETY: the arrays were made for this operation and have its shapes.
            unsafe { op.forward(call) }.expect("forward runs");
            for (got, expected) in x[3..].iter().zip(&expected) {
                assert!(
                    got.data.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
                    "{got:?} {expected:?}"
                );
            }
        }
    }

    #[test]
    fn without_batch_stat_running_statistics_normalize() {
        let x = inputs();
        let eval = batch(&[1], false, false, u64::MAX);
        check_forward(&eval, &x, &[normalized(&x, &x[3].data, &x[4].data)]);
        check_gradient(&eval, &x, &[true; 5]);
        check_gradient(
            &batch(&[1], false, false, 0b11001),
            &[x[0].clone(), x[3].clone(), x[4].clone()],
            &[true; 3],
        );
    }

    #[test]
    fn missing_statistics_and_unfit_axes_are_refused() {
        let x = inputs();
        let shapes = |op: Op, n: usize| op.shapes(&x[..n].iter().map(|x| &x.shape).collect::<Vec<_>>());
        assert!(shapes(batch(&[1], false, false, 0b111), 3).is_err());
        assert!(shapes(batch(&[1], false, true, u64::MAX), 5).is_err());
        assert!(shapes(batch(&[0], true, false, u64::MAX), 5).is_err());
        assert!(shapes(batch(&[3], true, false, 1), 1).is_err());
        assert!(shapes(batch(&[1], true, false, u64::MAX), 5).is_ok());
    }

    #[test]
    fn tensor_normalization_has_statistics_along_the_given_axes() {
        let values = [Value::Ints(vec![0, 2]), Value::Float(1e-3), Value::Bool(true)];
        let op = find("tensor_normalization").expect("is registered").bind(&values, 1).expect("binds");
        let x = Tensor::new([1, 3, 2], &[1.0, 5.0, 2.0, 5.0, 3.0, 5.0]);
        let (mean, variance) =
            (Tensor::new([1, 1, 2], &[2.0, 5.0]), Tensor::new([1, 1, 2], &[2.0 / 3.0, 0.0]));
        let far = 1.0 / (2.0_f64 / 3.0 + 1e-3).sqrt();
        let y = Tensor::new([1, 3, 2], &[-far, 0.0, 0.0, 0.0, far, 0.0]);
        check_forward(&op, std::slice::from_ref(&x), &[y, mean, variance]);
        check_gradient(&op, &[Tensor::sample([3, 4, 2], 1)], &[true]);
        let empty = Tensor::new([0, 3, 2], &[]);
        forward(&op, &[empty], &mut State::default(), false).expect("takes empty arrays");
    }
}
