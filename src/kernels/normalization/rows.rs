//! Normalization if neighbours along the last axis have the same statistics: row by row, in registers.

use super::{StatisticsView, Target};
use crate::array::Element;
use crate::kernels::Stored;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::epilogue::Tail;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::simd::row::{each, sums};
use crate::kernels::simd::{Vector, Work};

/// Computes the means and variances (of the elements, not an estimate) of a part of `x` with separate statistics.
pub(super) struct FindMoments<'a, E> {
    /// The part of the array.
    pub part: &'a BroadcastLayout,
    /// The elements.
    pub x: &'a [E],
    /// The number of elements of a statistic.
    pub count: f64,
}

impl<E: Stored> Work<E::Wide> for FindMoments<'_, E> {
    type Output = (Zeros<f64>, Zeros<f64>);

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) -> (Zeros<f64>, Zeros<f64>) {
        let Self { part, x, count } = self;
        let (n, rows, first, x) = (part.width(), part.rows(), part.first_a(), x.as_ptr());
        let (mut mean, mut variance) = (Zeros::new(part.span()), Zeros::new(part.span()));
        part.walk(
            0..rows,
            #[inline(always)]
            // SAFETY: the row is one of `x`, and the instructions are there. So below.
            |s, _, i| unsafe {
                let [sum] = sums::<V, 1>(
                    n,
                    #[inline(always)]
                    |at| [at.load(x.add(i))],
                );
                mean[s - first] += sum;
            },
        );
        // The first mean, and the mean of the differences from it.
        let near: List<_> = mean.iter().map(|sum| E::Wide::of(sum / count)).collect();
        mean.fill(0.0);
        part.walk(
            0..rows,
            #[inline(always)]
            // SAFETY: as above.
            |s, _, i| unsafe {
                let near = V::all(near[s - first]);
                let [left, squares] = sums::<V, 2>(
                    n,
                    #[inline(always)]
                    |at| {
                        let d = at.load(x.add(i)).sub(near);
                        [d, d.mul(d)]
                    },
                );
                mean[s - first] += left;
                variance[s - first] += squares;
            },
        );
        for ((mean, variance), near) in mean.iter_mut().zip(&mut *variance).zip(&*near) {
            let left = *mean / count;
            let all = *variance / count - left * left;
            *variance = if all < 0.0 { 0.0 } else { all };
            *mean = near.real() + left;
        }
        (mean, variance)
    }
}

/// The statistic of a row, in registers.
#[derive(Clone, Copy)]
pub(super) struct Unit<V> {
    /// The mean, rounded.
    mean: V,
    /// The rounding error of the mean.
    rest: V,
    /// The factor of the difference from the mean.
    scale: V,
}

impl<V: Vector> Unit<V> {
    /// # Safety
    /// The instruction set must be available. Same below.
    #[inline(always)]
    pub(super) unsafe fn of(stats: StatisticsView<'_, V::T>, s: usize) -> Self {
        let (mean, rest) = stats.mean[s];
        // SAFETY: guaranteed by the caller. Same below.
        unsafe { Self { mean: V::all(mean), rest: V::all(rest), scale: V::all(stats.scale[s]) } }
    }

    /// `x` without the mean.
    #[inline(always)]
    pub(super) unsafe fn centred(self, x: V) -> V {
        // SAFETY: as above.
        unsafe { x.sub(self.mean).sub(self.rest) }
    }
}

/// Normalizes a part by statistics from number `first` on.
pub(super) struct Write<'a, E: Stored> {
    /// The operands and the output.
    pub target: &'a Target<'a, E>,
    /// The part of the array.
    pub part: &'a BroadcastLayout,
    /// The means and factors of the statistics.
    pub stats: StatisticsView<'a, E::Wide>,
    /// The number of the first statistic.
    pub first: usize,
}

impl<E: Stored> Work<E::Wide> for Write<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        let Self { target, part, stats, first } = self;
        let (x, y) = (target.x.as_ptr(), target.y.get());
        let (n, by_params) = (part.width(), part.last_varies().1);
        let Tail { activation, .. } = target.tail;
        part.walk(
            0..part.rows(),
            #[inline(always)]
            // SAFETY: the row is one of `x` and `y`, its parameters are there, and so are the instructions.
            |s, p, i| unsafe {
                let unit = Unit::<V>::of(stats, s - first);
                let (x, y) = (x.add(i), y.add(i));
                let (gamma, beta) = (&target.gamma[p..], &target.beta[p..]);
                if by_params {
                    let (gamma, beta) = (gamma.as_ptr(), beta.as_ptr());
                    each::<V>(
                        n,
                        #[inline(always)]
                        |at| {
                            let v = unit.centred(at.load(x)).mul(unit.scale);
                            at.store(activation.on(v.mul(at.load(gamma)).add(at.load(beta))), y);
                        },
                    );
                } else {
                    let (scale, beta) = (V::all(stats.scale[s - first] * gamma[0]), V::all(beta[0]));
                    each::<V>(
                        n,
                        #[inline(always)]
                        |at| at.store(activation.on(unit.centred(at.load(x)).mul(scale).add(beta)), y),
                    );
                }
                target.tail.finish(y, n, 1, n);
            },
        );
    }
}
