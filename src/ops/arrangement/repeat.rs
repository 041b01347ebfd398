//! Operations that repeat arrays: tile, broadcast_to.

use crate::array::Shape;
use crate::kernels::{Float, Movable, reduce, strided};
use crate::ops::{Backward, Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Tile>(), Entry::of::<BroadcastTo>()];

op! {
    /// Repeats an array along its axes.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     reps: Number of repetitions along each of the last axes. More numbers than axes create new leading axes.
    ///
    /// Returns:
    ///     Array `reps` times as long.
    ///
    /// Raises:
    ///     ArgumentError: If a number is negative.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.tile(x, 2).data
    ///     array([1., 2., 1., 2.], dtype=float32)
    ///     >>> F.tile(x, (2, 1)).data
    ///     array([[1., 2.],
    ///            [1., 2.]], dtype=float32)
    /// ```
    Tile = tile(x; reps: Vec<i64>)
}

impl Tile {
    /// The shape of `x` with a new axis of length one before each axis. The second shape has the repetitions as lengths
    /// of the new axes.
    fn pairs(&self, x: &Shape) -> Result<(Shape, Shape)> {
        let n = x.ndim().max(self.reps.len());
        let fail = || Error::argument("tile", "reps", "numbers of zero or more", format!("{:?}", self.reps));
        let (mut one, mut many) = (Vec::with_capacity(2 * n), Vec::with_capacity(2 * n));
        for i in 0..n {
            let dim = (i + x.ndim()).checked_sub(n).map_or(1, |at| x[at]);
            let reps = (i + self.reps.len()).checked_sub(n).map_or(1, |at| self.reps[at]);
            one.extend([1, dim]);
            many.extend([usize::try_from(reps).map_err(|_| fail())?, dim]);
        }
        let many = Shape::from(many);
        many.checked_size()?;
        Ok((Shape::from(one), many))
    }
}

/// The axes that count repetitions in a shape from [`Tile::pairs`].
fn repetitions(pairs: &Shape) -> Vec<usize> {
    (0..pairs.ndim()).step_by(2).collect()
}

impl Compute for Tile {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (_, many) = self.pairs(x.get(0))?;
        one(many.chunks(2).map(|pair| pair[0] * pair[1]).collect::<Shape>())
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (one, many) = self.pairs(run.x_shape(0))?;
        strided::broadcast(run.x(0), &one, &many, run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let ((_, many), gy) = (self.pairs(run.x_shape(0))?, run.gy(0));
        if let Some(gx) = run.gx(0) {
            gx.through(|g| reduce::sum(gy, &many, &repetitions(&many), g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let shape = s.x(0).shape();
        let (_, many) = self.pairs(&shape).unwrap_or_default();
        vec![Some(s.gy(0).reshape(&many).sum(&repetitions(&many), false).reshape(&shape))]
    }

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}

op! {
    /// Broadcasts `y` to the shape of `x`.
    ///
    /// Args:
    ///     x: Array with the target shape. Its values are not used.
    ///     y: Input whose shape is part of the shape of `x`.
    ///     axis: Axis of `x` at which the shape of `y` starts. By default the last axes are aligned.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If the shape of `y` is not found there.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[0.0, 0.0], [0.0, 0.0]])
    ///     >>> y = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.broadcast_to(x, y).data
    ///     array([[1., 2.],
    ///            [1., 2.]], dtype=float32)
    /// ```
    BroadcastTo = broadcast_to(x, y; axis: Option<i64> = None)
}

impl BroadcastTo {
    /// The axis of `x` at which `y` starts. None to align the last axes.
    fn start(&self) -> Option<usize> {
        self.axis.and_then(|axis| usize::try_from(axis).ok())
    }

    /// The shape of `y` with axes of length one added, so that it has as many as `x`.
    fn lifted(&self, x: &Shape, y: &Shape) -> Result<Shape> {
        let fail = || {
            let place = match self.axis {
                Some(axis) if axis >= 0 => format!("from axis {axis}"),
                _ => "at the end".into(),
            };
            Error::shape("broadcast_to", format!("the shape of y within that of x, {place}"), [x, y])
        };
        let last = x.ndim().checked_sub(y.ndim()).ok_or_else(fail)?;
        let start = self.start().unwrap_or(last);
        if start > last || x[start..start + y.ndim()] != y[..] {
            return Err(fail());
        }
        let within = start..start + y.ndim();
        Ok((0..x.ndim()).map(|i| if within.contains(&i) { x[i] } else { 1 }).collect())
    }

    /// The axes of `x` along which `y` is repeated.
    fn axes(&self, x: &Shape, y: &Shape) -> Vec<usize> {
        let start = self.start().unwrap_or(x.ndim() - y.ndim());
        (0..x.ndim()).filter(|i| !(start..start + y.ndim()).contains(i)).collect()
    }
}

impl Compute for BroadcastTo {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        self.lifted(x.get(0), x.get(1))?;
        one(x.get(0).clone())
    }

    fn open(&self, _: &str, _: &InputShapes<'_>) -> Value {
        Value::Int(-1)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let lifted = self.lifted(run.x_shape(0), run.x_shape(1))?;
        strided::broadcast(run.x(1), &lifted, run.y_shape(0), run.y(0));
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (shape, gy) = (run.x_shape(0), run.gy(0));
        let axes = self.axes(shape, run.x_shape(1));
        if let Some(gx) = run.gx(0) {
            gx.put(|_| T::ZERO);
        }
        if let Some(gx) = run.gx(1) {
            gx.through(|g| reduce::sum(gy, shape, &axes, g));
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let axes = self.axes(&s.x(0).shape(), &s.x(1).shape());
        vec![None, Some(s.gy(0).sum(&axes, false))]
    }

    fn moves(&self, i: usize) -> bool {
        i == 1
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
