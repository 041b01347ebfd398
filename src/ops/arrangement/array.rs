//! Operations that reshape, transpose or create arrays.

use crate::array::Shape;
use crate::kernels::{Float, Movable, Number, reduce, strided};
use crate::ops::{
    Alias, Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Unary, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::unary::<Identity>(),
    Entry::of::<Constant>(),
    Entry::of::<Reshape>(),
    Entry::of::<Transpose>(),
    Entry::of::<Broadcast>(),
];

op! {
    /// The same values: `y = x`.
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
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.identity(x).data
    ///     array([1., 2.], dtype=float32)
    /// ```
    Identity = identity(x)
}

impl Unary for Identity {
    const READS: Reads = Reads::NOTHING;
    const MOVES: bool = true;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, _: N) -> N {
        N::all(1.0)
    }
}

op! {
    /// An array filled with a number.
    ///
    /// Args:
    ///     val: The number.
    ///     shape: Shape of the array.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ArgumentError: If a length is negative.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor.functions as F
    ///     >>> y = F.constant(3.0, shape=(2, 2))
    ///     >>> y.forward()
    ///     >>> y.d
    ///     array([[3., 3.],
    ///            [3., 3.]], dtype=float32)
    /// ```
    Constant = constant(; val: f64 = 0.0, shape: Vec<i64> = Vec::new())
}

impl Compute for Constant {
    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(lengths("constant", &self.shape)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        run.y(0).fill(T::of(self.val));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        Vec::new()
    }
}

/// Checks a shape that was given as an argument.
pub(crate) fn lengths(op: &str, shape: &[i64]) -> Result<Shape> {
    let fail = || Error::argument(op, "shape", "lengths of zero or more", format!("{shape:?}"));
    shape.iter().map(|d| usize::try_from(*d).map_err(|_| fail())).collect::<Result<Shape>>()
}

op! {
    /// The same elements in another shape. Shares memory with its input if `inplace`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     shape: The new shape. One length may be -1 and is then inferred from the others.
    ///     inplace: Share memory with `x`.
    ///     axes: Empty, or one entry for each axis of the result: the axis of `x` whose length it has, also after `x`
    ///         changes its shape, or -1 if `shape` says its length.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ShapeError: If the number of elements differs.
    ///     ArgumentError: If `axes` has another number of entries than `shape`, or names an axis that `x` does not
    ///         have.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ///     >>> F.reshape(x, (3, 2)).data
    ///     array([[1., 2.],
    ///            [3., 4.],
    ///            [5., 6.]])
    ///     >>> F.reshape(x, (-1,)).data
    ///     array([1., 2., 3., 4., 5., 6.])
    /// ```
    Reshape = reshape(x; shape: Vec<i64>, inplace: bool = true, axes: Vec<i64> = Vec::new())
}

impl Compute for Reshape {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let own = x.get(0);
        let mut shape = self.shape.clone();
        if !self.axes.is_empty() && self.axes.len() != shape.len() {
            return Err(Error::argument(
                "reshape",
                "axes",
                "one entry for each length",
                format!("{:?}", self.axes),
            ));
        }
        for (length, axis) in shape.iter_mut().zip(&self.axes).filter(|(_, axis)| **axis != -1) {
            let taken = usize::try_from(*axis).ok().and_then(|axis| own.get(axis));
            let fail =
                || Error::argument("reshape", "axes", format!("axes of {own:?} or -1"), format!("{axis}"));
            *length = *taken.ok_or_else(fail)? as i64;
        }
        let wanted = shape.clone();
        let fail = || Error::shape("reshape", format!("{} elements for {wanted:?}", own.size()), [own]);
        let known = shape.iter().filter(|d| **d != -1).try_fold(1_i64, |n, d| n.checked_mul(*d));
        let known = known.ok_or_else(fail)?;
        let open: Vec<_> = (0..shape.len()).filter(|i| shape[*i] == -1).collect();
        match open[..] {
            [] => {}
            [at] if known > 0 && own.size() as i64 % known == 0 => shape[at] = own.size() as i64 / known,
            _ => return Err(fail()),
        }
        let shape = lengths("reshape", &shape)?;
        if shape.checked_size()? == own.size() { one(shape) } else { Err(fail()) }
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        Run::<T>::copy(run.x_memory(0), run.y_memory(0));
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = run.gy(0);
        if let Some(gx) = run.gx(0) {
            gx.put_all(gy);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0).reshape(&s.x(0).shape()))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        if self.inplace { Reads::OUTPUTS } else { Reads::NOTHING }
    }

    fn alias(&self, _: usize) -> Option<Alias> {
        self.inplace.then_some(Alias { output: 0, modifies: false })
    }
}

op! {
    /// The same elements with the axes in another order.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axes: Axis `i` of the result is axis `axes[i]` of `x`.
    ///
    /// Returns:
    ///     Array whose shape is the reordered shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `axes` is not a permutation of all axes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ///     >>> F.transpose(x, (1, 0)).data
    ///     array([[1., 4.],
    ///            [2., 5.],
    ///            [3., 6.]], dtype=float32)
    /// ```
    Transpose = transpose(x; axes: Vec<i64>)
}

impl Transpose {
    /// The permutation that undoes this one.
    fn back(&self) -> Vec<usize> {
        let n = self.axes.len();
        let mut back = vec![0; n];
        for (i, a) in self.axes.iter().enumerate() {
            back[if *a < 0 { *a + n as i64 } else { *a } as usize] = i;
        }
        back
    }
}

/// The shape after a permutation of the axes.
pub(crate) fn transposed(op: &str, shape: &Shape, order: &[i64]) -> Result<Shape> {
    let axes = shape.axes(op, Some(order))?;
    if axes.len() != shape.ndim() {
        let expected = format!("an order of {} axes", shape.ndim());
        return Err(Error::argument(op, "axes", expected, format!("{order:?}")));
    }
    Ok(axes.iter().map(|a| shape[*a]).collect())
}

impl Compute for Transpose {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(transposed("transpose", x.get(0), &self.axes)?)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = run.x_shape(0).axes("transpose", Some(&self.axes))?;
        strided::transpose(run.x(0), run.x_shape(0), &axes, run.y(0));
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, back) = (run.gy(0), self.back());
        let Some(gx) = run.gx(0) else { return Ok(()) };
        match gx.accumulate {
            true => strided::transpose_with(gy, run.y_shape(0), &back, gx.data, |g, gy| *g = g.plus(gy)),
            false => strided::transpose(gy, run.y_shape(0), &back, gx.data),
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0).transpose(&self.back()))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Broadcasting to a shape: repeats the array along axes of length one and along new leading axes.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     shape: The new shape, with at least as many axes as `x`. Its last axes correspond to the axes of `x`.
    ///
    /// Returns:
    ///     Array of shape `shape`.
    ///
    /// Raises:
    ///     ShapeError: If an axis of another length than one would change, or `x` has more axes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0], [2.0]])
    ///     >>> F.broadcast(x, (2, 3)).data
    ///     array([[1., 1., 1.],
    ///            [2., 2., 2.]], dtype=float32)
    /// ```
    Broadcast = broadcast(x; shape: Vec<i64>)
}

impl Compute for Broadcast {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let own = x.get(0);
        let shape = lengths("broadcast", &self.shape)?;
        let repeats = |(a, b): (&usize, &usize)| a == b || *a == 1;
        if own.ndim() <= shape.ndim() && own.iter().rev().zip(shape.iter().rev()).all(repeats) {
            return one(shape);
        }
        Err(Error::shape("broadcast", format!("a shape that repeats to {shape}"), [own]))
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        strided::broadcast(run.x(0), run.x_shape(0), run.y_shape(0), run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, own, shape) = (run.gy(0), run.x_shape(0), run.y_shape(0));
        let lead = shape.ndim() - own.ndim();
        let axes: Vec<usize> =
            (0..shape.ndim()).filter(|i| *i < lead || own[*i - lead] != shape[*i]).collect();
        if let Some(gx) = run.gx(0) {
            gx.through(|g| reduce::sum(gy, shape, &axes, g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0).sum_to(&s.x(0).shape()))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
