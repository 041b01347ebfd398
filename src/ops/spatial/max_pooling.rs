//! `max_pooling`. The index of the maximum is found in the forward run and saved for the gradient.

use crate::array::Shape;
use crate::kernels::pooling::{Windows, max, put_taken, take};
use crate::kernels::scratch::{self, SavedMemory};
use crate::kernels::{Float, Movable, Stored};
use crate::ops::spatial::layout::{PoolingArguments, pools};
use crate::ops::{
    Backward, Compares, Compute, Declared, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one,
    op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<MaxPooling>(), Entry::of::<MaxPoolingBackward>()];

op! {
    /// Maximum over windows along the last axes. The gradient goes to the first of equal elements.
    ///
    /// Args:
    ///     x: Input, shape (..., spatial...), or (..., spatial..., channels) if `channel_last`.
    ///     kernel: Size of the windows along each spatial axis; one to three axes.
    ///     stride: Step of the windows along each spatial axis, `kernel` by default.
    ///     ignore_border: Leave out windows that exceed the end of the padded input. If off, every element is in a
    ///         window, and `pad` is added at the start only.
    ///     pad: Elements added at both ends of each spatial axis, fewer than `kernel`, which are never the largest;
    ///         none by default.
    ///     channel_last: The last axis is the channels and is not pooled.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements, or
    ///     `ceil((in + pad) / stride)` without `ignore_border`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If `x` has too few axes, or no window fits.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 5.0, 3.0]]])
    ///     >>> F.max_pooling(x, (2,)).data
    ///     array([[[2., 5.]]], dtype=float32)
    ///     >>> F.max_pooling(x, (2,), stride=(1,)).data
    ///     array([[[2., 5., 5.]]], dtype=float32)
    /// ```
    MaxPooling = max_pooling(x;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>> = None,
        ignore_border: bool = true,
        pad: Option<Vec<i64>> = None,
        channel_last: bool = false,
    )
}

op! {
    /// The gradient of `max_pooling`: each number is added to the largest element of its window of `x`.
    ///
    /// Args:
    ///     dy: Gradient of the output of `max_pooling`.
    ///     x: Input of `max_pooling`.
    ///     kernel: As given to `max_pooling`.
    ///     stride: As given to `max_pooling`.
    ///     ignore_border: As given to `max_pooling`.
    ///     pad: As given to `max_pooling`.
    ///     channel_last: As given to `max_pooling`.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument does not have one number for each spatial axis, or a number is out of range.
    ///     ShapeError: If `dy` does not have the shape of the output of `max_pooling`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[[1.0, 2.0, 5.0, 3.0]]])
    ///     >>> gy = nn.NdArray.from_numpy_array([[[10.0, 20.0]]])
    ///     >>> F.max_pooling_backward(gy, x, (2,)).data
    ///     array([[[ 0., 10., 20.,  0.]]], dtype=float32)
    /// ```
    MaxPoolingBackward = max_pooling_backward(dy, x;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>> = None,
        ignore_border: bool = true,
        pad: Option<Vec<i64>> = None,
        channel_last: bool = false,
    )
}

op! {
    /// The gradient of `max_pooling_backward` by `dy`: reads `v` at the position of the largest element in each window
    /// of `x`.
    ///
    /// Args:
    ///     v: Array of the shape of `x`.
    ///     x: Input of `max_pooling`.
    ///     kernel: As given to `max_pooling`.
    ///     stride: As given to `max_pooling`.
    ///     ignore_border: As given to `max_pooling`.
    ///     pad: As given to `max_pooling`.
    ///     channel_last: As given to `max_pooling`.
    ///
    /// Returns:
    ///     Array of the shape of the output of `max_pooling`.
    MaxPoolingTake = max_pooling_take(v, x;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>>,
        ignore_border: bool,
        pad: Option<Vec<i64>>,
        channel_last: bool,
    )
}

pools!(MaxPooling MaxPoolingBackward MaxPoolingTake);

/// Creates another operation with the same arguments.
macro_rules! with_arguments_of {
    ($op:ident, $ty:ident) => {{
        let Self { kernel, stride, ignore_border, pad, channel_last } = $op.clone();
        $ty { kernel, stride, ignore_border, pad, channel_last }
    }};
}

/// The windows of a pooling. An error if its elements cannot be numbered with 32 bits.
fn windows(pool: &PoolingArguments<'_>, x: &Shape) -> Result<(Windows, Shape)> {
    let (windows, y) = pool.windows(x)?;
    pool.check_filled()?; // of nothing there is no largest element
    if u32::try_from(windows.input_plane()).is_err() {
        return Err(Error::shape(pool.op, "fewer than 2^32 elements along the spatial axes", [x]));
    }
    Ok((windows, y))
}

/// Finds the index of the maximum of each window of `x`.
fn find<T: Float>(windows: &Windows, x: &[T], at: &mut SavedMemory<u32>) {
    at.resize(windows.outputs(), 0);
    scratch::with(at.len(), |y| max(windows, x, y, at));
}

impl Compute for MaxPooling {
    const COMPARES: Compares = Compares::Moved;

    fn moves(&self, _: usize) -> bool {
        true
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(windows(&self.pool(), x.get(0))?.1)
    }

    const IS_STORED: bool = true;
    const IS_STORED_HALF: bool = true;

    fn stored_forward<E: Stored>(&self, run: &mut Run<'_, E>) -> Result<()> {
        let (windows, _) = windows(&self.pool(), run.x_shape(0))?;
        let (x, y) = (run.x(0), run.y(0));
        let at: &mut SavedMemory<u32> = run.state();
        at.resize(windows.outputs(), 0);
        max(&windows, x, y, at);
        Ok(())
    }

    const MOVES_BACK: bool = true;

    fn moves_back(&self, x: &InputShapes<'_>) -> bool {
        windows(&self.pool(), x.get(0)).is_ok_and(|(windows, _)| windows.are_apart())
    }

    fn move_backward<T: Movable>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (windows, _) = windows(&self.pool(), run.x_shape(0))?;
        let (gx, gy) = (run.gx(0), run.gy(0));
        let at: &mut SavedMemory<u32> = run.state();
        if at.len() != gy.len() {
            return Err(Error::Graph("max_pooling: expected a forward run before the backward run".into()));
        }
        if let Some(gx) = gx {
            put_taken(&windows, at, gy, gx.data, gx.accumulate);
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(Sym::apply(with_arguments_of!(self, MaxPoolingBackward), &[s.gy(0), s.x(0)]))]
    }

    // `backward` reads the places of the maxima, which `forward` saves.
    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn symbol_reads(&self, _: usize) -> Reads {
        Reads::INPUTS
    }

    fn open(&self, arg: &str, _: &InputShapes<'_>) -> Value {
        self.pool().open(arg)
    }
}

impl Compute for MaxPoolingBackward {
    const COMPARES: Compares = Compares::One(1);

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (dy, x) = (x.get(0), x.get(1));
        let (_, y) = windows(&self.pool(), x)?;
        if *dy != y {
            return Err(Error::shape(Self::SPEC.name, format!("`dy` of shape {y}"), [dy, x]));
        }
        one(x.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (windows, _) = windows(&self.pool(), run.x_shape(1))?;
        let (dy, x, gx) = (run.x(0), run.x(1), run.y(0));
        let at: &mut SavedMemory<u32> = run.state();
        find(&windows, x, at);
        put_taken(&windows, at, dy, gx, false);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let of_dy = || Sym::apply(with_arguments_of!(self, MaxPoolingTake), &[s.gy(0), s.x(1)]);
        vec![s.wants(0).then(of_dy), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b10)
    }

    fn open(&self, arg: &str, _: &InputShapes<'_>) -> Value {
        self.pool().open(arg)
    }
}

impl Compute for MaxPoolingTake {
    const COMPARES: Compares = Compares::One(1);

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (v, x) = (x.get(0), x.get(1));
        if v != x {
            return Err(Error::shape(Self::SPEC.name, "two arrays of the same shape", [v, x]));
        }
        one(windows(&self.pool(), x)?.1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (windows, _) = windows(&self.pool(), run.x_shape(1))?;
        let (v, x, y) = (run.x(0), run.x(1), run.y(0));
        let at: &mut SavedMemory<u32> = run.state();
        find(&windows, x, at);
        take(&windows, at, v, y);
        Ok(())
    }

    const HAS_BACKWARD: bool = false;

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let of_v = || Sym::apply(with_arguments_of!(self, MaxPoolingBackward), &[s.gy(0), s.x(1)]);
        vec![s.wants(0).then(of_v), None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::inputs(0b10)
    }
}
