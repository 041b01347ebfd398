//! Indexing along one axis: one_hot, gather.

use crate::array::Shape;
use crate::kernels::map::{self, GRAIN};
use crate::kernels::row_copies::Rows;
use crate::kernels::scratch::List;
use crate::kernels::threads;
use crate::kernels::{Float, Movable, stop};
use crate::ops::arrangement::array::lengths;
use crate::ops::{
    Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<OneHot>(), Entry::of::<Gather>()];

/// The position along an axis of length `n` for `index`, which counts from the end if it is negative.
pub(crate) fn position(op: &str, index: i64, axis: usize, n: usize) -> Result<usize> {
    let at = if index < 0 { index.saturating_add(n as i64) } else { index };
    if (0..n as i64).contains(&at) {
        return Ok(at as usize);
    }
    Err(Error::Index(format!("{op}: expected an index within the length {n} of axis {axis}, got {index}")))
}

/// The positions along one axis for all indices.
pub(crate) fn positions(op: &str, index: &[i64], axis: usize, n: usize) -> Result<List<usize>> {
    List::of(index.iter().map(|i| position(op, *i, axis, n)))
}

op! {
    /// One-hot encoding: ones at the given indices, zeros elsewhere. Its gradient is zero.
    ///
    /// If one of the n indices is out of range, all elements are zero. This can mark a label to ignore.
    ///
    /// Args:
    ///     x: Indices, shape (..., n); negative ones count from the end.
    ///     shape: Lengths of the n axes that they index.
    ///
    /// Returns:
    ///     Array of shape (..., *shape).
    ///
    /// Raises:
    ///     ShapeError: If the last axis of `x` is not as long as `shape`.
    ///     IndexError: If an index is not a whole number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> labels = nn.NdArray.from_numpy_array([[2], [0]])
    ///     >>> F.one_hot(labels, (3,)).data
    ///     array([[0., 0., 1.],
    ///            [1., 0., 0.]], dtype=float32)
    /// ```
    OneHot = one_hot(x: index; shape: Vec<i64>)
}

impl Compute for OneHot {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let own = x.get(0);
        let Some((_, leading)) = own.split_last().filter(|(n, _)| **n == self.shape.len()) else {
            let expected =
                format!("a last axis of length {}, one index for each of `shape`", self.shape.len());
            return Err(Error::shape("one_hot", expected, [own]));
        };
        let shape: Shape = leading.iter().chain(lengths("one_hot", &self.shape)?.iter()).copied().collect();
        shape.checked_size()?;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, y, shape) = (run.index(0), run.y(0), lengths("one_hot", &self.shape)?);
        map::fill(y, |_| T::ZERO);
        if shape.is_empty() {
            y.fill(T::ONE);
            return Ok(());
        }
        for (i, index) in x.chunks(shape.ndim()).enumerate() {
            if i % GRAIN == 0 {
                stop::poll();
            }
            let (mut at, mut inside) = (i, true);
            for (index, n) in index.iter().zip(shape.iter()) {
                let place = if *index < 0 { index.saturating_add(*n as i64) } else { *index };
                inside &= (0..*n as i64).contains(&place);
                at = if inside { at * n + place as usize } else { 0 };
            }
            if inside {
                y[at] = T::ONE;
            }
        }
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

/// The loops of [`Gather`]: in each of `batch` matrices and each of `outer` lines of `n` rows, it takes `each` rows of
/// `inner` elements.
struct Lines {
    /// The axis of the rows.
    axis: usize,
    /// The number of matrices.
    batch: usize,
    /// The number of lines of a matrix.
    outer: usize,
    /// The number of rows to choose from, in each line.
    n: usize,
    /// The number of elements of a row.
    inner: usize,
    /// The number of indices for each line.
    each: usize,
}

impl Lines {
    /// Checks shapes and arguments, and counts the lines to copy.
    fn new(op: &str, x: &Shape, index: &Shape, axis: i64, batch_dims: i64) -> Result<Self> {
        let axis = x.axis(op, axis)?;
        let Some(lead) = usize::try_from(batch_dims).ok().filter(|n| *n <= axis && *n <= index.ndim()) else {
            let most = axis.min(index.ndim());
            return Err(Error::argument(op, "batch_dims", format!("from 0 to {most}"), batch_dims));
        };
        if x[..lead] != index[..lead] {
            return Err(Error::shape(
                op,
                format!("the same lengths along the first {lead} axes"),
                [x, index],
            ));
        }
        let (batch, outer) = (x.size_to(lead), x[lead..axis].iter().product());
        Ok(Self { axis, batch, outer, n: x[axis], inner: x.size_from(axis + 1), each: index.size_from(lead) })
    }

    /// Number of lines of all matrices.
    fn count(&self) -> usize {
        self.batch * self.outer
    }

    /// The positions of the rows to take in a line, matrix by matrix.
    pub(crate) fn positions(&self, op: &str, index: &[i64]) -> Result<List<usize>> {
        positions(op, &index[..self.batch * self.each], self.axis, self.n)
    }

    /// Copies the selected rows to `y`.
    fn take<T: Movable>(&self, op: &str, x: &[T], index: &[i64], y: &mut [T]) -> Result<()> {
        let (at, &Self { outer, n, inner, each, .. }) = (self.positions(op, index)?, self);
        if self.count() == 1 {
            Rows { n: inner, count: each, from: |j| at[j] * inner, to: |j| j * inner }.put(x, y, false);
            return Ok(());
        }
        let y = &mut y[..self.count() * each * inner];
        threads::rows_mut(y, each * inner, (GRAIN / (each * inner).max(1)).max(1), |line, y| {
            let (x, at) = (&x[line * n * inner..][..n * inner], &at[line / outer * each..][..each]);
            if inner == 1 {
                y.iter_mut().zip(at).for_each(|(y, at)| *y = x[*at]);
            } else {
                let rows = y.chunks_exact_mut(inner.max(1)).zip(at);
                rows.for_each(|(y, at)| y.copy_from_slice(&x[at * inner..][..inner]));
            }
        });
        Ok(())
    }

    /// Adds the rows of `gy` to the rows of `gx` that they were read from.
    fn add<T: Float>(&self, op: &str, gy: &[T], index: &[i64], gx: &mut [T]) -> Result<()> {
        let (at, &Self { outer, n, inner, each, .. }) = (self.positions(op, index)?, self);
        if self.count() == 1 {
            Rows { n: inner, count: each, from: |j| j * inner, to: |j| at[j] * inner }
                .put_in_order(gy, gx, true);
            return Ok(());
        }
        let gx = &mut gx[..self.count() * n * inner];
        threads::rows_mut(gx, n * inner, (GRAIN / (each * inner).max(1)).max(1), |line, gx| {
            let (gy, at) = (&gy[line * each * inner..][..each * inner], &at[line / outer * each..][..each]);
            Rows { n: inner, count: each, from: |j| j * inner, to: |j| at[j] * inner }.add_here(gy, gx);
        });
        Ok(())
    }
}

op! {
    /// Selects slices of an array by index along an axis.
    ///
    /// Args:
    ///     x: Input with one axis at least.
    ///     Indices: Indices along `axis`; negative ones count from the end.
    ///     axis: The axis; a negative one counts from the end.
    ///     batch_dims: Number of leading batch axes of both inputs. Each batch element has its own indices.
    ///
    /// Returns:
    ///     Array of the shape of `x` with `axis` replaced by the shape of `Indices` without its batch axes.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If the batch axes differ.
    ///     IndexError: If an index is out of range or not a whole number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ///     >>> F.gather(x, nn.NdArray.from_numpy_array([2, 0]), axis=1).data
    ///     array([[3., 1.],
    ///            [6., 4.]], dtype=float32)
    /// ```
    Gather = gather(x, Indices: index; axis: Option<i64> = None, batch_dims: Option<i64> = None)
}

op! {
    /// The gradient of `gather`: adds each row at its index.
    ///
    /// Args:
    ///     gy: Gradient of the output of `gather`.
    ///     Indices: As given to `gather`.
    ///     axis: The axis.
    ///     batch_dims: Number of batch axes.
    ///     shape: Shape of the array.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    GatherBackward = gather_backward(gy, Indices: index; axis: i64, batch_dims: i64, shape: Vec<i64>)
}

impl Gather {
    /// The axis, and the number of batch axes.
    fn place(&self) -> (i64, i64) {
        (self.axis.unwrap_or(0), self.batch_dims.unwrap_or(0))
    }

    /// Checks the shapes. Returns the lines that are copied.
    fn lines(&self, x: &Shape, index: &Shape) -> Result<Lines> {
        let (axis, batch_dims) = self.place();
        Lines::new("gather", x, index, axis, batch_dims)
    }
}

impl Compute for Gather {
    fn open(&self, _: &str, _: &InputShapes<'_>) -> Value {
        Value::Int(0)
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (own, index) = (x.get(0), x.get(1));
        let lines = self.lines(own, index)?;
        let taken = &index[self.place().1 as usize..];
        one(own[..lines.axis].iter().chain(taken).chain(&own[lines.axis + 1..]).copied().collect::<Shape>())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let lines = self.lines(run.x_shape(0), run.x_shape(1))?;
        lines.take("gather", run.x(0), run.index(1), run.y(0))
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let lines = self.lines(run.x_shape(0), run.x_shape(1))?;
        let Some(gx) = run.gx(0).map(Grad::adding) else { return Ok(()) };
        lines.add("gather", run.gy(0), run.index(1), gx)
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape().iter().map(|n| *n as i64).collect();
        let (axis, batch_dims) = self.place();
        let op = GatherBackward { axis, batch_dims, shape };
        vec![Some(Sym::apply(op, &[s.gy(0), s.x(1)])), None]
    }

    fn moves(&self, i: usize) -> bool {
        i == 0
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(2)
    }
}

impl Compute for GatherBackward {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(lengths("gather_backward", &self.shape)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let lines = Lines::new("gather", run.y_shape(0), run.x_shape(1), self.axis, self.batch_dims)?;
        let y = run.y(0);
        y.fill(T::ZERO);
        lines.add("gather", run.x(0), run.index(1), y)
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let op = Gather { axis: Some(self.axis), batch_dims: Some(self.batch_dims) };
        vec![Some(Sym::apply(op, &[s.gy(0), s.x(1)])), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(2)
    }
}
