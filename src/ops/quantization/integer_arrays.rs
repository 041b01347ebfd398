//! Elementwise operations on 8-bit levels: quantization, dequantization, sums, lookup tables, transposition.

use crate::array::DType;
use crate::kernels::integer::{Rounding, Scale, levels};
use crate::kernels::scratch::List;
use crate::kernels::{Float, strided};
use crate::ops::arrangement::array::transposed;
use crate::ops::quantization::integer_layers::{level, rounding, without_gradient};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<QuantizeUint8>(),
    Entry::of::<DequantizeUint8>(),
    Entry::of::<QuantizedAdd2>(),
    Entry::of::<QuantizedMul2>(),
    Entry::of::<RescaleUint8>(),
    Entry::of::<LookupUint8>(),
    Entry::of::<TransposeUint8>(),
];

op! {
    /// Quantization to 8-bit levels: `y = saturate(round(x / scale) + zero_point)`, halves rounded to the even number.
    /// Unlike `quantize_linear`, it returns `uint8` and has no gradient.
    ///
    /// Args:
    ///     x: Numbers, of any shape.
    ///     scale: Distance of two levels, one positive number.
    ///     zero_point: The level that stands for zero, one number.
    ///     least: The smallest level.
    ///     most: The largest level.
    ///
    /// Returns:
    ///     Array of the shape of `x`, of type `uint8`.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If `scale` or `zero_point` is not one number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0, 1000.0])
    ///     >>> scale = nn.NdArray.from_numpy_array(0.5)
    ///     >>> zero = nn.NdArray.from_numpy_array(10)
    ///     >>> F.quantize_uint8(x, scale, zero).data
    ///     array([  8,  10,  12, 255], dtype=uint8)
    /// ```
    QuantizeUint8 = quantize_uint8(x, scale, zero_point: index; least: i64 = 0, most: i64 = 255)
}

op! {
    /// Dequantization of 8-bit levels: `y = (x - zero_point) * scale`. Unlike `dequantize_linear`, it reads `uint8` and
    /// has no gradient.
    ///
    /// Args:
    ///     x: Levels, of any shape.
    ///     scale: Distance of two levels, one positive number.
    ///     zero_point: The level that stands for zero, one number.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If `scale` or `zero_point` is not one number.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([8, 10, 12]))
    ///     >>> scale = nn.NdArray.from_numpy_array(0.5)
    ///     >>> zero = nn.NdArray.from_numpy_array(10)
    ///     >>> F.dequantize_uint8(x, scale, zero).data
    ///     array([-1.,  0.,  1.], dtype=float32)
    /// ```
    DequantizeUint8 = dequantize_uint8(x: uint8, scale, zero_point: index)
}

op! {
    /// Sum of two arrays of 8-bit levels, quantized with a third scale:
    /// `y = saturate(round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + y_zero)`, halves rounded to the even
    /// number. There is no gradient.
    ///
    /// Args:
    ///     a: Levels, of any shape.
    ///     b: Levels, of the same shape.
    ///     a_scale: Distance of two levels of `a`, in levels of the result.
    ///     b_scale: Distance of two levels of `b`, in levels of the result.
    ///     a_zero: The level of `a` that stands for zero.
    ///     b_zero: The level of `b` that stands for zero.
    ///     y_zero: The level of the result that stands for zero.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of the shape of `a`, of type `uint8`.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If `a` and `b` have different shapes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([10, 20]))
    ///     >>> y = nn.NdArray.from_numpy_array(np.uint8([1, 2]))
    ///     >>> F.quantized_add2(x, y, a_scale=2.0, y_zero=5).data
    ///     array([26, 47], dtype=uint8)
    /// ```
    QuantizedAdd2 = quantized_add2(a: uint8, b: uint8;
        a_scale: f64 = 1.0,
        b_scale: f64 = 1.0,
        a_zero: i64 = 0,
        b_zero: i64 = 0,
        y_zero: i64 = 0,
        least: i64 = 0,
        most: i64 = 255,
    )
}

op! {
    /// Product of two arrays of 8-bit levels, quantized with a third scale:
    /// `y = saturate(round((a - a_zero) * (b - b_zero) * scale) + y_zero)`, halves rounded to the even number. There is
    /// no gradient.
    ///
    /// Args:
    ///     a: Levels, of any shape.
    ///     b: Levels, of the same shape.
    ///     scale: Product of the distances of two levels of `a` and of `b`, in levels of the result.
    ///     a_zero: The level of `a` that stands for zero.
    ///     b_zero: The level of `b` that stands for zero.
    ///     y_zero: The level of the result that stands for zero.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of the shape of `a`, of type `uint8`.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If `a` and `b` have different shapes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([10, 20]))
    ///     >>> y = nn.NdArray.from_numpy_array(np.uint8([1, 2]))
    ///     >>> F.quantized_mul2(x, y, scale=0.5).data
    ///     array([ 5, 20], dtype=uint8)
    /// ```
    QuantizedMul2 = quantized_mul2(a: uint8, b: uint8;
        scale: f64 = 1.0,
        a_zero: i64 = 0,
        b_zero: i64 = 0,
        y_zero: i64 = 0,
        least: i64 = 0,
        most: i64 = 255,
    )
}

op! {
    /// Requantization of 8-bit levels, with a scale for each channel (the last axis):
    /// `y = saturate(round((x - x_zero) * scale + shift) + y_zero)`, halves rounded to the even number. Computes a
    /// batch normalization or a bias on levels. There is no gradient.
    ///
    /// Args:
    ///     x: Levels, shape (..., channels).
    ///     scale: Factor, in levels of the result, shape (channels,).
    ///     shift: Number to add, in levels of the result, shape (channels,).
    ///     x_zero: The level of `x` that stands for zero.
    ///     y_zero: The level of the result that stands for zero.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of the shape of `x`, of type `uint8`.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If `scale` or `shift` has not one number for each channel.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([[10, 20]]))
    ///     >>> scale, shift = nn.NdArray.from_numpy_array([2.0, 0.5]), nn.NdArray.from_numpy_array([1.0, 0.0])
    ///     >>> F.rescale_uint8(x, scale, shift).data
    ///     array([[21, 10]], dtype=uint8)
    /// ```
    RescaleUint8 = rescale_uint8(x: uint8, scale, shift;
        x_zero: i64 = 0,
        y_zero: i64 = 0,
        least: i64 = 0,
        most: i64 = 255,
    )
}

op! {
    /// Table lookup for 8-bit levels: `y = table[x]`. Any function from levels to levels can be such a table. There is
    /// no gradient.
    ///
    /// Args:
    ///     x: Levels, of any shape.
    ///     table: The result for each level, shape (256,).
    ///
    /// Returns:
    ///     Array of the shape of `x`, of type `uint8`.
    ///
    /// Raises:
    ///     ShapeError: If `table` has another shape.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([0, 1, 255]))
    ///     >>> table = nn.NdArray.from_numpy_array(np.arange(255, -1, -1, dtype=np.uint8))
    ///     >>> F.lookup_uint8(x, table).data
    ///     array([255, 254,   0], dtype=uint8)
    /// ```
    LookupUint8 = lookup_uint8(x: uint8, table: uint8)
}

op! {
    /// Transposition of 8-bit levels, like `transpose` of numbers. There is no gradient.
    ///
    /// Args:
    ///     x: Levels, of any shape.
    ///     axes: Axis `i` of the result is axis `axes[i]` of `x`.
    ///
    /// Returns:
    ///     Array of type `uint8` whose shape is the reordered shape of `x`.
    ///
    /// Raises:
    ///     ArgumentError: If `axes` is not a permutation of all axes.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([[1, 2, 3], [4, 5, 6]]))
    ///     >>> F.transpose_uint8(x, (1, 0)).data
    ///     array([[1, 4],
    ///            [2, 5],
    ///            [3, 6]], dtype=uint8)
    /// ```
    TransposeUint8 = transpose_uint8(x: uint8; axes: Vec<i64>)
}

/// Returns an error unless the scale and the zero point, inputs 1 and 2, are single numbers.
fn check_one(op: &str, x: &InputShapes<'_>) -> Result<()> {
    for (i, name) in [(1, "scale"), (2, "zero_point")] {
        if x.get(i).size() != 1 {
            return Err(Error::shape(op, format!("one number in {name}"), [x.get(i)]));
        }
    }
    Ok(())
}

impl Compute for QuantizeUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        check_one("quantize_uint8", x)?;
        rounding("quantize_uint8", 0, self.least, self.most)?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let rounding = rounding("quantize_uint8", run.index(2)[0], self.least, self.most)?;
        levels::quantize(run.x(0), run.x(1)[0], rounding, run.y_levels(0));
        Ok(())
    }

    // Levels are `uint8` in every compute type.
    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl Compute for DequantizeUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        check_one("dequantize_uint8", x)?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let zero = level("dequantize_uint8", "zero_point", run.index(2)[0])?;
        levels::dequantize(run.levels(0), run.x(1)[0], zero, run.y(0));
        Ok(())
    }
}

/// Implements operations on two arrays of levels of one shape. `scales` are the scales of both.
macro_rules! of_pairs {
    ($ty:ident, $function:ident, |$self:ident| $scales:expr) => {
        impl $ty {
            /// The scales of both inputs relative to the output, and the rounding of the output. Returns an error if an
            /// argument is out of range.
            fn how(&self) -> Result<([Scale; 2], Rounding)> {
                let (op, $self) = (<Self as crate::ops::Declared>::SPEC.name, self);
                let [a, b]: [f64; 2] = $scales;
                let scales = [
                    Scale { step: a as f32, zero: level(op, "a_zero", self.a_zero)? },
                    Scale { step: b as f32, zero: level(op, "b_zero", self.b_zero)? },
                ];
                Ok((scales, rounding(op, self.y_zero, self.least, self.most)?))
            }
        }

        impl Compute for $ty {
            without_gradient!();

            fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
                self.how()?;
                if x.get(0) == x.get(1) {
                    return like(x);
                }
                let op = <Self as crate::ops::Declared>::SPEC.name;
                Err(Error::shape(op, "two arrays of one shape", [x.get(0), x.get(1)]))
            }

            fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
                let (scales, rounding) = self.how()?;
                levels::$function([run.levels(0), run.levels(1)], scales, rounding, run.y_levels(0));
                Ok(())
            }

            // Levels are `uint8` in every compute type.
            fn output(&self, _: usize) -> Option<DType> {
                Some(DType::U8)
            }
        }
    };
}
of_pairs!(QuantizedAdd2, add, |op| [op.a_scale, op.b_scale]);
of_pairs!(QuantizedMul2, multiply, |op| [op.scale, 1.0]);

impl Compute for RescaleUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let op = "rescale_uint8";
        level(op, "x_zero", self.x_zero)?;
        rounding(op, self.y_zero, self.least, self.most)?;
        let channels = x.get(0).last().map_or(&[][..], std::slice::from_ref);
        if channels.len() == 1 && **x.get(1) == *channels && **x.get(2) == *channels {
            return like(x);
        }
        Err(Error::shape(op, "one scale and one shift for each channel", [x.get(0), x.get(1), x.get(2)]))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let op = "rescale_uint8";
        let (zero, rounding) =
            (level(op, "x_zero", self.x_zero)?, rounding(op, self.y_zero, self.least, self.most)?);
        let [scales, shifts] =
            [1, 2].map(|i| run.x(i).iter().map(|v| v.real() as f32).collect::<List<f32>>());
        levels::rescale(run.levels(0), zero, [&scales, &shifts], rounding, run.y_levels(0));
        Ok(())
    }

    // Levels are `uint8` in every compute type.
    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl Compute for LookupUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if **x.get(1) == [256] {
            return like(x);
        }
        Err(Error::shape("lookup_uint8", "a table of shape (256,)", [x.get(1)]))
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        if let Ok(table) = run.levels(1).try_into() {
            levels::look_up(run.levels(0), table, run.y_levels(0));
        }
        Ok(())
    }

    // Levels are `uint8` in every compute type.
    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl Compute for TransposeUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(transposed("transpose_uint8", x.get(0), &self.axes)?)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let axes = run.x_shape(0).axes("transpose_uint8", Some(&self.axes))?;
        strided::transpose(run.levels(0), run.x_shape(0), &axes, run.y_levels(0));
        Ok(())
    }

    // Levels are `uint8` in every compute type.
    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}
