//! Layers on 8-bit levels, with exact integer sums of products.

use crate::array::{DType, Shape};
use crate::kernels::integer::{
    ColumnTerms, ImageWindow, Levels, QuantizedWeights, Rounding, SumOutput, ToLevels, ToNumbers, multiply,
    multiply_each,
};
use crate::kernels::{Float, Tail, threads};
use crate::ops::products::batch_matmul::Products;
use crate::ops::spatial::layout::SpatialLayout;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::of::<QuantizedConvolution>(),
    Entry::of::<QuantizedAffine>(),
    Entry::of::<QuantizedBatchMatmul>(),
];

op! {
    /// Convolution of images of 8-bit levels, channels last:
    /// `y = saturate(round((sum((x - x_zero) * (w - w_zero)) + b) * scale) + y_zero)`, or without `y_zero` the numbers
    /// `(sum(...) + b) * scale`. Sums are exact (modulo `2^32`).
    /// Halves are rounded to the even number. There is no gradient.
    ///
    /// Args:
    ///     x: Levels, shape (batch..., height, width, channels).
    ///     weight: Signed levels `w`, shape (maps, kernel height, kernel width, channels), with one channel if `group`
    ///         is more than 1.
    ///     x_zero: The level of `x` that stands for zero, one number. Also the level of the padding.
    ///     w_zero: The level of the weight that stands for zero, one number or one for each map.
    ///     bias: Whole numbers `b` that are added to the sums, shape (maps,).
    ///     scale: Factor of the sums, one number or one for each map.
    ///     pad: Elements added at both ends of each spatial axis; none by default.
    ///     stride: Step of the kernel along each spatial axis; 1 by default.
    ///     dilation: Distance between kernel elements along each spatial axis; 1 by default.
    ///     group: 1, or the number of channels and maps for a depthwise convolution.
    ///     y_zero: The level of the result that stands for zero; None to return numbers instead of levels.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of shape (batch..., height, width, maps), of type `uint8` unless `y_zero` is None.
    ///
    /// Raises:
    ///     ArgumentError: If an argument has not one number for each spatial axis, or one out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
    ///     2018, arXiv:1712.05877.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([[[[1], [2], [3]]]]))
    ///     >>> w = nn.NdArray.from_numpy_array(np.int8([[[[1], [-1]]]]))
    ///     >>> zero = nn.NdArray.from_numpy_array(0)
    ///     >>> bias = nn.NdArray.from_numpy_array([10])
    ///     >>> scale = nn.NdArray.from_numpy_array(0.5)
    ///     >>> F.quantized_convolution(x, w, zero, zero, bias, scale).data.ravel()
    ///     array([4.5, 4.5], dtype=float32)
    /// ```
    QuantizedConvolution = quantized_convolution(
        x: uint8, weight: int8, x_zero: index, w_zero: index, bias: index, scale;
        pad: Option<Vec<i64>> = None,
        stride: Option<Vec<i64>> = None,
        dilation: Option<Vec<i64>> = None,
        group: i64 = 1,
        y_zero: Option<i64> = None,
        least: i64 = 0,
        most: i64 = 255,
    )
}

op! {
    /// Affine map of 8-bit levels along the last axis:
    /// `y = saturate(round(((x - x_zero) (W - w_zero) + b) * scale) + y_zero)`, or without `y_zero` the numbers
    /// `((x - x_zero) (W - w_zero) + b) * scale + shift`. Sums are exact (modulo `2^32`). Halves are rounded to the
    /// even number. There is no gradient.
    ///
    /// Args:
    ///     x: Levels, shape (batch..., inputs).
    ///     weight: Signed levels `W`, shape (inputs, outputs).
    ///     x_zero: The level of `x` that stands for zero, one number.
    ///     w_zero: The level of the weight that stands for zero, one number or one for each output.
    ///     bias: Whole numbers `b` that are added to the sums, shape (outputs,).
    ///     scale: Factor of the sums, one number or one for each output.
    ///     shift: Number to add if `y_zero` is None: one number or one for each output; none by default.
    ///     y_zero: The level of the result that stands for zero; None to return numbers instead of levels.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of shape (batch..., outputs), of type `uint8` unless `y_zero` is None.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([[11, 12]]))
    ///     >>> w = nn.NdArray.from_numpy_array(np.int8([[1], [-3]]))
    ///     >>> x_zero = nn.NdArray.from_numpy_array(10)
    ///     >>> w_zero = nn.NdArray.from_numpy_array(0)
    ///     >>> bias = nn.NdArray.from_numpy_array([0])
    ///     >>> scale = nn.NdArray.from_numpy_array(0.5)
    ///     >>> F.quantized_affine(x, w, x_zero, w_zero, bias, scale).data
    ///     array([[-2.5]], dtype=float32)
    ///     >>> F.quantized_affine(x, w, x_zero, w_zero, bias, scale, y_zero=100).data
    ///     array([[98]], dtype=uint8)
    /// ```
    QuantizedAffine = quantized_affine(
        x: uint8, weight: int8, x_zero: index, w_zero: index, bias: index, scale, shift: optional;
        y_zero: Option<i64> = None,
        least: i64 = 0,
        most: i64 = 255,
    )
}

op! {
    /// Matrix products of 8-bit levels over the last two axes, for each index of the batch axes:
    /// `y = saturate(round((a - a_zero) (b - b_zero) * scale) + y_zero)`, or without `y_zero` the numbers
    /// `(a - a_zero) (b - b_zero) * scale`. Sums are exact (modulo `2^32`). Halves are rounded to the even number.
    /// There is no gradient.
    ///
    /// Args:
    ///     a: Levels of left matrices, shape (batch..., m, k).
    ///     b: Levels of right matrices, shape (batch..., k, n); each batch axis has the length of `a`, or one of the
    ///         two has length one.
    ///     a_zero: The level of `a` that stands for zero, one number.
    ///     b_zero: The level of `b` that stands for zero, one number.
    ///     scale: Factor of the sums, one number.
    ///     transpose_b: The matrices of `b` are transposed, with shape (n, k).
    ///     y_zero: The level of the result that stands for zero; None to return numbers instead of levels.
    ///     least: The smallest level of the result.
    ///     most: The largest level of the result.
    ///
    /// Returns:
    ///     Array of shape (batch..., m, n), of type `uint8` unless `y_zero` is None.
    ///
    /// Raises:
    ///     ArgumentError: If a level is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array(np.uint8([[[1, 2]]]))
    ///     >>> y = nn.NdArray.from_numpy_array(np.uint8([[[10], [20]]]))
    ///     >>> zero, scale = nn.NdArray.from_numpy_array(0), nn.NdArray.from_numpy_array(0.5)
    ///     >>> F.quantized_batch_matmul(x, y, zero, zero, scale).data
    ///     array([[[25.]]], dtype=float32)
    /// ```
    QuantizedBatchMatmul = quantized_batch_matmul(a: uint8, b: uint8, a_zero: index, b_zero: index, scale;
        transpose_b: bool = false,
        y_zero: Option<i64> = None,
        least: i64 = 0,
        most: i64 = 255,
    )
}

/// Checks a level that was given as an argument or as a value.
pub(crate) fn level(op: &str, arg: &str, given: i64) -> Result<u8> {
    u8::try_from(given).map_err(|_| Error::argument(op, arg, "a level from 0 to 255", given))
}

/// Rounding of results to levels between two bounds.
pub(crate) fn rounding(op: &str, zero: i64, least: i64, most: i64) -> Result<Rounding> {
    let (zero, least, most) =
        (level(op, "y_zero", zero)?, level(op, "least", least)?, level(op, "most", most)?);
    if least > most {
        return Err(Error::argument(op, "least", format!("{most}, which is `most`, or less"), least));
    }
    Ok(Rounding::new(zero, [least, most]))
}

/// Returns an error unless a parameter has one element, or one for each of `columns`.
fn check_parameter(op: &str, name: &str, shape: &Shape, columns: usize) -> Result<()> {
    if shape.size() == 1 || shape.size() == columns && shape.ndim() == 1 {
        return Ok(());
    }
    let expected = if columns == 1 { "one number".into() } else { format!("one number or {columns}") };
    Err(Error::shape(op, format!("{expected} in {name}"), [shape]))
}

/// Implements the arguments that describe the conversion of sums to levels.
macro_rules! becomes {
    ($($ty:ident)+) => {$(
        impl $ty {
            /// The rounding of sums to levels. None if the output is numbers.
            fn rounding(&self) -> Result<Option<Rounding>> {
                let name = <Self as $crate::ops::Declared>::SPEC.name;
                let of = |zero| rounding(name, zero, self.least, self.most);
                // The bounds are checked even if the output is numbers.
                of(self.y_zero.unwrap_or(0)).map(|found| self.y_zero.map(|_| found))
            }
        }
    )+};
}
becomes!(QuantizedConvolution QuantizedAffine QuantizedBatchMatmul);

/// Implements the common part of these layers: there is no gradient.
macro_rules! without_gradient {
    () => {
        const HAS_BACKWARD: bool = false;

        /// No gradient: levels are not differentiable.
        fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
            Vec::new()
        }

        /// No array, since there is no gradient.
        fn reads(&self, _: usize) -> Reads {
            Reads::NOTHING
        }
    };
}
pub(crate) use without_gradient;

/// The shared kernel of layers with a weight. Inputs are `x`, the weight, two zero points, a bias and a scale. Without
/// `weights`, each channel has its own kernel (depthwise).
fn multiply_by_weight<T: Float>(
    op: &str,
    run: &mut Run<'_, T>,
    window: &ImageWindow,
    weights: Option<QuantizedWeights<'_>>,
    columns: usize,
    rounding: Option<Rounding>,
) -> Result<()> {
    let levels = Levels { x: run.levels(0), zero: level(op, "x_zero", run.index(2)[0])? };
    let (zeros, scale) = (run.index(3), run.x(5));
    let sums = ColumnTerms { bias: run.index(4), zeros };
    let (input_cache, own) = (run.input_cache(), run.signed_levels(1));
    let multiply = |output: &dyn SumOutput| match weights {
        Some(weights) => multiply(&levels, weights, input_cache, window, &sums, output),
        None => multiply_each(&levels, own, window, &sums, output),
    };
    match rounding {
        Some(rounding) => {
            let output = ToLevels::new(run.y_levels(0), columns, scale, rounding);
            multiply(&output);
        }
        None => {
            let (shifts, tail) = (if run.has(6) { run.x(6) } else { &[] }, run.tail());
            multiply(&ToNumbers::new(run.y(0), columns, scale, shifts, tail));
        }
    }
    Ok(())
}

/// Returns an error if the parameters of a layer do not fit its columns.
fn check_parameters(op: &str, x: &InputShapes<'_>, columns: usize) -> Result<()> {
    check_parameter(op, "x_zero", x.get(2), 1)?;
    check_parameter(op, "w_zero", x.get(3), columns)?;
    check_parameter(op, "scale", x.get(5), columns)?;
    if **x.get(4) == [columns] {
        return Ok(());
    }
    Err(Error::shape(op, format!("a bias of shape ({columns},)"), [x.get(4)]))
}

impl QuantizedConvolution {
    /// The name of the operation, for error messages.
    const NAME: &'static str = "quantized_convolution";

    /// Window, groups and output shape, after checks of the shapes.
    fn window(&self, x: &Shape, w: &Shape) -> Result<(ImageWindow, usize, Shape)> {
        if x.ndim() < 3 {
            let expected = "images with axes of height, width and channels";
            return Err(Error::shape(Self::NAME, expected, [x, w]));
        }
        let layout = SpatialLayout {
            op: Self::NAME,
            base_axis: x.ndim() as i64 - 3,
            pad: self.pad.as_deref(),
            stride: self.stride.as_deref(),
            dilation: self.dilation.as_deref(),
            group: self.group,
            channel_last: true,
        };
        let (g, shape) = layout.convolution(x, w)?;
        if g.group != 1 && (g.group != g.channels || g.group != g.maps) {
            let expected =
                format!("1, or the number of channels and maps, which are {} and {}", g.channels, g.maps);
            return Err(Error::argument(Self::NAME, "group", expected, self.group));
        }
        let two = |of: &[usize]| [of[0], of[1]];
        let window = ImageWindow {
            images: g.images,
            channels: g.channels,
            input: two(&g.input),
            output: two(&g.output),
            kernel: two(&g.kernel),
            pad: two(&g.pad),
            stride: two(&g.stride),
            dilation: two(&g.dilation),
        };
        Ok((window, g.maps, shape))
    }
}

impl Compute for QuantizedConvolution {
    const HOSTS_EPILOGUE: bool = true;
    const CACHED_INPUT: Option<usize> = Some(1);
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (_, maps, shape) = self.window(x.get(0), x.get(1))?;
        check_parameters(Self::NAME, x, maps)?;
        self.rounding()?;
        one(shape)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (window, maps, _) = self.window(run.x_shape(0), run.x_shape(1))?;
        let columns =
            || QuantizedWeights::of_columns(run.signed_levels(1), maps, run.x_shape(1).size_from(1));
        let weights = (self.group == 1).then(columns);
        multiply_by_weight(Self::NAME, run, &window, weights, maps, self.rounding()?)
    }

    // Levels if a zero point for them is given, otherwise numbers.
    fn output(&self, _: usize) -> Option<DType> {
        self.y_zero.map(|_| DType::U8)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1).size_from(1)
    }
}

impl Compute for QuantizedAffine {
    const HOSTS_EPILOGUE: bool = true;
    const CACHED_INPUT: Option<usize> = Some(1);
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let (levels, w) = (x.get(0), x.get(1));
        let Some((inputs, batch)) =
            levels.split_last().filter(|(inputs, _)| w.ndim() == 2 && w[0] == **inputs)
        else {
            let expected = "levels of shape (batch..., inputs) and a weight of shape (inputs, outputs)";
            return Err(Error::shape("quantized_affine", expected, [levels, w]));
        };
        let _ = inputs;
        check_parameters("quantized_affine", x, w[1])?;
        if let Some(shift) = x.find(6) {
            check_parameter("quantized_affine", "shift", shift, w[1])?;
            if let Some(zero) = self.y_zero {
                return Err(Error::argument("quantized_affine", "y_zero", "None beside `shift`", zero));
            }
        }
        self.rounding()?;
        one(batch.iter().copied().chain([w[1]]).collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, w) = (run.x_shape(0), run.x_shape(1));
        let window = ImageWindow::of_rows(x.size_to(x.ndim() - 1), w[0]);
        let weights = QuantizedWeights::of_rows(run.signed_levels(1), w[0], w[1]);
        multiply_by_weight("quantized_affine", run, &window, Some(weights), w[1], self.rounding()?)
    }

    // Levels if a zero point for them is given, otherwise numbers.
    fn output(&self, _: usize) -> Option<DType> {
        self.y_zero.map(|_| DType::U8)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(1)[0]
    }
}

/// Computes the products in parallel, each to its own rows of the output.
fn each_product<E: Send>(y: &mut [E], p: &Products, product: impl Fn((usize, usize), &mut [E]) + Sync) {
    let sides = p.sides();
    threads::rows_mut(y, p.m * p.n, 1, |i, y| product(sides[i], y));
}

impl Compute for QuantizedBatchMatmul {
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let p = Products::new("quantized_batch_matmul", [x.get(0), x.get(1)], [false, self.transpose_b])?;
        for (i, name) in [(2, "a_zero"), (3, "b_zero"), (4, "scale")] {
            check_parameter("quantized_batch_matmul", name, x.get(i), 1)?;
        }
        self.rounding()?;
        one(p.shape())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let name = "quantized_batch_matmul";
        let p = Products::new(name, [run.x_shape(0), run.x_shape(1)], [false, self.transpose_b])?;
        let zero = level(name, "a_zero", run.index(2)[0])?;
        // Signed weights are the levels minus 128.
        let zeros = [i64::from(level(name, "b_zero", run.index(3)[0])?) - 128];
        let (a, b, scale) = (run.levels(0), run.levels(1), run.x(4));
        let window = ImageWindow::of_rows(p.m, p.k);
        let product = |(i, j): (usize, usize), output: &dyn SumOutput| {
            let levels = Levels { x: &a[i * p.m * p.k..][..p.m * p.k], zero };
            let weights =
                QuantizedWeights::of_levels(&b[j * p.k * p.n..][..p.k * p.n], p.k, p.n, self.transpose_b);
            multiply(&levels, weights, None, &window, &ColumnTerms { bias: &[], zeros: &zeros }, output);
        };
        match self.rounding()? {
            Some(rounding) => each_product(run.y_levels(0), &p, |sides, y| {
                product(sides, &ToLevels::new(y, p.n, scale, rounding));
            }),
            None => each_product(run.y(0), &p, |sides, y| {
                product(sides, &ToNumbers::new(y, p.n, scale, &[], Tail::NOTHING));
            }),
        }
        Ok(())
    }

    // Levels if a zero point for them is given, otherwise numbers.
    fn output(&self, _: usize) -> Option<DType> {
        self.y_zero.map(|_| DType::U8)
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(0)[x.get(0).ndim() - 1]
    }
}
