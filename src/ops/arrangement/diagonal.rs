//! Operations on matrix diagonals and triangles: matrix_diag, matrix_diag_part, trilu, eye_like.

use std::ops::Range;

use crate::array::Shape;
use crate::kernels::map::{self, GRAIN};
use crate::kernels::threads::rows_mut;
use crate::kernels::{Float, Movable};
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<MatrixDiag>(), Entry::of::<MatrixDiagPart>(), Entry::of::<Trilu>(), Entry::of::<EyeLike>()];

op! {
    /// Square matrices with the last axis of `x` on their diagonals, zeros elsewhere.
    ///
    /// Args:
    ///     x: Diagonals, shape (..., n).
    ///
    /// Returns:
    ///     Matrices, shape (..., n, n).
    ///
    /// Raises:
    ///     ShapeError: If `x` is a scalar.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.matrix_diag(x).data
    ///     array([[1., 0.],
    ///            [0., 2.]], dtype=float32)
    /// ```
    MatrixDiag = matrix_diag(x)
}

op! {
    /// The diagonals of square matrices.
    ///
    /// Args:
    ///     x: Matrices, shape (..., n, n).
    ///
    /// Returns:
    ///     Diagonals, shape (..., n).
    ///
    /// Raises:
    ///     ShapeError: If the last two axes differ.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.matrix_diag_part(x).data
    ///     array([1., 4.], dtype=float32)
    /// ```
    MatrixDiagPart = matrix_diag_part(x)
}

/// The offset in a batch of `n` x `n` matrices of element `i` in a batch of diagonals of length `n`.
fn on_diagonal(i: usize, n: usize) -> usize {
    i * n + i % n
}

/// Writes diagonals of length `n` into matrices, or adds them.
fn put_diagonals<T: Movable>(diagonals: &[T], n: usize, matrices: &mut [T]) {
    diagonals.iter().enumerate().for_each(|(i, x)| {
        let y = &mut matrices[on_diagonal(i, n)];
        *y = y.plus(*x);
    });
}

impl Compute for MatrixDiag {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        match x.get(0).last() {
            Some(n) => one(x.get(0).iter().chain([n]).copied().collect::<Shape>()),
            None => Err(Error::shape("matrix_diag", "a shape (..., n)", [x.get(0)])),
        }
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y, n) = (run.x(0), run.y(0), run.x_shape(0).last().copied().unwrap_or(1));
        y.fill(T::ZERO);
        put_diagonals(x, n, y);
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, n) = (run.gy(0), run.x_shape(0).last().copied().unwrap_or(1));
        if let Some(gx) = run.gx(0) {
            gx.put(|i| gy[on_diagonal(i, n)]);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(MatrixDiagPart {}, &[s.gy(0)]))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

impl Compute for MatrixDiagPart {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        match &x.get(0)[..] {
            [leading @ .., m, n] if m == n => one(leading.iter().chain([n]).copied().collect::<Shape>()),
            _ => Err(Error::shape("matrix_diag_part", "square matrices, shape (..., n, n)", [x.get(0)])),
        }
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y, n) = (run.x(0), run.y(0), run.x_shape(0).last().copied().unwrap_or(1));
        map::fill(y, |i| x[on_diagonal(i, n)]);
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, n) = (run.gy(0), run.x_shape(0).last().copied().unwrap_or(1));
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            put_diagonals(gy, n, gx);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(MatrixDiag {}, &[s.gy(0)]))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// The upper or lower triangle of matrices, zeros elsewhere.
    ///
    /// Args:
    ///     x: Matrices, shape (..., m, n).
    ///     k: Diagonal up to which the triangle reaches: 0 is the main one, positive ones lie above it.
    ///     upper: Keep what is on and above the diagonal, rather than on and below.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If `x` has fewer than two axes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.trilu(x).data
    ///     array([[1., 2.],
    ///            [0., 4.]], dtype=float32)
    ///     >>> F.trilu(x, upper=False).data
    ///     array([[1., 0.],
    ///            [3., 4.]], dtype=float32)
    /// ```
    Trilu = trilu(x; k: i64 = 0, upper: bool = true)
}

impl Trilu {
    /// The columns that `trilu` keeps in a row of a matrix with `n` columns.
    fn kept(&self, row: usize, n: usize) -> Range<usize> {
        let edge = (row as i64).saturating_add(self.k);
        let column = |at: i64| at.clamp(0, n as i64) as usize;
        if self.upper { column(edge)..n } else { 0..column(edge.saturating_add(1)) }
    }

    /// Writes or adds the kept elements of matrices of shape (`m`, `n`). Writes zeros elsewhere.
    fn put<T: Float>(&self, x: &[T], (m, n): (usize, usize), y: &mut [T], adds: bool) {
        rows_mut(y, n, GRAIN / n.max(1), |row, y| {
            let kept = self.kept(row % m, n);
            let x = &x[row * n..][kept.clone()];
            if adds {
                y[kept].iter_mut().zip(x).for_each(|(y, x)| *y = *y + *x);
            } else {
                y[..kept.start].fill(T::ZERO);
                y[kept.end..].fill(T::ZERO);
                y[kept].copy_from_slice(x);
            }
        });
    }
}

/// The two last lengths of a shape. An error if it has fewer axes.
fn matrix(op: &str, shape: &Shape) -> Result<(usize, usize)> {
    match &shape[..] {
        [.., m, n] => Ok((*m, *n)),
        _ => Err(Error::shape(op, "matrices, shape (..., m, n)", [shape])),
    }
}

impl Compute for Trilu {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        matrix("trilu", x.get(0))?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        self.put(run.x(0), matrix("trilu", run.x_shape(0))?, run.y(0), false);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, gy) = (matrix("trilu", run.x_shape(0))?, run.gy(0));
        if let Some(gx) = run.gx(0) {
            self.put(gy, shape, gx.data, gx.accumulate);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(self.clone(), &[s.gy(0)]))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// A matrix with ones on a diagonal, zeros elsewhere. Its gradient is zero.
    ///
    /// Args:
    ///     x: Matrix whose shape is wanted; its values are not used.
    ///     k: The diagonal: 0 is the main one, positive ones lie above it.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If `x` does not have two axes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[5.0, 6.0, 7.0], [8.0, 9.0, 10.0]])
    ///     >>> F.eye_like(x).data
    ///     array([[1., 0., 0.],
    ///            [0., 1., 0.]], dtype=float32)
    /// ```
    EyeLike = eye_like(x; k: i64 = 0)
}

impl Compute for EyeLike {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if x.get(0).ndim() == 2 { like(x) } else { Err(Error::shape("eye_like", "a matrix", [x.get(0)])) }
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let ((_, n), y) = (matrix("eye_like", run.x_shape(0))?, run.y(0));
        for (i, y) in y.iter_mut().enumerate() {
            *y = if (i / n) as i64 == ((i % n) as i64).saturating_sub(self.k) { T::ONE } else { T::ZERO };
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        run.gx(0).into_iter().for_each(|gx| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
