//! The gradients of one direction of a layer, from the last step back to the first. Inputs, weights and biases follow
//! as products over all steps.

use super::cells::{elman_slopes, gru_slopes, lstm_slopes};
use super::{Adding, Cell, GRAIN, Layer, Reading, States, padded};
use crate::kernels::attention::multiply;
use crate::kernels::gemm::{Matrix, MatrixMut, MatrixOperand, Panels, gemm};
use crate::kernels::simd::vectorised_for;
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, scratch};

impl Layer {
    /// Adds the gradients. `kept` is the state saved by [`forward`](super::forward). `y` are its outputs, and `gy`
    /// their gradients. `last` are the gradients of the last state and cells.
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
            Panels::<T>::size(gates * hidden, hidden),
            steps * batch * slopes,
            batch * hidden,
            batch * hidden,
        ];
        scratch::with(sizes.iter().sum(), |buffer: &mut [T]| {
            let (packed, buffer) = buffer.split_at_mut(sizes[0]);
            let (slope, buffer) = buffer.split_at_mut(sizes[1]);
            let (state, carried) = buffer.split_at_mut(sizes[2]);
            let p = r.w[self.inputs..].as_ptr();
            let weights = MatrixOperand { p, row: self.row() as isize, col: 1 };
            // SAFETY: the units of each gate have rows of weights, and the buffer holds them.
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
            // One more than there are steps: the last computes the gradient of the initial state.
            for i in (0..=steps).rev() {
                self.units::<T>(batch * hidden * gates, |units| {
                    let n = units.len();
                    if i < steps {
                        let t = self.time(i);
                        let to = state_at.get().wrapping_add(units.start);
                        let b = packed.column(units.start, gates * hidden);
                        let part = |part: usize| slope_rows(t, part).operand();
                        // SAFETY: gradients of the following step are written, and each thread has separate units.
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
                        // SAFETY: as above, and rows of different arrays or parts do not overlap, or are only read.
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
                                    lstm_slopes(gates, old, (g, gy), row(flat(carried_at)), to);
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
        let of_x = || Matrix::strided_values(self.operand(slope), samples, gates, wide, 1);
        if let Some(gx) = gx {
            gemm(
                MatrixMut::of_rows(gx, samples, inputs),
                true,
                of_x(),
                Matrix::strided_values(self.operand(r.w), gates, inputs, self.row(), 1),
            );
        }
        if let Some(gw) = gw {
            let row = self.row();
            scratch::with(samples * row, |read: &mut [T]| {
                // Inputs and previous states side by side, in the layout of their weights.
                threads::rows_mut(read, row, (GRAIN / row).max(1), |sample, read| {
                    let (x, h) = read.split_at_mut(inputs);
                    x.copy_from_slice(&r.x[sample * inputs..][..inputs]);
                    let (step, sample) = (self.time(sample / batch), sample % batch);
                    h.copy_from_slice(match step.checked_sub(1) {
                        None => &r.h[sample * hidden..][..hidden],
                        Some(before) => &y[(self.time(before) * batch + sample) * apart..][..hidden],
                    });
                });
                // The first part of the gradients, the gates, and the range of operands, for each product.
                let of_gru = [(0, 0..2, 0..row), (2, 2..3, 0..inputs), (3, 2..3, inputs..row)];
                let of_others = [(0, 0..cell.gates(), 0..row)];
                for (part, of, columns) in if cell == Cell::Gru { &of_gru[..] } else { &of_others } {
                    let (n, at) = (of.len() * hidden, of.start * hidden * row + columns.start);
                    let slopes = self.operand(&slope[part * hidden..]);
                    let slopes = Matrix::strided_values(slopes, samples, n, wide, 1);
                    let read = self.operand(&read[columns.start..]);
                    let read = Matrix::strided_values(read, samples, columns.len(), row, 1);
                    gemm(MatrixMut::new(&mut gw[at..], n, columns.len(), row, 1), true, slopes.t(), read);
                }
            });
        }
        if let Some(gb) = gb {
            vectorised_for::<T, _>(
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

/// Adds gradients to a destination, if requested.
fn add_to<T: Float>(to: Option<&mut [T]>, g: &[T]) {
    if let Some(to) = to {
        to.iter_mut().zip(g).for_each(|(to, g)| *to = *to + *g);
    }
}
