//! Pooling of images of 8-bit levels, channels last.

use crate::array::{DType, Shape};
use crate::kernels::Float;
use crate::kernels::integer::{ImageWindow, Scale, levels};
use crate::ops::quantization::integer_layers::{level, rounding, without_gradient};
use crate::ops::spatial::layout::per_axis;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<MaxPoolingUint8>(), Entry::of::<QuantizedAveragePooling>()];

op! {
    /// Maximum of 8-bit levels over windows of images, channels last. There is no gradient.
    ///
    /// Args:
    ///     x: Levels, shape (batch..., height, width, channels).
    ///     kernel: Size of the windows along both spatial axes.
    ///     stride: Step of the windows along each spatial axis, `kernel` by default.
    ///     pad: Elements added at both ends of each spatial axis, fewer than `kernel`, which are never the largest;
    ///         none by default.
    ///
    /// Returns:
    ///     Array of type `uint8`, each spatial axis having `(in + 2 * pad - kernel) // stride + 1` elements.
    ///
    /// Raises:
    ///     ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
    ///     ShapeError: If `x` has too few axes, or no window fits.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([1, 4, 3, 2]).reshape(1, 2, 2, 1))
    ///     >>> F.max_pooling_uint8(x, (2, 2)).data.ravel()
    ///     array([4], dtype=uint8)
    /// ```
    MaxPoolingUint8 = max_pooling_uint8(x: uint8;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>> = None,
        pad: Option<Vec<i64>> = None,
    )
}

op! {
    /// Mean of 8-bit levels over windows of images, channels last, quantized with another scale:
    /// `y = saturate(round(mean(x - x_zero) * scale) + y_zero)`, halves rounded to the even number. There is no
    /// gradient.
    ///
    /// Args:
    ///     x: Levels, shape (batch..., height, width, channels).
    ///     kernel: Size of the windows along both spatial axes.
    ///     stride: Step of the windows along each spatial axis, `kernel` by default.
    ///     scale: Distance of two levels of `x`, in levels of the result.
    ///     x_zero: The level of `x` that stands for zero.
    ///     y_zero: The level of the result that stands for zero.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of type `uint8`, each spatial axis having `(in - kernel) // stride + 1` elements.
    ///
    /// Raises:
    ///     ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
    ///     ShapeError: If `x` has too few axes, or no window fits.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([1, 4, 5, 2]).reshape(1, 2, 2, 1))
    ///     >>> F.quantized_average_pooling(x, (2, 2)).data.ravel()
    ///     array([3], dtype=uint8)
    /// ```
    QuantizedAveragePooling = quantized_average_pooling(x: uint8;
        kernel: Vec<i64>,
        stride: Option<Vec<i64>> = None,
        scale: f64 = 1.0,
        x_zero: i64 = 0,
        y_zero: i64 = 0,
        least: i64 = 0,
        most: i64 = 255,
    )
}

/// The batch axes, and the lengths of height, width and channels.
fn split<'a>(op: &str, x: &'a Shape) -> Result<(&'a [usize], [usize; 3])> {
    match x.split_last_chunk() {
        Some((batch, last)) => Ok((batch, *last)),
        None => Err(Error::shape(op, "images with axes of height, width and channels", [x])),
    }
}

/// The windows over images of shape `x`, and the shape of the output.
fn windows(
    op: &str,
    x: &Shape,
    kernel: &[i64],
    stride: Option<&[i64]>,
    pad: Option<&[i64]>,
) -> Result<(ImageWindow, Shape)> {
    let (batch, [height, width, channels]) = split(op, x)?;
    let two = |arg, given: Option<&[i64]>, least, default| -> Result<[usize; 2]> {
        per_axis(op, arg, given, 2, least, default).map(|of| [of[0], of[1]])
    };
    let (stride, kernel) =
        (two("stride", stride.or(Some(kernel)), 1, 1)?, two("kernel", Some(kernel), 1, 1)?);
    let pad = two("pad", pad, 0, 0)?;
    if pad[0] >= kernel[0] || pad[1] >= kernel[1] {
        let expected = format!("less than kernel, which is {kernel:?}");
        return Err(Error::argument(op, "pad", expected, format!("{pad:?}")));
    }
    let input = [height, width];
    let mut output = [0; 2];
    for i in 0..2 {
        let Some(over) = (input[i] + 2 * pad[i]).checked_sub(kernel[i]).filter(|_| input[i] > 0) else {
            return Err(Error::shape(op, "at least one window along each spatial axis", [x]));
        };
        output[i] = over / stride[i] + 1;
    }
    let images = batch.iter().product();
    let shape: Shape = batch.iter().copied().chain(output).chain([channels]).collect();
    shape.checked_size()?;
    Ok((ImageWindow { images, channels, input, output, kernel, pad, stride, dilation: [1; 2] }, shape))
}

impl MaxPoolingUint8 {
    /// The windows, and the shape of the output.
    fn window(&self, x: &Shape) -> Result<(ImageWindow, Shape)> {
        windows("max_pooling_uint8", x, &self.kernel, self.stride.as_deref(), self.pad.as_deref())
    }
}

impl QuantizedAveragePooling {
    const NAME: &'static str = "quantized_average_pooling";

    /// The windows, and the shape of the output.
    fn window(&self, x: &Shape) -> Result<(ImageWindow, Shape)> {
        windows(Self::NAME, x, &self.kernel, self.stride.as_deref(), None)
    }
}

impl Compute for MaxPoolingUint8 {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        one(self.window(x.get(0))?.1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (window, _) = self.window(run.x_shape(0))?;
        levels::max_pool(run.levels(0), &window, run.y_levels(0));
        Ok(())
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}

impl Compute for QuantizedAveragePooling {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        level(Self::NAME, "x_zero", self.x_zero)?;
        rounding(Self::NAME, self.y_zero, self.least, self.most)?;
        one(self.window(x.get(0))?.1)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (window, _) = self.window(run.x_shape(0))?;
        let step = (self.scale / (window.kernel[0] * window.kernel[1]) as f64) as f32;
        let scale = Scale { step, zero: level(Self::NAME, "x_zero", self.x_zero)? };
        let rounding = rounding(Self::NAME, self.y_zero, self.least, self.most)?;
        levels::average(run.levels(0), &window, scale, rounding, run.y_levels(0));
        Ok(())
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::U8)
    }
}
