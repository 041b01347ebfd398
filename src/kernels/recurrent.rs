//! Recurrent layers: one direction of one layer over all time steps. Knows slices; knows no shapes, graphs or Python.
//!
//! What comes from the inputs is one product for a block of steps. Then, step by step, each thread takes some hidden units: products
//! with the state before, and what makes the new state of them while they are in the cache.

mod backward;
mod cells;
mod forward;
mod packed;

use std::ops::Range;

use super::Float;
use super::gemm::{MatrixOperand, kernels};
use super::threads::{self, Shared};
pub use forward::{Direction, forward};

/// Multiplications that are worth handing over.
const GRAIN: usize = 100_000;
/// Numbers of gates and cells that stay in the second cache beside weights, from the product with inputs to the states.
const BLOCK: usize = 1 << 16;

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
    /// They as [`Layer::keep_packed`] has them, if they are kept.
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

    /// Numbers that [`forward`] writes for a gradient: gates, cells and the like of all samples at all steps.
    pub fn kept(&self) -> usize {
        self.steps * self.batch * self.kept_row()
    }

    /// Numbers that it writes where there is no gradient: those of a block of steps, and then of the next.
    pub fn room(&self) -> usize {
        self.block() * self.batch * self.kept_row()
    }

    /// Steps for which inputs are multiplied together. There are two at least, if there are two, as a step reads cells of the one before.
    fn block(&self) -> usize {
        (BLOCK / (self.batch * self.kept_row()).max(1)).max(2).min(self.steps)
    }

    /// Numbers from what is kept of a sample to that of the next.
    fn kept_row(&self) -> usize {
        padded(self.cell.kept() * self.hidden)
    }

    /// Part number `part` of what is kept of all samples at a step.
    fn kept_part<T>(&self, kept: Shared<T>, t: usize, part: usize) -> States<T> {
        let apart = self.kept_row();
        States { p: Shared::new(kept.get().wrapping_add(t * self.batch * apart + part * self.hidden)), apart }
    }

    /// Weights of a unit.
    fn row(&self) -> usize {
        self.inputs + self.hidden
    }

    /// Panels of units that together are so much work that it pays to hand them over, where each unit is `work`.
    fn grain<T: Float>(work: usize) -> usize {
        (GRAIN / (work * kernels::<T>().panel()).max(1)).max(1)
    }

    /// Calls `f` with some units at a time, so many that it pays to hand over `work` for each.
    fn units<T: Float>(&self, work: usize, f: impl Fn(Range<usize>) + Sync) {
        let wide = kernels::<T>().panel();
        threads::ranges(self.hidden.div_ceil(wide), Self::grain::<T>(work), |some| {
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
}
