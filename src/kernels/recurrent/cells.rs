//! What makes states of sums, and slopes of gradients: of some units of one sample at a time. Knows slices of one length.

use std::ops::Range;

use super::Cell;
use crate::kernels::Float;
use crate::kernels::map::elements;
use crate::kernels::simd::vectorised;

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
pub(super) fn elman<T: Float>(cell: Cell, sum: &mut [T], h: &mut [T]) {
    match cell {
        Cell::Tanh => each(sum, [], |a, []| a.tanh()),
        _ => each(sum, [], |a, []| a.max(T::ZERO)),
    }
    h.copy_from_slice(sum);
}

pub(super) fn elman_slopes<T: Float>(cell: Cell, h: &[T], (g, gy): (&[T], &[T]), to: &mut [T]) {
    match cell {
        Cell::Relu => {
            each(to, [h, g, gy], |_, [h, g, gy]| T::select(h > T::ZERO, g + gy, T::ZERO));
        }
        _ => each(to, [h, g, gy], |_, [h, g, gy]| (g + gy) * (T::ONE - h * h)),
    }
}

/// Units whose cells are worked on in the first cache. What waited for memory that was just written would wait long, if that was not
/// in a cache before.
pub(super) const UNITS: usize = 256;

/// Ranges of so many units at a time.
fn blocks(n: usize) -> impl Iterator<Item = Range<usize>> {
    (0..n).step_by(UNITS).map(move |start| start..n.min(start + UNITS))
}

/// The state of an LSTM, of sums for the gates, which stay where they are as gates, and the cells before.
pub(super) fn lstm<T: Float>(
    [i, f, g, o, c]: [&mut [T]; 5],
    before: &[T],
    h: &mut [T],
    room: &mut [T; UNITS],
) {
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

pub(super) fn lstm_slopes<T: Float>(
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

/// The state of a GRU, of sums for the gates, which stay where they are as gates, and what the last has of the state.
pub(super) fn gru<T: Float>([r, z, n, s]: [&mut [T]; 4], bias: Option<&[T]>, before: &[T], h: &mut [T]) {
    if let Some(bias) = bias {
        each(s, [bias], |s, [b]| s + b);
    }
    each(r, [], |v, []| v.sigmoid());
    each(z, [], |v, []| v.sigmoid());
    each(n, [r, s], |n, [r, s]| (n + r * s).tanh());
    each(h, [z, n, before], |_, [z, n, h]| (T::ONE - z) * n + z * h);
}

pub(super) fn gru_slopes<T: Float>(
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
