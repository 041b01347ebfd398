//! Formulas of cells: states from sums, and their gradients, for some units of one sample. Knows slices of equal
//! length.

use super::Cell;
use crate::kernels::map::elements;
use crate::kernels::simd::vectorised_for;
use crate::kernels::{Float, from_square};

/// Replaces each element by `f` of it and of the elements of each of `x` at the same index. A plain loop with one
/// result, which is vectorized. `f` must be `#[inline(always)]`, or small.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops are vectorized
fn each<T: Float, const N: usize>(to: &mut [T], x: [&[T]; N], f: impl Fn(T, [T; N]) -> T) {
    assert!(x.iter().all(|x| x.len() == to.len()), "numbers of different units");
    // Captures by value stay in registers. Captured references would be read from memory in each iteration.
    vectorised_for::<T, _>(
        #[inline(always)]
        move || {
            for i in 0..to.len() {
                // SAFETY: all have the same number of elements.
                to[i] = f(to[i], unsafe { elements(x, i) });
            }
        },
    );
}

/// Elements that a loop with several results processes together: as many as the widest register has.
const LANES: usize = 16;

/// As [`each`], with several results. Operands and results are in local buffers in between, so the compiler knows
/// that no result aliases an operand.
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
    vectorised_for::<T, _>(
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

/// [`all`] for some elements, at most as many as there are lanes.
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

/// The state of a plain layer from its sums, which it overwrites by the state.
pub(super) fn elman<T: Float>(cell: Cell, sum: &mut [T], h: &mut [T]) {
    match cell {
        Cell::Tanh => each(sum, [], |a, []| a.tanh()),
        _ => each(sum, [], |a, []| a.max(T::ZERO)),
    }
    h.copy_from_slice(sum);
}

/// The gradient by the sums of a plain layer, from its state `h` and the gradients by the state, `g` + `gy`.
pub(super) fn elman_slopes<T: Float>(cell: Cell, h: &[T], (g, gy): (&[T], &[T]), to: &mut [T]) {
    match cell {
        Cell::Relu => {
            each(to, [h, g, gy], |_, [h, g, gy]| T::select(h <= T::ZERO, T::ZERO, g + gy));
        }
        _ => each(to, [h, g, gy], |_, [h, g, gy]| (g + gy) * from_square(h)),
    }
}

/// The state of an LSTM, from sums, which it overwrites by the gates, and the previous cells.
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
    // A separate loop: in a single one, units waiting for their cells would block the registers of later ones.
    each(h, [o, c], |_, [o, c]| o * c.tanh());
}

/// As [`lstm`], where three gates also read cells. The input and forget gates read the previous cells, and the output
/// gate reads the new cells. `peepholes` are the weights of gates i, o, f.
pub(super) fn lstm_with_peepholes<T: Float>(
    [i, f, g, o, c]: [&mut [T]; 5],
    before: &[T],
    peepholes: [&[T]; 3],
    h: &mut [T],
) {
    each(i, [before, peepholes[0]], |i, [before, p]| i + p * before);
    each(f, [before, peepholes[2]], |f, [before, p]| f + p * before);
    all(
        [i, f, g, &mut *c],
        [before],
        #[inline(always)]
        |[i, f, g, _], [before]| {
            let (i, f, g) = (i.sigmoid(), f.sigmoid(), g.tanh());
            [i, f, g, f * before + i * g]
        },
    );
    each(o, [c, peepholes[1]], |o, [c, p]| (o + p * c).sigmoid());
    each(h, [o, c], |_, [o, c]| o * c.tanh());
}

/// The gradients by the sums of the four gates of an LSTM, and the gradient carried to the cell state before.
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
            // The activated cell: the state is `o` times this.
            let c = c.tanh();
            let gh = gh + gy;
            let gc = carried + gh * o * from_square(c);
            let (to_f, to_g) = (gc * before * f * (one - f), gc * i * from_square(g));
            [gc * f, gc * g * i * (one - i), to_f, to_g, gh * c * o * (one - o)]
        },
    );
}

/// The state of a GRU, from sums, which it overwrites by the gates, and the contribution of the state to the last
/// gate.
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

/// The gradients by the sums of the gates of a GRU, and the gradient carried to the state before.
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
