//! Recurrent layers: one direction of one layer over all time steps. Knows slices; knows no shapes, graphs or Python.
//!
//! What comes from the inputs is one product for all steps. Then, step by step, each thread takes some hidden units: products with
//! the state before, and what makes the new state of them while they are in the cache.

mod backward;
mod cells;
mod packed;

use std::ops::Range;

use super::Float;
use super::attention::multiply;
use super::epilogue::Epilogue;
use super::gemm::{Matrix, MatrixMut, MatrixOperand, Panels, gemm_then, kernels};
use super::scratch;
use super::threads::{self, Shared};
use cells::{UNITS, elman, gru, lstm};

/// Multiplications that are worth handing over.
const GRAIN: usize = 100_000;

/// What makes a new state of the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// `h = tanh(a)`.
    Tanh,
    /// `h = max(a, 0)`.
    Relu,
    /// Gates i, f, g, o.
    Lstm,
    /// Gates r, z, n; the last has a second bias.
    Gru,
}

impl Cell {
    /// Number of gates.
    pub fn gates(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Number of biases of a unit, and of gradients of what they are added to.
    pub fn biases(self) -> usize {
        if self == Self::Gru { 4 } else { self.gates() }
    }

    /// Numbers that are kept of a unit for the gradient: gates, and then the cell of an LSTM or what a GRU's last gate has of the state.
    pub fn kept(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Lstm => 5,
            Self::Gru => 4,
        }
    }
}

/// One direction of a layer. Arrays have time steps, then samples, then numbers; outputs and their gradients are `apart` numbers from a
/// sample to the next.
#[derive(Clone, Copy)]
pub struct Layer {
    /// What makes states.
    pub cell: Cell,
    /// Time steps.
    pub steps: usize,
    /// Samples.
    pub batch: usize,
    /// Numbers of an input.
    pub inputs: usize,
    /// Numbers of a state.
    pub hidden: usize,
    /// Distance from an output to that of the next sample.
    pub apart: usize,
    /// From the last time step to the first.
    pub reverse: bool,
}

/// What a layer reads.
#[derive(Clone, Copy)]
pub struct Reading<'a, T> {
    /// Inputs of the layer.
    pub x: &'a [T],
    /// Weights: gates, units, and for each those of the inputs and of the state.
    pub w: &'a [T],
    /// Those of the state as [`Layer::keep_packed`] has them, if they are kept.
    pub packed: Option<&'a [T]>,
    /// Biases.
    pub b: Option<&'a [T]>,
    /// State at the start.
    pub h: &'a [T],
    /// Cells at the start, of an LSTM.
    pub c: Option<&'a [T]>,
}

/// Where gradients are added to, if they are wanted.
pub struct Adding<'a, T> {
    /// Those of the inputs.
    pub x: Option<&'a mut [T]>,
    /// Those of the weights.
    pub w: Option<&'a mut [T]>,
    /// Those of the biases.
    pub b: Option<&'a mut [T]>,
    /// Those of the state at the start.
    pub h: Option<&'a mut [T]>,
    /// Those of the cells at the start.
    pub c: Option<&'a mut [T]>,
}

/// States as products read them: of a sample to the next, numbers are `apart`.
#[derive(Clone, Copy)]
struct States<T> {
    p: Shared<T>,
    apart: usize,
}

/// Numbers from a row of `n` to the next. Rows whole pages apart would have to share few places of the caches.
fn padded(n: usize) -> usize {
    if n.is_multiple_of(256) { n + 16 } else { n }
}

impl<T> States<T> {
    fn operand(self) -> MatrixOperand<T> {
        MatrixOperand { p: self.p.get(), row: self.apart as isize, col: 1 }
    }

    fn at(self, sample: usize) -> *mut T {
        self.p.get().wrapping_add(sample * self.apart)
    }
}

impl Layer {
    /// Time step number `i` in the order in which they are taken.
    fn time(&self, i: usize) -> usize {
        if self.reverse { self.steps - 1 - i } else { i }
    }

    /// Numbers that [`Layer::forward`] keeps: the gates of all samples, and behind them what else is kept of each.
    pub fn kept(&self) -> usize {
        let more = (self.cell.kept() - self.cell.gates()) * self.hidden;
        self.steps * self.batch * (padded(self.cell.gates() * self.hidden) + more)
    }

    /// Part number `part` of what is kept of all samples at a step.
    fn kept_part<T>(&self, kept: Shared<T>, t: usize, part: usize) -> States<T> {
        let (gates, samples) = (self.cell.gates(), t * self.batch);
        let row = padded(gates * self.hidden);
        let (at, apart) = if part < gates {
            (samples * row + part * self.hidden, row)
        } else {
            (self.steps * self.batch * row + samples * self.hidden, self.hidden)
        };
        States { p: Shared::new(kept.get().wrapping_add(at)), apart }
    }

    /// Weights of a unit.
    fn row(&self) -> usize {
        self.inputs + self.hidden
    }

    /// Calls `f` with some units at a time, so many that it pays to hand over `work` for each.
    fn units<T: Float>(&self, work: usize, f: impl Fn(Range<usize>) + Sync) {
        let wide = kernels::<T>().panel();
        let grain = (GRAIN / (work * wide).max(1)).max(1);
        threads::ranges(self.hidden.div_ceil(wide), grain, |some| {
            f(some.start * wide..self.hidden.min(some.end * wide));
        });
    }

    /// Whether the outputs of all samples, which there are, lie apart within so many numbers.
    fn holds(&self, numbers: usize) -> bool {
        self.hidden <= self.apart && (self.steps * self.batch - 1) * self.apart + self.hidden <= numbers
    }

    fn check<T>(&self, r: &Reading<'_, T>) {
        let Self { cell, steps, batch, inputs, hidden, .. } = *self;
        assert!(r.x.len() == steps * batch * inputs && r.w.len() == cell.gates() * hidden * self.row());
        assert!(r.b.is_none_or(|b| b.len() == cell.biases() * hidden) && r.h.len() == batch * hidden);
        assert!(r.c.is_none_or(|c| c.len() == batch * hidden) && r.c.is_some() == (cell == Cell::Lstm));
    }

    /// Writes the outputs, those of the first sample at the start of `y`, the last state and the last cells, and what a gradient
    /// needs.
    pub fn forward<T: Float>(
        &self,
        r: Reading<'_, T>,
        y: &mut [T],
        (last, last_cells): (&mut [T], Option<&mut [T]>),
        kept: &mut [T],
    ) {
        let Self { cell, steps, batch, inputs, hidden, apart, .. } = *self;
        self.check(&r);
        let (gates, samples) = (cell.gates(), steps * batch);
        assert!(kept.len() == self.kept() && last.len() == batch * hidden);
        if samples == 0 || hidden == 0 {
            last.copy_from_slice(r.h);
            last_cells.into_iter().zip(r.c).for_each(|(last, c)| last.copy_from_slice(c));
            return;
        }
        assert!(self.holds(y.len()));
        let bias = r.b.map(|b| &b[..gates * hidden]);
        let row_of_gates = padded(gates * hidden);
        gemm_then(
            MatrixMut::new(kept, samples, gates * hidden, row_of_gates, 1),
            Matrix::of_rows(r.x, samples, inputs),
            Matrix::new(r.w, gates * hidden, inputs, self.row(), 1).t(),
            Epilogue { column_bias: bias, ..Epilogue::NONE },
        );
        let room = Panels::<T>::room(hidden, hidden);
        scratch::with(if r.packed.is_some() { 0 } else { self.packed::<T>() }, |own: &mut [T]| {
            let packed = r.packed.unwrap_or_else(|| {
                self.pack(r.w, own);
                own
            });
            assert!(packed.len() == self.packed::<T>());
            let (packed, kept, y) = (
                Shared::read_only(packed.as_ptr()),
                Shared::new(kept.as_mut_ptr()),
                Shared::new(y.as_mut_ptr()),
            );
            let first = States { p: Shared::read_only(r.h.as_ptr()), apart: hidden };
            let first_cells = r.c.map(|c| States { p: Shared::read_only(c.as_ptr()), apart: hidden });
            let outputs =
                |t: usize| States { p: Shared::new(y.get().wrapping_add(t * batch * apart)), apart };
            let rows = |t: usize, part: usize| self.kept_part(kept, t, part);
            for i in 0..steps {
                let t = self.time(i);
                let before = if i == 0 { first } else { outputs(self.time(i - 1)) };
                let cells = first_cells.map(|c| if i == 0 { c } else { rows(self.time(i - 1), 4) });
                self.units::<T>(batch * hidden * gates, |units| {
                    let (n, mut cache) = (units.len(), [T::ZERO; UNITS]);
                    for gate in 0..gates {
                        // What the last gate of a GRU has of the state is kept apart.
                        let alone = cell == Cell::Gru && gate == 2;
                        let to = rows(t, if alone { 3 } else { gate });
                        let b = Panels::packed(packed.get().wrapping_add(gate * room), hidden);
                        let b = b.column(units.start, hidden);
                        // SAFETY: states of the step before are written; each thread has units of its own.
                        unsafe {
                            let at = to.at(0).wrapping_add(units.start);
                            multiply((batch, n, hidden), before.operand(), b, at, to.apart, !alone);
                        };
                    }
                    for sample in 0..batch {
                        // SAFETY: as above; rows of different arrays or parts do not overlap.
                        unsafe {
                            let row = |s: States<T>| -> &mut [T] {
                                std::slice::from_raw_parts_mut(s.at(sample).add(units.start), n)
                            };
                            let h = row(outputs(t));
                            match cell {
                                Cell::Tanh | Cell::Relu => elman(cell, row(rows(t, 0)), h),
                                Cell::Lstm => {
                                    let gates = [0, 1, 2, 3, 4].map(|part| row(rows(t, part)));
                                    lstm(gates, cells.map(|c| &*row(c)).unwrap_or_default(), h, &mut cache);
                                }
                                Cell::Gru => {
                                    let gates = [0, 1, 2, 3].map(|part| row(rows(t, part)));
                                    let bias = r.b.map(|b| &b[3 * hidden + units.start..][..n]);
                                    gru(gates, bias, row(before), h);
                                }
                            }
                        }
                    }
                });
            }
            let end = self.time(steps - 1);
            let copy = |from: States<T>, to: &mut [T]| {
                for (sample, to) in to.chunks_exact_mut(hidden).enumerate() {
                    // SAFETY: the states of the last step are written.
                    to.copy_from_slice(unsafe { std::slice::from_raw_parts(from.at(sample), hidden) });
                }
            };
            copy(outputs(end), last);
            if let Some(to) = last_cells {
                copy(rows(end, 4), to);
            }
        });
    }
}
