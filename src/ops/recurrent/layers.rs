//! The shared implementation of `rnn`, `lstm` and `gru`: recurrent networks of several layers over whole sequences.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::array::Shape;
use crate::kernels::Float;
use crate::kernels::random::PhiloxKey;
use crate::kernels::recurrent::{Adding, Cell, Direction, Layer, Reading, forward};
use crate::kernels::scratch::{self, SavedMemory};
use crate::kernels::sixteen_bits::Values;
use crate::ops::arrangement::regrid::only_in_gradients;
use crate::ops::contract::elementwise::sloped;
use crate::ops::recurrent::cells;
use crate::ops::{
    Backward, Compute, Declared, Grad, InputShapes, Reads, Run, Shapes, Spec, Sym, Symbols, Value, one,
};
use crate::{Error, Result};

/// An operation that is a recurrent network.
pub(crate) trait Network: Declared {
    /// Number of states, which are inputs and outputs: two for an LSTM, which has cells too.
    const STATES: usize;

    /// The structure of the network.
    fn form(&self) -> LayerForm;

    /// Checks arguments that are not part of [`LayerForm`].
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// The structure of a network, from the arguments.
#[derive(Clone, Copy)]
pub(crate) struct LayerForm {
    /// The formula of the new state.
    pub(crate) cell: Cell,
    /// The number of layers.
    pub(crate) layers: i64,
    /// The rate of dropout between layers.
    pub(crate) dropout: f64,
    /// True if there are two directions.
    pub(crate) bidirectional: bool,
    /// If false, there is no dropout.
    pub(crate) training: bool,
}

impl LayerForm {
    /// One, or two if bidirectional.
    pub(crate) fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }

    /// True if dropout applies between layers.
    fn drops(&self) -> bool {
        self.training && self.dropout > 0.0 && self.layers > 1
    }

    /// Number of states, which are inputs and outputs: two for an LSTM, which has cells too.
    fn states(&self) -> usize {
        if self.cell == Cell::Lstm { 2 } else { 1 }
    }

    /// Index of the input with the weights of the first layer. The weights of other layers and the biases follow.
    pub(crate) fn weights(&self) -> usize {
        1 + self.states()
    }
}

/// A recurrent network with its state: the random numbers of its last forward run.
#[derive(Clone)]
pub(crate) struct Recurring<C> {
    /// The operation with its arguments.
    pub(crate) of: C,
    /// The key of those numbers, if it has run.
    last: Arc<Mutex<Option<PhiloxKey>>>,
}

impl<C: Declared> Declared for Recurring<C> {
    const SPEC: Spec = C::SPEC;
    fn bind(values: &[Value]) -> Result<Self> {
        Ok(Self { of: C::bind(values)?, last: Arc::default() })
    }
    fn values(&self) -> Vec<Value> {
        self.of.values()
    }
}

/// The dropout factors after a layer in the last run of a network. Takes the output of that run as input, so that it
/// runs afterwards.
#[derive(Clone)]
pub(crate) struct KeptOutputs {
    /// The key of the random numbers, shared with the network.
    last: Arc<Mutex<Option<PhiloxKey>>>,
    /// The number of the layer.
    layer: usize,
    /// The dropout rate.
    dropout: f64,
    /// The shape of the factors.
    shape: Shape,
}
only_in_gradients! {
    KeptOutputs = "kept_outputs", " The dropout factors between layers.";
}

/// The sizes of a network.
#[derive(Clone, Copy)]
pub(crate) struct LayerSizes {
    /// The number of time steps.
    pub(crate) steps: usize,
    /// The number of samples.
    pub(crate) batch: usize,
    /// Features of the input.
    pub(crate) inputs: usize,
    /// Features of the state, in each direction.
    pub(crate) hidden: usize,
    /// The number of layers.
    pub(crate) layers: usize,
    /// The number of directions.
    pub(crate) directions: usize,
}

impl LayerSizes {
    /// Elements of a layer's output, for all time steps.
    fn outputs(&self) -> usize {
        self.steps * self.batch * self.directions * self.hidden
    }

    /// One direction of a layer.
    fn layer(&self, cell: Cell, layer: usize, direction: usize) -> Layer {
        let apart = self.directions * self.hidden;
        Layer {
            cell,
            steps: self.steps,
            batch: self.batch,
            inputs: if layer == 0 { self.inputs } else { apart },
            hidden: self.hidden,
            apart,
            reverse: direction == 1,
            rounds: false,
        }
    }
}

/// Values saved by a forward run.
struct KeptStates<T> {
    /// Gates of all layers.
    gates: SavedMemory<T>,
    /// Outputs of all layers but the last.
    outputs: SavedMemory<T>,
    /// The key of the random numbers for dropout, if there is any.
    key: Option<PhiloxKey>,
}

impl<T: Copy> Default for KeptStates<T> {
    fn default() -> Self {
        Self { gates: SavedMemory::default(), outputs: SavedMemory::default(), key: None }
    }
}

/// Part `i` of an array that consists of parts of `n` elements.
fn part<T>(x: &[T], i: usize, n: usize) -> &[T] {
    &x[i * n..(i + 1) * n]
}

/// Part `i` for writing, of an array that consists of parts of `n` elements.
fn part_mut<T>(x: &mut [T], i: usize, n: usize) -> &mut [T] {
    &mut x[i * n..(i + 1) * n]
}

/// All parts of `n` elements, for writing.
fn parts_mut<T>(x: &mut [T], n: usize) -> impl Iterator<Item = &mut [T]> {
    x.chunks_exact_mut(n.max(1))
}

impl<C: Network> Recurring<C> {
    /// Checks arguments and shapes of all inputs. Returns the sizes.
    fn sizes(&self, shape: impl Fn(usize) -> Option<Shape>) -> Result<LayerSizes> {
        let (name, form) = (C::SPEC.name, self.of.form());
        self.of.check()?;
        let layers = match usize::try_from(form.layers) {
            Ok(layers) if layers > 0 => layers,
            _ => return Err(Error::argument(name, "num_layers", "one or more", form.layers)),
        };
        if !(0.0..1.0).contains(&form.dropout) {
            return Err(Error::argument(name, "dropout", "from 0 up to but not including 1", form.dropout));
        }
        let given = |i: usize| shape(i).unwrap_or_default();
        let fail = |i: usize, expected: String| {
            Err(Error::shape(name, format!("`{}` of shape {expected}", C::SPEC.inputs[i].name), [&given(i)]))
        };
        let (x, h) = (given(0), given(1));
        let &[steps, batch, inputs] = &x[..] else { return fail(0, "(time, batch, inputs)".into()) };
        let (directions, hidden) = (form.directions(), h.last().copied().unwrap_or(0));
        let states = Shape::from([layers, directions, batch, hidden]);
        for i in 1..=form.states() {
            if given(i) != states {
                return fail(i, format!("({layers}, {directions}, {batch}, hidden)"));
            }
        }
        let (gates, biases) = (form.cell.gates(), form.cell.biases());
        // A plain RNN has one gate and no axis for it.
        let of = |lead: &[usize], gates: usize, rest: &[usize]| -> Shape {
            let axis = (form.cell.gates() > 1).then_some(gates);
            lead.iter().copied().chain(axis).chain(rest.iter().copied()).collect()
        };
        let outputs = directions * hidden;
        let first = of(&[directions], gates, &[hidden, inputs + hidden]);
        let later = of(&[layers - 1, directions], gates, &[hidden, outputs + hidden]);
        let bias = of(&[layers, directions], biases, &[hidden]);
        let w = form.weights();
        if given(w) != first {
            return fail(w, first.to_string());
        }
        match shape(w + 1) {
            Some(found) if found != later || layers == 1 => {
                let none = "that is left out, there being one layer";
                return fail(w + 1, if layers == 1 { none.into() } else { later.to_string() });
            }
            None if layers > 1 => return fail(w + 1, later.to_string()),
            _ => {}
        }
        if shape(w + 2).is_some_and(|found| found != bias) {
            return fail(w + 2, bias.to_string());
        }
        Ok(LayerSizes { steps, batch, inputs, hidden, layers, directions })
    }

    /// The outputs of a layer as the next one reads them. Uses `to` for a copy if dropout applies.
    fn dropped<'a, T: Float>(
        &self,
        x: &'a [T],
        key: Option<PhiloxKey>,
        layer: usize,
        to: &'a mut [T],
    ) -> &'a [T] {
        let Some(key) = key else { return x };
        kept_factors(self.of.form().dropout, key, layer, to);
        to.iter_mut().zip(x).for_each(|(to, x)| *to = sloped(*x, *to));
        to
    }
}

/// Writes the dropout factors for the outputs of a layer.
fn kept_factors<T: Float>(dropout: f64, key: PhiloxKey, layer: usize, to: &mut [T]) {
    let offset = key.offset + (layer * to.len().next_multiple_of(64)) as u64;
    let factor = T::of(1.0 / (1.0 - dropout));
    PhiloxKey { offset, ..key }.uniform(0.0, 1.0, to);
    let least = T::of(dropout);
    for v in to.iter_mut() {
        *v = if *v < least { T::ZERO } else { factor };
    }
}

impl<C: Network> Compute for Recurring<C> {
    const IS_RANDOM: bool = true;
    const CACHED_INPUT: Option<usize> = Some(1 + C::STATES);

    fn is_random(&self) -> bool {
        self.of.form().drops()
    }

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        let sizes = self.sizes(|i| x.find(i).cloned())?;
        let mut shapes = one([sizes.steps, sizes.batch, sizes.directions * sizes.hidden])?;
        shapes.extend((1..=self.of.form().states()).map(|i| x.get(i).clone()));
        Ok(shapes)
    }

    // An estimate from the recurrent products alone.
    fn multiplications(&self, _: &InputShapes<'_>, y: &Shape) -> usize {
        y.size() * y.last().copied().unwrap_or(0) * self.of.form().cell.gates()
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let form = self.of.form();
        let sizes = self.sizes(|i| run.has(i).then(|| run.x_shape(i).clone()))?;
        let (w, lstm) = (form.weights(), form.states() == 2);
        let key = form.drops().then(|| {
            let count = (sizes.layers - 1) * sizes.outputs().next_multiple_of(64);
            let key = run.random(-1, count);
            *self.last.lock() = Some(key);
            key
        });
        let (x, h, first) = (run.x(0), run.x(1), run.x(w));
        let first_layer = sizes.layer(form.cell, 0, 0);
        let packed = run
            .input_cache()
            .and_then(|input_cache| first_layer.keep_packed(first, sizes.directions, input_cache));
        let c = lstm.then(|| run.x(2));
        let later = run.has(w + 1).then(|| run.x(w + 1));
        let b = run.has(w + 2).then(|| run.x(w + 2));
        let (y, last, mut last_cells) = (run.y(0), run.y(1), lstm.then(|| run.y(2)));
        let kept = run.state::<KeptStates<T>>();
        let any = sizes.layer(form.cell, 0, 0);
        // If no gradient is needed, each layer overwrites the saved values of the one before.
        let (gates_size, held) = if form.training { (any.kept(), sizes.layers) } else { (any.capacity(), 1) };
        let state = sizes.batch * sizes.hidden;
        let all_gates = held * sizes.directions * gates_size;
        let all_outputs = (sizes.layers - 1) * sizes.outputs();
        let mut go = |gates: &mut [T], outputs: &mut [T]| {
            scratch::with(if key.is_some() { sizes.outputs() } else { 0 }, |buffer: &mut [T]| {
                for layer in 0..sizes.layers {
                    let (before, after) = outputs.split_at_mut(layer * sizes.outputs());
                    let input = match layer {
                        0 => x,
                        _ => self.dropped(part(before, layer - 1, sizes.outputs()), key, layer - 1, buffer),
                    };
                    let output =
                        if layer + 1 == sizes.layers { &mut *y } else { part_mut(after, 0, sizes.outputs()) };
                    let weights = if layer == 0 { first } else { later.unwrap_or_default() };
                    let n = sizes.directions;
                    let mut gates = parts_mut(part_mut(gates, layer % held, n * gates_size), gates_size);
                    let mut ends = parts_mut(part_mut(last, layer, n * state), state);
                    let mut ends_of_cells = last_cells
                        .as_deref_mut()
                        .map(|cells| parts_mut(part_mut(cells, layer, n * state), state));
                    let of_direction = |direction: usize| {
                        let at = layer * n + direction;
                        let this = sizes.layer(form.cell, layer, direction);
                        let count = form.cell.gates() * sizes.hidden * (this.inputs + sizes.hidden);
                        let w_at = if layer == 0 { direction } else { at - n };
                        let reading = Reading {
                            x: input,
                            w: part(weights, w_at, count),
                            packed: packed.as_ref().filter(|_| layer == 0).map(|kept| kept.part(direction)),
                            b: b.map(|b| part(b, at, form.cell.biases() * sizes.hidden)),
                            h: part(h, at, state),
                            c: c.map(|c| part(c, at, state)),
                        };
                        Direction {
                            layer: this,
                            reading,
                            last: ends.next().unwrap_or_default(),
                            last_cells: ends_of_cells.as_mut().map(|cells| cells.next().unwrap_or_default()),
                            kept: gates.next().unwrap_or_default(),
                        }
                    };
                    forward(&mut (0..n).map(of_direction).collect::<SmallVec<[_; 2]>>(), output);
                }
            });
        };
        if form.training {
            kept.key = key;
            kept.gates.resize(all_gates, T::ZERO);
            kept.outputs.resize(all_outputs, T::ZERO);
            go(&mut kept.gates, &mut kept.outputs);
        } else {
            scratch::with(all_gates + all_outputs, |buffer: &mut [T]| {
                let (gates, outputs) = buffer.split_at_mut(all_gates);
                go(gates, outputs);
            });
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let form = self.of.form();
        let name = C::SPEC.name;
        if !form.training {
            return Err(Error::Graph(format!("{name}: expected `training` for a backward run, got False")));
        }
        let sizes = self.sizes(|i| run.has(i).then(|| run.x_shape(i).clone()))?;
        let (w, lstm) = (form.weights(), form.states() == 2);
        let (x, h, first) = (run.x(0), run.x(1), run.x(w));
        let rounds = !matches!(run.values(0), Values::Exact(_));
        let c = lstm.then(|| run.x(2));
        let later = run.has(w + 1).then(|| run.x(w + 1));
        let b = run.has(w + 2).then(|| run.x(w + 2));
        let (y, gy, last) = (run.y(0), run.gy(0), run.gy(1));
        let last_cells = lstm.then(|| run.gy(2));
        let mut adding = |i: usize| run.gx(i).map(Grad::adding);
        let (mut gx, mut gh) = (adding(0), adding(1));
        let mut gc = if lstm { adding(2) } else { None };
        let (mut g_first, mut g_later, mut gb) = (adding(w), adding(w + 1), adding(w + 2));
        let kept = run.state::<KeptStates<T>>();
        let (gates_size, state) = (sizes.layer(form.cell, 0, 0).kept(), sizes.batch * sizes.hidden);
        if kept.gates.len() != sizes.layers * sizes.directions * gates_size {
            return Err(Error::Graph(format!("{name}: expected a forward run before backward, got none")));
        }
        let n = sizes.outputs();
        let wants_input = |layer: usize, gx: &Option<&mut [T]>| layer > 0 || gx.is_some();
        scratch::with(3 * n, |buffer: &mut [T]| {
            let (dropped, buffer) = buffer.split_at_mut(n);
            let (mut above, mut below) = buffer.split_at_mut(n);
            above.copy_from_slice(gy);
            for layer in (0..sizes.layers).rev() {
                let output = if layer + 1 == sizes.layers { y } else { part(&kept.outputs, layer, n) };
                let input = match layer {
                    0 => x,
                    _ => self.dropped(part(&kept.outputs, layer - 1, n), kept.key, layer - 1, dropped),
                };
                below.fill(T::ZERO);
                let weights = if layer == 0 { first } else { later.unwrap_or_default() };
                for direction in 0..sizes.directions {
                    let at = layer * sizes.directions + direction;
                    let this = Layer { rounds, ..sizes.layer(form.cell, layer, direction) };
                    let count = form.cell.gates() * sizes.hidden * (this.inputs + sizes.hidden);
                    let biases = form.cell.biases() * sizes.hidden;
                    let w_at = if layer == 0 { direction } else { at - sizes.directions };
                    let reading = Reading {
                        x: input,
                        w: part(weights, w_at, count),
                        packed: None,
                        b: b.map(|b| part(b, at, biases)),
                        h: part(h, at, state),
                        c: c.map(|c| part(c, at, state)),
                    };
                    let gw = if layer == 0 { &mut g_first } else { &mut g_later };
                    let to_x = match layer {
                        _ if !wants_input(layer, &gx) => None,
                        0 => gx.as_deref_mut(),
                        _ => Some(&mut *below),
                    };
                    let adding = Adding {
                        x: to_x,
                        w: gw.as_deref_mut().map(|g| part_mut(g, w_at, count)),
                        b: gb.as_deref_mut().map(|g| part_mut(g, at, biases)),
                        h: gh.as_deref_mut().map(|g| part_mut(g, at, state)),
                        c: gc.as_deref_mut().map(|g| part_mut(g, at, state)),
                    };
                    let ends = (part(last, at, state), last_cells.map(|g| part(g, at, state)));
                    let outputs =
                        [output, &*above].map(|of| of.get(direction * sizes.hidden..).unwrap_or_default());

                    this.backward(reading, outputs.into(), ends, part(&kept.gates, at, gates_size), adding);
                }
                if let (Some(key), true) = (kept.key, layer > 0) {
                    kept_factors(form.dropout, key, layer - 1, dropped);
                    below.iter_mut().zip(&*dropped).for_each(|(g, factor)| *g = sloped(*g, *factor));
                }
                std::mem::swap(&mut above, &mut below);
            }
        });
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let form = self.of.form();
        let shape = |i: usize| s.has(i).then(|| s.x(i).shape());
        let Ok(sizes) = self.sizes(shape) else { return vec![None; C::SPEC.inputs.len()] };
        let mask = |layer: usize, shape: Shape| {
            (form.training && form.dropout > 0.0).then(|| {
                let kept = KeptOutputs { last: self.last.clone(), layer, dropout: form.dropout, shape };
                Sym::apply(kept, &[s.y(0)])
            })
        };
        cells::gradients(s, form, sizes, mask)
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::ALL
    }

    fn open(&self, arg: &str, _: &InputShapes<'_>) -> Value {
        if arg == "dropout" { Value::Float(0.0) } else { Value::None }
    }
}

impl Compute for KeptOutputs {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, _: &InputShapes<'_>) -> Result<Shapes> {
        one(self.shape.clone())
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let key = *self.last.lock();
        let key =
            key.ok_or_else(|| Error::Graph("rnn: expected a forward run before backward, got none".into()))?;
        kept_factors(self.dropout, key, self.layer, run.y(0));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }
}
