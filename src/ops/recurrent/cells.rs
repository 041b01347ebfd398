//! `rnn`, `lstm` and `gru`: recurrent networks of several layers over whole sequences.

use crate::array::Shape;
use crate::kernels::Number;
use crate::kernels::recurrent::Cell;
use crate::ops::arrangement::concatenate::{Concatenate, Split, Stack};
use crate::ops::arrangement::slicing::Slice;
use crate::ops::contract::elementwise::sloped;
use crate::ops::contract::symbol::Tape;
use crate::ops::linear_algebra::inverse::matmul;
use crate::ops::pointwise::rectifier::ReLU;
use crate::ops::recurrent::layers::{LayerForm, LayerSizes, Network, Recurring};
use crate::ops::{Entry, Op, Sym, Symbols, op};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] =
    &[Entry::of::<Recurring<RNN>>(), Entry::of::<Recurring<LSTM>>(), Entry::of::<Recurring<GRU>>()];

op! {
    /// Recurrent network of several layers over whole sequences: `h[t] = f(w_x x[t] + w_h h[t - 1] + b)` for each time
    /// step. The outputs of a layer are the inputs of the next one.
    ///
    /// Args:
    ///     x: Sequences, shape (time, batch, inputs).
    ///     h: States at the start, shape (layers, directions, batch, hidden).
    ///     weight_l0: Weights of the first layer, shape (directions, hidden, inputs + hidden): of the inputs, then of
    ///         the state.
    ///     weight: Weights of the other layers, shape (layers - 1, directions, hidden, directions * hidden + hidden);
    ///         none if there is one layer.
    ///     bias: Biases, shape (layers, directions, hidden); none by default.
    ///     num_layers: Number of layers.
    ///     nonlinearity: The function `f`, `tanh` or `relu`.
    ///     dropout: Probability of setting an output of a layer to zero for the next layer, at least 0 and less than 1.
    ///         Applies only if `training`. 0 by default.
    ///     bidirectional: Each layer runs in both directions of time and concatenates the outputs.
    ///     training: Save values for a backward run.
    ///
    /// Returns:
    ///     Outputs of the last layer, shape (time, batch, directions * hidden), and the states at the end, in the shape
    ///     of `h`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Elman, Finding Structure in Time, 1990.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, h = nn.NdArray((5, 2, 3)), nn.NdArray((1, 1, 2, 4))
    ///     >>> w = nn.NdArray((1, 4, 7))
    ///     >>> y, last = F.rnn(x, h, w)
    ///     >>> y.shape, last.shape
    ///     ((5, 2, 4), (1, 1, 2, 4))
    /// ```
    RNN = rnn(x, h, weight_l0, weight: optional, bias: optional; num_layers: i64 = 1, nonlinearity: String = "tanh",
        dropout: Option<f64> = None, bidirectional: bool = false, training: bool = true)
}

op! {
    /// Long short-term memory of several layers over whole sequences: for each time step
    /// `c[t] = sigmoid(f) c[t - 1] + sigmoid(i) tanh(g)` and `h[t] = sigmoid(o) tanh(c[t])`, where each of i, f, g, o
    /// is `w_x x[t] + w_h h[t - 1] + b` with weights of its own.
    ///
    /// Args:
    ///     x: Sequences, shape (time, batch, inputs).
    ///     h: States at the start, shape (layers, directions, batch, hidden).
    ///     c: Cells at the start, of the same shape.
    ///     weight_l0: Weights of the first layer, shape (directions, 4, hidden, inputs + hidden): of i, f, g, o in this
    ///         order, and of the inputs, then of the state.
    ///     weight: Weights of the other layers, shape (layers - 1, directions, 4, hidden, directions * hidden +
    ///         hidden); none if there is one layer.
    ///     bias: Biases, shape (layers, directions, 4, hidden); none by default.
    ///     num_layers: Number of layers.
    ///     dropout: Probability of setting an output of a layer to zero for the next layer, at least 0 and less than 1.
    ///         Applies only if `training`. 0 by default.
    ///     bidirectional: Each layer runs in both directions of time and concatenates the outputs.
    ///     training: Save values for a backward run.
    ///
    /// Returns:
    ///     Outputs of the last layer, shape (time, batch, directions * hidden), and the states and cells at the end, in
    ///     the shape of `h`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Hochreiter and Schmidhuber, Long Short-Term Memory, 1997.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, h, c = nn.NdArray((5, 2, 3)), nn.NdArray((1, 1, 2, 4)), nn.NdArray((1, 1, 2, 4))
    ///     >>> w = nn.NdArray((1, 4, 4, 7))
    ///     >>> y, last_h, last_c = F.lstm(x, h, c, w)
    ///     >>> y.shape, last_h.shape, last_c.shape
    ///     ((5, 2, 4), (1, 1, 2, 4), (1, 1, 2, 4))
    /// ```
    LSTM = lstm(x, h, c, weight_l0, weight: optional, bias: optional; num_layers: i64 = 1, dropout: Option<f64> = None,
        bidirectional: bool = false, training: bool = true)
}

op! {
    /// Gated recurrent units of several layers over whole sequences: for each time step `h[t] = (1 - z) n + z h[t - 1]`
    /// with `r = sigmoid(w_x x[t] + w_h h[t - 1] + b)`, z likewise with weights of its own, and
    /// `n = tanh(w_x x[t] + b + r (w_h h[t - 1] + b'))`.
    ///
    /// Args:
    ///     x: Sequences, shape (time, batch, inputs).
    ///     h: States at the start, shape (layers, directions, batch, hidden).
    ///     weight_l0: Weights of the first layer, shape (directions, 3, hidden, inputs + hidden): of r, z, n in this
    ///         order, and of the inputs, then of the state.
    ///     weight: Weights of the other layers, shape (layers - 1, directions, 3, hidden, directions * hidden +
    ///         hidden); none if there is one layer.
    ///     bias: Biases, shape (layers, directions, 4, hidden), of r, z, n and the second one of n; none by default.
    ///     num_layers: Number of layers.
    ///     dropout: Probability of setting an output of a layer to zero for the next layer, at least 0 and less than 1.
    ///         Applies only if `training`. 0 by default.
    ///     bidirectional: Each layer runs in both directions of time and concatenates the outputs.
    ///     training: Save values for a backward run.
    ///
    /// Returns:
    ///     Outputs of the last layer, shape (time, batch, directions * hidden), and the states at the end, in the shape
    ///     of `h`.
    ///
    /// Raises:
    ///     ArgumentError: If an argument is out of range.
    ///     ShapeError: If the shapes do not fit together.
    ///
    /// Source:
    ///     Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, 2014, arXiv:1406.1078.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, h = nn.NdArray((5, 2, 3)), nn.NdArray((1, 1, 2, 4))
    ///     >>> w = nn.NdArray((1, 3, 4, 7))
    ///     >>> y, last = F.gru(x, h, w)
    ///     >>> y.shape, last.shape
    ///     ((5, 2, 4), (1, 1, 2, 4))
    /// ```
    GRU = gru(x, h, weight_l0, weight: optional, bias: optional; num_layers: i64 = 1, dropout: Option<f64> = None,
        bidirectional: bool = false, training: bool = true)
}

impl Network for RNN {
    const STATES: usize = 1;

    fn form(&self) -> LayerForm {
        LayerForm {
            cell: if self.nonlinearity == "relu" { Cell::Relu } else { Cell::Tanh },
            layers: self.num_layers,
            dropout: self.dropout.unwrap_or(0.0),
            bidirectional: self.bidirectional,
            training: self.training,
        }
    }

    fn check(&self) -> Result<()> {
        match &*self.nonlinearity {
            "tanh" | "relu" => Ok(()),
            other => Err(Error::argument("rnn", "nonlinearity", "tanh or relu", other)),
        }
    }
}

/// Implements [`Network`] for an operation with this cell and number of states.
macro_rules! network {
    ($ty:ident, $cell:ident, $states:literal) => {
        impl Network for $ty {
            const STATES: usize = $states;

            fn form(&self) -> LayerForm {
                LayerForm {
                    cell: Cell::$cell,
                    layers: self.num_layers,
                    dropout: self.dropout.unwrap_or(0.0),
                    bidirectional: self.bidirectional,
                    training: self.training,
                }
            }
        }
    };
}
network!(LSTM, Lstm, 2);
network!(GRU, Gru, 1);

/// Index `i` of the first axis, which is removed.
fn at(x: Sym, i: usize) -> Sym {
    let shape = x.shape();
    let part = cut(x, 0, i..i + 1);
    part.reshape(&shape[1..])
}

/// The part of `x` in a range along an axis.
fn cut(x: Sym, axis: usize, range: std::ops::Range<usize>) -> Sym {
    let n = x.shape().ndim();
    let bounds = |v: usize| Some((0..n).map(|a| (a == axis).then_some(v as i64)).collect());
    let (start, stop) = (bounds(range.start), bounds(range.end));
    Sym::rearrange(Slice { start, stop, step: None }, x)
}

/// The gradients of a network, derived from its composition of other operations.
pub(super) fn gradients(
    s: &Symbols,
    form: LayerForm,
    sizes: LayerSizes,
    mask: impl Fn(usize, Shape) -> Option<Sym>,
) -> Vec<Option<Sym>> {
    let count = form.weights() + 3;
    let masks: Vec<_> = (1..sizes.layers)
        .map(|layer| {
            mask(layer - 1, Shape::from([sizes.steps, sizes.batch, sizes.directions * sizes.hidden]))
        })
        .collect();
    let (outputs, tape) = Tape::of(|| compose(s, form, sizes, &masks));
    let given: Vec<_> = outputs.into_iter().enumerate().map(|(o, y)| (y, s.gy(o))).collect();
    let inputs: Vec<_> = (0..count).filter(|i| s.has(*i)).map(|i| s.x(i)).collect();
    let mut found = tape.gradients(&given, &inputs).into_iter();
    (0..count).map(|i| if s.has(i) { found.next().flatten().filter(|_| s.wants(i)) } else { None }).collect()
}

/// The outputs of a network as a composition of other operations.
fn compose(s: &Symbols, form: LayerForm, sizes: LayerSizes, masks: &[Option<Sym>]) -> Vec<Sym> {
    let LayerSizes { steps, batch, hidden, layers, directions, .. } = sizes;
    let (cell, w) = (form.cell, form.weights());
    let (gates, lstm) = (cell.gates(), cell == Cell::Lstm);
    let join = |some: &[Sym], axis: i64| {
        if some.len() == 1 { some[0] } else { Sym::apply(Concatenate { axis }, some) }
    };
    let (mut ends, mut ends_of_cells) = (Vec::new(), Vec::new());
    let mut x = s.x(0);
    for layer in 0..layers {
        if let Some(Some(mask)) = layer.checked_sub(1).map(|before| masks[before]) {
            x = sloped(x, mask);
        }
        let inputs = x.shape()[2];
        let mut outputs = Vec::new();
        for direction in 0..directions {
            let place = |x: Sym| at(at(x, layer), direction);
            let weights =
                if layer == 0 { at(s.x(w), direction) } else { at(at(s.x(w + 1), layer - 1), direction) };
            let weights = weights.reshape(&[gates * hidden, inputs + hidden]);
            let (w_x, w_h) = (cut(weights, 1, 0..inputs), cut(weights, 1, inputs..inputs + hidden));
            let bias = s.has(w + 2).then(|| place(s.x(w + 2)).reshape(&[cell.biases() * hidden]));
            let sums = matmul(x.reshape(&[steps * batch, inputs]), false, w_x, true);
            let sums = bias.map_or(sums, |b| sums + cut(b, 0, 0..gates * hidden));
            let sums = sums.reshape(&[steps, batch, gates * hidden]);
            let (mut h, mut c) = (place(s.x(1)), lstm.then(|| place(s.x(2))));
            let each = if steps > 0 {
                Sym::apply_op(Op::new(Split { axis: 0 }), &[sums]).to_vec()
            } else {
                Vec::new()
            };
            let mut made = vec![h; steps];
            for i in 0..steps {
                let t = if direction == 1 { steps - 1 - i } else { i };
                let of_state = matmul(h, false, w_h, true);
                let gate = |x: Sym, gate: usize| cut(x, 1, gate * hidden..(gate + 1) * hidden);
                match (cell, c) {
                    (Cell::Gru, _) => {
                        let (r, z) =
                            (gate(each[t], 0) + gate(of_state, 0), gate(each[t], 1) + gate(of_state, 1));
                        let (r, z) = (r.sigmoid(), z.sigmoid());
                        let own = gate(of_state, 2);
                        let own = bias.map_or(own, |b| own + cut(b, 0, 3 * hidden..4 * hidden));
                        let n = (gate(each[t], 2) + r * own).tanh();
                        h = n + z * (h - n);
                    }
                    (Cell::Lstm, Some(old)) => {
                        let all = each[t] + of_state;
                        let [i, f, g, o] = [0, 1, 2, 3].map(|k| gate(all, k));
                        let new = f.sigmoid() * old + i.sigmoid() * g.tanh();
                        h = o.sigmoid() * new.tanh();
                        c = Some(new);
                    }
                    (Cell::Relu, _) => h = Sym::unary(ReLU { inplace: false }, each[t] + of_state),
                    _ => h = (each[t] + of_state).tanh(),
                }
                made[t] = h;
            }
            let lifted = |x: Sym| x.reshape(&[1, batch, hidden]);
            ends.push(lifted(h));
            ends_of_cells.extend(c.map(lifted));
            outputs.push(if steps > 0 {
                Sym::apply(Stack { axis: 0 }, &made)
            } else {
                sums.reshape(&[0, batch, hidden])
            });
        }
        x = join(&outputs, 2);
    }
    let states = |ends: &[Sym]| join(ends, 0).reshape(&[layers, directions, batch, hidden]);
    let mut found = vec![x, states(&ends)];
    if lstm {
        found.push(states(&ends_of_cells));
    }
    found
}
