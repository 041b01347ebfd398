//! Operations with a special role in the graph: unlink, sink, assign.

use crate::array::Shape;
use crate::kernels::Float;
use crate::ops::arrangement::concatenate::first;
use crate::ops::{
    Alias, Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Unlink>(), Entry::of::<Sink>(), Entry::of::<Assign>()];

op! {
    /// The same array without a gradient: `y = x`. Shares memory with its input.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    ///     >>> y = F.sum(x * F.unlink(x))
    ///     >>> y.forward()
    ///     >>> y.backward()
    ///     >>> x.g  # x, not 2 * x
    ///     array([1., 2.], dtype=float32)
    /// ```
    Unlink = unlink(x)
}

impl Compute for Unlink {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        Run::<T>::copy(run.x_memory(0), run.y_memory(0));
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

    fn alias(&self, _: usize) -> Option<Alias> {
        Some(Alias { output: 0, modifies: false })
    }
}

op! {
    /// Joins the ends of several branches, so that one call runs all of them forward or backward. Runs do not clear its
    /// inputs.
    ///
    /// Args:
    ///     x: Inputs of any shapes.
    ///     one_input_grad: Start a backward run with ones as gradients of the inputs; if off, with the gradients that
    ///         the inputs have.
    ///
    /// Returns:
    ///     A scalar without meaning.
    ///
    /// Raises:
    ///     TypeError: If there is no input.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.Variable.from_numpy_array([1.0, 2.0])
    ///     >>> a, b = x + 1, x * 10
    ///     >>> F.sink(a, b).forward()
    ///     >>> a.d, b.d
    ///     (array([2., 3.], dtype=float32), array([10., 20.], dtype=float32))
    /// ```
    Sink = sink(x: list; one_input_grad: bool = true)
}

impl Compute for Sink {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        first("sink", x)?;
        one(Shape::scalar())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).fill(T::ZERO);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        if self.one_input_grad {
            (0..run.n_inputs()).filter_map(|i| run.gx(i)).for_each(|gx| gx.put(|_| T::ONE));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![self.one_input_grad.then_some(Sym::Const(1.0)); s.n_inputs()]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn keeps_gradients(&self) -> bool {
        !self.one_input_grad
    }

    const MAY_CLEAR_INPUTS: bool = false;
}

op! {
    /// Overwrites an array with another: `dst = src`, and `y = src`. The gradient goes to `dst`, not to `src`.
    ///
    /// Args:
    ///     dst: Array to overwrite.
    ///     src: Its new values, of the same shape.
    ///
    /// Returns:
    ///     The new values.
    ///
    /// Raises:
    ///     ShapeError: If the shapes differ.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([1.0, 2.0]), nn.NdArray.from_numpy_array([3.0, 4.0])
    ///     >>> F.assign(x, y).data
    ///     array([3., 4.], dtype=float32)
    ///     >>> x.data
    ///     array([3., 4.], dtype=float32)
    /// ```
    Assign = assign(dst, src)
}

impl Compute for Assign {
    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if x.get(0) == x.get(1) {
            return like(x);
        }
        Err(Error::shape("assign", "two arrays of one shape", x.iter()))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).copy_from_slice(run.x(1));
        Run::<T>::copy(run.y_memory(0), run.x_memory(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0) {
            gx.put_all(gy);
        }
        if let Some(gx) = run.gx(1) {
            gx.put(|_| T::ZERO);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0)), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    // `dst`.
    /// True for `dst`, which `forward` writes.
    fn overwrites(&self, i: usize) -> bool {
        i == 0
    }
}
