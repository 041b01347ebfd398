//! Division of a matrix by its largest singular value.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::Shape;
use crate::kernels::gemm::{Matrix, MatrixMut, gemm};
use crate::kernels::scratch::SavedMemory;
use crate::kernels::{Float, Number};
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::{
    Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value, not_negative, one,
    op,
};
use crate::{Error, Result};

/// The most iterations accepted. No matrix needs more.
const MOST: i64 = 10_000;

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Normalizing>()];

op! {
    /// Spectral normalization: `y = w / s`, where `s = u' w v` approximates the largest singular value of `w` as a
    /// matrix of `w.shape[dim]` rows.
    ///
    /// The singular vectors are found by power iteration: `itr` times `v = w' u`, `u = w v`, each scaled to length one.
    /// The gradient takes them as constant. Zero weights stay zero and have a gradient of zero.
    ///
    /// Args:
    ///     w: Weights of any shape with one axis at least.
    ///     u: Start vector of the iteration, shape `(w.shape[dim],)`. Overwritten by the final vector, unless `test` is
    ///         set or the final vector is zero.
    ///     dim: Axis of the rows.
    ///     itr: Number of iterations, 1 to 10,000.
    ///     eps: Added to squared lengths before the root, not negative.
    ///     test: Do not overwrite `u`.
    ///     output_u: Return the start vector too.
    ///
    /// Returns:
    ///     Array of the shape of `w`; with `output_u` also the old `u`.
    ///
    /// Raises:
    ///     ArgumentError: If `itr` or `eps` is out of range.
    ///     AxisError: If `w` has no such axis.
    ///     ShapeError: If `u` has the wrong shape.
    ///
    /// Source:
    ///     Miyato et al., Spectral Normalization for Generative Adversarial Networks, 2018, arXiv:1802.05957.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> w = nn.NdArray.from_numpy_array([[2.0, 0.0], [0.0, 1.0]])
    ///     >>> u = nn.NdArray.from_numpy_array([1.0, 0.0])
    ///     >>> F.spectral_norm(w, u).data
    ///     array([[1. , 0. ],
    ///            [0. , 0.5]], dtype=float32)
    /// ```
    SpectralNorm = spectral_norm(w, u; dim: i64 = 0, itr: i64 = 1, eps: f64 = 1e-12, test: bool = false,
        output_u: bool = false)
}

/// The operation with its state: the singular vectors of its last run.
#[derive(Clone)]
pub(crate) struct Normalizing {
    /// The operation with its arguments.
    of: SpectralNorm,
    /// The singular vectors of the last run, which clones share.
    last: Arc<Mutex<Vectors>>,
}

/// The left and the right singular vector.
#[derive(Default)]
struct Vectors {
    /// The left singular vector.
    u: SavedMemory<f64>,
    /// The right singular vector.
    v: SavedMemory<f64>,
}

impl Declared for Normalizing {
    const SPEC: Spec = SpectralNorm::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        Ok(Self { of: SpectralNorm::bind(values)?, last: Arc::default() })
    }
    fn values(&self) -> Vec<Value> {
        self.of.values()
    }
}

/// The derivative of the singular value by the weights in the last run of a [`Normalizing`]: the outer product of the
/// two vectors. Takes the output of that run as input, so that it runs afterwards.
#[derive(Clone)]
struct SingularDirection(Normalizing);
only_in_gradients! {
    SingularDirection = "singular_direction", " The derivative of a singular value by the weights.";
}

/// The layout of a matrix in an array: column `o * inner + k` of row `r` is element `(o * rows + r) * inner + k`.
struct MatrixAxes {
    /// The number of elements before the axis of the rows.
    outer: usize,
    /// The number of rows.
    rows: usize,
    /// The number of elements after the axis of the rows.
    inner: usize,
}

impl MatrixAxes {
    /// Number of columns of the matrix.
    fn columns(&self) -> usize {
        self.outer * self.inner
    }

    /// The array as blocks of `rows` x `inner`, each with the columns of the matrix that it holds.
    fn blocks<'a, T: Float>(
        &self,
        w: &'a [T],
    ) -> impl Iterator<Item = (Matrix<'a, T>, std::ops::Range<usize>)> {
        let (rows, inner) = (self.rows, self.inner);
        let whole = w.chunks_exact((rows * inner).max(1)).take(self.outer).enumerate();
        whole.map(move |(o, w)| (Matrix::of_rows(w, rows, inner), o * inner..(o + 1) * inner))
    }
}

impl Normalizing {
    /// The weight as a stack of matrices around the axis `dim`.
    fn layout(&self, w: &Shape) -> Result<MatrixAxes> {
        let dim = w.axis("spectral_norm", self.of.dim)?;
        Ok(MatrixAxes { outer: w.size_to(dim), rows: w[dim], inner: w.size_from(dim + 1) })
    }

    /// Scales a vector to length one.
    fn scale<T: Float>(&self, v: &mut [T]) {
        let squares: f64 = v.iter().map(|v| v.real() * v.real()).sum();
        // A zero vector has no direction and stays zero, even if `eps` is zero.
        let factor = if squares == 0.0 { T::ZERO } else { T::of(1.0 / (squares + self.of.eps).sqrt()) };
        for v in v.iter_mut() {
            *v = *v * factor;
        }
    }
}

impl Compute for Normalizing {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        not_negative("spectral_norm", "eps", self.of.eps)?;
        if !(1..=MOST).contains(&self.of.itr) {
            return Err(Error::argument("spectral_norm", "itr", "1 to 10,000", self.of.itr));
        }
        let rows = self.layout(x.get(0))?.rows;
        if **x.get(1) != [rows] {
            return Err(Error::shape("spectral_norm", format!("u of shape ({rows},)"), [x.get(0), x.get(1)]));
        }
        let mut shapes = one(x.get(0).clone())?;
        if self.of.output_u {
            shapes.push(x.get(1).clone());
        }
        Ok(shapes)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (w, layout) = (run.x(0), self.layout(run.x_shape(0))?);
        let again = run.is_recomputation();
        let given = run.x(1);
        let began = run.state::<SavedMemory<T>>();
        if !(again && began.len() == given.len()) {
            began.set(given.iter().copied());
        }
        let (mut u, mut v) = (SavedMemory::<T>::default(), SavedMemory::<T>::default());
        u.set(began.iter().copied());
        v.resize(layout.columns(), T::ZERO);
        if self.of.output_u {
            run.y(1).copy_from_slice(&u);
        }
        for _ in 0..self.of.itr {
            for (w, columns) in layout.blocks(w) {
                let n = columns.len();
                gemm(
                    MatrixMut::of_rows(&mut v[columns], 1, n),
                    false,
                    Matrix::of_rows(&u, 1, layout.rows),
                    w,
                );
            }
            self.scale(&mut v);
            u.iter_mut().for_each(|u| *u = T::ZERO);
            for (w, columns) in layout.blocks(w) {
                let n = columns.len();
                gemm(MatrixMut::of_rows(&mut u, layout.rows, 1), true, w, Matrix::of_rows(&v[columns], n, 1));
            }
            self.scale(&mut u);
        }
        let mut sigma = 0.0;
        for (o, block) in w.chunks_exact((layout.rows * layout.inner).max(1)).enumerate() {
            for (r, row) in block.chunks_exact(layout.inner.max(1)).enumerate() {
                let v = &v[o * layout.inner..(o + 1) * layout.inner];
                sigma += u[r].real() * row.iter().zip(v).map(|(w, v)| w.real() * v.real()).sum::<f64>();
            }
        }
        let factor = T::of(1.0 / sigma);
        run.y(0).iter_mut().zip(w).for_each(|(y, w)| *y = if *w == T::ZERO { *w } else { *w * factor });
        // A zero vector cannot become nonzero by iteration.
        let is_lost = u.iter().all(|u| *u == T::ZERO);
        if !self.of.test && !again && !is_lost {
            run.overwrite(1).copy_from_slice(&u);
        }
        let mut last = self.last.lock();
        last.u.set(u.iter().map(|u| u.real()));
        last.v.set(v.iter().map(|v| v.real()));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let of_w = || {
            let (w, gy) = (s.x(0), s.gy(0));
            let axes: Vec<usize> = (0..w.shape().ndim()).collect();
            let direction = Sym::apply(SingularDirection(self.clone()), &[s.y(0)]);
            let sigma = (w * direction).sum(&axes, true);
            // Zero weights have a zero gradient.
            let sigma = Sym::select(sigma.eq(Sym::Const(0.0)), Sym::Const(f64::INFINITY), sigma);
            let along = (gy * w).sum(&axes, true) / sigma;
            (gy - along * direction) / sigma
        };
        vec![s.wants(0).then(of_w), (self.of.output_u && s.wants(1)).then(|| s.gy(1))]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads { inputs: 1, outputs: 1 } } else { Reads::NOTHING }
    }

    // `u`, the estimate of the left singular vector.
    /// True for `u`, the estimate of the left singular vector, which `forward` updates.
    fn overwrites(&self, i: usize) -> bool {
        i == 1 && !self.of.test
    }
}

impl Compute for SingularDirection {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(x.get(0).clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (layout, last) = (self.0.layout(run.x_shape(0))?, self.0.last.lock());
        if last.u.len() != layout.rows || last.v.len() != layout.columns() {
            return Err(Error::Graph(
                "spectral_norm: expected a forward run before backward, got none".into(),
            ));
        }
        let y = run.y(0);
        for (i, row) in y.chunks_exact_mut(layout.inner.max(1)).enumerate() {
            let (u, first) = (last.u[i % layout.rows], i / layout.rows * layout.inner);
            row.iter_mut().zip(&last.v[first..]).for_each(|(y, v)| *y = T::of(u * v));
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
