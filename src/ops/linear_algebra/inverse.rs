//! Inverses and determinants of square matrices.

use crate::array::Shape;
use crate::kernels::scratch::{self, List};
use crate::kernels::threads;
use crate::kernels::{Float, triangular};
use crate::ops::products::batch_matmul::BatchMatmul;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<BatchDet>(), Entry::of::<BatchInv>(), Entry::of::<BatchLogdet>()];

op! {
    /// Determinants of square matrices: `y[i] = det(x[i])`.
    ///
    /// The gradient uses the inverse: it is NaN for a singular matrix.
    ///
    /// Args:
    ///     x: Matrices, shape (batch..., n, n).
    ///
    /// Returns:
    ///     Array of shape (batch...).
    ///
    /// Raises:
    ///     ShapeError: If the matrices are not square.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0], [3.0, 4.0]]])
    ///     >>> F.batch_det(x).data.round(3)
    ///     array([-2.], dtype=float32)
    /// ```
    BatchDet = batch_det(x)
}

op! {
    /// Inverses of square matrices. The inverse of a singular matrix is infinite or NaN.
    ///
    /// Args:
    ///     x: Matrices, shape (batch..., n, n).
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If the matrices are not square.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[2.0, 0.0], [0.0, 4.0]]])
    ///     >>> F.batch_inv(x).data
    ///     array([[[0.5 , 0.  ],
    ///             [0.  , 0.25]]], dtype=float32)
    /// ```
    BatchInv = batch_inv(x)
}

op! {
    /// Logarithms of the absolute values of determinants: `y[i] = log(|det(x[i])|)`, without overflow.
    ///
    /// Args:
    ///     x: Matrices, shape (batch..., n, n).
    ///
    /// Returns:
    ///     Array of shape (batch...), negative infinity for a singular matrix.
    ///
    /// Raises:
    ///     ShapeError: If the matrices are not square.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[2.0, 0.0], [0.0, -4.0]]])
    ///     >>> F.batch_logdet(x).data.round(3)
    ///     array([2.079], dtype=float32)
    /// ```
    BatchLogdet = batch_logdet(x)
}

/// The side length of square matrices.
pub(super) fn side(op: &str, x: &Shape) -> Result<usize> {
    match x[..] {
        [.., rows, columns] if rows == columns => Ok(rows),
        _ => Err(Error::shape(op, "square matrices in the last two axes", [x])),
    }
}

/// Multiplications per task below which work is not split over threads.
const GRAIN: usize = 1 << 16;

/// Calls `each` with the index of each `n` x `n` matrix and its part of `y`, which has `size` elements. Runs on several
/// threads.
pub(super) fn for_each_matrix<T: Float>(
    y: &mut [T],
    size: usize,
    n: usize,
    each: impl Fn(usize, &mut [T]) + Sync,
) {
    threads::rows_mut(y, size, (GRAIN / (n * n * n).max(1)).max(1), each);
}

/// Like [`for_each_matrix`], for the matrices in `x`. Also passes the LU decomposition of each, the order of its rows,
/// and true if that order is an odd permutation.
fn decomposed<T: Float>(
    (x, n): (&[T], usize),
    (y, size): (&mut [T], usize),
    f: impl Fn(&mut [T], &[T], &[usize], bool) + Sync,
) {
    for_each_matrix(y, size, n, |i, y| {
        scratch::with(n * n, |lu: &mut [T]| {
            lu.copy_from_slice(&x[i * n * n..(i + 1) * n * n]);
            let mut order: List<usize> = (0..n).collect();
            let odd = triangular::decompose(lu, n, &mut order);
            f(y, lu, &order, odd);
        });
    });
}

/// Computes one number for each matrix from the diagonal of its decomposition and the parity of the row order.
fn by_diagonal<T: Float>(
    run: &mut Run<'_, T>,
    n: usize,
    f: impl Fn(&mut dyn Iterator<Item = f64>, bool) -> f64 + Sync,
) {
    let (x, y) = (run.x(0), run.y(0));
    decomposed((x, n), (y, 1), |y, lu, _, odd| {
        y[0] = T::of(f(&mut lu.iter().step_by(n + 1).map(|v| v.real()), odd));
    });
}

/// The shape with one number for each matrix.
fn one_per_matrix(op: &str, x: &Shape) -> Result<Shapes> {
    side(op, x)?;
    one(Shape::from(&x[..x.ndim() - 2]))
}

/// A number for each matrix times its transposed inverse.
fn along_inverse(factor: Sym, x: Sym) -> Sym {
    let n = x.shape().ndim();
    let lifted: Vec<usize> = x.shape()[..n - 2].iter().copied().chain([1, 1]).collect();
    factor.reshape(&lifted) * transposed(Sym::apply(BatchInv {}, &[x]))
}

/// The transpose of each matrix.
pub(super) fn transposed(x: Sym) -> Sym {
    let n = x.shape().ndim();
    let axes: Vec<usize> = (0..n - 2).chain([n - 1, n - 2]).collect();
    x.transpose(&axes)
}

/// Products of matrices, with each side optionally transposed.
pub(crate) fn matmul(a: Sym, transpose_a: bool, b: Sym, transpose_b: bool) -> Sym {
    Sym::apply(BatchMatmul { transpose_a, transpose_b }, &[a, b])
}

impl Compute for BatchDet {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one_per_matrix("batch_det", x.get(0))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = side("batch_det", run.x_shape(0))?;
        by_diagonal(run, n, |diagonal, odd| diagonal.product::<f64>() * if odd { -1.0 } else { 1.0 });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(along_inverse(s.gy(0) * s.y(0), s.x(0)))]
    }
}

impl Compute for BatchLogdet {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one_per_matrix("batch_logdet", x.get(0))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = side("batch_logdet", run.x_shape(0))?;
        by_diagonal(run, n, |diagonal, _| diagonal.map(|v| v.abs().ln()).sum());
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(along_inverse(s.gy(0), s.x(0)))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }
}

impl Compute for BatchInv {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        side("batch_inv", x.get(0))?;
        one(x.get(0).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = side("batch_inv", run.x_shape(0))?;
        let (x, y) = (run.x(0), run.y(0));
        decomposed((x, n), (y, n * n), |y, lu, order, _| {
            y.fill(T::ZERO);
            order.iter().enumerate().for_each(|(row, column)| y[row * n + column] = T::ONE);
            triangular::solve(lu, n, y, n);
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (y, gy) = (s.y(0), s.gy(0));
        vec![Some(-matmul(matmul(y, true, gy, false), false, y, true))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::OUTPUTS
    }
}
