//! Slicing, padding and moving along axes: slice, pad, flip, shift.

use crate::array::Shape;
use crate::kernels::regrid::RegridAxis;
use crate::ops::arrangement::regrid::Rearrange;
use crate::ops::{Entry, Value, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::rearrange::<Slice>(),
    Entry::rearrange::<Pad>(),
    Entry::rearrange::<Flip>(),
    Entry::rearrange::<Shift>(),
];

op! {
    /// A slice of the array: along each axis, every `step`-th element from `start` up to but not including `stop`.
    ///
    /// As in Python, negative positions count from the end, positions beyond the ends mean the ends, and a negative
    /// step runs backward. None means the end of the axis, also after `x` changes its shape.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     start: First position along each axis; by default the start (the end where `step` is negative).
    ///     stop: Position along each axis to stop before; by default the end (the start where `step` is negative).
    ///     step: Distance between positions along each axis, 1 by default.
    ///
    /// Returns:
    ///     Array with as many axes as `x`.
    ///
    /// Raises:
    ///     ArgumentError: If a step is zero, or if there is not one number for each axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    ///     >>> F.slice(x, start=(0, 1), stop=(2, 3)).data
    ///     array([[2., 3.],
    ///            [5., 6.]], dtype=float32)
    ///     >>> F.slice(x, start=(0, 0), stop=(1, 3), step=(1, 2)).data
    ///     array([[1., 3.]], dtype=float32)
    /// ```
    Slice = slice(
        x;
        start: Option<Vec<Option<i64>>> = None,
        stop: Option<Vec<Option<i64>>> = None,
        step: Option<Vec<Option<i64>>> = None,
    )
}

/// Slices an axis of length `n` from `start` to `stop` by `step`, which is not zero.
pub(crate) fn cut(n: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> RegridAxis {
    let len = n as i64;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let bound = |at: i64| (if at < 0 { at.saturating_add(len) } else { at }).clamp(low, high);
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (start, stop) = (start.map_or(first, bound), stop.map_or(last, bound));
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = if distance > 0 { (distance as u64).div_ceil(step.unsigned_abs()) } else { 0 };
    RegridAxis::default().then(start.max(0) as usize, step as isize, count as usize)
}

impl Rearrange for Slice {
    fn axes(&self, x: &Shape) -> Result<Vec<RegridAxis>> {
        for (name, given) in [("start", &self.start), ("stop", &self.stop), ("step", &self.step)] {
            if let Some(given) = given.as_ref().filter(|given| given.len() != x.ndim()) {
                let expected = format!("{} numbers, one for each axis", x.ndim());
                return Err(Error::argument("slice", name, expected, Value::Bounds(given.clone())));
            }
        }
        let at = |given: &Option<Vec<Option<i64>>>, axis: usize| given.as_ref().and_then(|given| given[axis]);
        let axis = |axis: usize| match at(&self.step, axis).unwrap_or(1) {
            0 => Err(Error::argument("slice", "step", "other than zero", 0)),
            step => Ok(cut(x[axis], at(&self.start, axis), at(&self.stop, axis), step)),
        };
        (0..x.ndim()).map(axis).collect()
    }

    fn open(&self, arg: &str, x: &Shape) -> Value {
        let backward =
            |axis: usize| self.step.as_ref().is_some_and(|step| step[axis].is_some_and(|step| step < 0));
        let of = |axis: usize| match (arg, backward(axis)) {
            ("step", _) => 1,
            ("start", backward) => -i64::from(backward),
            (_, false) => x[axis] as i64,
            (_, true) => -(x[axis] as i64) - 1,
        };
        Value::Ints((0..x.ndim()).map(of).collect())
    }
}

op! {
    /// Padding with a constant, with the mirrored array, or with its outermost elements.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     pad_width: Elements before and after each axis, in pairs, for the last axes.
    ///     mode: "constant"; "reflect", which mirrors at the outermost element; or "repeat", which repeats the
    ///         outermost element.
    ///     constant_value: The padding value for "constant".
    ///
    /// Returns:
    ///     Array with as many axes as `x`.
    ///
    /// Raises:
    ///     ArgumentError: If a width is negative, there are not pairs for at most all axes, or there is no such mode.
    ///     ShapeError: If an axis without elements is to be mirrored or repeated.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0])
    ///     >>> F.pad(x, (1, 2)).data
    ///     array([0., 1., 2., 3., 0., 0.], dtype=float32)
    ///     >>> F.pad(x, (1, 2), mode="reflect").data
    ///     array([2., 1., 2., 3., 2., 1.], dtype=float32)
    /// ```
    Pad = pad(x; pad_width: Vec<i64>, mode: String = "constant", constant_value: f64 = 0.0)
}

/// Reflects position `at`, which may be outside, into `0..n`. The first and last elements are not repeated.
fn reflect(at: i64, n: i64) -> usize {
    let period = (2 * (n - 1)).max(1);
    let at = at.rem_euclid(period);
    at.min(period - at).min(n - 1) as usize
}

impl Rearrange for Pad {
    fn axes(&self, x: &Shape) -> Result<Vec<RegridAxis>> {
        let width = &self.pad_width;
        if width.len() % 2 == 1 || width.len() > 2 * x.ndim() || width.iter().any(|w| *w < 0) {
            let expected = format!("pairs of widths of zero or more for at most {} axes", x.ndim());
            return Err(Error::argument("pad", "pad_width", expected, format!("{width:?}")));
        }
        if !["constant", "reflect", "repeat"].contains(&self.mode.as_str()) {
            let expected = "\"constant\", \"reflect\" or \"repeat\"";
            return Err(Error::argument("pad", "mode", expected, format!("{:?}", self.mode)));
        }
        let untouched = x.ndim() - width.len() / 2;
        let widths = std::iter::repeat_n((0, 0), untouched).chain(width.chunks(2).map(|w| (w[0], w[1])));
        let framed: Shape = x
            .iter()
            .zip(widths.clone())
            .map(|(n, (a, b))| n.saturating_add(a as usize).saturating_add(b as usize))
            .collect();
        framed.checked_size()?;
        let axis = |(n, (before, after)): (&usize, (i64, i64))| {
            let (whole, len) = (RegridAxis::default(), *n as i64);
            if before + after > 0 && len == 0 && self.mode != "constant" {
                return Err(Error::shape("pad", format!("elements to {}", self.mode), [x]));
            }
            Ok(match self.mode.as_str() {
                "constant" => whole.then_outside(before as usize).then(0, 1, *n).then_outside(after as usize),
                "repeat" => {
                    whole.then(0, 0, before as usize).then(0, 1, *n).then(n.max(&1) - 1, 0, after as usize)
                }
                _ => {
                    let whole = whole.then_each((-before..0).map(|at| reflect(at, len))).then(0, 1, *n);
                    whole.then_each((len..len + after).map(|at| reflect(at, len)))
                }
            })
        };
        x.iter().zip(widths).map(axis).collect()
    }

    fn outside(&self) -> f64 {
        self.constant_value
    }
}

op! {
    /// The elements in reverse order along axes.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     axes: Axis or axes to reverse, the last one by default; negative ones count from the end.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> F.flip(x, axes=(1,)).data
    ///     array([[2., 1.],
    ///            [4., 3.]], dtype=float32)
    /// ```
    Flip = flip(x; axes: Option<Vec<i64>> = None)
}

impl Rearrange for Flip {
    fn axes(&self, x: &Shape) -> Result<Vec<RegridAxis>> {
        let flipped = x.axes("flip", Some(self.axes.as_deref().unwrap_or(&[-1])))?;
        let axis = |(i, n): (usize, &usize)| match flipped.contains(&i) && *n > 0 {
            true => RegridAxis::default().then(n - 1, -1, *n),
            false => RegridAxis::whole(*n),
        };
        Ok(x.iter().enumerate().map(axis).collect())
    }

    fn open(&self, _: &str, x: &Shape) -> Value {
        Value::Ints(vec![x.ndim() as i64 - 1])
    }
}

op! {
    /// Elements shifted along axes: `y[i] = x[i - shift]`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     shifts: Number of elements to shift along each of the last axes, 0 by default.
    ///     border_mode: The values that enter at the border: "nearest", the outermost element, or "reflect", the mirror
    ///         image (`1 0 | 0 1 2 | 2 1`).
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If there are more shifts than axes, or there is no such mode.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0, 3.0, 4.0])
    ///     >>> F.shift(x, (1,)).data
    ///     array([1., 1., 2., 3.], dtype=float32)
    ///     >>> F.shift(x, (-2,), border_mode="nearest").data
    ///     array([3., 4., 4., 4.], dtype=float32)
    /// ```
    Shift = shift(x; shifts: Option<Vec<i64>> = None, border_mode: String = "nearest")
}

/// Shifts an axis of length `n` by `shift`.
fn shifted(n: usize, shift: i64, mirrored: bool) -> RegridAxis {
    let len = n as i64;
    if !mirrored {
        let before = shift.clamp(0, len);
        let after = shift.saturating_neg().clamp(0, len);
        let last = (len - 1).max(0) as usize;
        let kept = RegridAxis::default().then(0, 0, before as usize);
        return kept.then(after as usize, 1, (len - before - after) as usize).then(last, 0, after as usize);
    }
    let period = 2 * len.max(1);
    let at = |i: i64| (i - shift % period).rem_euclid(period);
    RegridAxis::default().then_each((0..len).map(at).map(|i| i.min(period - 1 - i) as usize))
}

impl Rearrange for Shift {
    fn axes(&self, x: &Shape) -> Result<Vec<RegridAxis>> {
        let shifts = self.shifts.as_deref().unwrap_or_default();
        if shifts.len() > x.ndim() {
            let expected = format!("at most {} numbers, one for each of the last axes", x.ndim());
            return Err(Error::argument("shift", "shifts", expected, format!("{shifts:?}")));
        }
        let mirrored = match self.border_mode.as_str() {
            "nearest" => false,
            "reflect" => true,
            other => {
                return Err(Error::argument(
                    "shift",
                    "border_mode",
                    "\"nearest\" or \"reflect\"",
                    format!("{other:?}"),
                ));
            }
        };
        let all = std::iter::repeat_n(0, x.ndim() - shifts.len()).chain(shifts.iter().copied());
        let axis = |(n, shift): (&usize, i64)| {
            if shift == 0 { RegridAxis::whole(*n) } else { shifted(*n, shift, mirrored) }
        };
        Ok(x.iter().zip(all).map(axis).collect())
    }

    fn open(&self, _: &str, x: &Shape) -> Value {
        Value::Ints(vec![0; x.ndim()])
    }
}
