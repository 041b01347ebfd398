//! Normalization if neighbours have different statistics: sums over columns, in float64.

use super::{GradientPlan, Gradients, StatisticsView};
use crate::kernels::Float;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::epilogue::Activation;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::threads::Shared;

/// `x` without the mean.
#[inline(always)]
fn centred<T: Float>(x: T, mean: (T, T)) -> T {
    (x - mean.0) - mean.1
}

impl<T: Float> StatisticsView<'_, T> {
    /// Element `x`, normalized by statistic `s`.
    ///
    /// # Safety
    /// There must be such a statistic.
    #[inline(always)]
    unsafe fn unit(self, x: T, s: usize) -> T {
        // SAFETY: guaranteed by the caller.
        unsafe { centred(x, *self.mean.get_unchecked(s)) * *self.scale.get_unchecked(s) }
    }
}

/// The means and variances (of the elements, not an estimate) of a part of `x` with separate statistics.
pub(super) fn moments<T: Float>(part: &BroadcastLayout, x: &[T], count: f64) -> (Zeros<f64>, Zeros<f64>) {
    if size_of::<T>() < size_of::<f64>() {
        // The sum of squares loses less to a large mean than the rounding of the elements does.
        let [mut mean, mut variance] = part.sums(
            #[inline(always)]
            move |_, _, i| {
                // SAFETY: `x` has this layout. So below.
                let v = unsafe { *x.get_unchecked(i) }.real();
                [v, v * v]
            },
        );
        for (mean, variance) in mean.iter_mut().zip(&mut *variance) {
            *mean /= count;
            *variance = (*variance / count - *mean * *mean).max(0.0);
        }
        return (mean, variance);
    }
    let [mut mean] = part.sums(
        #[inline(always)]
        // SAFETY: as above.
        move |_, _, i| [unsafe { *x.get_unchecked(i) }.real()],
    );
    for sum in &mut *mean {
        *sum /= count;
    }
    let (split, first): (List<_>, _) = (super::split(&mean).collect(), part.first_a());
    let split = &split[..];
    let [mut variance] = part.sums(
        #[inline(always)]
        move |s, _, i| {
            // SAFETY: as above, and there is a mean for each statistic of the part.
            let d = unsafe { centred(*x.get_unchecked(i), *split.get_unchecked(s - first)) }.real();
            [d * d]
        },
    );
    for sum in &mut *variance {
        *sum /= count;
    }
    (mean, variance)
}

/// Normalizes a part by statistics from number `first` on.
pub(super) fn write<T: Float>(
    part: &BroadcastLayout,
    stats: StatisticsView<'_, T>,
    first: usize,
    x: &[T],
    (gamma, beta, activation): (&[T], &[T], Activation),
    y: Shared<T>,
) {
    // SAFETY: the lengths match the layout; each element is written once.
    unsafe {
        part.write(
            y,
            false,
            #[inline(always)]
            move |s, p, i| {
                let unit = stats.unit(*x.get_unchecked(i), s - first);
                activation.of(unit * *gamma.get_unchecked(p) + *beta.get_unchecked(p))
            },
        );
    }
}

/// The arrays that the sums of a gradient read.
#[derive(Clone, Copy)]
struct Terms<'a, T> {
    /// The means and factors of the statistics.
    stats: StatisticsView<'a, T>,
    /// The input.
    x: &'a [T],
    /// The factor of each parameter.
    gamma: &'a [T],
    /// The gradient of the output.
    gy: &'a [T],
}

impl<T: Float> Terms<'_, T> {
    /// # Safety
    /// There must be such an element and statistic. So below.
    #[inline(always)]
    unsafe fn unit(self, i: usize, s: usize) -> T {
        // SAFETY: guaranteed by the caller. Same below.
        unsafe { self.stats.unit(*self.x.get_unchecked(i), s) }
    }

    /// The gradient of output element `i`.
    #[inline(always)]
    unsafe fn gy(self, i: usize) -> T {
        // SAFETY: as above.
        unsafe { *self.gy.get_unchecked(i) }
    }

    /// The gradient of the normalized element.
    #[inline(always)]
    unsafe fn scaled(self, i: usize, p: usize) -> T {
        // SAFETY: as above.
        unsafe { self.gy(i) * *self.gamma.get_unchecked(p) }
    }
}

/// Writes the gradient by `x`. Returns the sums for the gradients of parameters and of statistics.
pub(super) fn gradients<T: Float>(g: &Gradients<'_, T>, plan: GradientPlan<T>) -> [[Zeros<f64>; 2]; 2] {
    let (broadcast, n_stats) = (&g.layout.broadcast, g.layout.n_stats);
    let terms = Terms { stats: g.stats.view(), x: g.x, gamma: &g.gamma, gy: g.gy };
    let none = || [(); 2].map(|()| Zeros::new(0));
    let of_params = || {
        broadcast.clone().swapped().sums(
            #[inline(always)]
            // SAFETY: the indices come from the layout. So below.
            move |_, s, i| unsafe { [terms.gy(i).real(), (terms.gy(i) * terms.unit(i, s)).real()] },
        )
    };
    let of_stats = |part: &BroadcastLayout| {
        part.sums(
            #[inline(always)]
            // SAFETY: as above.
            move |s, p, i| unsafe {
                let g = terms.scaled(i, p);
                [g.real(), (g * terms.unit(i, s)).real()]
            },
        )
    };
    if broadcast.is_same() {
        // Each statistic has the same elements as its parameters.
        let params = if plan.params || plan.sums { of_params() } else { none() };
        let by_gamma = |sums: &[f64]| {
            let mut all = Zeros::new(sums.len());
            all.iter_mut().zip(sums).zip(&*g.gamma).for_each(|((to, sum), gamma)| *to = sum * gamma.real());
            all
        };
        // An infinite factor is one of each term: infinities of both signs add up to NaN.
        let sums = match g.gamma.iter().all(|gamma| gamma.real().is_finite()) {
            true => params.each_ref().map(|sums| by_gamma(sums)),
            false => of_stats(broadcast),
        };
        if plan.gx.is_some() {
            write_x(g, terms, plan, broadcast, &sums);
        }
        return [params, sums];
    }
    let params = if plan.params { of_params() } else { none() };
    if g.given {
        let sums = if plan.sums { of_stats(broadcast) } else { none() };
        write_x(g, terms, plan, broadcast, &sums);
        return [params, sums];
    }
    broadcast.slabs(&|part| {
        if plan.gx.is_some() {
            write_x(g, terms, plan, part, &of_stats(part));
        }
    });
    [params, [(); 2].map(|()| Zeros::new(n_stats))]
}

/// Writes the gradient by `x` of a part, from the sums of its statistics.
fn write_x<T: Float>(
    g: &Gradients<'_, T>,
    terms: Terms<'_, T>,
    plan: GradientPlan<T>,
    part: &BroadcastLayout,
    sums: &[Zeros<f64>; 2],
) {
    let Some((gx, accumulate)) = plan.gx else { return };
    if g.given {
        // SAFETY: the indices come from the layout; each element comes once. So below.
        return unsafe {
            part.write(
                gx,
                accumulate,
                #[inline(always)]
                move |s, p, i| terms.scaled(i, p) * *terms.stats.scale.get_unchecked(s),
            );
        };
    }
    let first = part.first_a();
    let (mut even, mut far) = (List::with_capacity(sums[0].len()), List::with_capacity(sums[0].len()));
    for (s, (of_even, of_far)) in sums[0].iter().zip(&*sums[1]).enumerate() {
        let pulls = g.pulls(first + s, [*of_even, *of_far]);
        even.push(pulls[0]);
        far.push(pulls[1]);
    }
    let (even, far) = (&even[..], &far[..]);
    // SAFETY: as above.
    unsafe {
        part.write(
            gx,
            accumulate,
            #[inline(always)]
            move |s, p, i| {
                let (even, far) = (*even.get_unchecked(s - first), *far.get_unchecked(s - first));
                (terms.scaled(i, p) - even - terms.unit(i, s) * far) * *terms.stats.scale.get_unchecked(s)
            },
        );
    }
}
