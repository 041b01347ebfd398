//! `batch_cholesky`: decomposition of positive definite matrices.

use crate::Result;
use crate::kernels::{Float, triangular};
use crate::ops::linear_algebra::inverse::{BatchInv, for_each_matrix, matmul, side, transposed};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, one, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<BatchCholesky>()];

op! {
    /// Cholesky decomposition of symmetric positive definite matrices: triangular `y` with `y y' = x`, or `y' y = x`
    /// with `upper`.
    ///
    /// Reads only the lower triangle of `x`. The result is NaN if `x` is not positive definite. The gradient is a
    /// symmetric matrix.
    ///
    /// Args:
    ///     x: Matrices, shape (batch..., n, n).
    ///     upper: Return upper triangular matrices, else lower ones.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If the matrices are not square.
    ///
    /// Source:
    ///     Gradient: Murray, Differentiation of the Cholesky decomposition, 2016, arXiv:1602.07527.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[4.0, 2.0], [2.0, 5.0]]])
    ///     >>> F.batch_cholesky(x).data
    ///     array([[[2., 0.],
    ///             [1., 2.]]], dtype=float32)
    /// ```
    BatchCholesky = batch_cholesky(x; upper: bool = false)
}

op! {
    /// The lower triangles of matrices, with their diagonals multiplied by a number. Used in gradients.
    ///
    /// Args:
    ///     x: Matrices, shape (batch..., n, n).
    ///     diagonal: The factor of the diagonals.
    ///
    /// Returns:
    ///     Array of the shape of `x`, zero above the diagonals.
    LowerTriangle = lower_triangle(x; diagonal: f64)
}

impl Compute for BatchCholesky {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        side("batch_cholesky", x.get(0))?;
        one(x.get(0).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = side("batch_cholesky", run.x_shape(0))?;
        let (x, y) = (run.x(0), run.y(0));
        for_each_matrix(y, n * n, n, |i, y| {
            // Reads only the lower triangle, and copies it to the upper one.
            let x = &x[i * n * n..(i + 1) * n * n];
            for (row, y) in y.chunks_exact_mut(n.max(1)).enumerate() {
                y[row..].iter_mut().zip(row..).for_each(|(y, column)| *y = x[column * n + row]);
            }
            triangular::root(y, n);
            for row in 0..n {
                if self.upper {
                    y[row * n..][..row].fill(T::ZERO);
                    continue;
                }
                for column in 0..row {
                    (y[row * n + column], y[column * n + row]) = (y[column * n + row], T::ZERO);
                }
            }
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let as_lower = |v: Sym| if self.upper { transposed(v) } else { v };
        let triangle = |v: Sym, diagonal: f64| Sym::apply(LowerTriangle { diagonal }, &[v]);
        let (y, gy) = (as_lower(s.y(0)), triangle(as_lower(s.gy(0)), 1.0));
        let inverse = Sym::apply(BatchInv {}, &[y]);
        let inner = triangle(matmul(y, true, gy, false), 0.5);
        let whole = matmul(matmul(inverse, true, inner, false), false, inverse, false);
        vec![Some((whole + transposed(whole)) * Sym::Const(0.5))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::OUTPUTS
    }
}

impl Compute for LowerTriangle {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        side("lower_triangle", x.get(0))?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = side("lower_triangle", run.x_shape(0))?;
        let (x, y, factor) = (run.x(0), run.y(0), T::of(self.diagonal));
        let rows = y.chunks_exact_mut(n.max(1)).zip(x.chunks_exact(n.max(1)));
        for (i, (y, x)) in rows.enumerate() {
            let row = i % n;
            y[..row].copy_from_slice(&x[..row]);
            y[row] = x[row] * factor;
            y[row + 1..].fill(T::ZERO);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(self.clone(), &[s.gy(0)]))]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
