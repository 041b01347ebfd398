//! An LSTM with 8-bit levels as weights.

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::recurrent::levels::{LevelLayer, LevelReading};
use crate::ops::quantization::integer_layers::without_gradient;
use crate::ops::{Compute, Entry, InputShapes, Reads, Run, Shapes, Sym, Symbols, one, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<QuantizedLstm>()];

op! {
    /// LSTM with 8-bit levels as weights. The inputs of all steps become levels with one scale, the states of each step
    /// with another one, before they are multiplied by the weights. Sums of products are exact. There is no gradient.
    ///
    /// The axis of gates has the gates of input, output, forgetting and cell. Each gate of each unit has two scales and
    /// two zero points: of its weights for the inputs, and of its weights for the state.
    ///
    /// Args:
    ///     x: Sequences, shape (time, batch, inputs).
    ///     h: First states, shape (directions, batch, hidden).
    ///     c: First cells, of the same shape.
    ///     weight: Signed levels: first of the inputs, then of the states, shape (directions, inputs + hidden,
    ///         4 * hidden).
    ///     w_zero: The levels that stand for zero, shape (directions, 2, 4 * hidden).
    ///     w_scale: Distances of two levels, shape (directions, 2, 4 * hidden).
    ///     lengths: Steps of each sequence, shape (batch,). Outputs after the last step are zero.
    ///     bias: Numbers that are added to the gates, shape (directions, 4 * hidden).
    ///     peephole: Weights of the cells for the gates of input, output and forgetting, shape
    ///         (directions, 3 * hidden).
    ///     reverse: The first direction goes from the last step to the first. The second one always does.
    ///
    /// Returns:
    ///     Outputs of shape (time, directions, batch, hidden), and states and cells after the last step of each
    ///     sequence, of the shape of `h`.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not fit together.
    ///     ValueError: If a length is negative or larger than the axis of time.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x, h, c = nn.NdArray((5, 2, 3)), nn.NdArray((1, 2, 4)), nn.NdArray((1, 2, 4))
    ///     >>> w = nn.NdArray.from_numpy_array(np.ones((1, 7, 16), np.int8))
    ///     >>> zero = nn.NdArray.from_numpy_array(np.zeros((1, 2, 16), np.int64))
    ///     >>> scale = nn.NdArray.from_numpy_array(np.full((1, 2, 16), 0.1, np.float32))
    ///     >>> lengths = nn.NdArray.from_numpy_array(np.array([5, 3]))
    ///     >>> y, last_h, last_c = F.quantized_lstm(x, h, c, w, zero, scale, lengths)
    ///     >>> y.shape, last_h.shape
    ///     ((5, 1, 2, 4), (1, 2, 4))
    /// ```
    QuantizedLstm = quantized_lstm(
        x, h, c, weight: int8, w_zero: index, w_scale, lengths: index, bias: optional, peephole: optional;
        reverse: bool = false,
    )
}

impl QuantizedLstm {
    /// The name in errors.
    const NAME: &'static str = "quantized_lstm";

    /// The sizes of the layer. Returns an error if the shapes do not fit together.
    fn layer(&self, x: &InputShapes<'_>) -> Result<LevelLayer> {
        let fail = |i: usize, expected: String| Err(Error::shape(Self::NAME, expected, [x.get(i)]));
        let &[steps, batch, inputs] = &x.get(0)[..] else {
            return fail(0, "`x` of shape (time, batch, inputs)".into());
        };
        let &[directions @ 1..=2, samples, hidden] = &x.get(1)[..] else {
            return fail(1, "`h` of shape (1 or 2, batch, hidden)".into());
        };
        let columns = 4 * hidden;
        let expected: [(usize, &str, Shape); 8] = [
            (1, "h", Shape::from([directions, batch, hidden])),
            (2, "c", Shape::from([directions, samples, hidden])),
            (3, "weight", Shape::from([directions, inputs + hidden, columns])),
            (4, "w_zero", Shape::from([directions, 2, columns])),
            (5, "w_scale", Shape::from([directions, 2, columns])),
            (6, "lengths", Shape::from([batch])),
            (7, "bias", Shape::from([directions, columns])),
            (8, "peephole", Shape::from([directions, 3 * hidden])),
        ];
        for (i, name, shape) in expected {
            if x.find(i).is_some_and(|found| *found != shape) {
                return fail(i, format!("`{name}` of shape {shape}"));
            }
        }
        Ok(LevelLayer { steps, batch, inputs, hidden, directions, reverse: self.reverse })
    }
}

impl Compute for QuantizedLstm {
    const CACHED_INPUT: Option<usize> = Some(3);
    without_gradient!();

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let layer = self.layer(x)?;
        let mut shapes = one([layer.steps, layer.directions, layer.batch, layer.hidden])?;
        shapes.extend([x.get(1).clone(), x.get(1).clone()]);
        Ok(shapes)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let &[steps, batch, inputs] = &run.x_shape(0)[..] else { return Ok(()) };
        let &[directions, _, hidden] = &run.x_shape(1)[..] else { return Ok(()) };
        let layer = LevelLayer { steps, batch, inputs, hidden, directions, reverse: self.reverse };
        let lengths = run.index(6);
        if let Some(odd) = lengths.iter().find(|n| usize::try_from(**n).map_or(true, |n| n > steps)) {
            return Err(Error::argument(Self::NAME, "lengths", format!("0 to {steps}"), odd));
        }
        let reading = LevelReading {
            x: run.x(0),
            states: [run.x(1), run.x(2)],
            w: run.signed_levels(3),
            zeros: run.index(4),
            scales: run.x(5),
            bias: run.has(7).then(|| run.x(7)),
            peepholes: run.has(8).then(|| run.x(8)),
            lengths,
        };
        let input_cache = run.input_cache();
        let (y, h, c) = (run.y(0), run.y(1), run.y(2));
        layer.run(&reading, input_cache, y, [h, c]);
        Ok(())
    }

    fn multiplications(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * 4 * x.get(3)[1]
    }
}
