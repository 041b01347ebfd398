//! Normalisation by mean and variance. Knows slices and how they meet; knows no operations, graphs or Python.
//!
//! Sums run in float64 and in an order that the shape alone decides: of float64 in two passes, the second over what is
//! left of the mean.
//! Where statistics belong to parts of an array, all passes over a part come before the next one, while it is in the cache.

use super::Float;
use super::pairing::Pairing;
use super::scratch::Zeros;
use super::threads::Shared;

/// How an array meets its statistics and its scale.
pub struct Layout {
    /// Statistics are the first array, scales the second.
    pairing: Pairing,
    /// Number of means and variances.
    pub n_stats: usize,
    /// Number of scales and offsets.
    pub n_params: usize,
}

impl Layout {
    /// The layout of an array of lengths `dims` with statistics for each index of the axes that are `kept`, and a
    /// scale for each index of those that are `scaled`.
    pub fn new(dims: &[usize], kept: &[bool], scaled: &[bool]) -> Self {
        let count = |of: &[bool]| dims.iter().zip(of).filter(|(_, of)| **of).map(|(d, _)| d).product();
        let pairing = Pairing::of_axes(dims, kept, scaled);
        Self { pairing, n_stats: count(kept), n_params: count(scaled) }
    }

    /// Number of elements behind each statistic.
    pub fn count(&self) -> usize {
        self.pairing.size() / self.n_stats.max(1)
    }
}

/// Means and variances as elements are normalised by them.
#[derive(Clone, Debug, Default)]
pub struct Stats<T> {
    /// Mean, and what rounding took off it: a large mean costs no digits of what is around it.
    mean: Vec<(T, T)>,
    /// `1 / sqrt(variance + eps)`.
    scale: Vec<T>,
}

impl<T: Float> Stats<T> {
    /// From means and variances.
    pub fn new(mean: &[f64], variance: &[f64], eps: f64) -> Self {
        let scale = variance.iter().map(|v| T::of(1.0 / (v + eps).sqrt())).collect();
        Self { mean: split(mean), scale }
    }

    /// Number of statistics.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.scale.len()
    }

    /// A view, which loops hold by value: what lies behind a reference would be loaded anew for each element.
    fn view(&self) -> View<'_, T> {
        View { mean: &self.mean, scale: &self.scale }
    }
}

#[derive(Clone, Copy)]
struct View<'a, T> {
    mean: &'a [(T, T)],
    scale: &'a [T],
}

impl<T: Float> View<'_, T> {
    /// Element `x`, normalised by statistic `s`.
    ///
    /// # Safety
    /// There must be such a statistic.
    #[inline(always)]
    unsafe fn unit(self, x: T, s: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { centred(x, *self.mean.get_unchecked(s)) * *self.scale.get_unchecked(s) }
    }
}

fn split<T: Float>(mean: &[f64]) -> Vec<(T, T)> {
    let split = |m: &f64| (T::of(*m), T::of(*m - T::of(*m).real()));
    mean.iter().map(split).collect()
}

/// What is left of `x` without the mean.
#[inline(always)]
fn centred<T: Float>(x: T, mean: (T, T)) -> T {
    (x - mean.0) - mean.1
}

/// Means and variances (those of the elements, not an estimate) of a part of `x` that has its own.
fn moments<T: Float>(part: &Pairing, x: &[T], count: f64) -> (Zeros<f64>, Zeros<f64>) {
    if size_of::<T>() < size_of::<f64>() {
        // What the sum of squares loses to a large mean is less than what rounding took off the elements.
        let [mut mean, mut variance] = part.sums(
            #[inline(always)]
            move |_, _, i| {
                // SAFETY: the layout is that of `x`. So below.
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
    let (split, first) = (split(&mean), part.first_a());
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

/// `y = (x - mean) / sqrt(variance + eps) * gamma + beta`, with the means and variances of `x`, which are returned.
pub fn normalize<T: Float>(
    layout: &Layout,
    eps: f64,
    x: &[T],
    gamma: Option<&[T]>,
    beta: Option<&[T]>,
    y: &mut [T],
) -> (Vec<f64>, Vec<f64>) {
    let count = layout.count() as f64;
    let (mut mean, mut variance) = (vec![0.0; layout.n_stats], vec![0.0; layout.n_stats]);
    let (to_mean, to_variance) = (Shared::new(mean.as_mut_ptr()), Shared::new(variance.as_mut_ptr()));
    let affine = Affine::new(layout, gamma, beta);
    assert!(x.len() == layout.pairing.size() && y.len() == x.len());
    let y = Shared::new(y.as_mut_ptr());
    layout.pairing.slabs(|part| {
        let (mean, variance) = moments(part, x, count);
        let (stats, first) = (Stats::new(&mean, &variance, eps), part.first_a());
        // SAFETY: each statistic is in one part.
        unsafe {
            to_mean.get().add(first).copy_from_nonoverlapping(mean.as_ptr(), mean.len());
            to_variance.get().add(first).copy_from_nonoverlapping(variance.as_ptr(), variance.len());
        }
        affine.write(part, &stats, first, x, y);
    });
    (mean, variance)
}

/// As [`normalize`], by the statistics that are given.
pub fn normalize_by<T: Float>(
    layout: &Layout,
    stats: &Stats<T>,
    x: &[T],
    gamma: Option<&[T]>,
    beta: Option<&[T]>,
    y: &mut [T],
) {
    assert!(x.len() == layout.pairing.size() && y.len() == x.len() && stats.len() == layout.n_stats);
    let y = Shared::new(y.as_mut_ptr());
    Affine::new(layout, gamma, beta).write(&layout.pairing, stats, 0, x, y);
}

/// Scales and offsets: ones and zeros where they are not given.
struct Affine<T> {
    gamma: Vec<T>,
    beta: Vec<T>,
}

impl<T: Float> Affine<T> {
    fn new(layout: &Layout, gamma: Option<&[T]>, beta: Option<&[T]>) -> Self {
        let all = |given: Option<&[T]>, v| given.map_or_else(|| vec![v; layout.n_params], <[T]>::to_vec);
        let new = Self { gamma: all(gamma, T::ONE), beta: all(beta, T::ZERO) };
        assert!(new.gamma.len() == layout.n_params && new.beta.len() == layout.n_params);
        new
    }

    /// Writes a part of `y`, whose statistics are numbered from `first` on. All lengths are those of the layout.
    fn write(&self, part: &Pairing, stats: &Stats<T>, first: usize, x: &[T], y: Shared<T>) {
        let (stats, gamma, beta) = (stats.view(), &self.gamma[..], &self.beta[..]);
        // SAFETY: the caller's lengths; each element is written once.
        unsafe {
            part.write(
                y,
                false,
                #[inline(always)]
                move |s, p, i| {
                    let unit = stats.unit(*x.get_unchecked(i), s - first);
                    unit * *gamma.get_unchecked(p) + *beta.get_unchecked(p)
                },
            );
        }
    }
}

/// The gradients of a normalisation, each reading no more of `x` and `gamma` than its formula says.
pub struct Gradients<'a, T> {
    layout: &'a Layout,
    stats: &'a Stats<T>,
    x: &'a [T],
    gamma: Vec<T>,
    gy: &'a [T],
}

impl<'a, T: Float> Gradients<'a, T> {
    /// Of what [`normalize`] made with these statistics of `x` and `gamma`; `gy` is the gradient of `y`.
    pub fn new(
        layout: &'a Layout,
        stats: &'a Stats<T>,
        x: &'a [T],
        gamma: Option<&[T]>,
        gy: &'a [T],
    ) -> Self {
        let gamma = Affine::new(layout, gamma, None).gamma;
        assert!(x.len() == layout.pairing.size() && gy.len() == x.len() && stats.len() == layout.n_stats);
        Self { layout, stats, x, gamma, gy }
    }

    /// Where gradients by `x` go.
    fn target(&self, gx: &mut [T]) -> Shared<T> {
        assert_eq!(gx.len(), self.gy.len());
        Shared::new(gx.as_mut_ptr())
    }

    /// What the loops hold.
    fn terms(&self) -> Terms<'_, T> {
        Terms { stats: self.stats.view(), x: self.x, gamma: &self.gamma, gy: self.gy }
    }

    /// By `beta`.
    pub fn beta(&self) -> Vec<T> {
        let terms = self.terms();
        let [beta] = self.layout.pairing.clone().swapped().sums(
            #[inline(always)]
            // SAFETY: the indices are those of the layout. So below.
            move |_, _, i| [unsafe { terms.gy(i) }.real()],
        );
        rounded(&beta)
    }

    /// By `beta` and by `gamma`.
    pub fn beta_and_gamma(&self) -> [Vec<T>; 2] {
        let terms = self.terms();
        let sums = self.layout.pairing.clone().swapped().sums(
            #[inline(always)]
            // SAFETY: as above.
            move |_, s, i| unsafe { [terms.gy(i).real(), (terms.gy(i) * terms.unit(i, s)).real()] },
        );
        sums.map(|sums| rounded(&sums))
    }

    /// By the mean and by the variance that were given; the latter reads `x`.
    pub fn given(&self) -> [Vec<T>; 2] {
        let terms = self.terms();
        let [by_mean, by_variance] = self.layout.pairing.sums(
            #[inline(always)]
            // SAFETY: as above.
            move |s, p, i| unsafe {
                let g = terms.scaled(i, p);
                [g.real(), (g * terms.unit(i, s)).real()]
            },
        );
        let scale = &self.stats.scale;
        let by_mean = by_mean.iter().zip(scale).map(|(sum, scale)| -T::of(*sum) * *scale).collect();
        let half = T::all(-0.5);
        let by_variance =
            by_variance.iter().zip(scale).map(|(sum, scale)| half * T::of(*sum) * *scale * *scale).collect();
        [by_mean, by_variance]
    }

    /// Writes, or adds, the gradients by `x`, its statistics being given.
    pub fn x_given(&self, gx: &mut [T], accumulate: bool) {
        let (to, terms) = (self.target(gx), self.terms());
        // SAFETY: as above; each element comes once.
        unsafe {
            self.layout.pairing.write(
                to,
                accumulate,
                #[inline(always)]
                move |s, p, i| terms.scaled(i, p) * *terms.stats.scale.get_unchecked(s),
            );
        }
    }

    /// Writes, or adds, the gradients by `x`, its statistics being its own. `outer` are the gradients of mean and
    /// variance, where those are outputs.
    pub fn x(&self, outer: Option<(&[T], &[T])>, gx: &mut [T], accumulate: bool) {
        let to = self.target(gx);
        self.layout.pairing.slabs(|part| self.x_of(part, outer, to, accumulate));
    }

    /// [`Gradients::x`], and those by `beta` and by `gamma` while a part is in the cache.
    pub fn all(&self, outer: Option<(&[T], &[T])>, gx: &mut [T], accumulate: bool) -> [Vec<T>; 2] {
        let (to, terms, pairing) = (self.target(gx), self.terms(), &self.layout.pairing);
        let [beta, gamma] = pairing.sums_by_slab(
            self.layout.n_params,
            |part| self.x_of(part, outer, to, accumulate),
            #[inline(always)]
            // SAFETY: as above.
            move |_, s, i| unsafe { [terms.gy(i).real(), (terms.gy(i) * terms.unit(i, s)).real()] },
        );
        [rounded(&beta), rounded(&gamma)]
    }

    fn x_of(&self, part: &Pairing, outer: Option<(&[T], &[T])>, to: Shared<T>, accumulate: bool) {
        let (count, terms) = (self.layout.count() as f64, self.terms());
        let sums = part.sums(
            #[inline(always)]
            // SAFETY: as above.
            move |s, p, i| unsafe {
                let g = terms.scaled(i, p);
                [g.real(), (g * terms.unit(i, s)).real()]
            },
        );
        let first = part.first_a();
        let pull = |k: usize| -> Vec<T> { sums[k].iter().map(|sum| T::of(sum / count)).collect() };
        let (mut pull, mut more) = (pull(0), pull(1));
        if let Some((by_mean, by_variance)) = outer {
            // Mean and variance pull with a scale of their own: that of the element is taken off before.
            let (one, two) = (T::of(1.0 / count), T::of(2.0 / count));
            for (s, (pull, more)) in pull.iter_mut().zip(&mut more).enumerate() {
                let scale = self.stats.scale[first + s];
                *pull = *pull - one * by_mean[first + s] / scale;
                *more = *more - two * by_variance[first + s] / (scale * scale);
            }
        }
        let (pull, more) = (&pull[..], &more[..]);
        // SAFETY: as above; each element comes once.
        unsafe {
            part.write(
                to,
                accumulate,
                #[inline(always)]
                move |s, p, i| {
                    let (pull, more) = (*pull.get_unchecked(s - first), *more.get_unchecked(s - first));
                    let g = terms.scaled(i, p) - pull - terms.unit(i, s) * more;
                    g * *terms.stats.scale.get_unchecked(s)
                },
            );
        }
    }
}

#[derive(Clone, Copy)]
struct Terms<'a, T> {
    stats: View<'a, T>,
    x: &'a [T],
    gamma: &'a [T],
    gy: &'a [T],
}

impl<T: Float> Terms<'_, T> {
    /// # Safety
    /// There must be such an element and statistic. So below.
    #[inline(always)]
    unsafe fn unit(self, i: usize, s: usize) -> T {
        // SAFETY: the caller's promise. So below.
        unsafe { self.stats.unit(*self.x.get_unchecked(i), s) }
    }

    #[inline(always)]
    unsafe fn gy(self, i: usize) -> T {
        // SAFETY: as above.
        unsafe { *self.gy.get_unchecked(i) }
    }

    /// Gradient of the normalised element.
    #[inline(always)]
    unsafe fn scaled(self, i: usize, p: usize) -> T {
        // SAFETY: as above.
        unsafe { self.gy(i) * *self.gamma.get_unchecked(p) }
    }
}

fn rounded<T: Float>(sums: &[f64]) -> Vec<T> {
    sums.iter().map(|sum| T::of(*sum)).collect()
}

#[cfg(test)]
mod tests;
