//! Sums and products of any number of arrays.

use crate::array::Shape;
use crate::kernels::{Float, map, scratch};
use crate::ops::arrangement::concatenate::first;
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<AddN>(), Entry::of::<MulN>()];

/// The common shape of all inputs.
fn same<'a>(op: &str, x: &InputShapes<'a>) -> Result<&'a Shape> {
    let shape = first(op, x)?;
    if x.iter().all(|s| s == shape) {
        return Ok(shape);
    }
    Err(Error::shape(op, "inputs of one shape", x.iter()))
}

/// Combines the inputs one by one, elementwise, starting with the first.
fn combine<T: Float>(run: &mut Run<'_, T>, f: impl Fn(T, T) -> T + Sync) {
    let y = run.y(0);
    y.copy_from_slice(run.x(0));
    for i in 1..run.n_inputs() {
        map::update(y, run.x(i), &f);
    }
}

op! {
    /// Sum of arrays, elementwise: `y = x[0] + x[1] + ...`.
    ///
    /// Args:
    ///     x: One or more inputs of one shape.
    ///
    /// Returns:
    ///     Array of that shape.
    ///
    /// Raises:
    ///     ShapeError: If the shapes differ.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 4.0])
    ///     >>> z = nn.NdArray.from_numpy_array([5.0, 6.0])
    ///     >>> F.add_n(x, y, z).data
    ///     array([ 9., 12.], dtype=float32)
    /// ```
    AddN = add_n(x: list)
}

impl Compute for AddN {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(same("add_n", x)?.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        combine(run, |a, b| a + b);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        (0..run.n_inputs()).filter_map(|i| run.gx(i)).for_each(|gx| gx.put_all(gy));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0)); s.n_inputs()]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Product of arrays, elementwise: `y = x[0] * x[1] * ...`.
    ///
    /// Args:
    ///     x: One or more inputs of one shape.
    ///
    /// Returns:
    ///     Array of that shape.
    ///
    /// Raises:
    ///     ShapeError: If the shapes differ.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> y = nn.NdArray.from_numpy_array([3.0, 4.0])
    ///     >>> z = nn.NdArray.from_numpy_array([5.0, 6.0])
    ///     >>> F.mul_n(x, y, z).data
    ///     array([15., 48.], dtype=float32)
    /// ```
    MulN = mul_n(x: list)
}

impl Compute for MulN {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(same("mul_n", x)?.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        combine(run, |a, b| a * b);
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        for i in 0..run.n_inputs() {
            let Some(gx) = run.gx(i) else { continue };
            let others = || (0..run.n_inputs()).filter(|other| *other != i);
            scratch::with(gy.len(), |g| {
                g.copy_from_slice(gy);
                others().for_each(|other| map::update(g, run.x(other), |g, x| g * x));
                gx.put_all(g);
            });
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let n = s.n_inputs();
        let others = |i: usize| (0..n).filter(|j| *j != i).fold(s.gy(0), |g, j| g * s.x(j));
        (0..n).map(|i| s.wants(i).then(|| others(i))).collect()
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx < 63 { Reads::inputs(!(1 << gx)) } else { Reads::INPUTS }
    }
}
