//! Losses and metrics of class labels.

use crate::array::Shape;
use crate::kernels::scratch::{SavedMemory, Zeros};
use crate::kernels::{Float, Number, Stored, softmax as kernels};
use crate::ops::losses::loss::TINY;
use crate::ops::reductions::softmax::{Normalised, Softmax, along};
use crate::ops::{
    Backward, Binary, Compares, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<SoftmaxCrossEntropy>(),
    Entry::of::<CategoricalCrossEntropy>(),
    Entry::of::<TopNError>(),
    Entry::binary::<BinaryError>(),
];

/// Checks that the labels have the shape of `x` with length one along `axis`.
pub(crate) fn labels(op: &str, x: &Shape, target: &Shape, axis: Option<i64>) -> Result<Shapes> {
    let (axis, _) = along(op, x, axis)?;
    let mut expected = x.clone();
    expected[axis] = 1;
    if *target != expected {
        return Err(Error::shape(op, format!("labels of shape {expected}"), [x, target]));
    }
    one(expected)
}

/// The class of a label, less than `n`. None for a negative label, whose sample is ignored.
#[inline(always)]
pub(crate) fn class(op: &str, label: i64, n: usize) -> Result<Option<usize>> {
    match usize::try_from(label) {
        Err(_) => Ok(None),
        Ok(class) if class < n => Ok(Some(class)),
        Ok(_) => Err(Error::Index(format!("{op}: expected labels below {n}, got {label}"))),
    }
}

op! {
    /// One-hot mask of labels along `axis`. The constant part of gradients of losses.
    ///
    /// Args:
    ///     target: Labels, with length one along `axis`. A negative label gives zeros.
    ///     axis: Axis of the classes.
    ///     n: Number of classes.
    ///
    /// Returns:
    ///     Array of the shape of `target`, with length `n` along `axis`.
    LabelMask = label_mask(target: index; axis: i64, n: i64)
}

impl LabelMask {
    /// The one-hot mask of `target`, and its sum along the classes: zero if a sample is ignored.
    fn symbols(target: Sym, axis: usize, n: usize) -> (Sym, Sym) {
        let mask = Sym::apply(Self { axis: axis as i64, n: n as i64 }, &[target]);
        (mask, mask.sum(&[axis], true))
    }
}

impl Compute for LabelMask {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let mut shape = x.get(0).clone();
        let axis = shape.axis("label_mask", self.axis)?;
        shape[axis] = self.n as usize;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (_, lines) = along("label_mask", run.y_shape(0), Some(self.axis))?;
        let y = run.y(0);
        y.fill(T::ZERO);
        for (line, label) in run.index(0).iter().enumerate() {
            if let Some(class) = class("label_mask", *label, lines.n)? {
                y[lines.at(line, class)] = T::ONE;
            }
        }
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Cross entropy of the softmax of scores and labels, for each sample: `y = -log(softmax(x)[target])`.
    ///
    /// Takes the output of the last layer: softmax and logarithm are computed together, without overflow.
    ///
    /// Args:
    ///     x: Scores of the classes along `axis`.
    ///     target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
    ///         negative label is ignored: its loss and its gradient are zero.
    ///     axis: Axis of the classes, the last one by default.
    ///
    /// Returns:
    ///     Loss of each sample, array of the shape of `target`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes of `target` and `x` do not fit together.
    ///     IndexError: If a label is not a whole number or not less than the number of classes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> scores = nn.NdArray.from_numpy_array([[0.0, 0.0], [1.0, 3.0]])
    ///     >>> labels = nn.NdArray.from_numpy_array([[0], [1]])
    ///     >>> F.softmax_cross_entropy(scores, labels).data.round(3)
    ///     array([[0.693],
    ///            [0.127]], dtype=float32)
    /// ```
    SoftmaxCrossEntropy = softmax_cross_entropy(x, target: index; axis: Option<i64> = None)
}

/// Values saved by [`SoftmaxCrossEntropy`]: the largest element and the logarithm of the sum of each line.
type LogSums<T> = SavedMemory<(T, T)>;

impl Compute for SoftmaxCrossEntropy {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        labels("softmax_cross_entropy", x.get(0), x.get(1), self.axis)
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let (_, lines) = along("softmax_cross_entropy", run.x_shape(0), self.axis)?;
        let (x, target, y) = (run.x(0), run.index(1), run.y(0));
        let logs = run.state::<LogSums<E::Wide>>();
        kernels::log_sums(lines, x, logs);
        for (line, y) in y.iter_mut().enumerate() {
            let class = class("softmax_cross_entropy", target[line], lines.n)?;
            let loss = |c: usize| logs[line].1 - (x[lines.at(line, c)].wide() - logs[line].0);
            *y = class.map_or(E::ZERO, |c| E::narrowed(loss(c)));
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (_, lines) = along("softmax_cross_entropy", run.x_shape(0), self.axis)?;
        let (x, target, gy) = (run.x(0), run.index(1), run.gy(0));
        let Some(gx) = run.gx(0) else { return Ok(()) };
        let (add, gx) = (gx.accumulate, gx.data);
        let logs = run.state::<LogSums<T>>();
        if logs.len() != lines.count() {
            // No forward run in this type has saved them.
            kernels::log_sums(lines, x, logs);
        }
        let mut weight = Zeros::new(gy.len());
        for ((weight, (_, log)), (label, g)) in weight.iter_mut().zip(&**logs).zip(target.iter().zip(gy)) {
            // A weight of zero excludes the row. A row of NaN that counts stays NaN.
            let is_lost = *g == T::ZERO && log.is_nan();
            *weight = if *label < 0 {
                T::ZERO
            } else if is_lost {
                *log
            } else {
                *g
            };
        }
        kernels::put(
            lines,
            gx,
            add,
            x,
            (logs, &weight),
            #[inline(always)]
            |x, (max, log), weight| {
                let share = ((x - max) - log).exp() * weight;
                if weight == T::ZERO { T::ZERO } else { share }
            },
        );
        for (line, label) in target.iter().enumerate() {
            if let Some(class) = class("softmax_cross_entropy", *label, lines.n)? {
                let at = lines.at(line, class);
                gx[at] = gx[at] - gy[line];
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, gy) = (s.x(0), s.gy(0));
        let Ok((axis, lines)) = along("softmax_cross_entropy", &x.shape(), self.axis) else {
            return vec![None];
        };
        let (mask, counted) = LabelMask::symbols(s.x(1), axis, lines.n);
        let (shape, zero) = (x.shape(), Sym::Const(0.0));
        let gy = Sym::select(counted, gy, zero);
        let x = Sym::select(counted.broadcast(&shape), x, zero);
        let softmax = Sym::apply(Normalised(Softmax { axis: Some(axis as i64) }), &[x]);
        vec![Some(softmax * gy - Sym::select(mask, gy.broadcast(&shape), zero))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

op! {
    /// Cross entropy of probabilities and labels, for each sample: `y = -log(x[target])`.
    ///
    /// Args:
    ///     x: Probabilities of the classes along `axis`, for instance from `softmax`.
    ///     target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
    ///         negative label is ignored: its loss and its gradient are zero.
    ///     axis: Axis of the classes, the last one by default.
    ///
    /// Returns:
    ///     Loss of each sample, array of the shape of `target`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes of `target` and `x` do not fit together.
    ///     IndexError: If a label is not a whole number or not less than the number of classes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> p = nn.NdArray.from_numpy_array([[0.5, 0.5], [0.25, 0.75]])
    ///     >>> labels = nn.NdArray.from_numpy_array([[0], [1]])
    ///     >>> F.categorical_cross_entropy(p, labels).data.round(3)
    ///     array([[0.693],
    ///            [0.288]], dtype=float32)
    /// ```
    CategoricalCrossEntropy = categorical_cross_entropy(x, target: index; axis: Option<i64> = None)
}

impl Compute for CategoricalCrossEntropy {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        labels("categorical_cross_entropy", x.get(0), x.get(1), self.axis)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (_, lines) = along("categorical_cross_entropy", run.x_shape(0), self.axis)?;
        let (x, target) = (run.x(0), run.index(1));
        for (line, y) in run.y(0).iter_mut().enumerate() {
            let class = class("categorical_cross_entropy", target[line], lines.n)?;
            *y = class.map_or(T::ZERO, |c| -x[lines.at(line, c)].max(T::all(TINY)).ln());
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (_, lines) = along("categorical_cross_entropy", run.x_shape(0), self.axis)?;
        let (x, target, gy) = (run.x(0), run.index(1), run.gy(0));
        let Some(gx) = run.gx(0).map(crate::ops::Grad::adding) else { return Ok(()) };
        for (line, label) in target.iter().enumerate() {
            if let Some(class) = class("categorical_cross_entropy", *label, lines.n)? {
                let at = lines.at(line, class);
                gx[at] = gx[at] - gy[line] / x[at].max(T::all(TINY));
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, gy) = (s.x(0), s.gy(0));
        let Ok((axis, lines)) = along("categorical_cross_entropy", &x.shape(), self.axis) else {
            return vec![None];
        };
        let (mask, _) = LabelMask::symbols(s.x(1), axis, lines.n);
        let gy = Sym::select(mask, -gy.broadcast(&x.shape()), Sym::Const(0.0));
        vec![Some(gy / Sym::select(mask, x.max(Sym::Const(TINY)), Sym::Const(1.0)))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

op! {
    /// Top-n error: 1 if the labelled class is not among the `n` highest scores, else 0. A tie counts as an error.
    ///
    /// Args:
    ///     x: Scores of the classes along `axis`.
    ///     target: Index of the class of each sample, of the shape of `x` with length one along `axis`. A sample with a
    ///         negative label is no error.
    ///     axis: Axis of the classes, the last one by default.
    ///     n: Number of highest scores to consider.
    ///
    /// Returns:
    ///     0 or 1 for each sample, array of the shape of `target`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes of `target` and `x` do not fit together.
    ///     ArgumentError: If `n` is less than one.
    ///     IndexError: If a label is not a whole number or not less than the number of classes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> scores = nn.NdArray.from_numpy_array([[5.0, 3.0, 1.0], [5.0, 3.0, 1.0]])
    ///     >>> labels = nn.NdArray.from_numpy_array([[0], [1]])
    ///     >>> F.top_n_error(scores, labels).data
    ///     array([[0.],
    ///            [1.]], dtype=float32)
    ///     >>> F.top_n_error(scores, labels, n=2).data
    ///     array([[0.],
    ///            [0.]], dtype=float32)
    /// ```
    TopNError = top_n_error(x, target: index; axis: Option<i64> = None, n: i64 = 1)
}

impl Compute for TopNError {
    const COMPARES: Compares = Compares::One(0);

    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if self.n < 1 {
            return Err(Error::argument("top_n_error", "n", "one or more", self.n));
        }
        labels("top_n_error", x.get(0), x.get(1), self.axis)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (_, lines) = along("top_n_error", run.x_shape(0), self.axis)?;
        let (x, target) = (run.x(0), run.index(1));
        for (line, y) in run.y(0).iter_mut().enumerate() {
            let Some(class) = class("top_n_error", target[line], lines.n)? else {
                *y = T::ZERO;
                continue;
            };
            let score = x[lines.at(line, class)];
            let below = (0..lines.n).filter(|k| x[lines.at(line, *k)] < score).count();
            // Counts lower scores, so that a NaN score is never a correct guess.
            *y = if (lines.n - below) as i64 > self.n { T::ONE } else { T::ZERO };
        }
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None, None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Error of a binary classification: 1 if probability and target are on different sides of one half, or if one is
    /// NaN; else 0.
    ///
    /// Args:
    ///     x: Probabilities of any shape.
    ///     target: 0 or 1 for each, with as many axes as `x`.
    ///
    /// Returns:
    ///     0 or 1 for each element.
    ///
    /// Raises:
    ///     ShapeError: If the inputs differ in their number of axes, or do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> p, target = nn.NdArray.from_numpy_array([0.75, 0.25]), nn.NdArray.from_numpy_array([1.0, 1.0])
    ///     >>> F.binary_error(p, target).data
    ///     array([0., 1.], dtype=float32)
    /// ```
    BinaryError = binary_error(x, target)
}

impl Binary for BinaryError {
    const READS: Reads = Reads::NOTHING;
    const IS_DIFFERENTIABLE: bool = false;
    const SAME_NDIM: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N, target: N) -> N {
        let (half, one, zero) = (N::all(0.5), N::all(1.0), N::all(0.0));
        let side = |v: N| N::select(v.ge(half), one, zero);
        let wrong = N::select(side(x).eq(side(target)), zero, one);
        N::select(N::or(x.is_nan(), target.is_nan()), one, wrong)
    }
}

#[cfg(test)]
mod tests {
    use crate::array::Shape;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, forward, op};
    use crate::ops::{State, Value};

    #[test]
    fn cross_entropies_ignore_negative_labels() {
        let (x, labels) = (Tensor::sample([2, 3, 2], 4), [2.0, -1.0, 0.0, 1.0]);
        let exp = |i: usize| x.data[i].exp();
        let first = |i: usize| i / 6 * 6 + i % 2;
        let softmax = |i: usize| exp(i) / (0..3).map(|k| exp(first(i) + 2 * k)).sum::<f64>();
        let p = Tensor { shape: x.shape.clone(), data: (0..12).map(softmax).collect() };
        let at = |i: usize| i / 2 * 6 + labels[i] as usize * 2 + i % 2;
        let loss: Vec<_> = (0..4).map(|i| if labels[i] < 0.0 { 0.0 } else { -p.data[at(i)].ln() }).collect();
        let (target, loss) = (Tensor::new([2, 1, 2], &labels), Tensor::new([2, 1, 2], &loss));
        for (name, x) in [("softmax_cross_entropy", x), ("categorical_cross_entropy", p)] {
            check_forward(
                &op(name, &[Value::Int(1)]),
                &[x.clone(), target.clone()],
                std::slice::from_ref(&loss),
            );
            check_gradient(&op(name, &[Value::Int(1)]), &[x, target.clone()], &[true, false]);
        }
        let far = [Tensor::new([1, 2], &[1e4, -1e4]), Tensor::new([1, 1], &[1.0])];
        check_forward(&op("softmax_cross_entropy", &[Value::None]), &far, &[Tensor::new([1, 1], &[2e4])]);
        let zero = [Tensor::new([1, 2], &[0.0, 1.0]), Tensor::new([1, 1], &[0.0])];
        check_forward(
            &op("categorical_cross_entropy", &[Value::None]),
            &zero,
            &[Tensor::new([1, 1], &[-super::TINY.ln()])],
        );
    }

    #[test]
    fn labels_beyond_the_classes_and_wrong_shapes_are_refused() {
        for name in ["softmax_cross_entropy", "categorical_cross_entropy"] {
            let x = Tensor::sample([2, 3], 1);
            let beyond = forward(
                &op(name, &[Value::None]),
                &[x, Tensor::new([2, 1], &[0.0, 3.0])],
                &mut State::default(),
                false,
            );
            assert!(beyond.is_err_and(|e| e.to_string().contains("below 3, got 3")));
            let shapes =
                |t: &[usize]| op(name, &[Value::None]).shapes(&[&Shape::from([2, 3]), &Shape::from(t)]);
            assert!(shapes(&[2]).is_err() && shapes(&[1, 1]).is_err() && shapes(&[2, 1]).is_ok());
        }
    }

    #[test]
    fn top_n_error_counts_ties_as_better_and_ignores_negative_labels() {
        let x = Tensor::new([3, 3], &[0.1, 0.7, 0.2, 0.5, 0.5, 0.5, 1.0, 2.0, 3.0]);
        let target = Tensor::new([3, 1], &[2.0, 1.0, -1.0]);
        let best = |n| op("top_n_error", &[Value::Int(-1), Value::Int(n)]);
        for (n, expected) in [(1, [1.0, 1.0, 0.0]), (2, [0.0, 1.0, 0.0]), (3, [0.0; 3])] {
            check_forward(&best(n), &[x.clone(), target.clone()], &[Tensor::new([3, 1], &expected)]);
        }
        check_gradient(&best(1), &[x, target], &[false, false]);
    }

    #[test]
    fn binary_errors_are_counted() {
        let x = [Tensor::new([1, 4], &[0.1, 0.5, 0.7, 0.4]), Tensor::new([1, 4], &[0.0, 1.0, 0.5, 1.0])];
        check_forward(&op("binary_error", &[]), &x, &[Tensor::new([1, 4], &[0.0, 0.0, 0.0, 1.0])]);
        check_gradient(&op("binary_error", &[]), &x, &[false, false]);
    }
}
