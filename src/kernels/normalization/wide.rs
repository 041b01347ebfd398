//! Statistics that the precision of the elements cannot represent, in float64: of numbers whose squares overflow,
//! underflow or lose digits.

use super::{GradientPlan, Gradients, NormLayout, StatisticsView, Target};
use crate::array::Element;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::sixteen_bits::StoredElements;
use crate::kernels::{Float, Stored};

/// The factor for float64 numbers whose squares overflow: scales them well into the range of float64.
const DOWN: f64 = f64::from_bits((1023 - 540) << 52);
/// The factor for float64 numbers whose squares underflow.
const UP: f64 = f64::from_bits((1023 + 600) << 52);
/// Numbers below this stay finite when they are scaled up.
const SMALL: f64 = f64::from_bits((1023 - 400) << 52);

/// The normalization by one statistic: `(x * factor - mean) * scale`.
#[derive(Clone, Copy)]
pub struct WideStatistic {
    /// The number of the statistic.
    pub(super) s: usize,
    /// Brings elements into the range in which squares are finite.
    factor: f64,
    /// The mean of the elements times `factor`.
    mean: f64,
    /// One over the standard deviation of the elements times `factor`.
    scale: f64,
}

impl WideStatistic {
    /// The scaled element minus the mean.
    #[inline(always)]
    fn centred<T: Float>(self, x: T) -> f64 {
        x.real() * self.factor - self.mean
    }

    /// The normalized element.
    #[inline(always)]
    fn unit<T: Float>(self, x: T) -> f64 {
        self.centred(x) * self.scale
    }

    /// One over the deviation.
    pub(super) fn inverse_deviation(self) -> f64 {
        self.scale * self.factor
    }

    /// The standard deviation.
    pub(super) fn deviation(self) -> f64 {
        1.0 / self.scale / self.factor
    }
}

/// True if a statistic, its elements without the mean, and the squares of its scale are well within the range of `T`.
#[inline(always)]
fn fits<T: Float>(variance: f64, eps: f64) -> bool {
    // 2^-100 and 2^120 for float32.
    let (least, most) = if size_of::<T>() == size_of::<f64>() { (1e-290, 1e300) } else { (7e-31, 1e36) };
    variance + eps >= least && variance <= most
}

/// Finds the statistics of a part of `x` that `T` cannot represent, and replaces them by the exact means and
/// variances.
///
/// # Safety
/// `x` must have the layout.
#[inline]
pub(super) unsafe fn find<T: Float, const NARROW: bool>(
    part: &BroadcastLayout,
    x: StoredElements<T, NARROW>,
    (count, eps): (f64, f64),
    mean: &mut [f64],
    variance: &mut [f64],
) -> Vec<WideStatistic> {
    if count == 0.0 || variance.iter().all(|variance| fits::<T>(*variance, eps)) {
        return Vec::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        compute::<T>(
            part,
            #[inline(always)]
            move |i| x.real(i),
            (count, eps),
            mean,
            variance,
        )
    }
}

/// Computes the statistics in float64, of scaled elements if necessary, where those in `T` do not fit.
#[cold]
fn compute<T: Float>(
    part: &BroadcastLayout,
    x: impl Fn(usize) -> f64 + Sync + Copy,
    (count, eps): (f64, f64),
    mean: &mut [f64],
    variance: &mut [f64],
) -> Vec<WideStatistic> {
    let is_double = size_of::<T>() == size_of::<f64>();
    let factor = |mean: f64, variance: f64| {
        if fits::<T>(variance, eps) {
            0.0
        } else if !is_double || (variance < 1.0 && mean.abs() >= SMALL) {
            1.0
        } else if variance < 1.0 {
            UP
        } else {
            DOWN
        }
    };
    let factors: List<f64> =
        mean.iter().zip(&*variance).map(|(mean, variance)| factor(*mean, *variance)).collect();
    let (factors, first) = (&factors[..], part.first_a());
    // SAFETY: the statistic is one of the part. So below.
    let [mut means] = part.sums(
        #[inline(always)]
        move |s, _, i| unsafe {
            let factor = *factors.get_unchecked(s - first);
            [if factor == 0.0 { 0.0 } else { x(i) * factor }]
        },
    );
    means.iter_mut().for_each(|mean| *mean /= count);
    let means = &means[..];
    let [squares] = part.sums(
        #[inline(always)]
        // SAFETY: as above.
        move |s, _, i| unsafe {
            let (factor, mean) = (*factors.get_unchecked(s - first), *means.get_unchecked(s - first));
            let d = if factor == 0.0 { 0.0 } else { x(i) * factor - mean };
            [d * d]
        },
    );
    let mut found = Vec::new();
    for (i, factor) in factors.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
        let square = squares[i] / count;
        let scale = 1.0 / (square + eps * factor * factor).sqrt();
        (mean[i], variance[i]) = (means[i] / factor, square / factor / factor);
        found.push(WideStatistic { s: first + i, factor: *factor, mean: means[i], scale });
    }
    found
}

/// Normalizes the elements of a part whose statistics are wide.
#[cold]
pub(super) fn write<E: Stored>(target: &Target<'_, E>, part: &BroadcastLayout, wide: &[WideStatistic]) {
    let first = part.first_a();
    let mut of: List<Option<WideStatistic>> = List::repeat(None, part.span());
    for wide in wide {
        of[wide.s - first] = Some(*wide);
    }
    let (n, (by_s, by_p)) = (part.width(), part.last_varies());
    let Target { x, gamma, beta, tail, .. } = target;
    part.walk(0..part.rows(), |s, p, i| {
        let mut is_changed = false;
        for k in 0..n {
            let (s, p) = (if by_s { s + k } else { s }, if by_p { p + k } else { p });
            if let Some(wide) = of[s - first] {
                let v = E::Wide::of(wide.unit(x[i + k].wide())) * gamma[p] + beta[p];
                // SAFETY: the part lies within the output, and no other thread has it. So below.
                unsafe { target.y.get().add(i + k).write(E::narrowed(tail.activation.of(v))) };
                is_changed = true;
            }
        }
        if is_changed && !by_s {
            // SAFETY: as above.
            unsafe { tail.finish(target.y.get().add(i), n, 1, n) };
        }
    });
}

/// Writes the gradient by `x`, and returns the sums for the gradients of parameters, in float64.
#[cold]
pub(super) fn gradients<T: Float>(
    g: &Gradients<'_, T>,
    plan: GradientPlan<T>,
    wide: &[WideStatistic],
) -> [[Zeros<f64>; 2]; 2] {
    let NormLayout { broadcast, n_stats, .. } = g.layout;
    let StatisticsView { mean, scale } = g.stats.view();
    let mut of: List<WideStatistic> = (0..*n_stats)
        .map(|s| WideStatistic {
            s,
            factor: 1.0,
            mean: mean[s].0.real() + mean[s].1.real(),
            scale: scale[s].real(),
        })
        .collect();
    for wide in wide {
        of[wide.s] = *wide;
    }
    let (of, x, gy, gamma) = (&of[..], g.x, g.gy, &g.gamma[..]);
    let none = || [(); 2].map(|()| Zeros::new(0));
    let params = match plan.params {
        true => broadcast.clone().swapped().sums(
            #[inline(always)]
            // SAFETY: the indices come from the layout. So below.
            move |_, s, i| unsafe {
                let g = gy.get_unchecked(i).real();
                [g, g * of.get_unchecked(s).unit(*x.get_unchecked(i))]
            },
        ),
        false => none(),
    };
    let stats = || [(); 2].map(|()| Zeros::new(*n_stats));
    let Some((gx, accumulate)) = plan.gx else { return [params, stats()] };
    // SAFETY: as above.
    let scaled =
        move |i: usize, p: usize| unsafe { gy.get_unchecked(i).real() * gamma.get_unchecked(p).real() };
    let sums = broadcast.sums(
        #[inline(always)]
        // SAFETY: as above.
        move |s, p, i| unsafe {
            let g = scaled(i, p);
            [g, g * of.get_unchecked(s).unit(*x.get_unchecked(i))]
        },
    );
    let count = g.layout.count() as f64;
    let (even, far) = (&sums[0][..], &sums[1][..]);
    let outer = g.outer;
    // SAFETY: as above; each element comes once.
    unsafe {
        broadcast.write(
            gx,
            accumulate,
            #[inline(always)]
            move |s, p, i| {
                let (wide, x) = (*of.get_unchecked(s), *x.get_unchecked(i));
                let pull = (*even.get_unchecked(s) + *far.get_unchecked(s) * wide.unit(x)) / count;
                let mut gx = (scaled(i, p) - pull) * wide.scale * wide.factor;
                if let Some((by_mean, by_variance)) = outer {
                    let far = 2.0 * by_variance.get_unchecked(s).real() * (wide.centred(x) / wide.factor);
                    gx += (by_mean.get_unchecked(s).real() + far) / count;
                }
                T::of(gx)
            },
        );
    }
    [params, stats()]
}
