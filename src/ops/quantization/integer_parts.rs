//! Operations that join and pad arrays of 8-bit levels, and dynamic quantization.

use crate::array::{DType, Shape};
use crate::kernels::Float;
use crate::kernels::integer::{Rounding, RowPlace, levels};
use crate::ops::quantization::integer_layers::{level, without_gradient};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<ConcatenateUint8>(),
    Entry::of::<SliceUint8>(),
    Entry::of::<PadUint8>(),
    Entry::of::<DynamicQuantizeUint8>(),
];

op! {
    /// Concatenation of two arrays of 8-bit levels along an axis. There is no gradient.
    ///
    /// Args:
    ///     a: Levels, of any shape.
    ///     b: Levels, of a shape that differs along `axis` alone.
    ///     axis: The axis; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array as long along `axis` as both together, of type `uint8`.
    ///
    /// Raises:
    ///     AxisError: If `a` has no such axis.
    ///     ShapeError: If the inputs differ along another axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array(np.uint8([1, 2])), nn.NdArray.from_numpy_array(np.uint8([3]))
    ///     >>> F.concatenate_uint8(x, y).data
    ///     array([1, 2, 3], dtype=uint8)
    /// ```
    ConcatenateUint8 = concatenate_uint8(a: uint8, b: uint8; axis: i64 = -1)
}

op! {
    /// Slice of an array of 8-bit levels: along one axis, the elements from `start` up to but not including `stop`.
    /// There is no gradient.
    ///
    /// Args:
    ///     x: Levels, of any shape.
    ///     start: The first position.
    ///     stop: The position after the last.
    ///     axis: The axis; a negative one counts from the end.
    ///
    /// Returns:
    ///     Array of `stop - start` elements along `axis`, of type `uint8`.
    ///
    /// Raises:
    ///     ArgumentError: If there are no such positions.
    ///     AxisError: If `x` has no such axis.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([1, 2, 3, 4]))
    ///     >>> F.slice_uint8(x, 1, 3).data
    ///     array([2, 3], dtype=uint8)
    /// ```
    SliceUint8 = slice_uint8(x: uint8; start: i64, stop: i64, axis: i64 = 0)
}

op! {
    /// Padding of an array of 8-bit levels with one level. There is no gradient.
    ///
    /// Args:
    ///     x: Levels, of any shape.
    ///     pad_width: Elements before and after each axis, in pairs, for the last axes.
    ///     level: The padding level.
    ///
    /// Returns:
    ///     Array with as many axes as `x`, of type `uint8`.
    ///
    /// Raises:
    ///     ArgumentError: If a width is negative, there are not pairs for at most all axes, or `level` is out of range.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([1, 2]))
    ///     >>> F.pad_uint8(x, (1, 2), level=9).data
    ///     array([9, 1, 2, 9, 9], dtype=uint8)
    /// ```
    PadUint8 = pad_uint8(x: uint8; pad_width: Vec<i64>, level: i64 = 0)
}

op! {
    /// Quantization to 8-bit levels over the range of the numbers, extended to zero:
    /// `scale = (max(x, 0) - min(x, 0)) / 255`, or 1 if all are zero,
    /// `zero_point = saturate(round(-min(x, 0) / scale))` and `y = saturate(round(x / scale) + zero_point)`, halves
    /// rounded to the even number. There is no gradient.
    ///
    /// Args:
    ///     x: Numbers, of any shape.
    ///
    /// Returns:
    ///     The levels, an array of the shape of `x` of type `uint8`; the scale and the zero point, of shape ().
    ///
    /// Source:
    ///     The operator DynamicQuantizeLinear of ONNX.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 51.0, 255.0])
    ///     >>> y, scale, zero = F.dynamic_quantize_uint8(x)
    ///     >>> y.data, float(scale.data), int(zero.data)
    ///     (array([  0,  51, 255], dtype=uint8), 1.0, 0)
    /// ```
    DynamicQuantizeUint8 = dynamic_quantize_uint8(x)
}

impl Compute for ConcatenateUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (a, b) = (x.get(0), x.get(1));
        let axis = a.axis("concatenate_uint8", self.axis)?;
        let mut shape = b.clone();
        if b.ndim() == a.ndim() {
            shape[axis] = a[axis];
        }
        if shape != *a {
            let expected = format!("shapes that differ along axis {axis} alone");
            return Err(Error::shape("concatenate_uint8", expected, [a, b]));
        }
        shape[axis] += b[axis];
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axis = run.y_shape(0).axis("concatenate_uint8", self.axis)?;
        let (row, y) = (run.y_shape(0).size_from(axis), run.y_levels(0));
        let mut at = 0;
        for i in 0..2 {
            let n = run.x_shape(i).size_from(axis);
            levels::copy_rows(run.levels(i), RowPlace { at: 0, row: n }, y, RowPlace { at, row }, n);
            at += n;
        }
        Ok(())
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl Compute for SliceUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let mut shape = x.get(0).clone();
        let axis = shape.axis("slice_uint8", self.axis)?;
        let n = shape[axis] as i64;
        if !(0 <= self.start && self.start <= self.stop && self.stop <= n) {
            let got = format!("{} to {}", self.start, self.stop);
            return Err(Error::argument("slice_uint8", "start", format!("positions from 0 to {n}"), got));
        }
        shape[axis] = (self.stop - self.start) as usize;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let x = run.x_shape(0);
        let axis = x.axis("slice_uint8", self.axis)?;
        let (n, each) = (run.y_shape(0).size_from(axis), x.size_from(axis + 1));
        let from = RowPlace { at: self.start as usize * each, row: x.size_from(axis) };
        levels::copy_rows(run.levels(0), from, run.y_levels(0), RowPlace { at: 0, row: n }, n);
        Ok(())
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl PadUint8 {
    /// Padding before and after each axis.
    fn widths(&self, x: &Shape) -> Result<Vec<(usize, usize)>> {
        let given = &self.pad_width;
        let of = |i: usize| usize::try_from(given[i]).ok().filter(|width| *width < 1 << 31);
        let pairs: Option<Vec<_>> = (0..given.len() / 2).map(|i| of(2 * i).zip(of(2 * i + 1))).collect();
        match pairs {
            Some(pairs) if given.len().is_multiple_of(2) && pairs.len() <= x.ndim() => {
                Ok(std::iter::repeat_n((0, 0), x.ndim() - pairs.len()).chain(pairs).collect())
            }
            _ => {
                let expected = format!("widths in pairs for up to {} axes, zero or more", x.ndim());
                Err(Error::argument("pad_uint8", "pad_width", expected, format!("{given:?}")))
            }
        }
    }
}

impl Compute for PadUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        level("pad_uint8", "level", self.level)?;
        let widths = self.widths(x.get(0))?;
        let lengths = x.get(0).iter().zip(widths).map(|(n, (before, after))| before + n + after);
        let shape: Shape = lengths.collect();
        shape.checked_size()?;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let x = run.x_shape(0);
        let (widths, level) = (self.widths(x)?, level("pad_uint8", "level", self.level)?);
        levels::pad(run.levels(0), x, &widths, level, run.y_levels(0));
        Ok(())
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl Compute for DynamicQuantizeUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        Ok([x.get(0).clone(), Shape::default(), Shape::default()].into_iter().collect())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let x = run.x(0);
        let (least, most) = levels::bounds(x);
        let step = (most - least) / T::of(255.0);
        let step = if step > T::ZERO { step } else { T::ONE };
        let zero = Rounding::new(0, [0, 255]).level((-least / step).real() as f32);
        run.y(1)[0] = step;
        run.y_index(2)[0] = zero.into();
        levels::quantize(x, step, Rounding::new(zero, [0, 255]), run.y_levels(0));
        Ok(())
    }

    fn output(&self, o: usize) -> Option<DType> {
        [Some(DType::U8), None, Some(DType::I64)][o]
    }
}
