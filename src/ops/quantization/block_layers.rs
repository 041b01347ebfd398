//! Layers with weights of few bits that have a scale for each block of inputs.

use super::integer_layers::without_gradient;
use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::integer::{BlockWeights, multiply_blocks};
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<BlockQuantizedAffine>()];

/// The name of the operation, for error messages.
const NAME: &str = "block_quantized_affine";
/// The largest block. Its sums of products of 8 bits are exact in 32 bits.
const LARGEST_BLOCK: i64 = 1 << 16;

op! {
    /// Affine map whose weight is given by levels of 4 or 8 bits: `y = x ((levels - zero) * scale)^T`. Each block of
    /// inputs of each output has a scale and a zero point. There is no gradient.
    ///
    /// The operator `MatMulNBits` of ONNX Runtime has the same layout. The weight is not converted to an array of
    /// numbers if the machine has AVX-512.
    ///
    /// Args:
    ///     x: Numbers, shape (batch..., inputs).
    ///     levels: Levels of the weight, shape (outputs, blocks, `block_size * bits / 8`). Two levels of 4 bits share a
    ///         byte, the first one in its low half. Levels after the last input have no effect.
    ///     scale: Distance of two levels in each block, shape (outputs, blocks).
    ///     zero: The level that stands for zero in each block, shape (outputs, blocks); `2 ** (bits - 1)` by default.
    ///     bits: Bits of a level: 4 or 8.
    ///     block_size: Inputs of a block, a multiple of 16.
    ///     quantize_inputs: Quantize each block of a row of `x` to 8 bits: whole numbers from -127 to 127 times a
    ///         scale. This is faster with AVX-512 VNNI. Rows with numbers that are infinite, NaN or larger than `1e30`
    ///         are not quantized.
    ///
    /// Returns:
    ///     Array of shape (batch..., outputs).
    ///
    /// Raises:
    ///     ArgumentError: If `bits` or `block_size` is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> levels = np.full((1, 1, 16), 8, np.uint8)
    ///     >>> levels[0, 0, :2] = 9, 4
    ///     >>> levels = nn.NdArray.from_numpy_array(levels)
    ///     >>> x = nn.NdArray.from_numpy_array([[1.0, 2.0]])
    ///     >>> scale, zero = (nn.NdArray.from_numpy_array([[v]]) for v in (0.5, 8.0))
    ///     >>> F.block_quantized_affine(x, levels, scale, zero, bits=8, block_size=16).data
    ///     array([[-3.5]], dtype=float32)
    /// ```
    BlockQuantizedAffine = block_quantized_affine(x, levels: uint8, scale, zero: optional;
        bits: i64 = 4,
        block_size: i64 = 32,
        quantize_inputs: bool = false,
    )
}

impl Compute for BlockQuantizedAffine {
    const CACHED_INPUT: Option<usize> = Some(1);
    const CACHED_PARAMETERS: usize = 2;
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if !matches!(self.bits, 4 | 8) {
            return Err(Error::argument(NAME, "bits", "4 or 8", self.bits));
        }
        if !(1..=LARGEST_BLOCK).contains(&self.block_size) || self.block_size % 16 != 0 {
            let expected = format!("a multiple of 16 up to {LARGEST_BLOCK}");
            return Err(Error::argument(NAME, "block_size", expected, self.block_size));
        }
        let (numbers, levels) = (x.get(0), x.get(1));
        let block = self.block_size as usize;
        let bytes = block * self.bits as usize / 8;
        let fits =
            |inputs: usize| levels.ndim() == 3 && levels[1] == inputs.div_ceil(block) && levels[2] == bytes;
        let Some(batch) = numbers.split_last().and_then(|(inputs, batch)| fits(*inputs).then_some(batch))
        else {
            let expected = format!(
                "x of shape (batch..., inputs) and levels of shape (outputs, inputs / {block}, {bytes})"
            );
            return Err(Error::shape(NAME, expected, [numbers, levels]));
        };
        let parameters = [("scale", x.find(2)), ("zero", x.find(3))];
        for (name, shape) in parameters.into_iter().filter_map(|(name, shape)| Some((name, shape?))) {
            if **shape != levels[..2] {
                let expected = format!("{name} of shape ({}, {})", levels[0], levels[1]);
                return Err(Error::shape(NAME, expected, [shape]));
            }
        }
        one(batch.iter().copied().chain([levels[0]]).collect::<Shape>())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let x = run.x_shape(0);
        let weights = BlockWeights {
            levels: run.levels(1),
            scales: run.x(2),
            zeros: if run.has(3) { run.x(3) } else { &[] },
            terms: x[x.ndim() - 1],
            columns: run.x_shape(1)[0],
            bits: self.bits as usize,
            block: self.block_size as usize,
        };
        multiply_blocks(run.x(0), &weights, run.input_cache(), self.quantize_inputs, run.y(0));
        Ok(())
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * x.get(0)[x.get(0).ndim() - 1]
    }
}
