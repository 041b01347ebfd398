//! Indexing along several axes together: gather_nd, scatter_nd.

use crate::array::Shape;
use crate::kernels::row_copies::Rows;
use crate::kernels::scratch::List;
use crate::kernels::{Float, Movable};
use crate::ops::arrangement::array::lengths;
use crate::ops::indexing::gather::position;
use crate::ops::pointwise::selection::Where;
use crate::ops::{
    Alias, Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<GatherNd>(), Entry::of::<ScatterNd>()];

/// The number of indices, and the part of the array that one index selects.
struct Places {
    /// Elements of the part that one index selects.
    inner: usize,
    /// The number of indices.
    n: usize,
}

impl Places {
    /// Takes an array of shape `x`, and indices of shape (indexed axes, ...).
    fn new(op: &str, x: &Shape, index: &Shape) -> Result<Self> {
        match index.first() {
            Some(axes) if *axes <= x.ndim() => Ok(Self { inner: x.size_from(*axes), n: index.size_from(1) }),
            _ => Err(Error::shape(op, "indices of shape (n, ...) for the first n axes", [x, index])),
        }
    }

    /// The offset of the first element that each index selects.
    fn offsets(&self, op: &str, x: &Shape, index: &[i64]) -> Result<List<usize>> {
        let mut offsets = List::repeat(0, self.n);
        let Some(axes) = index.len().checked_div(self.n) else { return Ok(offsets) };
        for (axis, index) in index.chunks_exact(self.n).take(axes).enumerate() {
            let len = x[axis];
            for (offset, at) in offsets.iter_mut().zip(index) {
                *offset = *offset * len + position(op, *at, axis, len)?;
            }
        }
        offsets.iter_mut().for_each(|offset| *offset *= self.inner);
        Ok(offsets)
    }
}

op! {
    /// Selects elements of an array by index along its first axes: `y[j] = data[indices[0][j], indices[1][j], ...]`.
    ///
    /// Args:
    ///     data: Input with at least n axes.
    ///     indices: Indices, shape (n, ...); negative ones count from the end.
    ///
    /// Returns:
    ///     Array of the shape of `indices` without its first axis and of `data` without its first n.
    ///
    /// Raises:
    ///     ShapeError: If `indices` refers to more axes than `data` has.
    ///     IndexError: If an index is out of range or not a whole number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ///     >>> indices = nn.NdArray.from_numpy_array([[0, 1], [2, 0]])  # of the elements (0, 2) and (1, 0)
    ///     >>> F.gather_nd(x, indices).data
    ///     array([3., 4.], dtype=float32)
    /// ```
    GatherNd = gather_nd(data, indices: index)
}

impl Compute for GatherNd {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (data, index) = (x.get(0), x.get(1));
        Places::new("gather_nd", data, index)?;
        one(index[1..].iter().chain(&data[index[0]..]).copied().collect::<Shape>())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let places = Places::new("gather_nd", run.x_shape(0), run.x_shape(1))?;
        let (x, y, n) = (run.x(0), run.y(0), places.inner);
        let offsets = places.offsets("gather_nd", run.x_shape(0), run.index(1))?;
        Rows { n, count: places.n, from: |j| offsets[j], to: |j| j * n }.put(x, y, false);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let places = Places::new("gather_nd", run.x_shape(0), run.x_shape(1))?;
        let (gy, n) = (run.gy(0), places.inner);
        let offsets = places.offsets("gather_nd", run.x_shape(0), run.index(1))?;
        if let Some(gx) = run.gx(0).map(Grad::adding) {
            Rows { n, count: places.n, from: |j| j * n, to: |j| offsets[j] }.put_in_order(gy, gx, true);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape().iter().map(|n| *n as i64).collect();
        vec![Some(scatter(s.gy(0), s.x(1), shape, true)), None]
    }

    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(2)
    }
}

/// Scatters `data` into zeros.
fn scatter(data: Sym, index: Sym, shape: Vec<i64>, add: bool) -> Sym {
    // The optional input `out` is missing.
    Sym::apply_op(crate::ops::Op::with_inputs(ScatterNd { shape: Some(shape), add }, 0b011), &[data, index])
        [0]
}

op! {
    /// Writes or adds elements to zeros, or to an array, at indices along the first axes:
    /// `y[indices[0][j], indices[1][j], ...] = data[j]`.
    ///
    /// If an index occurs several times without `add`, the last element is written, but each gets the gradient.
    ///
    /// Args:
    ///     data: The elements to write.
    ///     indices: Indices, shape (n, ...); negative ones count from the end.
    ///     out: Array to write to in place. Zeros by default.
    ///     shape: Shape of the output if `out` is not given.
    ///     add: Add to the present elements.
    ///
    /// Returns:
    ///     Array of shape `shape`, or `out`.
    ///
    /// Raises:
    ///     ArgumentError: If there is neither `shape` nor `out`, or they differ.
    ///     ShapeError: If `data` or `indices` do not fit.
    ///     IndexError: If an index is out of range or not a whole number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([7.0, 8.0])
    ///     >>> indices = nn.NdArray.from_numpy_array([[0, 1], [2, 0]])  # of the elements (0, 2) and (1, 0)
    ///     >>> F.scatter_nd(x, indices, shape=(2, 3)).data
    ///     array([[0., 0., 7.],
    ///            [8., 0., 0.]], dtype=float32)
    /// ```
    ScatterNd = scatter_nd(data, indices: index, out: optional; shape: Option<Vec<i64>> = None, add: bool = false)
}

impl Compute for ScatterNd {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (data, index, out) = (x.get(0), x.get(1), x.find(2));
        let given = self.shape.as_deref().map(|shape| lengths("scatter_nd", shape)).transpose()?;
        let shape = match (given, out) {
            (None, Some(out)) => out.clone(),
            (Some(shape), out) if out.is_none_or(|out| *out == shape) => shape,
            (given, _) => {
                let expected = "given, or `out`, and of the same shape if both are";
                let got = given.map_or("neither".into(), |shape| shape.to_string());
                return Err(Error::argument("scatter_nd", "shape", expected, got));
            }
        };
        shape.checked_size()?;
        Places::new("scatter_nd", &shape, index)?;
        let expected: Shape = index[1..].iter().chain(&shape[index[0]..]).copied().collect();
        if *data != expected {
            return Err(Error::shape("scatter_nd", format!("data of shape {expected}"), [data, index]));
        }
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let places = Places::new("scatter_nd", run.y_shape(0), run.x_shape(1))?;
        let offsets = places.offsets("scatter_nd", run.y_shape(0), run.index(1))?;
        let (data, n) = (run.x(0), places.inner);
        let y = run.y_after(2);
        Rows { n, count: places.n, from: |j| j * n, to: |j| offsets[j] }.put_in_order(data, y, self.add);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, shape) = (run.gy(0), run.y_shape(0));
        let places = Places::new("scatter_nd", shape, run.x_shape(1))?;
        let (offsets, n) = (places.offsets("scatter_nd", shape, run.index(1))?, places.inner);
        if let Some(gx) = run.gx(0) {
            let rows = Rows { n, count: places.n, from: |j| offsets[j], to: |j| j * n };
            rows.put(gy, gx.data, gx.accumulate);
        }
        if let Some(gx) = run.gx(2) {
            let mut kept = List::repeat(true, gy.len());
            if !self.add {
                for at in &*offsets {
                    kept[*at..at + n].fill(false);
                }
            }
            let kept = &*kept;
            gx.put(|i| if kept[i] { gy[i] } else { T::ZERO });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (gy, index) = (s.gy(0), s.x(1));
        let out = || {
            if self.add {
                return gy;
            }
            let shape = gy.shape();
            let ones = Sym::Const(1.0).broadcast(&s.x(0).shape());
            let covered = scatter(ones, index, shape.iter().map(|n| *n as i64).collect(), false);
            Sym::apply(Where {}, &[covered, Sym::Const(0.0).broadcast(&shape), gy])
        };
        let data = s.wants(0).then(|| Sym::apply(GatherNd {}, &[gy, index]));
        vec![data, None, s.wants(2).then(out)]
    }

    fn moves(&self, i: usize) -> bool {
        i != 1 && !self.add
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(2)
    }

    fn alias(&self, i: usize) -> Option<Alias> {
        (i == 2).then_some(Alias { output: 0, modifies: true })
    }
}
