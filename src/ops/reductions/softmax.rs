//! `softmax` and `log_softmax`.

use crate::Result;
use crate::array::Shape;
use crate::kernels::{Number, Stored, softmax as kernels, softmax::SoftmaxLines};
use crate::ops::{
    Backward, Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value, like, op,
};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Normalised<Softmax>>(), Entry::of::<Normalised<LogSoftmax>>()];

/// The axis, by default the last one, and the lines along it.
pub(crate) fn along(op: &str, x: &Shape, axis: Option<i64>) -> Result<(usize, SoftmaxLines)> {
    let axis = x.axis(op, axis.unwrap_or(-1))?;
    Ok((axis, SoftmaxLines { outer: x.size_to(axis), n: x[axis], inner: x.size_from(axis + 1) }))
}

/// An operation that normalizes lines. The gradient of an element needs one sum along its line.
pub(crate) trait Normalising: Declared {
    /// The argument `axis`. None for the last axis.
    fn axis(&self) -> Option<i64>;

    /// Writes the normalized elements of `x` to `y`.
    fn f<E: Stored>(lines: SoftmaxLines, x: &[E], y: &mut [E]);

    /// The summand of the sum along a line. It must be `#[inline(always)]`.
    fn summand<N: Number>(y: N, gy: N) -> N;

    /// The gradient of an element, given the sum. It must be `#[inline(always)]`.
    fn df<N: Number>(y: N, gy: N, sum: N) -> N;
}

op! {
    /// Softmax along an axis: `y = exp(x) / sum(exp(x))`.
    ///
    /// Args:
    ///     x: Input of any shape with at least one axis.
    ///     axis: Axis along which the results sum up to one, the last one by default.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[0.0, 0.0], [1.0, 3.0]])
    ///     >>> F.softmax(x).data.round(3)
    ///     array([[0.5  , 0.5  ],
    ///            [0.119, 0.881]], dtype=float32)
    /// ```
    Softmax = softmax(x; axis: Option<i64> = None)
}

impl Normalising for Softmax {
    fn axis(&self) -> Option<i64> {
        self.axis
    }

    fn f<E: Stored>(lines: SoftmaxLines, x: &[E], y: &mut [E]) {
        kernels::softmax(lines, x, y);
    }

    #[inline(always)]
    fn summand<N: Number>(y: N, gy: N) -> N {
        y * gy
    }

    #[inline(always)]
    fn df<N: Number>(y: N, gy: N, sum: N) -> N {
        y * (gy - sum)
    }
}

op! {
    /// Logarithm of softmax along an axis: `y = x - log(sum(exp(x)))`.
    ///
    /// Args:
    ///     x: Input of any shape with at least one axis.
    ///     axis: Axis of the softmax, the last one by default.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[0.0, 0.0], [1.0, 3.0]])
    ///     >>> F.log_softmax(x).data.round(3)
    ///     array([[-0.693, -0.693],
    ///            [-2.127, -0.127]], dtype=float32)
    /// ```
    LogSoftmax = log_softmax(x; axis: Option<i64> = None)
}

impl Normalising for LogSoftmax {
    fn axis(&self) -> Option<i64> {
        self.axis
    }

    fn f<E: Stored>(lines: SoftmaxLines, x: &[E], y: &mut [E]) {
        kernels::log_softmax(lines, x, y);
    }

    #[inline(always)]
    fn summand<N: Number>(_: N, gy: N) -> N {
        gy
    }

    #[inline(always)]
    fn df<N: Number>(y: N, gy: N, sum: N) -> N {
        gy - y.exp() * sum
    }
}

/// Adapts a [`Normalising`] to [`Compute`].
#[derive(Clone)]
pub(crate) struct Normalised<C>(pub(crate) C);

impl<C: Declared> Declared for Normalised<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        C::bind(values).map(Normalised)
    }
    fn values(&self) -> Vec<Value> {
        self.0.values()
    }
}

impl<C: Normalising> Compute for Normalised<C> {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        along(C::SPEC.name, x.get(0), self.0.axis())?;
        like(x)
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let (_, lines) = along(C::SPEC.name, run.x_shape(0), self.0.axis())?;
        C::f(lines, run.x(0), run.y(0));
        Ok(())
    }

    fn is_stored_back(&self, _: &InputShapes<'_>) -> bool {
        true
    }

    fn stored_backward<E: Stored>(&self, run: &mut Backward<'_, E>) -> Result<()> {
        let (_, lines) = along(C::SPEC.name, run.y_shape(0), self.0.axis())?;
        let (y, gy) = (run.y(0), run.gy(0));
        let Some(gx) = run.gx(0) else { return Ok(()) };
        kernels::put_by_sums(
            lines,
            gx.data,
            gx.accumulate,
            [y, gy],
            #[inline(always)]
            |[y, gy]| C::summand(y, gy),
            #[inline(always)]
            |[y, gy], sum| C::df(y, gy, sum),
        );
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (y, gy) = (s.y(0), s.gy(0));
        let Ok((axis, _)) = along(C::SPEC.name, &y.shape(), self.0.axis()) else { return vec![None] };
        vec![Some(C::df(y, gy, C::summand(y, gy).sum(&[axis], true)))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::OUTPUTS
    }
}

#[cfg(test)]
mod tests {
    use crate::array::Shape;
    use crate::ops::testing::{Tensor, check_forward, check_gradient};
    use crate::ops::{Op, Value, find};

    /// An operation along an axis, or along its default axis.
    fn op(name: &str, axis: Option<i64>) -> Op {
        let axis = axis.map_or(Value::None, Value::Int);
        find(name).expect("is registered").bind(&[axis], u64::MAX).expect("binds")
    }

    /// Softmax of `x`, of shape (outer, n, inner), along its middle axis.
    fn softmax(x: &Tensor) -> Vec<f64> {
        let (n, inner) = (x.shape[1], x.shape[2]);
        let sum = |i: usize| {
            let first = i / (n * inner) * n * inner + i % inner;
            (0..n).map(|k| x.data[first + k * inner].exp()).sum::<f64>()
        };
        x.data.iter().enumerate().map(|(i, x)| x.exp() / sum(i)).collect()
    }

    #[test]
    fn softmax_sums_up_to_one_along_any_axis() {
        for shape in [[2, 3, 4], [3, 19, 1], [1, 1, 5], [2, 0, 3], [0, 2, 2]] {
            let x = [Tensor::sample(shape, 3)];
            let p = softmax(&x[0]);
            let log = p.iter().map(|p| p.ln()).collect();
            check_forward(&op("softmax", Some(-2)), &x, &[Tensor { shape: x[0].shape.clone(), data: p }]);
            check_forward(
                &op("log_softmax", Some(1)),
                &x,
                &[Tensor { shape: x[0].shape.clone(), data: log }],
            );
            check_gradient(&op("softmax", Some(1)), &x, &[true]);
            check_gradient(&op("log_softmax", Some(1)), &x, &[true]);
        }
        check_gradient(&op("softmax", None), &[Tensor::sample([2, 17], 1)], &[true]);
        check_forward(
            &op("softmax", None),
            &[Tensor::new([2], &[1e4, -1e4])],
            &[Tensor::new([2], &[1.0, 0.0])],
        );
        check_forward(
            &op("log_softmax", None),
            &[Tensor::new([2], &[1e4, -1e4])],
            &[Tensor::new([2], &[0.0, -2e4])],
        );
        assert!(op("softmax", None).shapes(&[&Shape::scalar()]).is_err());
    }
}
