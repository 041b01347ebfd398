//! `concatenate_parts`: concatenation of slices of arrays, without a copy of each slice.

use crate::array::Shape;
use crate::kernels::Movable;
use crate::kernels::row_copies::Rows;
use crate::ops::arrangement::concatenate::{first, piece};
use crate::ops::arrangement::slicing::Pad;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<ConcatenateParts>()];

op! {
    /// Concatenation of slices of arrays along an axis: `y = concatenate(x[0][start[0]:stop[0]], ...)`.
    ///
    /// Avoids a copy of each slice. Useful for attention caches, to which keys are added.
    ///
    /// Args:
    ///     x: Inputs whose shapes differ along `axis` and `along` alone.
    ///     axis: The axis of concatenation.
    ///     along: The axis of slicing, which is before `axis`.
    ///     start: The first index of the slice of each input.
    ///     stop: The index after the last one of each slice.
    ///
    /// Returns:
    ///     Array whose length along `axis` is the sum over the inputs, and along `along` the length of a slice.
    ///
    /// Raises:
    ///     AxisError: If the inputs have no such axis.
    ///     ArgumentError: If `along` is not before `axis`, a slice exceeds an input, or an input has no start or stop.
    ///     ShapeError: If the inputs differ along another axis, or the slices along `along`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0], [2.0], [3.0]])
    ///     >>> y = nn.NdArray.from_numpy_array([[4.0], [5.0]])
    ///     >>> F.concatenate_parts(x, y, axis=1, along=0, start=(1, 0), stop=(3, 2)).data
    ///     array([[2., 4.],
    ///            [3., 5.]], dtype=float32)
    /// ```
    ConcatenateParts = concatenate_parts(x: list; axis: i64, along: i64, start: Vec<i64>, stop: Vec<i64>)
}

impl ConcatenateParts {
    /// The name of the operation, for error messages.
    const NAME: &str = "concatenate_parts";

    /// The axis of concatenation and the axis of slicing.
    fn axes(&self, shape: &Shape) -> Result<(usize, usize)> {
        let (axis, along) = (shape.axis(Self::NAME, self.axis)?, shape.axis(Self::NAME, self.along)?);
        if along < axis {
            return Ok((axis, along));
        }
        Err(Error::argument(Self::NAME, "along", format!("an axis before axis {axis}"), self.along))
    }

    /// Start and length of the slice of input `i`, whose axis has length `n`.
    fn part(&self, i: usize, n: usize) -> Result<(usize, usize)> {
        let (start, stop) = (self.start[i], self.stop[i]);
        match (usize::try_from(start), usize::try_from(stop)) {
            (Ok(first), Ok(last)) if first <= last && last <= n => Ok((first, last - first)),
            _ => {
                let expected = format!("a part within 0 to {n} of input {i}");
                Err(Error::argument(Self::NAME, "start", expected, format!("{start} to {stop}")))
            }
        }
    }
}

impl Compute for ConcatenateParts {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let mut shape = first(Self::NAME, x)?.clone();
        let (axis, along) = self.axes(&shape)?;
        for (name, given) in [("start", &self.start), ("stop", &self.stop)] {
            if given.len() != x.len() {
                let expected = format!("{} positions, one for each input", x.len());
                return Err(Error::argument(Self::NAME, name, expected, format!("{given:?}")));
            }
        }
        let fits = |s: &Shape| {
            s.ndim() == shape.ndim() && (0..s.ndim()).all(|i| i == axis || i == along || s[i] == shape[i])
        };
        if !x.iter().all(fits) {
            let expected = format!("shapes that differ along axes {along} and {axis} alone");
            return Err(Error::shape(Self::NAME, expected, x.iter()));
        }
        let parts: Vec<(usize, usize)> =
            x.iter().enumerate().map(|(i, s)| self.part(i, s[along])).collect::<Result<_>>()?;
        if parts.iter().any(|part| part.1 != parts[0].1) {
            return Err(Error::shape(
                Self::NAME,
                format!("parts of one length along axis {along}"),
                x.iter(),
            ));
        }
        shape[along] = parts[0].1;
        shape[axis] = x.iter().map(|s| s[axis]).sum();
        one(shape)
    }

    const MOVES_ONLY: bool = true;

    fn move_forward<T: Movable>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (axis, along) = self.axes(run.y_shape(0))?;
        let (step, count) = (run.y_shape(0).size_from(axis), run.y_shape(0)[..axis].iter().product());
        let between: usize = run.y_shape(0)[along + 1..axis].iter().product();
        let y = run.y(0);
        let mut at = 0;
        for i in 0..run.n_inputs() {
            let (length, n) = (run.x_shape(i)[along], run.x_shape(i).size_from(axis));
            let (start, taken) = self.part(i, length)?;
            let [whole, first, part] = [length, start, taken].map(|n| n * between);
            if n > 0 && count > 0 {
                let from = |row: usize| (row / part * whole + first + row % part) * n;
                Rows { n, count, from, to: |row| row * step + at }.put(run.x(i), y, false);
            }
            at += n;
        }
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let whole = s.gy(0).shape();
        let Ok((axis, along)) = self.axes(&whole) else { return vec![None; s.n_inputs()] };
        let mut at = 0;
        let part = |i: usize| {
            let (shape, n) = (s.x(i).shape(), s.x(i).shape()[axis]);
            at += n;
            let mut pad_width = vec![0; 2 * (shape.ndim() - along)];
            (pad_width[0], pad_width[1]) = (self.start[i], shape[along] as i64 - self.stop[i]);
            let pad = Pad { pad_width, mode: "constant".into(), constant_value: 0.0 };
            Some(Sym::rearrange(pad, piece(s.gy(0), axis, at - n, n)))
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
