//! An LSTM whose weights are 8-bit levels. Inputs and states become levels too, with a scale for all steps or for one.

use smallvec::SmallVec;

use super::cells::{lstm, lstm_with_peepholes};
use crate::array::InputCache;
use crate::kernels::Float;
use crate::kernels::integer::matrix::{LevelMatrix, LevelRows, MatrixSize, SPARE};
use crate::kernels::integer::{Rounding, levels};
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised_for;
use crate::kernels::threads;

/// The number of gates, in the order of input, output, forgetting and cell.
const GATES: usize = 4;
/// The number of multiplications from which parallel execution of the directions pays.
const GRAIN: usize = 600_000;

/// The sizes of a layer.
#[derive(Clone, Copy)]
pub struct LevelLayer {
    /// Time steps.
    pub steps: usize,
    /// Samples.
    pub batch: usize,
    /// The input size.
    pub inputs: usize,
    /// The state size.
    pub hidden: usize,
    /// Directions.
    pub directions: usize,
    /// The first direction runs from the last step to the first. The second one always does.
    pub reverse: bool,
}

/// The arrays that a layer reads. All but `x` and `lengths` have a part for each direction.
#[derive(Clone, Copy)]
pub struct LevelReading<'a, T> {
    /// Inputs by step and sample.
    pub x: &'a [T],
    /// Initial states and cells by sample.
    pub states: [&'a [T]; 2],
    /// Levels of the weights by input, then by unit of the state. A row has one for each gate and unit.
    pub w: &'a [i8],
    /// Zero points of the weights of inputs and of states, for each gate and unit.
    pub zeros: &'a [i64],
    /// Distances of two levels of weights, likewise.
    pub scales: &'a [T],
    /// Biases by gate and unit.
    pub bias: Option<&'a [T]>,
    /// Weights of the cells for the gates of input, output and forgetting.
    pub peepholes: Option<&'a [T]>,
    /// The steps of each sample.
    pub lengths: &'a [i64],
}

/// The results of a direction.
struct LevelStates<'a, T> {
    /// The index of the direction.
    direction: usize,
    /// The state of each step and sample.
    y: &'a mut [T],
    /// The last state of each sample.
    h: &'a mut [T],
    /// The last cells of each sample.
    c: &'a mut [T],
}

impl LevelLayer {
    /// The columns of a matrix of weights: one for each gate and unit.
    fn columns(&self) -> usize {
        GATES * self.hidden
    }

    /// The matrices of inputs and of states.
    fn sizes(&self) -> [MatrixSize; 2] {
        [self.inputs, self.hidden].map(|terms| MatrixSize { terms, columns: self.columns() })
    }

    /// Weights of a direction.
    pub fn weights(&self) -> usize {
        (self.inputs + self.hidden) * self.columns()
    }

    /// Packs the weights of all directions.
    fn pack(&self, w: &[i8], to: &mut [u8]) {
        let mut to = to;
        for w in w.chunks_exact(self.weights().max(1)) {
            let (of_inputs, of_states) = w.split_at(self.inputs * self.columns());
            for (size, w) in self.sizes().into_iter().zip([of_inputs, of_states]) {
                let (this, rest) = std::mem::take(&mut to).split_at_mut(size.bytes());
                size.pack(w, this);
                to = rest;
            }
        }
    }

    /// Runs the layer. `y` has outputs by step, direction and sample. `ends` are the states and cells after the last
    /// step of each sample, by direction. The packed weights are cached with their array.
    pub fn run<T: Float>(
        &self,
        r: &LevelReading<'_, T>,
        input_cache: Option<InputCache<'_>>,
        y: &mut [T],
        ends: [&mut [T]; 2],
    ) {
        let Self { steps, batch, inputs, hidden, directions, .. } = *self;
        let (columns, state) = (self.columns(), batch * hidden);
        assert!(r.x.len() == steps * batch * inputs && r.w.len() == directions * self.weights());
        assert!(r.states.iter().all(|held| held.len() == directions * state) && r.lengths.len() == batch);
        assert!(r.zeros.len() == 2 * directions * columns && r.scales.len() == r.zeros.len());
        assert!(r.bias.is_none_or(|b| b.len() == directions * columns));
        assert!(r.peepholes.is_none_or(|p| p.len() == directions * 3 * hidden));
        assert!(
            y.len() == directions * steps * state && ends.iter().all(|end| end.len() == directions * state)
        );
        let run = r.lengths.iter().copied().max().map_or(0, |n| usize::try_from(n).unwrap_or(0)).min(steps);
        let all: usize = self.sizes().iter().map(|size| size.bytes()).sum();
        let lent = input_cache.and_then(|array| array.lend::<u8>(0, [3, inputs, hidden], directions * all));
        let mut own = List::with_capacity(0);
        let packed = match lent {
            Some(mut lent) => {
                // SAFETY: the buffer holds this many bytes, and is not shared meanwhile.
                let to = unsafe { std::slice::from_raw_parts_mut(lent.ptr(), directions * all) };
                if !lent.is_made() {
                    self.pack(r.w, to);
                    lent.made();
                }
                Some(lent)
            }
            None => {
                own.extend_with(0u8, directions * all);
                self.pack(r.w, &mut own);
                None
            }
        };
        let packed: &[u8] = match &packed {
            // SAFETY: as above, and the bytes were written.
            Some(lent) => unsafe { std::slice::from_raw_parts(lent.ptr(), directions * all) },
            None => &own,
        };
        let (levels, scale, zero) = rounded(&r.x[..run * batch * inputs]);
        let x = LevelRows { levels: &levels, row: inputs, count: run * batch, scale, zero };
        let mut memory = List::repeat(T::ZERO, directions * (steps + 2) * state);
        let mut found = SmallVec::<[LevelStates<'_, T>; 2]>::new();
        for (direction, memory) in memory.chunks_exact_mut(((steps + 2) * state).max(1)).enumerate() {
            let (y, memory) = memory.split_at_mut(steps * state);
            let (h, c) = memory.split_at_mut(state);
            h.copy_from_slice(&r.states[0][direction * state..][..state]);
            c.copy_from_slice(&r.states[1][direction * state..][..state]);
            found.push(LevelStates { direction, y, h, c });
        }
        let is_much = run * batch * self.weights() > GRAIN;
        threads::rows_mut(&mut found, 1, if is_much { 1 } else { 2 }, |_, some| {
            for states in some {
                let packed = &packed[states.direction * all..][..all];
                self.direction(r, packed, x, run, states);
            }
        });
        let [last, last_cells] = ends;
        for states in &found {
            let at = states.direction * state;
            last[at..][..state].copy_from_slice(states.h);
            last_cells[at..][..state].copy_from_slice(states.c);
            for (t, from) in states.y.chunks_exact(state.max(1)).enumerate() {
                y[(t * directions + states.direction) * state..][..state].copy_from_slice(from);
            }
        }
    }

    /// Runs a direction over `run` steps.
    fn direction<T: Float>(
        &self,
        r: &LevelReading<'_, T>,
        packed: &[u8],
        x: LevelRows<'_, T>,
        run: usize,
        states: &mut LevelStates<'_, T>,
    ) {
        let Self { batch, hidden, .. } = *self;
        let (columns, direction) = (self.columns(), states.direction);
        let is_reverse = self.reverse || direction == 1;
        let [of_inputs, of_states] = self.sizes();
        let (first, second) = packed.split_at(of_inputs.bytes());
        let matrix = |size, packed, i: usize| {
            let (zeros, scales) =
                (&r.zeros[(2 * direction + i) * columns..], &r.scales[(2 * direction + i) * columns..]);
            LevelMatrix::new(size, packed, |at| zeros[at] as i32, |at| scales[at])
        };
        let (w, recurrent) = (matrix(of_inputs, first, 0), matrix(of_states, second, 1));
        let mut shifts = List::repeat(T::ZERO, columns + WIDE_ENOUGH);
        let none = List::repeat(T::ZERO, columns + WIDE_ENOUGH);
        if let Some(bias) = r.bias {
            shifts[..columns].copy_from_slice(&bias[direction * columns..][..columns]);
        }
        let peepholes =
            r.peepholes.map(|p| [0, 1, 2].map(|gate| &p[(direction * 3 + gate) * hidden..][..hidden]));
        let mut gates = List::repeat(T::ZERO, run * batch * columns);
        w.multiply(x, &shifts, &mut gates);
        let mut sums = List::repeat(T::ZERO, batch * columns);
        let mut before = List::repeat(T::ZERO, hidden);
        // The state that a step reads: zeros for a sample that has ended.
        let mut last: List<T> = states.h.iter().copied().collect();
        let mut levels: List<u8> = List::repeat(0, batch * hidden + SPARE);
        for i in 0..run {
            let (scale, zero) = levels_of(&last, &mut levels[..batch * hidden]);
            let given = LevelRows { levels: &levels, row: hidden, count: batch, scale, zero };
            recurrent.multiply(given, &none, &mut sums);
            for sample in 0..batch {
                let (at, length) = (sample * hidden, r.lengths[sample] as usize);
                if i >= length {
                    last[at..][..hidden].fill(T::ZERO);
                    continue;
                }
                let t = if is_reverse { length - 1 - i } else { i };
                let row = &mut gates[(t * batch + sample) * columns..][..columns];
                let sums = &sums[sample * columns..][..columns];
                vectorised_for::<T, _>(
                    #[inline(always)]
                    || row.iter_mut().zip(sums).for_each(|(gate, sum)| *gate = *gate + *sum),
                );
                let (i, rest) = row.split_at_mut(hidden);
                let (o, rest) = rest.split_at_mut(hidden);
                let (f, g) = rest.split_at_mut(hidden);
                let (c, h) = (&mut states.c[at..][..hidden], &mut last[at..][..hidden]);
                before.copy_from_slice(c);
                match peepholes {
                    Some(peepholes) => lstm_with_peepholes([i, f, g, o, c], &before, peepholes, h),
                    None => lstm([i, f, g, o, c], &before, h),
                }
                states.h[at..][..hidden].copy_from_slice(h);
                states.y[t * batch * hidden + at..][..hidden].copy_from_slice(h);
            }
        }
    }
}

/// Elements beyond the columns that a register may read.
const WIDE_ENOUGH: usize = 64;

/// The 8-bit levels of numbers, with their scale and zero point. The levels span the numbers and zero.
fn rounded<T: Float>(x: &[T]) -> (List<u8>, T, u8) {
    let mut to = List::repeat(0, x.len() + SPARE);
    let (scale, zero) = levels_of(x, &mut to[..x.len()]);
    (to, scale, zero)
}

/// As [`rounded`], to memory.
fn levels_of<T: Float>(x: &[T], to: &mut [u8]) -> (T, u8) {
    let (least, most) = levels::bounds(x);
    let scale = (most - least) / T::all(255.0);
    let scale = if scale > T::ZERO { scale } else { T::ONE };
    let zero = (-least / scale).real().round_ties_even().clamp(0.0, 255.0) as u8;
    levels::quantize(x, scale, Rounding::new(zero, [0, 255]), to);
    (scale, zero)
}
