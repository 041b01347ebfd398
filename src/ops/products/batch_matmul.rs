//! `batch_matmul`: products of many matrices.

use crate::array::{InputCache, Shape};
use crate::kernels::gemm::{Matrix, MatrixMut, gemm, gemm_each};
use crate::kernels::sixteen_bits::{Values, ValuesMut};
use crate::kernels::{Float, broadcast::BroadcastLayout};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<BatchMatmul>()];

op! {
    /// Matrix products over the last two axes: `y[i] = a[i] b[i]` for each index `i` of the batch axes.
    ///
    /// Args:
    ///     a: Left matrices, shape (batch..., m, k).
    ///     b: Right matrices, shape (batch..., k, n); each batch axis has the length of `a`, or one of the two has
    ///         length one.
    ///     transpose_a: The matrices of `a` are transposed, with shape (k, m).
    ///     transpose_b: The matrices of `b` are transposed, with shape (n, k).
    ///
    /// Returns:
    ///     Array of shape (batch..., m, n).
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0], [3.0, 4.0]]])
    ///     >>> y = nn.NdArray.from_numpy_array([[[1.0], [10.0]]])
    ///     >>> F.batch_matmul(x, y).data
    ///     array([[[21.],
    ///             [43.]]], dtype=float32)
    /// ```
    BatchMatmul = batch_matmul(a, b; transpose_a: bool = false, transpose_b: bool = false)
}

/// The sizes of batched matrix products, and the batch axes of both sides.
pub(crate) struct Products {
    /// The rows of a product.
    pub(crate) m: usize,
    /// The terms of each sum.
    pub(crate) k: usize,
    /// The columns of a product.
    pub(crate) n: usize,
    /// The batch axes of `a`.
    a: Shape,
    /// The batch axes of `b`.
    b: Shape,
}

impl Products {
    /// The sizes for two arrays of matrices, each optionally transposed.
    pub(crate) fn new(op: &str, [a, b]: [&Shape; 2], transposed: [bool; 2]) -> Result<Self> {
        let fail = |expected: &str| Err(Error::shape(op, expected, [a, b]));
        let n = a.ndim();
        if n < 2 || n != b.ndim() {
            return fail("two arrays with the same number of axes, two or more");
        }
        let sides =
            |s: &Shape, transposed| if transposed { (s[n - 1], s[n - 2]) } else { (s[n - 2], s[n - 1]) };
        let ((m, k), (rows, cols)) = (sides(a, transposed[0]), sides(b, transposed[1]));
        if k != rows {
            return fail(&format!("as many columns of `a` as rows of `b`, which are {k} and {rows}"));
        }
        let products = Self { m, k, n: cols, a: Shape::from(&a[..n - 2]), b: Shape::from(&b[..n - 2]) };
        if BroadcastLayout::shape(&products.a, &products.b).is_none() {
            return fail("batch axes of equal lengths or length one");
        }
        Ok(products)
    }

    /// The shape of the output.
    pub(crate) fn shape(&self) -> Shape {
        let batch = BroadcastLayout::shape(&self.a, &self.b).unwrap_or_default();
        batch.iter().copied().chain([self.m, self.n]).collect()
    }

    /// The indices of the left and the right matrix for each product.
    pub(crate) fn sides(&self) -> Vec<(usize, usize)> {
        let batch = BroadcastLayout::shape(&self.a, &self.b).map_or(0, |s| s.size());
        let (a, b) = (Self::steps(&self.a), Self::steps(&self.b));
        let of = |i: usize| {
            let (mut rest, mut at_a, mut at_b) = (i, 0, 0);
            for axis in (0..self.a.ndim()).rev() {
                let dim = self.a[axis].max(self.b[axis]);
                at_a += rest % dim * a[axis];
                at_b += rest % dim * b[axis];
                rest /= dim;
            }
            (at_a, at_b)
        };
        (0..batch).map(of).collect()
    }

    /// The stride of each batch axis, in matrices. Zero for an axis that is repeated.
    fn steps(side: &Shape) -> Vec<usize> {
        side.strides().iter().zip(side.iter()).map(|(s, d)| if *d == 1 { 0 } else { *s }).collect()
    }

    /// The right side, if it is a single matrix. Its packed form can then be cached.
    fn input_cache<'a>(&self, b: Option<InputCache<'a>>) -> Option<InputCache<'a>> {
        b.filter(|_| self.b.size() == 1)
    }

    /// The i-th left matrix, transposed if the operation says so.
    fn left<'a, T: Float>(&self, op: &BatchMatmul, a: Values<'a, T>, i: usize) -> Matrix<'a, T> {
        matrix(a, i, self.m, self.k, op.transpose_a)
    }

    /// The i-th right matrix, transposed if the operation says so.
    fn right<'a, T: Float>(&self, op: &BatchMatmul, b: Values<'a, T>, i: usize) -> Matrix<'a, T> {
        matrix(b, i, self.k, self.n, op.transpose_b)
    }
}

/// Matrix number `i` of size `rows` x `cols`, stored transposed if `transposed`.
fn matrix<T: Float>(x: Values<'_, T>, i: usize, rows: usize, cols: usize, transposed: bool) -> Matrix<'_, T> {
    let x = x.part(i * rows * cols, rows * cols);
    if transposed { Matrix::of_values(x, cols, rows).t() } else { Matrix::of_values(x, rows, cols) }
}

/// Matrix number `i` for writing, of size `rows` x `cols`, stored transposed if `transposed`.
fn matrix_mut<'a, T: Float>(
    x: &'a mut ValuesMut<'_, T>,
    i: usize,
    rows: usize,
    cols: usize,
    transposed: bool,
) -> MatrixMut<'a, T> {
    let (row_stride, col_stride) = if transposed { (1, rows) } else { (cols, 1) };
    let x = x.part(i * rows * cols, rows * cols);
    MatrixMut::strided_values(x, rows, cols, row_stride, col_stride)
}

impl BatchMatmul {
    /// Checks the shapes. Returns the sizes and number of the products.
    fn products(&self, a: &Shape, b: &Shape) -> Result<Products> {
        Products::new("batch_matmul", [a, b], [self.transpose_a, self.transpose_b])
    }
}

impl Compute for BatchMatmul {
    const CACHED_INPUT: Option<usize> = Some(1);
    const IN_BFLOAT16: u64 = 0b11;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(self.products(x.get(0), x.get(1))?.shape())
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        self.products(x.get(0), x.get(1)).map_or(0, |p| y.size() * p.k)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let p = self.products(run.x_shape(0), run.x_shape(1))?;
        let (a, b, y, input_cache) =
            (run.values(0), run.values(1), run.y_values(), p.input_cache(run.input_cache()));
        let sides = p.sides();
        gemm_each(y, sides.len(), (p.m, p.n, false), false, |i| {
            let (ia, ib) = sides[i];
            (p.left(self, a, ia), p.right(self, b, ib).of(input_cache))
        });
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let p = self.products(run.x_shape(0), run.x_shape(1))?;
        let gy = run.gy_values();
        let gy = |i| matrix(gy, i, p.m, p.n, false);
        let sides = p.sides();
        if let Some((mut ga, accumulate)) = run.gx_values(0) {
            let (b, input_cache) = (run.values(1), p.input_cache(run.input_cache()));
            let factors = |i: usize| (gy(i), p.right(self, b, sides[i].1).t().of(input_cache));
            if sides.iter().enumerate().all(|(i, s)| s.0 == i) && !sides.is_empty() {
                gemm_each(ga, sides.len(), (p.m, p.k, self.transpose_a), accumulate, factors);
            } else {
                ga.zero_unless(accumulate);
                for (i, (ia, _)) in sides.iter().enumerate() {
                    let (gy, b) = factors(i);
                    gemm(matrix_mut(&mut ga, *ia, p.m, p.k, self.transpose_a), true, gy, b);
                }
            }
        }
        if let Some((mut gb, accumulate)) = run.gx_values(1) {
            let a = run.values(0);
            let factors = |i: usize| (p.left(self, a, sides[i].0).t(), gy(i));
            if sides.iter().enumerate().all(|(i, s)| s.1 == i) && !sides.is_empty() {
                gemm_each(gb, sides.len(), (p.k, p.n, self.transpose_b), accumulate, factors);
            } else {
                gb.zero_unless(accumulate);
                for (i, (_, ib)) in sides.iter().enumerate() {
                    let (a, gy) = factors(i);
                    gemm(matrix_mut(&mut gb, *ib, p.k, p.n, self.transpose_b), true, a, gy);
                }
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (a, b, gy) = (s.x(0), s.x(1), s.gy(0));
        let matmul =
            |a: Sym, b: Sym, transpose_a, transpose_b| Sym::apply(Self { transpose_a, transpose_b }, &[a, b]);
        let (ta, tb) = (self.transpose_a, self.transpose_b);
        let of_a = || if ta { matmul(b, gy, tb, true) } else { matmul(gy, b, false, !tb) };
        let of_b = || if tb { matmul(gy, a, true, ta) } else { matmul(a, gy, !ta, false) };
        vec![s.wants(0).then(|| of_a().sum_to(&a.shape())), s.wants(1).then(|| of_b().sum_to(&b.shape()))]
    }

    fn reads(&self, gx: usize) -> Reads {
        Reads::inputs(if gx == 0 { 0b10 } else { 0b01 })
    }
}

#[cfg(test)]
mod tests {
    use super::BatchMatmul;
    use crate::array::Shape;
    use crate::ops::testing::{Tensor, check_forward, check_gradient};
    use crate::ops::{Compute, Op};

    /// `shape` with its last two axes swapped if `transposed`.
    fn stored(shape: &[usize], transposed: bool) -> Shape {
        let mut shape = Shape::from(shape);
        let n = shape.ndim();
        if transposed {
            shape.swap(n - 2, n - 1);
        }
        shape
    }

    #[test]
    fn batch_matmul_multiplies_each_pair_of_matrices() {
        let batches: [(&[usize], &[usize]); 7] = [
            (&[], &[]),
            (&[3], &[3]),
            (&[2, 3], &[2, 1]),
            (&[1, 3], &[2, 1]),
            (&[1, 1], &[1, 1]),
            (&[0], &[1]),
            (&[1], &[4]),
        ];
        for ((left, right), (m, k, n)) in
            batches.iter().flat_map(|b| [(1, 5, 5), (5, 1, 2), (3, 4, 1)].map(|s| (*b, s)))
        {
            for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false), (true, true)] {
                let batch: Vec<usize> =
                    left.iter().zip(right).map(|(l, r)| if *l == 1 { *r } else { *l }).collect();
                let tensor = |shape: Shape, seed| {
                    let data = Tensor::sample([shape.size()], seed).data;
                    Tensor { shape, data }
                };
                let a = tensor(stored(&[left, &[m, k][..]].concat(), transpose_a), 1);
                let b = tensor(stored(&[right, &[k, n][..]].concat(), transpose_b), 2);
                let of = |shape: &[usize], i: usize| {
                    let (mut rest, mut at, mut step) = (i, 0, 1);
                    for axis in (0..batch.len()).rev() {
                        at += if shape[axis] == 1 { 0 } else { rest % batch[axis] * step };
                        rest /= batch[axis];
                        step *= shape[axis];
                    }
                    at
                };
                let mut y = Vec::new();
                for i in 0..batch.iter().product() {
                    let (a, b) = (&a.data[of(left, i) * m * k..], &b.data[of(right, i) * k * n..]);
                    for (r, c) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
                        let left = |l: usize| a[if transpose_a { l * m + r } else { r * k + l }];
                        let right = |l: usize| b[if transpose_b { c * k + l } else { l * n + c }];
                        y.push((0..k).map(|l| left(l) * right(l)).sum());
                    }
                }
                let shape = Shape::from([&batch[..], &[m, n]].concat());
                let op = Op::new(BatchMatmul { transpose_a, transpose_b });
                check_forward(&op, &[a.clone(), b.clone()], &[Tensor { shape, data: y }]);
                check_gradient(&op, &[a, b], &[true, true]);
            }
        }
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
        let matmul = || BatchMatmul { transpose_a: false, transpose_b: false };
        refused(
            matmul(),
            &[&[2, 3, 4], &[4, 5]],
            "batch_matmul: expected two arrays with the same number of axes, two or more, got shapes (2, 3, 4), (4, 5)",
        );
        refused(
            matmul(),
            &[&[3, 4], &[5, 2]],
            "batch_matmul: expected as many columns of `a` as rows of `b`, which are 4 and 5, \
             got shapes (3, 4), (5, 2)",
        );
        refused(
            matmul(),
            &[&[2, 3, 4], &[3, 4, 5]],
            "batch_matmul: expected batch axes of equal lengths or length one, got shapes (2, 3, 4), (3, 4, 5)",
        );
    }
}
