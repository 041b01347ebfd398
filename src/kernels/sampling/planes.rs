//! Reads planes at points, and adds to them. Knows planes, not images.

use super::points::{PerElement, Points};
use crate::kernels::Float;
use crate::kernels::map::all_finite;
use crate::kernels::simd::row;
use crate::kernels::simd::{Vector, Work, vectorised_for};

/// Calls a function compiled for the number of rows and of adjacent elements of the points.
macro_rules! by_neighbours {
    ($points:expr, $f:ident[$($more:tt)*]($($arg:expr),*)) => {
        match ($points.rows, $points.side_by_side) {
            (0, _) => {}
            (1, _) => $f::<T, 1, 1, $($more)*>($($arg),*),
            (2, 1) => $f::<T, 2, 1, $($more)*>($($arg),*),
            (2, _) => $f::<T, 2, 2, $($more)*>($($arg),*),
            (_, 1) => $f::<T, 4, 1, $($more)*>($($arg),*),
            _ => $f::<T, 4, 2, $($more)*>($($arg),*),
        }
    };
}
pub(super) use by_neighbours;

/// The product of a value and a weight, or zero if the weight is zero.
#[inline(always)]
fn product<T: Float, const MASKED: bool>(v: T, weight: T) -> T {
    if MASKED && weight == T::ZERO { T::ZERO } else { v * weight }
}

impl<T: Float> Points<T> {
    /// The element indices of the first `R` rows.
    #[inline(always)]
    fn places<const R: usize>(&self) -> [&[i32]; R] {
        std::array::from_fn(|row| &self.at[row][..self.n])
    }
}

/// The first `n` times `S` numbers of the first `R` rows.
#[inline(always)]
fn numbers<T, const R: usize, const S: usize>(all: &PerElement<T>, n: usize) -> [&[[T; S]]; R] {
    std::array::from_fn(|row| &all[row].as_chunks().0[..n])
}

/// Writes the values of a plane at points.
pub(super) fn read<T: Float, const R: usize, const S: usize>(points: &Points<T>, plane: &[T], to: &mut [T]) {
    if R * S == 1 {
        return T::in_registers(ReadOne { points, plane, to });
    }
    read_as::<T, R, S, false>(points, plane, to);
    // Neighbours of weight zero contribute zero, unless they are infinite or NaN.
    if !points.all_inside && !all_finite(to) {
        read_as::<T, R, S, true>(points, plane, to);
    }
}

/// Reads the one element of each point.
struct ReadOne<'a, T> {
    /// The points.
    points: &'a Points<T>,
    /// The plane.
    plane: &'a [T],
    /// The value at each point, which is written.
    to: &'a mut [T],
}

impl<T: Float> Work<T> for ReadOne<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Self { points, plane, to } = self;
        assert!(plane.len() >= points.plane && to.len() == points.n && points.plane > 0);
        // SAFETY: the caller guarantees the instruction set. There are as many points as values, and whole registers
        // of indices. `Lookup` named no elements beyond the plane, and the first one for unused entries.
        unsafe {
            row::each::<V>(
                to.len(),
                #[inline(always)]
                |i| {
                    // The weight is one or zero.
                    let weight = i.load(points.weight[0].as_ptr());
                    let x = i.gather(plane.as_ptr(), points.at[0].as_ptr());
                    i.store(weight.where_larger(V::zero(), x, V::zero()), to.as_mut_ptr());
                },
            );
        }
    }
}

/// Reads points of a plane with `R` x `S` neighbours each.
fn read_as<T: Float, const R: usize, const S: usize, const MASKED: bool>(
    points: &Points<T>,
    plane: &[T],
    to: &mut [T],
) {
    assert!(plane.len() >= points.plane && to.len() == points.n);
    let (at, weight) = (points.places::<R>(), numbers::<T, R, S>(&points.weight, points.n));
    vectorised_for::<T, _>(
        #[inline(always)]
        move || {
            for (i, to) in to.iter_mut().enumerate() {
                let products = |row: usize| -> [T; S] {
                    // SAFETY: there are as many points as values; `Lookup` named no elements beyond the plane.
                    unsafe {
                        let at = *at[row].get_unchecked(i) as usize;
                        let x = plane.as_ptr().add(at).cast::<[T; S]>().read();
                        let weight = weight[row].get_unchecked(i);
                        std::array::from_fn(|s| product::<T, MASKED>(x[s], weight[s]))
                    }
                };
                let mut sums = products(0);
                for row in 1..R {
                    let products = products(row);
                    sums = std::array::from_fn(|s| sums[s] + products[s]);
                }
                *to = sums.into_iter().reduce(|a, b| a + b).unwrap_or_default();
            }
        },
    );
}

/// Adds the products of the values of a plane and of `g` to the sum of each neighbour.
pub(super) fn meet<T: Float, const R: usize, const S: usize>(points: &mut Points<T>, plane: &[T], g: &[T]) {
    assert!(plane.len() >= points.plane && g.len() == points.n);
    for row in 0..R {
        let (at, sums) = (&points.at[row][..g.len()], points.sums[row].as_chunks_mut::<S>().0);
        vectorised_for::<T, _>(
            #[inline(always)]
            move || {
                for ((at, sums), g) in at.iter().zip(sums).zip(g) {
                    // SAFETY: `Lookup` named no elements beyond the plane.
                    let x = unsafe { plane.as_ptr().add(*at as usize).cast::<[T; S]>().read() };
                    *sums = std::array::from_fn(|s| sums[s] + x[s] * *g);
                }
            },
        );
    }
}

/// Writes for each point the sum over its neighbours of `sums` times `factors`. A term with factor zero is zero.
pub(super) fn total<T: Float, const R: usize, const S: usize>(
    sums: &PerElement<T>,
    factors: &PerElement<T>,
    to: &mut [T],
) {
    let (sums, factors) = (numbers::<T, R, S>(sums, to.len()), numbers::<T, R, S>(factors, to.len()));
    vectorised_for::<T, _>(
        #[inline(always)]
        move || {
            for (i, to) in to.iter_mut().enumerate() {
                let mut total = T::ZERO;
                for row in 0..R {
                    for side in 0..S {
                        total = total + product::<T, true>(sums[row][i][side], factors[row][i][side]);
                    }
                }
                *to = total;
            }
        },
    );
}

/// Adds the gradients of values at points to `C` adjacent planes of `size` elements. In `g` the planes are `step`
/// apart.
pub(super) fn add<T: Float, const R: usize, const S: usize, const C: usize>(
    points: &Points<T>,
    planes: &mut [T],
    size: usize,
    (g, step): (&[T], usize),
) {
    assert!(size >= points.plane && planes.len() == C * size);
    let g: [&[T]; C] = std::array::from_fn(|c| &g[c * step..][..points.n]);
    if points.all_inside || g.iter().all(|g| all_finite(g)) {
        add_as::<T, R, S, C, false>(points, planes, size, g);
    } else {
        add_as::<T, R, S, C, true>(points, planes, size, g);
    }
}

/// Adds gradients to `R` x `S` neighbours of each point, in `C` planes.
fn add_as<T: Float, const R: usize, const S: usize, const C: usize, const MASKED: bool>(
    points: &Points<T>,
    planes: &mut [T],
    size: usize,
    g: [&[T]; C],
) {
    let (at, weight) = (points.places::<R>(), numbers::<T, R, S>(&points.weight, points.n));
    for i in 0..points.n {
        for row in 0..R {
            // SAFETY: there are as many points as numbers in each plane of `g`. `Lookup` named no elements beyond a
            // plane, and there are `C` planes.
            unsafe {
                let (at, weight) = (*at[row].get_unchecked(i) as usize, *weight[row].get_unchecked(i));
                for (side, weight) in weight.into_iter().enumerate() {
                    for (c, g) in g.into_iter().enumerate() {
                        let to = planes.get_unchecked_mut(c * size + at + side);
                        *to = *to + product::<T, MASKED>(*g.get_unchecked(i), weight);
                    }
                }
            }
        }
    }
}
