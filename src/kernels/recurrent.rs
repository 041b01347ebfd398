//! Recurrent layers: one direction of one layer over all time steps. Knows slices, not shapes, graphs or Python.
//!
//! The contribution of the inputs is one product for a block of steps. Then, step by step, each thread processes some
//! hidden units: it multiplies the previous state by the weights, and computes their new state while the sums are in
//! the cache.

mod backward;
mod cells;
mod forward;
pub mod levels;
mod packed;

use std::ops::Range;

use super::Float;
use super::gemm::{MatrixOperand, kernels};
use super::sixteen_bits::Values;
use super::threads::{self, Shared};
pub use forward::{Direction, forward};

/// The number of multiplications from which parallel execution pays.
const GRAIN: usize = 100_000;
/// Numbers of gates and cells that stay in the L2 cache beside weights, from the product with inputs to the states.
const BLOCK: usize = 1 << 16;

/// The formula of the new state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// `h = tanh(a)`.
    Tanh,
    /// `h = max(a, 0)`.
    Relu,
    /// Gates i, f, g, o.
    Lstm,
    /// Gates r, z, n. The last has a second bias.
    Gru,
}

impl Cell {
    /// The number of gates.
    pub fn gates(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// The number of biases of a unit, and of gradients of the sums they are added to.
    pub fn biases(self) -> usize {
        if self == Self::Gru { 4 } else { self.gates() }
    }

    /// Numbers saved per unit for the gradient: gates, then the cell of an LSTM, or the contribution of the state to
    /// the last gate of a GRU.
    pub fn kept(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Lstm => 5,
            Self::Gru => 4,
        }
    }
}

/// One direction of a layer. Arrays are indexed by time step, sample and feature. Outputs of successive samples, and
/// their gradients, are `apart` numbers apart.
#[derive(Clone, Copy)]
pub struct Layer {
    /// The formula of the new state.
    pub cell: Cell,
    /// Time steps.
    pub steps: usize,
    /// Samples.
    pub batch: usize,
    /// The input size.
    pub inputs: usize,
    /// The state size.
    pub hidden: usize,
    /// The distance between the outputs of successive samples.
    pub apart: usize,
    /// Runs from the last time step to the first.
    pub reverse: bool,
    /// Products over all steps round their operands to bfloat16.
    pub rounds: bool,
}

/// The arrays that a layer reads.
#[derive(Clone, Copy)]
pub struct Reading<'a, T> {
    /// Inputs of the layer.
    pub x: &'a [T],
    /// The weights by gate and unit: first of the inputs, then of the state.
    pub w: &'a [T],
    /// The packed weights of [`Layer::keep_packed`], if cached.
    pub packed: Option<&'a [T]>,
    /// Biases.
    pub b: Option<&'a [T]>,
    /// Initial state.
    pub h: &'a [T],
    /// Initial cells of an LSTM.
    pub c: Option<&'a [T]>,
}

/// Gradients to add to, if requested.
pub struct Adding<'a, T> {
    /// The gradient of the inputs.
    pub x: Option<&'a mut [T]>,
    /// The gradient of the weights.
    pub w: Option<&'a mut [T]>,
    /// The gradient of the biases.
    pub b: Option<&'a mut [T]>,
    /// The gradient of the initial state.
    pub h: Option<&'a mut [T]>,
    /// The gradient of the initial cells.
    pub c: Option<&'a mut [T]>,
}

/// States as operands of products: successive samples are `apart` numbers apart.
#[derive(Clone, Copy)]
struct States<T> {
    /// The first state.
    p: Shared<T>,
    /// The distance of successive samples, in numbers.
    apart: usize,
}

/// The padded distance between rows of `n` numbers. Rows that are whole pages apart would map to the same cache sets.
fn padded(n: usize) -> usize {
    if n.is_multiple_of(256) { n + 16 } else { n }
}

impl<T> States<T> {
    /// The rows as the operand of a product.
    fn operand(self) -> MatrixOperand<T> {
        MatrixOperand { p: self.p.get(), row: self.apart as isize, col: 1 }
    }

    /// The row of a sample.
    fn at(self, sample: usize) -> *mut T {
        self.p.get().wrapping_add(sample * self.apart)
    }
}

impl Layer {
    /// The operand of a product over all steps.
    fn operand<'a, T>(&self, of: &'a [T]) -> Values<'a, T> {
        if self.rounds { Values::Rounded(of) } else { Values::Exact(of) }
    }

    /// The time step processed as number `i`.
    fn time(&self, i: usize) -> usize {
        if self.reverse { self.steps - 1 - i } else { i }
    }

    /// Numbers that [`forward`] saves for a gradient: gates, cells and similar, of all samples at all steps.
    pub fn kept(&self) -> usize {
        self.steps * self.batch * self.kept_row()
    }

    /// The number of elements of the state without a gradient: one block of steps, which the next block overwrites.
    pub fn capacity(&self) -> usize {
        self.block() * self.batch * self.kept_row()
    }

    /// Steps whose inputs are multiplied together. At least two if the layer has two, since a step reads cells of the
    /// previous one.
    fn block(&self) -> usize {
        (BLOCK / (self.batch * self.kept_row()).max(1)).max(2).min(self.steps)
    }

    /// The distance between the saved numbers of successive samples.
    fn kept_row(&self) -> usize {
        padded(self.cell.kept() * self.hidden)
    }

    /// Part number `part` of the saved numbers of all samples at a step.
    fn kept_part<T>(&self, kept: Shared<T>, t: usize, part: usize) -> States<T> {
        let apart = self.kept_row();
        States { p: Shared::new(kept.get().wrapping_add(t * self.batch * apart + part * self.hidden)), apart }
    }

    /// Weights of a unit.
    fn row(&self) -> usize {
        self.inputs + self.hidden
    }

    /// The number of panels of units from which parallel execution pays, at `work` per unit.
    fn grain<T: Float>(work: usize) -> usize {
        (GRAIN / (work * kernels::<T>().panel()).max(1)).max(1)
    }

    /// Calls `f` with ranges of units, large enough for parallel execution to pay at `work` per unit.
    fn units<T: Float>(&self, work: usize, f: impl Fn(Range<usize>) + Sync) {
        let wide = kernels::<T>().panel();
        threads::ranges(self.hidden.div_ceil(wide), Self::grain::<T>(work), |some| {
            f(some.start * wide..self.hidden.min(some.end * wide));
        });
    }

    /// True if the outputs of all samples, with their distance, are within this many numbers. Requires at least one
    /// sample.
    fn holds(&self, numbers: usize) -> bool {
        self.hidden <= self.apart && (self.steps * self.batch - 1) * self.apart + self.hidden <= numbers
    }

    /// Asserts the lengths of all arrays.
    fn check<T>(&self, r: &Reading<'_, T>) {
        let Self { cell, steps, batch, inputs, hidden, .. } = *self;
        assert!(r.x.len() == steps * batch * inputs && r.w.len() == cell.gates() * hidden * self.row());
        assert!(r.b.is_none_or(|b| b.len() == cell.biases() * hidden) && r.h.len() == batch * hidden);
        assert!(r.c.is_none_or(|c| c.len() == batch * hidden) && r.c.is_some() == (cell == Cell::Lstm));
    }
}
