//! Normalization by mean and variance. Knows slices and how they broadcast, not operations or graphs.
//!
//! If neighbours have the same statistics, sums run along rows in registers. The mean of a float32 row is found in two
//! steps: a first mean, and the mean of the differences from it. Each sum is off by at most 14 roundings of its terms
//! (see `simd::row`). So the error of the mean is a fraction of a rounding. Other sums run in float64. The order of
//! sums depends on the shape only. If parts of an array have separate statistics, all passes over a part are done
//! while it is in the cache.
//!
//! Statistics beyond the range of the elements, such as the variance of 1e30 in float32, are computed again in
//! float64. So are the elements that they normalize, and their gradients.
//!
//! Elements of 16 bits are widened and rounded in registers along rows, and otherwise in scratch memory.

mod columns;
mod in_place;
mod row_gradients;
mod rows;
mod tail;
mod wide;

use super::broadcast::BroadcastLayout;
use super::epilogue::{Activation, Tail};
use super::scratch::{List, SavedMemory, Zeros};
use super::sixteen_bits::{StoredElements, in_numbers, is_narrow, wide_numbers};
use super::threads::Shared;
use super::{Float, Movable, Number, Stored};
use crate::array::Element;
pub use in_place::InPlace;
use parking_lot::Mutex;
pub use tail::NormalizeAdd;
pub use wide::WideStatistic;

/// The broadcast of statistics and scales over an array.
pub struct NormLayout {
    /// Statistics are array `a`, scales are array `b`.
    broadcast: BroadcastLayout,
    /// The number of means and variances.
    pub n_stats: usize,
    /// The number of scales and offsets.
    pub n_params: usize,
}

impl NormLayout {
    /// The layout for an array of lengths `dims`. It has statistics for each index of the `kept` axes, and scales for
    /// each index of the `scaled` axes.
    pub fn new(dims: &[usize], kept: &[bool], scaled: &[bool]) -> Self {
        let count = |of: &[bool]| dims.iter().zip(of).filter(|(_, of)| **of).map(|(d, _)| d).product();
        let broadcast = BroadcastLayout::of_axes(dims, kept, scaled);
        Self { broadcast, n_stats: count(kept), n_params: count(scaled) }
    }

    /// The number of elements of each statistic.
    pub fn count(&self) -> usize {
        self.broadcast.size() / self.n_stats.max(1)
    }

    /// True if neighbours along the last axis have the same statistics.
    fn in_rows(&self) -> bool {
        !self.broadcast.last_varies().0
    }
}

/// Means and inverse deviations for the normalization of elements.
pub struct Stats<T> {
    /// The mean in two parts, rounded and rest, so that a large mean does not lose digits of the difference.
    mean: SavedMemory<(T, T)>,
    /// `1 / sqrt(variance + eps)`.
    scale: SavedMemory<T>,
    /// Statistics that `T` cannot represent.
    wide: Vec<WideStatistic>,
}

impl<T> Default for Stats<T> {
    fn default() -> Self {
        Self { mean: SavedMemory::default(), scale: SavedMemory::default(), wide: Vec::new() }
    }
}

impl<T: Float> Stats<T> {
    /// The statistics with these means and variances.
    pub fn new(mean: &[f64], variance: &[f64], eps: f64) -> Self {
        let mut stats = Self::default();
        stats.set(mean, variance, eps);
        stats
    }

    /// Replaces the statistics by those with these means and variances.
    pub fn set(&mut self, mean: &[f64], variance: &[f64], eps: f64) {
        self.mean.set(split::<T>(mean));
        self.scale.set(scales::<T>(variance, eps));
        self.wide.clear();
    }

    /// Sets the statistics of elements.
    pub fn set_moments(&mut self, moments: &Moments, eps: f64) {
        self.set(&moments.mean, &moments.variance, eps);
        for wide in &moments.wide {
            self.scale[wide.s] = T::of(wide.inverse_deviation());
        }
        self.wide.extend_from_slice(&moments.wide);
    }

    /// The statistics by value, for a loop.
    fn view(&self) -> StatisticsView<'_, T> {
        StatisticsView { mean: &self.mean, scale: &self.scale }
    }

    /// The number of statistics.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.scale.len()
    }
}

/// Each mean as a rounded number and the rest.
fn split<T: Float>(mean: &[f64]) -> impl ExactSizeIterator<Item = (T, T)> {
    mean.iter().map(|m| (T::of(*m), T::of(*m - T::of(*m).real())))
}

/// The inverse deviations. NaN for an infinite variance, which says nothing about the elements.
fn scales<T: Float>(variance: &[f64], eps: f64) -> impl ExactSizeIterator<Item = T> {
    variance.iter().map(move |v| T::of(if *v == f64::INFINITY { f64::NAN } else { 1.0 / (v + eps).sqrt() }))
}

/// Means and variances of elements.
pub struct Moments {
    /// The means.
    pub mean: Zeros<f64>,
    /// The variances of the elements (not the unbiased estimate).
    pub variance: Zeros<f64>,
    /// Statistics that need scaled elements, because squares overflow or underflow.
    wide: Vec<WideStatistic>,
}

/// Elements that are numbers. Elements of 16 bits are processed elsewhere.
fn numbers_of<E: Stored>(x: &[E]) -> &[E::Wide] {
    // SAFETY: all elements are borrowed as numbers of their type.
    unsafe { std::slice::from_raw_parts(StoredElements::<_, false>::of(x).numbers(), x.len()) }
}

/// The moments of a part of `x` with separate statistics.
fn moments<E: Stored>(layout: &NormLayout, part: &BroadcastLayout, x: &[E], eps: f64) -> Moments {
    let count = layout.count() as f64;
    let (mut mean, mut variance) = if layout.in_rows() {
        E::with_registers(rows::FindMoments { part, x, count })
    } else {
        columns::moments(part, numbers_of(x), count)
    };
    let (mean_at, variance_at, by) = (&mut *mean, &mut *variance, (count, eps));
    // SAFETY: `x` has this layout.
    let wide = unsafe {
        match is_narrow::<E>() {
            true => wide::find::<_, true>(part, StoredElements::of(x), by, mean_at, variance_at),
            false => wide::find::<_, false>(part, StoredElements::of(x), by, mean_at, variance_at),
        }
    };
    Moments { mean, variance, wide }
}

/// `sqrt(variance + eps)` for each statistic of `x`.
pub fn deviations<T: Float>(layout: &NormLayout, eps: f64, x: &[T], y: &mut [T]) {
    assert!(x.len() == layout.broadcast.size() && y.len() == layout.n_stats);
    let to = Shared::new(y.as_mut_ptr());
    layout.broadcast.slabs(&|part| {
        let Moments { variance, wide, .. } = moments(layout, part, x, eps);
        let mut all: List<T> = variance.iter().map(|variance| T::of((variance + eps).sqrt())).collect();
        let first = part.first_a();
        for wide in &wide {
            all[wide.s - first] = T::of(wide.deviation());
        }
        // SAFETY: each statistic is in one part.
        unsafe { to.get().add(first).copy_from_nonoverlapping(all.as_ptr(), all.len()) };
    });
}

/// [`Stats`] by value, so that loops need not load the pointers again for each element.
#[derive(Clone, Copy)]
struct StatisticsView<'a, T> {
    /// Means, rounded, and their rounding errors.
    mean: &'a [(T, T)],
    /// The factors of the differences from the means.
    scale: &'a [T],
}

/// The output of a normalization, and its operands.
struct Target<'a, E: Stored> {
    /// How statistics and parameters broadcast over the elements.
    layout: &'a NormLayout,
    /// The input.
    x: &'a [E],
    /// The factor of each parameter.
    gamma: List<E::Wide>,
    /// The number added for each parameter.
    beta: List<E::Wide>,
    /// The output.
    y: Shared<E>,
    /// Functions applied to parts that are complete. None for elements of 16 bits.
    tail: Tail<'a>,
}

impl<'a, E: Stored> Target<'a, E> {
    /// Asserts that `x` and `y` have the size of the layout. Without `gamma` or `beta`, all factors are 1 and all
    /// shifts 0.
    fn new(
        layout: &'a NormLayout,
        x: &'a [E],
        gamma: Option<&[E::Wide]>,
        beta: Option<&[E::Wide]>,
        y: &mut [E],
        tail: Tail<'a>,
    ) -> Self {
        assert!(x.len() == layout.broadcast.size() && y.len() == x.len());
        assert!(tail.rows.is_none() || !is_narrow::<E>());
        let (gamma, beta) = (or_all(layout, gamma, E::Wide::ONE), or_all(layout, beta, E::Wide::ZERO));
        Self { layout, x, gamma, beta, y: Shared::new(y.as_mut_ptr()), tail }
    }

    /// Normalizes a part by statistics from number `first` on.
    fn write(&self, part: &BroadcastLayout, stats: StatisticsView<'_, E::Wide>, first: usize) {
        if self.layout.in_rows() {
            return E::with_registers(rows::Write { target: self, part, stats, first });
        }
        let (x, y, gamma, beta) = (numbers_of(self.x), self.y.get().cast(), &*self.gamma, &*self.beta);
        columns::write(part, stats, first, x, (gamma, beta, self.tail.activation), Shared::new(y));
    }
}

/// The given parameters, or `v` for each.
fn or_all<T: Float>(layout: &NormLayout, given: Option<&[T]>, v: T) -> List<T> {
    let all: List<T> = match given {
        Some(given) => given.iter().copied().collect(),
        None => std::iter::repeat_n(v, layout.n_params).collect(),
    };
    assert_eq!(all.len(), layout.n_params);
    all
}

/// Computes `y = tail((x - mean) / sqrt(variance + eps) * gamma + beta)` with the means and variances of `x`, which
/// are returned.
pub fn normalize<E: Stored>(
    layout: &NormLayout,
    eps: f64,
    x: &[E],
    gamma: Option<&[E::Wide]>,
    beta: Option<&[E::Wide]>,
    y: &mut [E],
    tail: Tail<'_>,
) -> Moments {
    if !layout.in_rows() && is_narrow::<E>() {
        return in_numbers(x, y, |x, y| normalize(layout, eps, x, gamma, beta, y, tail));
    }
    let (mut mean, mut variance) = (Zeros::<f64>::new(layout.n_stats), Zeros::<f64>::new(layout.n_stats));
    let (to_mean, to_variance) = (Shared::new(mean.as_mut_ptr()), Shared::new(variance.as_mut_ptr()));
    let target = Target::new(layout, x, gamma, beta, y, tail);
    let all_wide = Mutex::new(Vec::new());
    layout.broadcast.slabs(&|part| {
        let Moments { mean, variance, wide } = moments(layout, part, x, eps);
        let first = part.first_a();
        // SAFETY: each statistic is in one part.
        unsafe {
            to_mean.get().add(first).copy_from_nonoverlapping(mean.as_ptr(), mean.len());
            to_variance.get().add(first).copy_from_nonoverlapping(variance.as_ptr(), variance.len());
        }
        let (mean, scale): (List<_>, List<_>) = (split(&mean).collect(), scales(&variance, eps).collect());
        target.write(part, StatisticsView { mean: &mean, scale: &scale }, first);
        if !wide.is_empty() {
            wide::write(&target, part, &wide);
            all_wide.lock().extend(wide);
        }
    });
    finish_columns(layout, y, tail);
    Moments { mean, variance, wide: all_wide.into_inner() }
}

/// Computes the same `y` as [`normalize`], with given means and variances.
pub fn normalize_by<E: Stored>(
    layout: &NormLayout,
    stats: &Stats<E::Wide>,
    x: &[E],
    gamma: Option<&[E::Wide]>,
    beta: Option<&[E::Wide]>,
    y: &mut [E],
    tail: Tail<'_>,
) {
    assert_eq!(stats.len(), layout.n_stats);
    if !layout.in_rows() && is_narrow::<E>() {
        return in_numbers(x, y, |x, y| normalize_by(layout, stats, x, gamma, beta, y, tail));
    }
    let target = Target::new(layout, x, gamma, beta, y, tail);
    layout.broadcast.slabs(&|part| target.write(part, stats.view(), 0));
    finish_columns(layout, y, tail);
}

/// Applies the tail to a result that was not written row by row.
fn finish_columns<E: Stored>(layout: &NormLayout, y: &mut [E], tail: Tail<'_>) {
    if !layout.in_rows() {
        let numbers = StoredElements::<_, false>::of_mut(y).numbers();
        // SAFETY: all elements are borrowed as numbers of their type.
        let y = unsafe { std::slice::from_raw_parts_mut(numbers, y.len()) };
        Tail { activation: Activation::Identity, ..tail }.finish_all(y);
    }
}

/// Numbers for each mean, and for each variance.
pub type OfStatistics<'a, T> = (&'a [T], &'a [T]);

/// The operands of the gradients of a normalization.
pub struct Gradients<'a, E: Stored> {
    /// How statistics and parameters broadcast over the elements.
    layout: &'a NormLayout,
    /// The means and factors of the forward run.
    stats: &'a Stats<E::Wide>,
    /// The input.
    x: &'a [E],
    /// The factor of each parameter.
    gamma: List<E::Wide>,
    /// The gradient of the output.
    gy: &'a [E],
    /// True if the statistics were given, and not computed from `x`.
    given: bool,
    /// The gradients of mean and variance, if these are outputs.
    outer: Option<OfStatistics<'a, E::Wide>>,
}

/// The requested gradients.
pub struct Wanted<'a, T> {
    /// The destination of the gradient by `x`, and whether to add to it.
    pub x: Option<(&'a mut [T], bool)>,
    /// Requests the gradients by beta and gamma.
    pub params: bool,
    /// Requests the gradients by the given mean and variance.
    pub stats: bool,
}

/// The gradients by beta and gamma, and by mean and variance. Undefined unless requested.
pub type SmallGradients<T> = [[List<T>; 2]; 2];

/// [`Wanted`], shared by all threads.
#[derive(Clone, Copy)]
struct GradientPlan<T> {
    /// The gradient of the input, and true if it is added to.
    gx: Option<(Shared<T>, bool)>,
    /// True if gradients of the parameters are requested.
    params: bool,
    /// True if sums over the elements of each statistic are needed.
    sums: bool,
}

impl<'a, E: Stored> Gradients<'a, E> {
    /// The gradients of [`normalize`] with these statistics of `x` and `gamma`, or of [`normalize_by`] if the
    /// statistics were `given`. `gy` is the gradient of `y`, and `outer` are the gradients of mean and variance, if
    /// these are outputs. Elements of `x` or `gamma` that no requested formula reads may have any value.
    pub fn new(
        layout: &'a NormLayout,
        (stats, given): (&'a Stats<E::Wide>, bool),
        x: &'a [E],
        gamma: Option<&[E::Wide]>,
        gy: &'a [E],
        outer: Option<OfStatistics<'a, E::Wide>>,
    ) -> Self {
        let gamma = or_all(layout, gamma, E::Wide::ONE);
        assert!(x.len() == layout.broadcast.size() && gy.len() == x.len() && stats.len() == layout.n_stats);
        assert!(
            outer.is_none_or(|(mean, variance)| mean.len() == stats.len() && variance.len() == stats.len())
        );
        Self { layout, stats, x, gamma, gy, given, outer }
    }

    /// Computes the requested gradients. Gradients of elements of 16 bits must not be added to.
    pub fn find(&self, wanted: Wanted<'_, E>) -> SmallGradients<E::Wide> {
        let is_wide = !self.given && !self.stats.wide.is_empty();
        if is_narrow::<E>() && (is_wide || !self.layout.in_rows()) {
            return self.find_in_numbers(wanted);
        }
        let plan = GradientPlan {
            params: wanted.params,
            sums: wanted.stats || (wanted.x.is_some() && !self.given),
            gx: wanted.x.map(|(gx, accumulate)| {
                assert_eq!(gx.len(), self.gy.len());
                (Shared::new(gx.as_mut_ptr()), accumulate)
            }),
        };
        // The sums of gy and of gy (x - mean) / sqrt(variance + eps), for each parameter, and with gamma for each
        // statistic.
        let [params, sums] = if !is_wide && self.layout.in_rows() {
            row_gradients::gradients(self, plan)
        } else {
            let (numbers, plan) = self.numbers(plan);
            match is_wide {
                true => wide::gradients(&numbers, plan, &self.stats.wide),
                false => columns::gradients(&numbers, plan),
            }
        };
        let of = E::Wide::of;
        let scale = &*self.stats.scale;
        let of_mean = sums[0].iter().zip(scale).map(|(sum, scale)| -of(*sum) * *scale).collect();
        let half = E::Wide::all(-0.5);
        let of_variance =
            sums[1].iter().zip(scale).map(|(sum, scale)| half * of(*sum) * *scale * *scale).collect();
        [params.map(|sums| sums.iter().map(|sum| of(*sum)).collect()), [of_mean, of_variance]]
    }

    /// As [`Gradients::find`], with arrays widened in scratch memory.
    #[inline(never)]
    fn find_in_numbers(&self, wanted: Wanted<'_, E>) -> SmallGradients<E::Wide> {
        let Self { layout, stats, x, ref gamma, gy, given, outer } = *self;
        let Wanted { x: gx, params, stats: by_stats } = wanted;
        let with = |x: &[E::Wide], gy: &[E::Wide], gx: Option<&mut [E::Wide]>| {
            let gradients = Gradients::new(layout, (stats, given), x, Some(gamma), gy, outer);
            gradients.find(Wanted { x: gx.map(|gx| (gx, false)), params, stats: by_stats })
        };
        wide_numbers(gy, |gy| match gx {
            Some((gx, _)) => in_numbers(x, gx, |x, gx| with(x, gy, Some(gx))),
            None => wide_numbers(x, |x| with(x, gy, None)),
        })
    }

    /// The same gradients, of elements that are numbers. Elements of 16 bits do not come here.
    fn numbers(&self, plan: GradientPlan<E>) -> (Gradients<'_, E::Wide>, GradientPlan<E::Wide>) {
        let (x, gy) = (numbers_of(self.x), numbers_of(self.gy));
        let Self { layout, stats, ref gamma, given, outer, .. } = *self;
        let GradientPlan { gx, params, sums } = plan;
        let gx = gx.map(|(gx, accumulate)| (Shared::new(gx.get().cast()), accumulate));
        let gamma = gamma.iter().copied().collect();
        (Gradients { layout, stats, x, gamma, gy, given, outer }, GradientPlan { gx, params, sums })
    }

    /// The contribution of statistic `s` to the gradient of its elements: a constant, and a factor of the distance
    /// from the mean. `sums` are over its elements.
    fn pulls(&self, s: usize, sums: [f64; 2]) -> [E::Wide; 2] {
        let (count, of) = (self.layout.count() as f64, E::Wide::of);
        let [even, far] = sums.map(|sum| of(sum / count));
        let Some((by_mean, by_variance)) = self.outer else { return [even, far] };
        // The gradients of mean and variance are not multiplied by the scale of the element later, so it is divided
        // off here.
        let (one, two, scale) = (of(1.0 / count), of(2.0 / count), self.stats.scale[s]);
        [even - one * by_mean[s] / scale, far - two * by_variance[s] / (scale * scale)]
    }
}

#[cfg(test)]
mod tests;
