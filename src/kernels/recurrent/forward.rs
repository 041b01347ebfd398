//! The states of one or both directions of a layer.

use std::ops::Range;

use super::cells::{elman, gru, lstm};
use super::{Cell, GRAIN, Layer, Reading, States};
use crate::kernels::attention::multiply;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::{MatrixOperand, ONCE, PanelProduct, Table, kernels};
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, scratch};

/// A direction of a layer, its operands, and its results except the outputs.
pub struct Direction<'a, T> {
    /// The direction.
    pub layer: Layer,
    /// The arrays it reads.
    pub reading: Reading<'a, T>,
    /// The last state.
    pub last: &'a mut [T],
    /// The last cells of an LSTM.
    pub last_cells: Option<&'a mut [T]>,
    /// The saved numbers for a gradient, [`Layer::kept`] of them, or only [`Layer::capacity`] without a gradient.
    pub kept: &'a mut [T],
}

/// Runs the directions of a layer. In `y` the outputs of the directions are adjacent for each sample.
pub fn forward<T: Float>(directions: &mut [Direction<'_, T>], y: &mut [T]) {
    let (n, numbers, y) = (directions.len(), y.len(), Shared::new(y.as_mut_ptr()));
    let Some(layer) = directions.first().map(|direction| direction.layer) else { return };
    let work = layer.cell.gates() * layer.batch * layer.hidden;
    let panels = layer.hidden.div_ceil(kernels::<T>().panel());
    // A thread that runs a whole direction need not wait for others between steps.
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
    /// Runs the direction. `y` has `numbers` elements from the first output on, and nothing else writes outputs of
    /// this direction.
    fn run(&mut self, y: Shared<T>, numbers: usize) {
        let (layer, r) = (self.layer, self.reading);
        let Layer { cell, steps, batch, hidden, apart, .. } = layer;
        layer.check(&r);
        assert!(self.last.len() == batch * hidden);
        assert!(self.kept.len() == layer.kept() || self.kept.len() == layer.capacity());
        if steps * batch * hidden == 0 {
            self.last.copy_from_slice(r.h);
            self.last_cells.iter_mut().zip(r.c).for_each(|(last, c)| last.copy_from_slice(c));
            return;
        }
        assert!(layer.holds(numbers));
        let kept = Shared::new(self.kept.as_mut_ptr());
        let held = self.kept.len() / (batch * layer.kept_row());
        scratch::with(if r.packed.is_some() { 0 } else { layer.packed::<T>() }, |own: &mut [T]| {
            let packed = r.packed.unwrap_or_else(|| {
                layer.pack(r.w, own);
                own
            });
            let states = |x: &[T]| States { p: Shared::read_only(x.as_ptr()), apart: hidden };
            let (first, first_cells) = (states(r.h), r.c.map(states));
            let outputs =
                |t: usize| States { p: Shared::new(y.get().wrapping_add(t * batch * apart)), apart };
            let rows = |t: usize, part: usize| layer.kept_part(kept, t % held, part);
            let block = layer.block();
            for i in 0..steps {
                let t = layer.time(i);
                if i == 0 || t / block != layer.time(i - 1) / block {
                    let start = t / block * block;
                    layer.inputs(&r, packed, start..steps.min(start + block), rows(start, 0));
                }
                let before = if i == 0 { first } else { outputs(layer.time(i - 1)) };
                let cells = first_cells.map(|c| if i == 0 { c } else { rows(layer.time(i - 1), 4) });
                let (parts, now) = ([0, 1, 2, 3, 4].map(|part| rows(t, part)), outputs(t));
                layer.units::<T>(batch * hidden * cell.gates(), |units| {
                    let n = units.len();
                    for gate in 0..cell.gates() {
                        // The contribution of the state to the last gate of a GRU is stored separately.
                        let alone = cell == Cell::Gru && gate == 2;
                        let to = parts[if alone { 3 } else { gate }];
                        let b = layer.of_state(packed, gate, units.start);
                        // SAFETY: states of the previous step are written, and each thread has separate units.
                        unsafe {
                            let at = to.at(0).wrapping_add(units.start);
                            multiply((batch, n, hidden), before.operand(), b, at, to.apart, !alone);
                        };
                    }
                    for sample in 0..batch {
                        // SAFETY: as above, and rows of different arrays, parts or steps do not overlap.
                        unsafe {
                            let row = |s: States<T>| -> &mut [T] {
                                std::slice::from_raw_parts_mut(s.at(sample).add(units.start), n)
                            };
                            let h = row(now);
                            match cell {
                                Cell::Tanh | Cell::Relu => elman(cell, row(parts[0]), h),
                                Cell::Lstm => {
                                    lstm(parts.map(row), cells.map(|c| &*row(c)).unwrap_or_default(), h);
                                }
                                Cell::Gru => {
                                    let gates = [0, 1, 2, 3].map(|part| row(parts[part]));
                                    let bias = r.b.map(|b| &b[3 * hidden + units.start..][..n]);
                                    gru(gates, bias, row(before), h);
                                }
                            }
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
    /// Writes the contributions of the inputs of some steps to the gates, with their biases.
    fn inputs<T: Float>(&self, r: &Reading<'_, T>, packed: &[T], steps: Range<usize>, to: States<T>) {
        let Self { cell, batch, inputs, hidden, .. } = *self;
        let m = steps.len() * batch;
        let x = &r.x[steps.start * batch * inputs..][..m * inputs];
        let a = Shared::read_only(x.as_ptr());
        self.units::<T>(m * inputs * cell.gates(), |units| {
            for gate in 0..cell.gates() {
                let at = gate * hidden + units.start;
                let product = PanelProduct {
                    kernels: kernels(),
                    m,
                    n: units.len(),
                    k: inputs,
                    a: MatrixOperand { p: a.get(), row: inputs as isize, col: 1 },
                    b: self.of_inputs(packed, gate, units.start),
                    table: Table::None,
                    batch: ONCE,
                    c: to.at(0).wrapping_add(at),
                    c_row: to.apart,
                    epilogue: Epilogue {
                        column_bias: r.b.map(|b| &b[at..][..units.len()]),
                        ..Epilogue::NONE
                    },
                };
                // SAFETY: the inputs and the rows for their gates are valid, and each thread has separate units.
                unsafe { product.run() };
            }
        });
    }
}
