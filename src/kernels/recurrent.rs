//! Recurrent layers: one direction of one layer over all time steps. Knows slices; knows no shapes, graphs or Python.
//!
//! What comes from the inputs is one product for all steps. Then, step by step, each thread takes some hidden units: products with
//! the state before, and what makes the new state of them while they are in the cache.

use std::ops::Range;

use super::Float;
use super::attention::multiply;
use super::epilogue::Epilogue;
use super::gemm::{Matrix, MatrixMut, MatrixOperand, Panels, gemm, gemm_then, kernels};
use super::map::elements;
use super::scratch;
use super::simd::vectorised;
use super::threads::{self, Shared};
use crate::array::{Lasting, Lent};

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

/// Weights of all directions as [`Layer::forward`] multiplies states by them, kept with an array.
pub struct PackedWeights<'a, T> {
    lent: Lent<'a, T>,
    /// Numbers of a direction.
    n: usize,
    directions: usize,
}

impl<T> PackedWeights<'_, T> {
    /// Those of a direction.
    pub fn part(&self, direction: usize) -> &[T] {
        assert!(direction < self.directions);
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(self.lent.ptr().add(direction * self.n), self.n) }
    }
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

    /// Numbers that [`Layer::pack`] writes.
    fn packed<T: Float>(&self) -> usize {
        self.cell.gates() * Panels::<T>::room(self.hidden, self.hidden)
    }

    /// The weights by which the state is multiplied, of so many directions, packed and kept with the array of all weights: from the
    /// second time in a row on that they are the same.
    pub fn keep_packed<'a, T: Float>(
        &self,
        w: &[T],
        directions: usize,
        lasting: Lasting<'a>,
    ) -> Option<PackedWeights<'a, T>> {
        let n = self.packed::<T>();
        let lent = lasting.lend::<T>(0, [size_of::<T>(), self.inputs, self.hidden], directions * n)?;
        let mut kept = PackedWeights { lent, n, directions };
        if !kept.lent.is_made() {
            // SAFETY: there is room for so many, and nobody else has it meanwhile.
            let all = unsafe { std::slice::from_raw_parts_mut(kept.lent.ptr(), directions * n) };
            let of_each = w.chunks_exact((w.len() / directions).max(1));
            of_each.zip(all.chunks_exact_mut(n.max(1))).for_each(|(w, to)| self.pack(w, to));
            kept.lent.made();
        }
        Some(kept)
    }

    /// Packs the weights by which the state is multiplied.
    fn pack<T: Float>(&self, w: &[T], to: &mut [T]) {
        let Self { inputs, hidden, .. } = *self;
        assert!(w.len() == self.cell.gates() * hidden * self.row() && to.len() == self.packed::<T>());
        if hidden == 0 {
            return;
        }
        for (w, to) in
            w.chunks_exact(hidden * self.row()).zip(to.chunks_exact_mut(Panels::<T>::room(hidden, hidden)))
        {
            let weights = MatrixOperand { p: w[inputs..].as_ptr(), row: 1, col: self.row() as isize };
            // SAFETY: the weights of a gate are `hidden` rows, and there is room for them.
            unsafe { Panels::pack(weights, hidden, hidden, to.as_mut_ptr()) };
        }
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

    /// Adds the gradients, `kept` being what [`Layer::forward`] left, `y` its outputs and `gy` their gradients, and `last` those of the last
    /// state and the last cells.
    pub fn backward<T: Float>(
        &self,
        r: Reading<'_, T>,
        (y, gy): (&[T], &[T]),
        last: (&[T], Option<&[T]>),
        kept: &[T],
        to: Adding<'_, T>,
    ) {
        let Self { cell, steps, batch, hidden, apart, .. } = *self;
        self.check(&r);
        let (gates, slopes) = (cell.gates(), padded(cell.biases() * hidden));
        assert!(kept.len() == self.kept() && last.0.len() == batch * hidden);
        if steps * batch * hidden == 0 {
            add_to(to.h, last.0);
            add_to(to.c, last.1.unwrap_or_default());
            return;
        }
        assert!(self.holds(y.len()) && self.holds(gy.len()));
        let sizes = [
            Panels::<T>::room(gates * hidden, hidden),
            steps * batch * slopes,
            batch * hidden,
            batch * hidden,
        ];
        scratch::with(sizes.iter().sum(), |room: &mut [T]| {
            let (packed, room) = room.split_at_mut(sizes[0]);
            let (slope, room) = room.split_at_mut(sizes[1]);
            let (state, carried) = room.split_at_mut(sizes[2]);
            let p = r.w[self.inputs..].as_ptr();
            let weights = MatrixOperand { p, row: self.row() as isize, col: 1 };
            // SAFETY: each gate's units have rows of weights, and there is room for them.
            unsafe { Panels::pack(weights, gates * hidden, hidden, packed.as_mut_ptr()) };
            state.copy_from_slice(last.0);
            carried.fill(T::ZERO);
            last.1.into_iter().for_each(|g| carried.copy_from_slice(g));
            let shared = |x: &mut [T]| Shared::new(x.as_mut_ptr());
            let (packed, slopes_at) = (Panels::packed(packed.as_mut_ptr(), gates * hidden), shared(slope));
            let (state_at, carried_at) = (shared(state), shared(carried));
            let [y_at, gy_at] = [y, gy].map(|of| Shared::read_only(of.as_ptr()));
            let kept_at = Shared::read_only(kept.as_ptr());
            let slope_rows = |t: usize, part: usize| States {
                p: Shared::new(slopes_at.get().wrapping_add(t * batch * slopes + part * hidden)),
                apart: slopes,
            };
            let flat = |p: Shared<T>| States { p, apart: hidden };
            let outputs = |of: Shared<T>, t: usize| States {
                p: Shared::new(of.get().wrapping_add(t * batch * apart)),
                apart,
            };
            let first = flat(Shared::read_only(r.h.as_ptr()));
            // One more than there are steps: the last is what reaches the state at the start.
            for i in (0..=steps).rev() {
                self.units::<T>(batch * hidden * gates, |units| {
                    let (n, mut cache) = (units.len(), [T::ZERO; UNITS]);
                    if i < steps {
                        let t = self.time(i);
                        let to = state_at.get().wrapping_add(units.start);
                        let b = packed.column(units.start, gates * hidden);
                        let part = |part: usize| slope_rows(t, part).operand();
                        // SAFETY: gradients of the step after are written; each thread has units of its own.
                        unsafe {
                            if cell == Cell::Gru {
                                multiply((batch, n, 2 * hidden), part(0), b, to, hidden, true);
                                multiply((batch, n, hidden), part(3), b.row(2 * hidden), to, hidden, true);
                            } else {
                                multiply((batch, n, gates * hidden), part(0), b, to, hidden, false);
                            }
                        }
                    }
                    let Some(i) = i.checked_sub(1) else { return };
                    let t = self.time(i);
                    let before = (i > 0).then(|| self.time(i - 1));
                    for sample in 0..batch {
                        // SAFETY: as above; rows of different arrays or parts do not overlap, or are only read.
                        unsafe {
                            let row = |s: States<T>| -> &mut [T] {
                                std::slice::from_raw_parts_mut(s.at(sample).add(units.start), n)
                            };
                            let kept =
                                |t: usize, part: usize| -> &[T] { row(self.kept_part(kept_at, t, part)) };
                            let slope = |part: usize| row(slope_rows(t, part));
                            let (g, gy) = (row(flat(state_at)), row(outputs(gy_at, t)));
                            match cell {
                                Cell::Tanh | Cell::Relu => elman_slopes(cell, kept(t, 0), (g, gy), slope(0)),
                                Cell::Lstm => {
                                    let old = match (before, r.c) {
                                        (Some(before), _) => kept(before, 4),
                                        (None, c) => &c.unwrap_or_default()[sample * hidden..][units.clone()],
                                    };
                                    let gates = [0, 1, 2, 3, 4].map(|part| kept(t, part));
                                    let to = [0, 1, 2, 3].map(slope);
                                    lstm_slopes(gates, old, (g, gy), row(flat(carried_at)), to, &mut cache);
                                }
                                Cell::Gru => {
                                    let old = row(before.map_or(first, |before| outputs(y_at, before)));
                                    let gates = [0, 1, 2, 3].map(|part| kept(t, part));
                                    gru_slopes(gates, old, (g, gy), [0, 1, 2, 3].map(slope));
                                }
                            }
                        }
                    }
                });
            }
            add_to(to.h, state);
            add_to(to.c, carried);
            self.weights(r, y, slope, [to.x, to.w, to.b]);
        });
    }

    /// Adds the gradients of inputs, weights and biases.
    fn weights<T: Float>(
        &self,
        r: Reading<'_, T>,
        y: &[T],
        slope: &[T],
        [gx, gw, gb]: [Option<&mut [T]>; 3],
    ) {
        let Self { cell, steps, batch, inputs, hidden, apart, .. } = *self;
        let (gates, samples) = (cell.gates() * hidden, steps * batch);
        let wide = padded(cell.biases() * hidden);
        let of_x = || Matrix::new(slope, samples, gates, wide, 1);
        if let Some(gx) = gx {
            gemm(
                MatrixMut::of_rows(gx, samples, inputs),
                true,
                of_x(),
                Matrix::new(r.w, gates, inputs, self.row(), 1),
            );
        }
        if let Some(gw) = gw {
            let row = self.row();
            scratch::with(samples * row, |read: &mut [T]| {
                // Inputs and the states before side by side, as their weights are.
                threads::rows_mut(read, row, (GRAIN / row).max(1), |sample, read| {
                    let (x, h) = read.split_at_mut(inputs);
                    x.copy_from_slice(&r.x[sample * inputs..][..inputs]);
                    let (step, sample) = (self.time(sample / batch), sample % batch);
                    h.copy_from_slice(match step.checked_sub(1) {
                        None => &r.h[sample * hidden..][..hidden],
                        Some(before) => &y[(self.time(before) * batch + sample) * apart..][..hidden],
                    });
                });
                // Slopes from a part on, the gates that they are of, and what meets them.
                let of_gru = [(0, 0..2, 0..row), (2, 2..3, 0..inputs), (3, 2..3, inputs..row)];
                let of_others = [(0, 0..cell.gates(), 0..row)];
                for (part, of, columns) in if cell == Cell::Gru { &of_gru[..] } else { &of_others } {
                    let (n, at) = (of.len() * hidden, of.start * hidden * row + columns.start);
                    let slopes = Matrix::new(&slope[part * hidden..], samples, n, wide, 1);
                    let read = Matrix::new(&read[columns.start..], samples, columns.len(), row, 1);
                    gemm(MatrixMut::new(&mut gw[at..], n, columns.len(), row, 1), true, slopes.t(), read);
                }
            });
        }
        if let Some(gb) = gb {
            vectorised(
                #[inline(always)]
                move || {
                    for row in slope.chunks_exact(wide) {
                        gb.iter_mut().zip(row).for_each(|(gb, g)| *gb = *gb + *g);
                    }
                },
            );
        }
    }
}

/// Puts `f` of what is there and of the numbers that each array of `x` has of the unit in the place of each number. A plain loop
/// with one result, which becomes one over registers. `f` must be `#[inline(always)]`, or small.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops become loops over registers
fn each<T: Float, const N: usize>(to: &mut [T], x: [&[T]; N], f: impl Fn(T, [T; N]) -> T) {
    assert!(x.iter().all(|x| x.len() == to.len()), "numbers of different units");
    // What the closure takes with it lies in registers; of references to it the loop would read from memory what it writes.
    vectorised(
        #[inline(always)]
        move || {
            for i in 0..to.len() {
                // SAFETY: all have as many elements.
                to[i] = f(to[i], unsafe { elements(x, i) });
            }
        },
    );
}

/// The state of a plain layer, of sums that stay where they are as the state.
fn elman<T: Float>(cell: Cell, sum: &mut [T], h: &mut [T]) {
    match cell {
        Cell::Tanh => each(sum, [], |a, []| a.tanh()),
        _ => each(sum, [], |a, []| a.max(T::ZERO)),
    }
    h.copy_from_slice(sum);
}

fn elman_slopes<T: Float>(cell: Cell, h: &[T], (g, gy): (&[T], &[T]), to: &mut [T]) {
    match cell {
        Cell::Relu => {
            each(to, [h, g, gy], |_, [h, g, gy]| T::select(h > T::ZERO, g + gy, T::ZERO));
        }
        _ => each(to, [h, g, gy], |_, [h, g, gy]| (g + gy) * (T::ONE - h * h)),
    }
}

/// Units whose cells are worked on in the first cache. What waited for memory that was just written would wait long, if that was not
/// in a cache before.
const UNITS: usize = 256;

/// Ranges of so many units at a time.
fn blocks(n: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(UNITS).map(move |start| start..n.min(start + UNITS))
}

/// The state of an LSTM, of sums for the gates, which stay where they are as gates, and the cells before.
fn lstm<T: Float>([i, f, g, o, c]: [&mut [T]; 5], before: &[T], h: &mut [T], room: &mut [T; UNITS]) {
    each(i, [], |v, []| v.sigmoid());
    each(f, [], |v, []| v.sigmoid());
    each(g, [], |v, []| v.tanh());
    each(o, [], |v, []| v.sigmoid());
    for at in blocks(h.len()) {
        let now = &mut room[..at.len()];
        let read = [&f[at.clone()], &before[at.clone()], &i[at.clone()], &g[at.clone()]];
        each(now, read, |_, [f, before, i, g]| f * before + i * g);
        each(&mut h[at.clone()], [&o[at.clone()], now], |_, [o, c]| o * c.tanh());
        c[at].copy_from_slice(now);
    }
}

fn lstm_slopes<T: Float>(
    [i, f, g, o, c]: [&[T]; 5],
    before: &[T],
    (gh, gy): (&[T], &[T]),
    carried: &mut [T],
    [to_i, to_f, to_g, to_o]: [&mut [T]; 4],
    room: &mut [T; UNITS],
) {
    let one = T::ONE;
    for at in blocks(c.len()) {
        let [i, f, g, o, c, before, gh, gy] = [i, f, g, o, c, before, gh, gy].map(|x| &x[at.clone()]);
        let [carried, to_i, to_f, to_g, to_o] =
            [&mut *carried, &mut *to_i, &mut *to_f, &mut *to_g, &mut *to_o].map(|x| &mut x[at.clone()]);
        // What the state is of the cell.
        let state = &mut room[..at.len()];
        each(state, [c], |_, [c]| c.tanh());
        each(carried, [gh, gy, o, state], |gc, [gh, gy, o, c]| gc + (gh + gy) * o * (one - c * c));
        each(to_o, [gh, gy, o, state], |_, [gh, gy, o, c]| (gh + gy) * c * o * (one - o));
        each(to_i, [carried, g, i], |_, [gc, g, i]| gc * g * i * (one - i));
        each(to_f, [carried, before, f], |_, [gc, c, f]| gc * c * f * (one - f));
        each(to_g, [carried, i, g], |_, [gc, i, g]| gc * i * (one - g * g));
        each(carried, [f], |gc, [f]| gc * f);
    }
}

/// Adds gradients to those that are wanted.
fn add_to<T: Float>(to: Option<&mut [T]>, g: &[T]) {
    if let Some(to) = to {
        to.iter_mut().zip(g).for_each(|(to, g)| *to = *to + *g);
    }
}

/// The state of a GRU, of sums for the gates, which stay where they are as gates, and what the last has of the state.
fn gru<T: Float>([r, z, n, s]: [&mut [T]; 4], bias: Option<&[T]>, before: &[T], h: &mut [T]) {
    if let Some(bias) = bias {
        each(s, [bias], |s, [b]| s + b);
    }
    each(r, [], |v, []| v.sigmoid());
    each(z, [], |v, []| v.sigmoid());
    each(n, [r, s], |n, [r, s]| (n + r * s).tanh());
    each(h, [z, n, before], |_, [z, n, h]| (T::ONE - z) * n + z * h);
}

fn gru_slopes<T: Float>(
    [r, z, n, s]: [&[T]; 4],
    before: &[T],
    (g, gy): (&mut [T], &[T]),
    [to_r, to_z, to_n, to_s]: [&mut [T]; 4],
) {
    let one = T::ONE;
    each(g, [gy], |g, [gy]| g + gy);
    each(to_n, [g, z, n], |_, [gh, z, n]| gh * (one - z) * (one - n * n));
    each(to_s, [to_n, r], |_, [gn, r]| gn * r);
    each(to_r, [to_n, s, r], |_, [gn, s, r]| gn * s * r * (one - r));
    each(to_z, [g, before, n, z], |_, [gh, h, n, z]| gh * (h - n) * z * (one - z));
    each(g, [z], |gh, [z]| gh * z);
}
