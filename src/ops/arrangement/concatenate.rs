//! Joining and splitting of arrays: concatenate, stack, split, meshgrid.

use crate::array::Shape;
use crate::kernels::row_copies::EvenRows;
use crate::kernels::{Float, Movable, reduce, strided};
use crate::ops::arrangement::slicing::Slice;
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<Concatenate>(), Entry::of::<Stack>(), Entry::of::<Split>(), Entry::of::<Meshgrid>()];

/// The shape of the first input. An error if there is none.
pub(crate) fn first<'a>(op: &str, x: &InputShapes<'a>) -> Result<&'a Shape> {
    x.iter().next().ok_or_else(|| Error::Type(format!("{op}: expected at least one input, got none")))
}

/// Copies (or adds) `n` elements, from index `at` on, of each row of `step` elements of `from`.
fn take_rows<T: Movable>(
    Grad { data, accumulate }: Grad<'_, T>,
    from: &[T],
    at: usize,
    n: usize,
    step: usize,
) {
    let Some(count) = from.len().checked_div(step).filter(|_| n > 0) else { return };
    EvenRows { n, count, from: (at, step), to: (0, n) }.put(from, data, accumulate);
}

/// The reverse of [`take_rows`]: copies the elements of `x` to index `at` of each row of `to`.
fn put_rows<T: Movable>(x: &[T], to: &mut [T], at: usize, n: usize, step: usize) {
    let Some(count) = to.len().checked_div(step).filter(|_| n > 0) else { return };
    EvenRows { n, count, from: (0, n), to: (at, step) }.put(x, to, false);
}

op! {
    /// Concatenation along an axis.
    ///
    /// Args:
    ///     x: Inputs whose shapes differ along `axis` alone.
    ///     axis: The axis; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array as long along `axis` as all inputs together.
    ///
    /// Raises:
    ///     AxisError: If the inputs have no such axis.
    ///     ShapeError: If the inputs differ along another axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([[1.0, 2.0]]), nn.NdArray.from_numpy_array([[3.0, 4.0]])
    ///     >>> F.concatenate(x, y, axis=0).data
    ///     array([[1., 2.],
    ///            [3., 4.]], dtype=float32)
    ///     >>> F.concatenate(x, y, axis=1).data
    ///     array([[1., 2., 3., 4.]], dtype=float32)
    /// ```
    Concatenate = concatenate(x: list; axis: i64 = -1)
}

/// The slice of `gy` along `axis` that starts at `at` and has length `n`.
pub(crate) fn piece(gy: Sym, axis: usize, at: usize, n: usize) -> Sym {
    let (mut start, mut stop) = (vec![None; gy.shape().ndim()], vec![None; gy.shape().ndim()]);
    start[axis] = Some(at as i64);
    stop[axis] = Some((at + n) as i64);
    Sym::rearrange(Slice { start: Some(start), stop: Some(stop), step: None }, gy)
}

impl Compute for Concatenate {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let mut shape = first("concatenate", x)?.clone();
        let axis = shape.axis("concatenate", self.axis)?;
        let fits =
            |s: &Shape| s.ndim() == shape.ndim() && (0..s.ndim()).all(|i| i == axis || s[i] == shape[i]);
        if !x.iter().all(fits) {
            return Err(Error::shape(
                "concatenate",
                format!("shapes that differ along axis {axis} alone"),
                x.iter(),
            ));
        }
        shape[axis] = x.iter().map(|s| s[axis]).sum();
        one(shape)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axis = run.y_shape(0).axis("concatenate", self.axis)?;
        let (step, y) = (run.y_shape(0).size_from(axis), run.y(0));
        let mut at = 0;
        for i in 0..run.n_inputs() {
            let n = run.x_shape(i).size_from(axis);
            put_rows(run.x(i), y, at, n, step);
            at += n;
        }
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let axis = run.y_shape(0).axis("concatenate", self.axis)?;
        let (step, gy) = (run.y_shape(0).size_from(axis), run.gy(0));
        let mut at = 0;
        for i in 0..run.n_inputs() {
            let n = run.x_shape(i).size_from(axis);
            if let Some(gx) = run.gx(i) {
                take_rows(gx, gy, at, n, step);
            }
            at += n;
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let whole = s.gy(0).shape();
        let axis = whole.axis("concatenate", self.axis).unwrap_or_default();
        let mut at = 0;
        let part = |i: usize| {
            let n = s.x(i).shape()[axis];
            at += n;
            Some(piece(s.gy(0), axis, at - n, n))
        };
        (0..s.n_inputs()).map(part).collect()
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Concatenation along a new axis.
    ///
    /// Args:
    ///     x: Inputs of one shape.
    ///     axis: Position of the new axis; a negative one counts from the end of the result.
    ///
    /// Returns:
    ///     Array with one axis more.
    ///
    /// Raises:
    ///     AxisError: If the result has no such axis.
    ///     ShapeError: If the shapes differ.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([3.0, 4.0])
    ///     >>> F.stack(x, y).data
    ///     array([[1., 2.],
    ///            [3., 4.]], dtype=float32)
    ///     >>> F.stack(x, y, axis=1).data
    ///     array([[1., 3.],
    ///            [2., 4.]], dtype=float32)
    /// ```
    Stack = stack(x: list; axis: i64 = 0)
}

/// The shape with a new axis of length `n` before `axis`.
fn inserted(shape: &Shape, axis: usize, n: usize) -> Shape {
    shape[..axis].iter().copied().chain([n]).chain(shape[axis..].iter().copied()).collect()
}

impl Compute for Stack {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let shape = first("stack", x)?;
        if x.iter().any(|s| s != shape) {
            return Err(Error::shape("stack", "inputs of one shape", x.iter()));
        }
        let axis = inserted(shape, 0, 1).axis("stack", self.axis)?;
        one(inserted(shape, axis, x.len()))
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axis = run.y_shape(0).axis("stack", self.axis)?;
        let (n, step) = (run.y_shape(0).size_from(axis + 1), run.y_shape(0).size_from(axis));
        let y = run.y(0);
        for i in 0..run.n_inputs() {
            put_rows(run.x(i), y, i * n, n, step);
        }
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let axis = run.y_shape(0).axis("stack", self.axis)?;
        let (n, step) = (run.y_shape(0).size_from(axis + 1), run.y_shape(0).size_from(axis));
        let gy = run.gy(0);
        for i in 0..run.n_inputs() {
            if let Some(gx) = run.gx(i) {
                take_rows(gx, gy, i * n, n, step);
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        Sym::apply_op(crate::ops::Op::new(Split { axis: self.axis }), &[s.gy(0)])
            .into_iter()
            .map(Some)
            .collect()
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Splits an array into slices of length one along an axis, which is removed.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axis: The axis; a negative one counts from the end.
    ///
    /// Returns:
    ///     One array for each index of `axis`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///     ShapeError: If it has no elements along it.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> [part.data for part in F.split(x, axis=1)]
    ///     [array([1., 3.], dtype=float32), array([2., 4.], dtype=float32)]
    /// ```
    Split = split(x; axis: i64 = 0)
}

impl Compute for Split {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let shape = x.get(0);
        let axis = shape.axis("split", self.axis)?;
        if shape[axis] == 0 {
            return Err(Error::shape("split", format!("elements along axis {axis}"), [shape]));
        }
        let part = shape[..axis].iter().chain(&shape[axis + 1..]).copied().collect();
        Ok(Shapes::from_elem(part, shape[axis]))
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axis = run.x_shape(0).axis("split", self.axis)?;
        let (n, step) = (run.x_shape(0).size_from(axis + 1), run.x_shape(0).size_from(axis));
        let x = run.x(0);
        for o in 0..run.n_outputs() {
            take_rows(Grad { data: run.y(o), accumulate: false }, x, o * n, n, step);
        }
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let axis = run.x_shape(0).axis("split", self.axis)?;
        let (n, step) = (run.x_shape(0).size_from(axis + 1), run.x_shape(0).size_from(axis));
        let Some(gx) = run.gx(0) else { return Ok(()) };
        gx.through(|g| (0..run.n_outputs()).for_each(|o| put_rows(run.gy(o), g, o * n, n, step)));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let gy: Vec<_> = (0..s.n_outputs()).map(|o| s.gy(o)).collect();
        vec![Some(Sym::apply(Stack { axis: self.axis }, &gy))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Coordinates on a grid: each input varies along one axis and is repeated along the others.
    ///
    /// Args:
    ///     x: Inputs with one axis, the positions along the axes of the grid.
    ///     ij_indexing: Let the axes of the grid follow the inputs in order; otherwise the first two are swapped.
    ///
    /// Returns:
    ///     For each input an array of the shape of the grid.
    ///
    /// Raises:
    ///     ShapeError: If an input does not have one axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = F.meshgrid(nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([3.0, 4.0, 5.0]))
    ///     >>> x.data
    ///     array([[1., 2.],
    ///            [1., 2.],
    ///            [1., 2.]], dtype=float32)
    ///     >>> y.data
    ///     array([[3., 3.],
    ///            [4., 4.],
    ///            [5., 5.]], dtype=float32)
    /// ```
    Meshgrid = meshgrid(x: list; ij_indexing: bool = false)
}

impl Meshgrid {
    /// The axis of the grid along which input `i` of `n` varies.
    fn axis(&self, i: usize, n: usize) -> usize {
        if self.ij_indexing || n < 2 || i > 1 { i } else { 1 - i }
    }

    /// The shape of input `i` with length one along all axes of the grid but its own.
    fn line(&self, i: usize, n: usize, len: usize) -> Shape {
        (0..n).map(|axis| if axis == self.axis(i, n) { len } else { 1 }).collect()
    }

    /// The axes of the grid along which input `i` is repeated.
    fn other_axes(&self, i: usize, n: usize) -> Vec<usize> {
        (0..n).filter(|axis| *axis != self.axis(i, n)).collect()
    }
}

impl Compute for Meshgrid {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        first("meshgrid", x)?;
        if x.iter().any(|s| s.ndim() != 1) {
            return Err(Error::shape("meshgrid", "inputs with one axis", x.iter()));
        }
        let n = x.len();
        // The order of axes is its own inverse.
        let grid: Shape = (0..n).map(|axis| x.get(self.axis(axis, n))[0]).collect();
        grid.checked_size()?;
        Ok(Shapes::from_elem(grid, n))
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let n = run.n_inputs();
        for i in 0..n {
            let line = self.line(i, n, run.x(i).len());
            strided::broadcast(run.x(i), &line, run.y_shape(i), run.y(i));
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let n = run.n_inputs();
        for i in 0..n {
            let (gy, grid) = (run.gy(i), run.y_shape(i));
            if let Some(gx) = run.gx(i) {
                gx.through(|g| reduce::sum(gy, grid, &self.other_axes(i, n), g));
            }
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let n = s.n_inputs();
        (0..n).map(|i| Some(s.gy(i).sum(&self.other_axes(i, n), false))).collect()
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
