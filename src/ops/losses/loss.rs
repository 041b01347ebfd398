//! Losses between two arrays of real numbers.

use crate::array::Shape;
use crate::kernels::{Float, Number, softmax::SoftmaxLines};
use crate::ops::reductions::reduction::spread_each;
use crate::ops::{
    Backward, Binary, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, not_negative, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::binary::<SigmoidCrossEntropy>(),
    Entry::binary::<BinaryCrossEntropy>(),
    Entry::binary::<SquaredError>(),
    Entry::binary::<AbsoluteError>(),
    Entry::binary::<HuberLoss>(),
    Entry::binary::<EpsilonInsensitiveLoss>(),
    Entry::of::<KLMultinomial>(),
];

/// The smallest probability whose logarithm is taken: the smallest normal number in float32, as in NNabla.
pub(crate) const TINY: f64 = f32::MIN_POSITIVE as f64;

op! {
    /// Cross entropy of targets and the logistic function of scores, elementwise:
    /// `y = -(target * log(sigmoid(x)) + (1 - target) * log(1 - sigmoid(x)))`.
    ///
    /// Takes the output of the last layer: logistic function and logarithm are computed together.
    ///
    /// Args:
    ///     x: Scores of any shape.
    ///     target: Probability of each, 0 or 1 for a label, with as many axes as `x`.
    ///
    /// Returns:
    ///     Loss of each element.
    ///
    /// Raises:
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> scores = nn.NdArray.from_numpy_array([0.0, 2.0])
    ///     >>> target = nn.NdArray.from_numpy_array([1.0, 1.0])
    ///     >>> F.sigmoid_cross_entropy(scores, target).data.round(3)
    ///     array([0.693, 0.127], dtype=float32)
    /// ```
    SigmoidCrossEntropy = sigmoid_cross_entropy(x, target)
}

impl Binary for SigmoidCrossEntropy {
    const SAME_NDIM: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N, target: N) -> N {
        let (zero, positive) = (N::all(0.0), x.gt(N::all(0.0)));
        let size = N::select(positive, x, -x);
        // The weight of the score against the target. An infinite score in favour of the target costs nothing.
        let against = N::select(positive, N::all(1.0) - target, target);
        let cost = N::select(against.eq(zero), zero, size * against);
        cost + (-size).exp().ln_1p()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, target: N, _: N) -> (N, N) {
        (x.sigmoid() - target, -x)
    }
}

op! {
    /// Cross entropy of targets and probabilities, elementwise: `y = -(target * log(x) + (1 - target) * log(1 - x))`.
    ///
    /// Args:
    ///     x: Probabilities of any shape, for instance from `sigmoid`.
    ///     target: Probability of each, 0 or 1 for a label, with as many axes as `x`.
    ///
    /// Returns:
    ///     Loss of each element.
    ///
    /// Raises:
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> p, target = nn.NdArray.from_numpy_array([0.5, 0.25]), nn.NdArray.from_numpy_array([1.0, 0.0])
    ///     >>> F.binary_cross_entropy(p, target).data.round(3)
    ///     array([0.693, 0.288], dtype=float32)
    /// ```
    BinaryCrossEntropy = binary_cross_entropy(x, target)
}

impl BinaryCrossEntropy {
    /// The logarithms of `x` and `1 - x`, clamped to finite values.
    #[inline(always)]
    fn logs<N: Number>(x: N) -> (N, N) {
        (x.max(N::all(TINY)).ln(), (N::all(1.0) - x).max(N::all(TINY)).ln())
    }
}

impl Binary for BinaryCrossEntropy {
    const SAME_NDIM: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N, target: N) -> N {
        let (yes, no) = Self::logs(x);
        -(target * yes + (N::all(1.0) - target) * no)
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, target: N, _: N) -> (N, N) {
        let (yes, no) = Self::logs(x);
        ((x - target) / (x * (N::all(1.0) - x)).max(N::all(TINY)), no - yes)
    }
}

op! {
    /// Squared error, elementwise: `y = (x0 - x1)^2`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input with as many axes as `x0`.
    ///
    /// Returns:
    ///     Loss of each element.
    ///
    /// Raises:
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([4.0, 2.5])
    ///     >>> F.squared_error(x, y).data
    ///     array([9.  , 0.25], dtype=float32)
    /// ```
    SquaredError = squared_error(x0, x1)
}

impl Binary for SquaredError {
    const SAME_NDIM: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        (a - b) * (a - b)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        // Doubled last, since twice the difference may overflow where the gradient does not.
        let g = N::all(2.0) * (gy * (a - b));
        (g, -g)
    }
}

op! {
    /// Absolute error, elementwise: `y = |x0 - x1|`. The derivative by `x0` is -1 where they are equal.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input with as many axes as `x0`.
    ///
    /// Returns:
    ///     Loss of each element.
    ///
    /// Raises:
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([4.0, 2.5])
    ///     >>> F.absolute_error(x, y).data
    ///     array([3. , 0.5], dtype=float32)
    /// ```
    AbsoluteError = absolute_error(x0, x1)
}

impl Binary for AbsoluteError {
    const SAME_NDIM: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        (a - b).abs()
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        let g = N::select(a.gt(b), gy, N::select(a.le(b), -gy, N::all(0.0)));
        (g, -g)
    }
}

op! {
    /// Huber's loss, elementwise: with `d = x0 - x1`, `y = d^2` where `|d| < delta`, else
    /// `y = delta * (2 * |d| - delta)`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input with as many axes as `x0`.
    ///     delta: Difference above which the loss is linear, not negative.
    ///
    /// Returns:
    ///     Loss of each element.
    ///
    /// Raises:
    ///     ArgumentError: If `delta` is negative or NaN.
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Source:
    ///     Huber, Robust Estimation of a Location Parameter, 1964.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([4.0, 2.5])
    ///     >>> F.huber_loss(x, y).data
    ///     array([5.  , 0.25], dtype=float32)
    /// ```
    HuberLoss = huber_loss(x0, x1; delta: f64 = 1.0)
}

impl Binary for HuberLoss {
    const SAME_NDIM: bool = true;

    const CHECK: Option<fn(&Self) -> Result<()>> = Some(|op| not_negative("huber_loss", "delta", op.delta));

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        let (d, delta) = ((a - b).abs(), N::all(self.delta));
        // `delta (2 d - delta)`, without twice the difference, which may overflow where the loss does not.
        let beyond = N::all(2.0 * self.delta) * (d - N::all(0.5 * self.delta));
        N::select(d.lt(delta), d * d, beyond)
    }

    #[inline(always)]
    fn df<N: Number>(&self, a: N, b: N, _: N) -> (N, N) {
        let (d, delta) = (a - b, N::all(self.delta));
        let slope = N::all(2.0) * d.max(-delta).min(delta);
        (slope, -slope)
    }
}

op! {
    /// Absolute error beyond a tolerance, elementwise: `y = max(|x0 - x1| - epsilon, 0)`.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input with as many axes as `x0`.
    ///     epsilon: Difference up to which the loss is zero, not negative.
    ///
    /// Returns:
    ///     Loss of each element.
    ///
    /// Raises:
    ///     ArgumentError: If `epsilon` is negative or NaN.
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([4.0, 2.5])
    ///     >>> F.epsilon_insensitive_loss(x, y, 1.0).data
    ///     array([2., 0.], dtype=float32)
    /// ```
    EpsilonInsensitiveLoss = epsilon_insensitive_loss(x0, x1; epsilon: f64)
}

impl Binary for EpsilonInsensitiveLoss {
    const SAME_NDIM: bool = true;

    const CHECK: Option<fn(&Self) -> Result<()>> =
        Some(|op| not_negative("epsilon_insensitive_loss", "epsilon", op.epsilon));

    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        let (d, epsilon) = ((a - b).abs(), N::all(self.epsilon));
        N::select(d.le(epsilon), N::all(0.0), d - epsilon)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        let d = a - b;
        let left = N::select(d.lt(N::all(-self.epsilon)), -gy, N::all(0.0));
        let g = N::select(d.gt(N::all(self.epsilon)), gy, left);
        (g, -g)
    }
}

op! {
    /// Kullback-Leibler divergence of multinomial distributions: `D = sum(p * log((p + e) / (q + e)))` over all axes
    /// from `base_axis` on, with `e = 1e-8` for probabilities of zero.
    ///
    /// Args:
    ///     p: Probabilities.
    ///     q: Probabilities, of the shape of `p`.
    ///     base_axis: First axis of a sample. The axes before it are the batch.
    ///
    /// Returns:
    ///     Divergence of each sample: the batch axes, followed by an axis of length one.
    ///
    /// Raises:
    ///     AxisError: If `p` has no such axis.
    ///     ShapeError: If the inputs differ in shape.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> p, q = nn.NdArray.from_numpy_array([[0.5, 0.5]]), nn.NdArray.from_numpy_array([[0.25, 0.75]])
    ///     >>> F.kl_multinomial(p, q).data.round(3)
    ///     array([[0.144]], dtype=float32)
    /// ```
    KLMultinomial = kl_multinomial(p, q; base_axis: i64 = 1)
}

/// Added to avoid infinite logarithms and quotients in [`KLMultinomial`], as in NNabla.
const KL_EPSILON: f64 = 1e-8;

impl KLMultinomial {
    /// The loops over samples as lines.
    fn lines(&self, p: &Shape) -> Result<SoftmaxLines> {
        let axis = p.axis("kl_multinomial", self.base_axis)?;
        Ok(SoftmaxLines { outer: p.size_to(axis), n: p.size_from(axis), inner: 1 })
    }

    /// The shape with length one along the axes of a sample.
    fn kept(&self, p: &Shape) -> Result<Shape> {
        let axis = p.axis("kl_multinomial", self.base_axis)?;
        Ok((0..p.ndim()).map(|i| if i < axis { p[i] } else { 1 }).collect())
    }
}

impl Compute for KLMultinomial {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (p, q) = (x.get(0), x.get(1));
        if p != q {
            return Err(Error::shape("kl_multinomial", "two inputs of one shape", [p, q]));
        }
        let axis = p.axis("kl_multinomial", self.base_axis)?;
        one(p[..axis].iter().copied().chain([1]).collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (p, q, epsilon) = (run.x(0), run.x(1), T::all(KL_EPSILON));
        let term = |i: usize| p[i] * ((p[i] + epsilon).ln() - (q[i] + epsilon).ln());
        let sums = self.lines(run.x_shape(0))?.sums(term);
        run.y(0).iter_mut().zip(&*sums).for_each(|(y, sum)| *y = T::of(*sum));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (p, q, gy, epsilon) = (run.x(0), run.x(1), run.gy(0), T::all(KL_EPSILON));
        let shape = run.x_shape(0);
        let kept = self.kept(shape)?;
        if let Some(gp) = run.gx(0) {
            spread_each(
                gp,
                ([p, q], shape),
                ([gy], &kept),
                #[inline(always)]
                move |[p, q], [gy]| {
                    let safe = p + epsilon;
                    gy * (safe.ln() - (q + epsilon).ln() + p / safe)
                },
            );
        }
        if let Some(gq) = run.gx(1) {
            spread_each(
                gq,
                ([p, q], shape),
                ([gy], &kept),
                #[inline(always)]
                move |[p, q], [gy]| -gy * p / (q + epsilon),
            );
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (p, q, epsilon) = (s.x(0), s.x(1), Sym::Const(KL_EPSILON));
        let Ok(kept) = self.kept(&p.shape()) else { return vec![None, None] };
        let gy = s.gy(0).reshape(&kept);
        let gp = || gy * ((p + epsilon).ln() - (q + epsilon).ln() + p / (p + epsilon));
        let gq = || -gy * (p / (q + epsilon));
        vec![s.wants(0).then(gp), s.wants(1).then(gq)]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

#[cfg(test)]
mod tests {
    use super::{Binary, EpsilonInsensitiveLoss, HuberLoss, TINY};
    use crate::array::Shape;
    use crate::ops::Value;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, op};

    #[test]
    fn losses_equal_their_formulas() {
        type Loss<'a> = &'a dyn Fn(f64, f64) -> f64;
        let huber = |d: f64| if d < 0.7 { d * d } else { 0.7 * (2.0 * d - 0.7) };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let entropy = |x: f64, t: f64| -(t * x.ln() + (1.0 - t) * (1.0 - x).ln());
        let cases: [(&str, Loss<'_>, &[Value]); 5] = [
            ("sigmoid_cross_entropy", &|x, t| entropy(sigmoid(x), t), &[]),
            ("squared_error", &|a, b| (a - b).powi(2), &[]),
            ("absolute_error", &|a, b| (a - b).abs(), &[]),
            ("huber_loss", &|a, b| huber((a - b).abs()), &[Value::Float(0.7)]),
            ("epsilon_insensitive_loss", &|a, b| ((a - b).abs() - 0.7).max(0.0), &[Value::Float(0.7)]),
        ];
        let (a, b) = (Tensor::sample([3, 7], 1), Tensor::sample([3, 7], 2));
        for (name, f, values) in cases {
            let loss = a.data.iter().zip(&b.data).map(|(a, b)| f(*a, *b)).collect();
            let inputs = [a.clone(), b.clone()];
            check_forward(&op(name, values), &inputs, &[Tensor { shape: a.shape.clone(), data: loss }]);
            check_gradient(&op(name, values), &inputs, &[true, true]);
            let ranks = [&Shape::from([3, 1]), &Shape::from([3])];
            assert!(op(name, values).shapes(&ranks).is_err(), "{name} takes inputs of different rank");
        }
        let (p, t) = (Tensor::new([1, 3], &[0.1, 0.5, 0.9]), Tensor::new([1, 3], &[1.0, 0.3, 0.0]));
        let loss: Vec<_> = p.data.iter().zip(&t.data).map(|(p, t)| entropy(*p, *t)).collect();
        check_forward(
            &op("binary_cross_entropy", &[]),
            &[p.clone(), t.clone()],
            &[Tensor::new([1, 3], &loss)],
        );
        check_gradient(&op("binary_cross_entropy", &[]), &[p, t], &[true, true]);
    }

    #[test]
    fn losses_are_finite_far_out_and_steady_at_kinks() {
        let far = [Tensor::new([4], &[1e4, -1e4, 1e4, -1e4]), Tensor::new([4], &[1.0, 1.0, 0.0, 0.0])];
        check_forward(&op("sigmoid_cross_entropy", &[]), &far, &[Tensor::new([4], &[0.0, 1e4, 1e4, 0.0])]);
        let sure = [Tensor::new([4], &[0.0, 1.0, 0.0, 1.0]), Tensor::new([4], &[0.0, 1.0, 1.0, 0.0])];
        let most = -TINY.ln();
        check_forward(&op("binary_cross_entropy", &[]), &sure, &[Tensor::new([4], &[0.0, 0.0, most, most])]);
        assert_eq!(HuberLoss { delta: 0.5 }.df(-3.0, 1.0, 0.0), (-1.0, 1.0));
        assert_eq!(EpsilonInsensitiveLoss { epsilon: 1.0 }.gx(1.0, 2.0, 1.0, 0.0), (0.0, -0.0));
    }

    #[test]
    fn divergences_are_summed_from_an_axis_on() {
        let unit = |seed| {
            let x = Tensor::sample([2, 3, 4], seed);
            Tensor { data: x.data.iter().map(|v| v.abs() + 0.1).collect(), ..x }
        };
        let (p, q) = (unit(1), unit(2));
        let terms: Vec<_> =
            p.data.iter().zip(&q.data).map(|(p, q)| p * ((p + 1e-8) / (q + 1e-8)).ln()).collect();
        for (base_axis, shape) in [(0, vec![1]), (1, vec![2, 1]), (-1, vec![2, 3, 1])] {
            let shape = Shape::from(shape);
            let sums = terms.chunks(24 / shape.size()).map(|row| row.iter().sum()).collect();
            let kl = op("kl_multinomial", &[Value::Int(base_axis)]);
            check_forward(&kl, &[p.clone(), q.clone()], &[Tensor { shape, data: sums }]);
            check_gradient(&kl, &[p.clone(), q.clone()], &[true, true]);
        }
    }
}
