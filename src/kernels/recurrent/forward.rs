//! The states of one or both directions of a layer.

use std::ops::Range;

use super::cells::{elman, gru, lstm};
use super::{Cell, GRAIN, Layer, Reading, States, padded};
use crate::kernels::attention::multiply;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{ONCE, PanelProduct, Table, kernels};
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, scratch};

/// A direction of a layer: what it reads, and what it writes but for the outputs.
pub struct Direction<'a, T> {
    /// The direction.
    pub layer: Layer,
    /// What it reads.
    pub reading: Reading<'a, T>,
    /// The last state.
    pub last: &'a mut [T],
    /// The last cells, of an LSTM.
    pub last_cells: Option<&'a mut [T]>,
    /// What a gradient needs, of so many numbers as [`Layer::kept`] says, or only [`Layer::room`].
    pub kept: &'a mut [T],
}

/// Runs the directions of a layer. In `y` the outputs of each follow those of the one before, sample by sample.
pub fn forward<T: Float>(directions: &mut [Direction<'_, T>], y: &mut [T]) {
    let (n, numbers, y) = (directions.len(), y.len(), Shared::new(y.as_mut_ptr()));
    let Some(layer) = directions.first().map(|direction| direction.layer) else { return };
    let work = layer.cell.gates() * layer.batch * layer.hidden;
    let panels = layer.hidden.div_ceil(kernels::<T>().panel());
    // A thread that has a direction for itself waits for no other in between.
    let is_one_each = threads::num_threads() <= n || panels <= Layer::grain::<T>(work);
    let is_much = work * layer.steps * layer.row() > GRAIN;
    threads::rows_mut(directions, 1, if is_one_each && is_much { 1 } else { n }, |i, of| {
        let skipped = i * layer.hidden;
        let y = Shared::new(y.get().wrapping_add(skipped));
        for of in of {
            of.run(y, numbers.saturating_sub(skipped));
        }
    });
}

impl<T: Float> Direction<'_, T> {
    /// Runs it; there are so many numbers from the first output on, and nobody else writes outputs of this direction.
    fn run(&mut self, y: Shared<T>, numbers: usize) {
        let (layer, r) = (self.layer, self.reading);
        let Layer { cell, steps, batch, hidden, apart, .. } = layer;
        layer.check(&r);
        assert!(self.last.len() == batch * hidden);
        assert!(self.kept.len() == layer.kept() || self.kept.len() == layer.room());
        if steps * batch * hidden == 0 {
            self.last.copy_from_slice(r.h);
            self.last_cells.iter_mut().zip(r.c).for_each(|(last, c)| last.copy_from_slice(c));
            return;
        }
        assert!(layer.holds(numbers));
        let kept = Shared::new(self.kept.as_mut_ptr());
        let held = self.kept.len() / (batch * layer.kept_row());
        let (own, joined) = (if r.packed.is_some() { 0 } else { layer.packed::<T>() }, layer.joined::<T>());
        scratch::with(own + 2 * batch * joined, |room: &mut [T]| {
            let (own, room) = room.split_at_mut(own);
            let packed = r.packed.unwrap_or_else(|| {
                layer.pack(r.w, own);
                own
            });
            let states = |x: &[T]| States { p: Shared::read_only(x.as_ptr()), apart: hidden };
            let (first, first_cells) = (states(r.h), r.c.map(states));
            let outputs =
                |t: usize| States { p: Shared::new(y.get().wrapping_add(t * batch * apart)), apart };
            let rows = |t: usize, part: usize| layer.kept_part(kept, t % held, part);
            let room = Shared::new(room.as_mut_ptr());
            // Inputs and states side by side, as a step reads them, the next one after it, and so on in turn.
            let sides = |i: usize| States { p: room, apart: joined }.from(i % 2 * batch * joined);
            let block = layer.block();
            for i in 0..steps {
                let t = layer.time(i);
                let before = if i == 0 { first } else { outputs(layer.time(i - 1)) };
                if joined > 0 && i == 0 {
                    for sample in 0..batch {
                        layer.put_inputs(&r, t, sample, 0..hidden, sides(0));
                        // SAFETY: there is room for a state behind the inputs.
                        unsafe { sides(0).from(layer.inputs).row(sample, 0..hidden) }
                            .copy_from_slice(&r.h[sample * hidden..][..hidden]);
                    }
                } else if joined == 0 && (i == 0 || t / block != layer.time(i - 1) / block) {
                    let start = t / block * block;
                    layer.inputs(&r, packed, start..steps.min(start + block), rows(start, 0));
                }
                let cells = first_cells.map(|c| if i == 0 { c } else { rows(layer.time(i - 1), 4) });
                let parts = [0, 1, 2, 3, 4].map(|part| rows(t, part));
                let (now, next) = (outputs(t), sides(i + 1));
                layer.units::<T>(batch * hidden * cell.gates(), |units| {
                    for gate in 0..cell.gates() {
                        if joined > 0 {
                            let k = layer.row();
                            layer.gate((batch, k), sides(i), &r, packed, (gate, units.clone()), parts[0]);
                            continue;
                        }
                        // What the last gate of a GRU has of the state is kept apart.
                        let alone = cell == Cell::Gru && gate == 2;
                        let to = parts[if alone { 3 } else { gate }];
                        let b = layer.of_state(packed, gate, units.start);
                        // SAFETY: states of the step before are written; each thread has units of its own.
                        unsafe {
                            let at = to.at(0).wrapping_add(units.start);
                            multiply((batch, units.len(), hidden), before.operand(), b, at, to.apart, !alone);
                        };
                    }
                    for sample in 0..batch {
                        // SAFETY: as above; rows of different arrays, parts or steps do not overlap.
                        let h = unsafe {
                            let row = |s: States<T>| s.row(sample, units.clone());
                            let h = row(now);
                            match cell {
                                Cell::Tanh | Cell::Relu => elman(cell, row(parts[0]), h),
                                Cell::Lstm => {
                                    lstm(parts.map(row), cells.map(|c| &*row(c)).unwrap_or_default(), h);
                                }
                                Cell::Gru => {
                                    let [reset, update, new, of_state, _] = parts;
                                    let bias = r.b.map(|b| &b[3 * hidden..][units.clone()]);
                                    gru([reset, update, new, of_state].map(row), bias, row(before), h);
                                }
                            }
                            h
                        };
                        if joined > 0 && i + 1 < steps {
                            layer.put_inputs(&r, layer.time(i + 1), sample, units.clone(), next);
                            // SAFETY: as above; this step reads the other side.
                            unsafe { next.from(layer.inputs).row(sample, units.clone()) }.copy_from_slice(h);
                        }
                    }
                });
            }
            let end = layer.time(steps - 1);
            let copy = |from: States<T>, to: &mut [T]| {
                for (sample, to) in to.chunks_exact_mut(hidden).enumerate() {
                    // SAFETY: the states of the last step are written.
                    to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.at(sample), hidden) });
                }
            };
            copy(outputs(end), self.last);
            if let Some(to) = self.last_cells.as_deref_mut() {
                copy(rows(end, 4), to);
            }
        });
    }
}

impl Layer {
    /// Numbers from inputs and a state side by side to those of the next sample, if a step multiplies by both together: fewer
    /// products, each longer. Few samples take inputs of some steps at a time instead, as weights come from afar.
    fn joined<T: Float>(&self) -> usize {
        let joins = self.cell != Cell::Gru && self.batch >= 2 * kernels::<T>().tallest();
        if joins { padded(self.row()) } else { 0 }
    }

    /// Puts inputs of a sample at a time step in their places beside states: the share of them that some units have.
    fn put_inputs<T: Float>(
        &self,
        r: &Reading<'_, T>,
        t: usize,
        sample: usize,
        units: Range<usize>,
        to: States<T>,
    ) {
        let share = |unit: usize| unit * self.inputs / self.hidden;
        let some = share(units.start)..share(units.end);
        let x = &r.x[(t * self.batch + sample) * self.inputs..][some.clone()];
        // SAFETY: there is room for the inputs, and each share is of units that one thread has.
        unsafe { to.row(sample, some) }.copy_from_slice(x);
    }

    /// Writes what gates have of the inputs of some steps, and their biases.
    fn inputs<T: Float>(&self, r: &Reading<'_, T>, packed: &[T], steps: Range<usize>, to: States<T>) {
        let Self { cell, batch, inputs, .. } = *self;
        let m = steps.len() * batch;
        let x = &r.x[steps.start * batch * inputs..][..m * inputs];
        let x = States { p: Shared::read_only(x.as_ptr()), apart: inputs };
        self.units::<T>(m * inputs * cell.gates(), |units| {
            for gate in 0..cell.gates() {
                self.gate((m, inputs), x, r, packed, (gate, units.clone()), to);
            }
        });
    }

    /// Writes what some units of a gate have of `m` rows of `k` numbers, and their biases: of inputs, or of states beside them, too.
    fn gate<T: Float>(
        &self,
        (m, k): (usize, usize),
        of: States<T>,
        r: &Reading<'_, T>,
        packed: &[T],
        (gate, units): (usize, Range<usize>),
        to: States<T>,
    ) {
        let at = gate * self.hidden + units.start;
        let product = PanelProduct {
            m,
            n: units.len(),
            k,
            a: of.operand(),
            b: self.of_inputs(packed, gate, units.start),
            table: Table::None,
            batch: ONCE,
            c: to.at(0).wrapping_add(at),
            c_row: to.apart,
            epilogue: Epilogue { column_bias: r.b.map(|b| &b[at..][..units.len()]), ..Epilogue::NONE },
        };
        // SAFETY: what is multiplied is there, and so are rows for the gates; each thread has units of its own.
        unsafe { product.run() };
    }
}
