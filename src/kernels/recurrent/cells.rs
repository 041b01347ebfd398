//! What makes states of sums, and slopes of gradients: of some units of one sample at a time. Knows slices of one length.

use super::Cell;
use crate::kernels::map::elements;
use crate::kernels::simd::vectorised;
use crate::kernels::{Float, from_square};

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

/// Numbers of a loop with several results that are worked on together: as many as the widest register has.
const LANES: usize = 16;

/// As [`each`], with several results. What is read and written lies in registers in between, where the compiler knows that no
/// result is read again as something else.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
fn all<T: Float, const M: usize, const N: usize>(
    mut to: [&mut [T]; M],
    x: [&[T]; N],
    f: impl Fn([T; M], [T; N]) -> [T; M],
) {
    let n = to[0].len();
    assert!(
        to.iter().all(|to| to.len() == n) && x.iter().all(|x| x.len() == n),
        "numbers of different units"
    );
    vectorised(
        #[inline(always)]
        move || {
            let whole = n / LANES * LANES;
            for at in (0..whole).step_by(LANES) {
                lanes(&mut to, x, at, LANES, &f);
            }
            if whole < n {
                lanes(&mut to, x, whole, n - whole, &f);
            }
        },
    );
}

/// [`all`] for some numbers, at most as many as there are lanes.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // as above
fn lanes<T: Float, const M: usize, const N: usize>(
    to: &mut [&mut [T]; M],
    x: [&[T]; N],
    at: usize,
    n: usize,
    f: &impl Fn([T; M], [T; N]) -> [T; M],
) {
    let (mut new, mut read) = ([[T::ZERO; LANES]; M], [[T::ZERO; LANES]; N]);
    for j in 0..M {
        new[j][..n].copy_from_slice(&to[j][at..][..n]);
    }
    for j in 0..N {
        read[j][..n].copy_from_slice(&x[j][at..][..n]);
    }
    for l in 0..LANES {
        let y = f(std::array::from_fn(|j| new[j][l]), std::array::from_fn(|j| read[j][l]));
        for j in 0..M {
            new[j][l] = y[j];
        }
    }
    for j in 0..M {
        to[j][at..][..n].copy_from_slice(&new[j][..n]);
    }
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
            each(to, [h, g, gy], |_, [h, g, gy]| T::select(h <= T::ZERO, T::ZERO, g + gy));
        }
        _ => each(to, [h, g, gy], |_, [h, g, gy]| (g + gy) * from_square(h)),
    }
}

/// The state of an LSTM, of sums for the gates, which stay where they are as gates, and the cells before.
pub(super) fn lstm<T: Float>([i, f, g, o, c]: [&mut [T]; 5], before: &[T], h: &mut [T]) {
    all(
        [i, f, g, &mut *o, &mut *c],
        [before],
        #[inline(always)]
        |[i, f, g, o, _], [before]| {
            let (i, f, g, o) = (i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid());
            [i, f, g, o, f * before + i * g]
        },
    );
    // A loop of its own: units that wait for their cells would keep later ones from registers.
    each(h, [o, c], |_, [o, c]| o * c.tanh());
}

pub(super) fn lstm_slopes<T: Float>(
    [i, f, g, o, c]: [&[T]; 5],
    before: &[T],
    (gh, gy): (&[T], &[T]),
    carried: &mut [T],
    [to_i, to_f, to_g, to_o]: [&mut [T]; 4],
) {
    let one = T::ONE;
    all(
        [carried, to_i, to_f, to_g, to_o],
        [i, f, g, o, c, before, gh, gy],
        #[inline(always)]
        |[carried, ..], [i, f, g, o, c, before, gh, gy]| {
            // What the state is of the cell.
            let c = c.tanh();
            let gh = gh + gy;
            let gc = carried + gh * o * from_square(c);
            let (to_f, to_g) = (gc * before * f * (one - f), gc * i * from_square(g));
            [gc * f, gc * g * i * (one - i), to_f, to_g, gh * c * o * (one - o)]
        },
    );
}

/// The state of a GRU, of sums for the gates, which stay where they are as gates, and what the last has of the state.
pub(super) fn gru<T: Float>([r, z, n, s]: [&mut [T]; 4], bias: Option<&[T]>, before: &[T], h: &mut [T]) {
    if let Some(bias) = bias {
        each(s, [bias], |s, [b]| s + b);
    }
    all(
        [r, z, n, h],
        [s, before],
        #[inline(always)]
        |[r, z, n, _], [s, before]| {
            let (r, z) = (r.sigmoid(), z.sigmoid());
            let n = (n + r * s).tanh();
            [r, z, n, (T::ONE - z) * n + z * before]
        },
    );
}

pub(super) fn gru_slopes<T: Float>(
    [r, z, n, s]: [&[T]; 4],
    before: &[T],
    (g, gy): (&mut [T], &[T]),
    [to_r, to_z, to_n, to_s]: [&mut [T]; 4],
) {
    let one = T::ONE;
    all(
        [g, to_r, to_z, to_n, to_s],
        [gy, r, z, n, s, before],
        #[inline(always)]
        |[g, ..], [gy, r, z, n, s, before]| {
            let gh = g + gy;
            let gn = gh * (one - z) * from_square(n);
            [gh * z, gn * s * r * (one - r), gh * (before - n) * z * (one - z), gn, gn * r]
        },
    );
}
