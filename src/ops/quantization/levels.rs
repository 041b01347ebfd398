//! Linear quantization with a scale and a zero point, for all elements or for each index of an axis.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::broadcast_blocks::BroadcastBlocks;
use crate::kernels::simd::vectorised;
use crate::ops::{Backward, Compute, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, like, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<QuantizeLinear>(), Entry::of::<DequantizeLinear>()];

op! {
    /// Linear quantization: `y = saturate(round(x / scale) + zero_point)`, where `zero_point` is rounded and saturated
    /// too. Its gradient by `x` is the gradient of `x / scale` everywhere. The other gradients are zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     scale: Distance between levels, positive. Its shape is the shape of `x` with length one along some axes.
    ///     zero_point: Level of the number zero, likewise.
    ///     round_mode: `HALF_AWAY_FROM_ZERO` or `HALF_TO_EVEN`.
    ///     narrow_range: The smallest level is not used.
    ///     dtype: Range of the levels: 1 for `numpy.int8`, 2 for `numpy.uint8`.
    ///
    /// Returns:
    ///     Array of the shape of `x`: whole numbers, as floating-point numbers.
    ///
    /// Raises:
    ///     ArgumentError: If `round_mode` or `dtype` is unknown.
    ///     ShapeError: If `scale` or `zero_point` does not broadcast to `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.2, 1000.0])
    ///     >>> scale = nn.NdArray.from_numpy_array([0.5])
    ///     >>> zero = nn.NdArray.from_numpy_array([0])
    ///     >>> F.quantize_linear(x, scale, zero).data
    ///     array([ -2.,   0., 127.], dtype=float32)
    /// ```
    QuantizeLinear = quantize_linear(x, scale, zero_point; round_mode: String = "HALF_AWAY_FROM_ZERO",
        narrow_range: bool = false, dtype: i64 = 1)
}

op! {
    /// Dequantization of the levels of a linear quantization: `y = (x - zero_point) * scale`. Only `x` has a gradient.
    /// The other gradients are zero.
    ///
    /// Args:
    ///     x: Levels, of any shape.
    ///     scale: Distance between levels, positive. Its shape is the shape of `x` with length one along some axes.
    ///     zero_point: Level of the number zero, likewise.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Raises:
    ///     ShapeError: If `scale` or `zero_point` does not broadcast to `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-2.0, 0.0, 127.0])
    ///     >>> scale = nn.NdArray.from_numpy_array([0.5])
    ///     >>> zero = nn.NdArray.from_numpy_array([0])
    ///     >>> F.dequantize_linear(x, scale, zero).data
    ///     array([-1. ,  0. , 63.5], dtype=float32)
    /// ```
    DequantizeLinear = dequantize_linear(x, scale, zero_point)
}

/// The nearest whole number. Halves are rounded away from zero.
#[inline(always)]
pub(crate) fn round_away<T: Float>(v: T) -> T {
    let size = v.abs();
    let whole = size.floor();
    let whole = if size - whole >= T::of(0.5) { whole + T::ONE } else { whole };
    if v < T::ZERO { -whole } else { whole }
}

/// The nearest whole number. Halves are rounded to the even one.
#[inline(always)]
fn round_even<T: Float>(v: T) -> T {
    let (whole, half) = (v.floor(), T::of(0.5));
    let over = v - whole;
    let odd = (whole * half).floor() != whole * half;
    if over > half || (over == half && odd) { whole + T::ONE } else { whole }
}

/// Returns an error unless the parameters broadcast to `x`.
pub(crate) fn check(op: &str, x: &Shape, parameters: &[&Shape]) -> Result<()> {
    let spreads = |p: &Shape| p.ndim() == x.ndim() && p.iter().zip(x.iter()).all(|(p, x)| *p == 1 || p == x);
    match parameters.iter().find(|p| !spreads(p)) {
        Some(p) => {
            Err(Error::shape(op, "parameters of the shape of `x`, or of length one along axes", [x, p]))
        }
        None => Ok(()),
    }
}

/// Writes or adds `f(x, scale, zero)` for each element.
#[inline(always)]
fn each<T: Float>(
    y: &mut [T],
    accumulate: bool,
    [x, scale, zero]: [(&[T], &Shape); 3],
    f: impl Fn(T, T, T) -> T + Sync + Copy,
) {
    let put = |y: &mut T, v: T| *y = if accumulate { *y + v } else { v };
    BroadcastBlocks::new(x.1, [scale.1, zero.1]).blocks_mut(y, |piece, y| {
        let [scale, zero] = [(scale.0, 0), (zero.0, 1)].map(|(p, i)| &p[piece.of(i)]);
        let x = &x.0[piece.range];
        vectorised(
            #[inline(always)]
            move || match (scale, zero) {
                ([scale], [zero]) => {
                    for (y, x) in y.iter_mut().zip(x) {
                        put(y, f(*x, *scale, *zero));
                    }
                }
                ([scale], zeros) => {
                    for ((y, x), zero) in y.iter_mut().zip(x).zip(zeros) {
                        put(y, f(*x, *scale, *zero));
                    }
                }
                (scales, [zero]) => {
                    for ((y, x), scale) in y.iter_mut().zip(x).zip(scales) {
                        put(y, f(*x, *scale, *zero));
                    }
                }
                (scales, zeros) => {
                    for (((y, x), scale), zero) in y.iter_mut().zip(x).zip(scales).zip(zeros) {
                        put(y, f(*x, *scale, *zero));
                    }
                }
            },
        );
    });
}

impl QuantizeLinear {
    /// The smallest and the largest level.
    fn levels(&self) -> (f64, f64) {
        let narrow = f64::from(u8::from(self.narrow_range));
        if self.dtype == 1 { (-128.0 + narrow, 127.0) } else { (narrow, 255.0) }
    }
}

impl Compute for QuantizeLinear {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if !["HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"].contains(&self.round_mode.as_str()) {
            let expected = "HALF_AWAY_FROM_ZERO or HALF_TO_EVEN";
            return Err(Error::argument("quantize_linear", "round_mode", expected, &self.round_mode));
        }
        if !matches!(self.dtype, 1 | 2) {
            return Err(Error::argument(
                "quantize_linear",
                "dtype",
                "numpy.int8 or numpy.uint8 (1 or 2)",
                self.dtype,
            ));
        }
        check("quantize_linear", x.get(0), &[x.get(1), x.get(2)])?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let y = run.y(0);
        let x = [0, 1, 2].map(|i| (run.x(i), run.x_shape(i)));
        let (least, most) = self.levels();
        let saturate = move |v: T| {
            if v < T::of(least) {
                T::of(least)
            } else if v > T::of(most) {
                T::of(most)
            } else {
                v
            }
        };
        if self.round_mode == "HALF_TO_EVEN" {
            each(
                y,
                false,
                x,
                #[inline(always)]
                move |x, scale, zero| saturate(round_even(x / scale) + saturate(round_even(zero))),
            );
        } else {
            each(
                y,
                false,
                x,
                #[inline(always)]
                move |x, scale, zero| saturate(round_away(x / scale) + saturate(round_away(zero))),
            );
        }
        Ok(())
    }

    /// Straight-through: `gx = gy / scale`, also where the output saturates. Scale and zero point get zeros.
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let (gy, scale) = ((run.gy(0), run.x_shape(0)), (1, run.x_shape(1)));
        if let Some(Grad { data, accumulate }) = run.gx(0) {
            let scale = (run.x(scale.0), scale.1);
            each(
                data,
                accumulate,
                [gy, scale, scale],
                #[inline(always)]
                |g, scale, _| g / scale,
            );
        }
        (1..3).filter_map(|i| run.gx(i)).for_each(|gx| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0) / s.x(1)), None, None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(0b10) } else { Reads::NOTHING }
    }
}

impl Compute for DequantizeLinear {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        check("dequantize_linear", x.get(0), &[x.get(1), x.get(2)])?;
        like(x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let y = run.y(0);
        let x = [0, 1, 2].map(|i| (run.x(i), run.x_shape(i)));
        each(
            y,
            false,
            x,
            #[inline(always)]
            |x, scale, zero| (x - zero) * scale,
        );
        Ok(())
    }

    /// `gx = gy * scale`. Scale and zero point get zeros.
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let gy = (run.gy(0), run.x_shape(0));
        if let Some(Grad { data, accumulate }) = run.gx(0) {
            let scale = (run.x(1), run.x_shape(1));
            each(
                data,
                accumulate,
                [gy, scale, scale],
                #[inline(always)]
                |g, scale, _| g * scale,
            );
        }
        (1..3).filter_map(|i| run.gx(i)).for_each(|gx| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        vec![Some(s.gy(0) * s.x(1)), None, None]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::inputs(0b10) } else { Reads::NOTHING }
    }
}
