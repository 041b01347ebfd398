//! `affine`: fully connected layers.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::channel_sums::add_sums_of;
use crate::kernels::gemm::{Epilogue, Matrix, MatrixMut, gemm, gemm_then};
use crate::ops::products::batch_matmul::BatchMatmul;
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Affine>()];

op! {
    /// Affine map, a fully connected layer: `y = x W + b`, where the axes of `x` from `base_axis` on are flattened to
    /// one.
    ///
    /// Args:
    ///     x: Input, shape (batch..., features...); the axes before `base_axis` are the batch.
    ///     weight: Weight matrix `W`, shape (inputs, outputs...), where inputs is the number of features.
    ///     bias: Bias `b`, shape (outputs...); none by default.
    ///     base_axis: First axis of the features; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array of shape (batch..., outputs...).
    ///
    /// Raises:
    ///     AxisError: If `x` has no axis `base_axis`.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0]])
    ///     >>> w = nn.NdArray.from_numpy_array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    ///     >>> b = nn.NdArray.from_numpy_array([10.0, 20.0, 30.0])
    ///     >>> F.affine(x, w, b).data
    ///     array([[11., 22., 33.]], dtype=float32)
    /// ```
    Affine = affine(x, weight, bias: optional; base_axis: i64 = 1)
}

/// The sizes of an [`Affine`]: `rows` rows of `inputs` numbers become rows of `outputs` numbers.
struct AffineSizes {
    /// The number of samples.
    rows: usize,
    /// The number of features of a sample.
    inputs: usize,
    /// The number of outputs of a sample.
    outputs: usize,
}

impl Affine {
    /// The sizes of the product: rows, features and outputs.
    fn sizes(&self, x: &Shape, w: &Shape) -> Result<AffineSizes> {
        let base = x.axis("affine", self.base_axis)?;
        Ok(AffineSizes { rows: x.size_to(base), inputs: x.size_from(base), outputs: w.size_from(1) })
    }
}

/// The output shape of an affine map for this input and weight, with an optional bias.
pub(crate) fn shapes(op: &str, base_axis: i64, [x, w]: [&Shape; 2], bias: Option<&Shape>) -> Result<Shapes> {
    let base = x.axis(op, base_axis)?;
    let inputs = x.size_from(base);
    if w.ndim() < 2 || w[0] != inputs {
        let expected =
            format!("a weight of shape ({inputs}, outputs...) for an input with {inputs} features");
        return Err(Error::shape(op, expected, [x, w]));
    }
    if let Some(b) = bias
        && **b != w[1..]
    {
        let expected = format!("a bias of shape {}, as the outputs of the weight", Shape::from(&w[1..]));
        return Err(Error::shape(op, expected, [x, w, b]));
    }
    one(x[..base].iter().chain(&w[1..]).copied().collect::<Shape>())
}

impl Compute for Affine {
    const HOSTS_EPILOGUE: bool = true;
    const CACHED_INPUT: Option<usize> = Some(1);
    const IN_BFLOAT16: u64 = 0b11;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        shapes("affine", self.base_axis, [x.get(0), x.get(1)], x.find(2))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let AffineSizes { rows, inputs, outputs } = self.sizes(run.x_shape(0), run.x_shape(1))?;
        let x = Matrix::of_values(run.values(0), rows, inputs);
        let w = Matrix::of_values(run.values(1), inputs, outputs).of(run.input_cache());
        let column_bias = run.has(2).then(|| run.x(2));
        let y = MatrixMut::of_values(run.y_values(), rows, outputs);
        gemm_then(y, x, w, Epilogue { column_bias, tail: run.tail(), ..Epilogue::NONE });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let AffineSizes { rows, inputs, outputs } = self.sizes(run.x_shape(0), run.x_shape(1))?;
        let gy = Matrix::of_values(run.gy_values(), rows, outputs);
        if let Some((data, accumulate)) = run.gx_values(0) {
            let w = Matrix::of_values(run.values(1), inputs, outputs).of(run.input_cache());
            gemm(MatrixMut::of_values(data, rows, inputs), accumulate, gy, w.t());
        }
        if let Some((data, accumulate)) = run.gx_values(1) {
            let x = Matrix::of_values(run.values(0), rows, inputs);
            gemm(MatrixMut::of_values(data, inputs, outputs), accumulate, x.t(), gy);
        }
        if let Some(gb) = run.gx(2) {
            add_sums_of(run.gy_values(), gb.adding(), 1);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (x, w, gy) = (s.x(0), s.x(1), s.gy(0));
        let (x_shape, w_shape) = (x.shape(), w.shape());
        let Ok(AffineSizes { rows, inputs, outputs }) = self.sizes(&x_shape, &w_shape) else {
            return Vec::new();
        };
        let gy = gy.reshape(&[rows, outputs]);
        let matmul = |a: Sym, b: Sym, transpose_a, transpose_b| {
            Sym::apply(BatchMatmul { transpose_a, transpose_b }, &[a, b])
        };
        vec![
            s.wants(0).then(|| matmul(gy, w.reshape(&[inputs, outputs]), false, true).reshape(&x_shape)),
            s.wants(1).then(|| matmul(x.reshape(&[rows, inputs]), gy, true, false).reshape(&w_shape)),
            s.wants(2).then(|| gy.sum(&[0], false).reshape(&w_shape[1..])),
        ]
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1)[0]
    }

    fn reads(&self, gx: usize) -> Reads {
        [Reads::inputs(0b10), Reads::inputs(0b01), Reads::NOTHING][gx.min(2)]
    }
}

#[cfg(test)]
mod tests {
    use super::Affine;
    use crate::array::Shape;
    use crate::ops::testing::{Tensor, check_forward, check_gradient, forward};
    use crate::ops::{Compute, Op, State};

    /// The tensor with another shape.
    fn reshaped<const N: usize>(t: &Tensor, shape: [usize; N]) -> Tensor {
        Tensor::new(shape, &t.data)
    }

    #[test]
    fn affine_equals_its_formula() {
        for (rows, inputs, outputs) in [(1, 1, 1), (2, 12, 6), (5, 3, 7), (0, 4, 2), (3, 0, 2), (2, 3, 0)] {
            let (x, w) = (Tensor::sample([rows, inputs], 1), Tensor::sample([inputs, outputs], 2));
            let b = Tensor::sample([outputs], 3);
            let product = |i: usize, o: usize| -> f64 {
                (0..inputs).map(|k| x.data[i * inputs + k] * w.data[k * outputs + o]).sum()
            };
            let all = (0..rows).flat_map(|i| (0..outputs).map(move |o| (i, o)));
            let y: Vec<f64> = all.clone().map(|(i, o)| product(i, o)).collect();
            let yb: Vec<f64> = all.map(|(i, o)| product(i, o) + b.data[o]).collect();
            let op = Op::new(Affine { base_axis: 1 });
            let inputs = [x, w, b];
            check_forward(&op, &inputs[..2], &[Tensor::new([rows, outputs], &y)]);
            check_forward(&op, &inputs, &[Tensor::new([rows, outputs], &yb)]);
            check_gradient(&op, &inputs[..2], &[true, true]);
            check_gradient(&op, &inputs, &[true, true, true]);
        }
    }

    #[test]
    fn affine_joins_the_axes_of_features_and_keeps_those_of_outputs() {
        let (x, w, b) = (Tensor::sample([6, 4], 1), Tensor::sample([4, 6], 2), Tensor::sample([6], 3));
        let flat = Op::new(Affine { base_axis: 1 });
        let inputs = [x.clone(), w.clone(), b.clone()];
        let y = forward(&flat, &inputs, &mut State::default(), false).expect("runs").remove(0);
        for (base_axis, shape) in [(2, [2, 3, 4, 1]), (-2, [2, 3, 4, 1]), (-1, [1, 2, 3, 4])] {
            let op = Op::new(Affine { base_axis });
            let inputs = [reshaped(&x, shape), reshaped(&w, [4, 2, 3]), reshaped(&b, [2, 3])];
            let batch =
                if base_axis == -1 { Shape::from([1, 2, 3, 2, 3]) } else { Shape::from([2, 3, 2, 3]) };
            check_forward(&op, &inputs, &[Tensor { shape: batch, data: y.data.clone() }]);
            check_gradient(&op, &inputs, &[true, true, true]);
        }
        let op = Op::new(Affine { base_axis: 0 });
        check_gradient(&op, &[Tensor::sample([2, 2], 1), w, b], &[true, true, true]);
    }

    /// Asserts that these shapes are refused with this message.
    #[track_caller]
    fn refused(op: impl Compute, shapes: &[&[usize]], message: &str) {
        let shapes: Vec<Shape> = shapes.iter().map(|s| Shape::from(*s)).collect();
        let error = Op::new(op).shapes(&shapes.iter().collect::<Vec<_>>()).expect_err("is refused");
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn errors_say_what_was_expected_and_given() {
        refused(
            Affine { base_axis: 1 },
            &[&[2, 3, 4], &[11, 2]],
            "affine: expected a weight of shape (12, outputs...) for an input with 12 features, got shapes (2, 3, 4), \
             (11, 2)",
        );
        refused(
            Affine { base_axis: 1 },
            &[&[2, 3], &[3, 2, 2], &[4]],
            "affine: expected a bias of shape (2, 2), as the outputs of the weight, got shapes (2, 3), (3, 2, 2), (4,)",
        );
        refused(Affine { base_axis: 2 }, &[&[2, 3], &[3, 2]], "affine: expected an axis from -2 to 1, got 2");
    }
}
