//! Normalisation by mean and variance. Knows slices and how they meet; knows no operations, graphs or Python.
//!
//! Sums run in float64 and in a fixed order: two passes, the second over what is left of the mean.

use smallvec::SmallVec;

use super::Float;

/// How an array meets its statistics and its scale: axes that run together are merged.
pub struct Layout {
    dims: SmallVec<[usize; 4]>,
    stat: SmallVec<[usize; 4]>,
    param: SmallVec<[usize; 4]>,
    /// Number of means and variances.
    pub n_stats: usize,
    /// Number of scales and offsets.
    pub n_params: usize,
}

impl Layout {
    /// The layout of an array of lengths `dims` with statistics for each index of the axes that are `kept`, and a
    /// scale for each index of those that are `scaled`.
    pub fn new(dims: &[usize], kept: &[bool], scaled: &[bool]) -> Self {
        let strides = |of: &[bool]| {
            let mut size = 1;
            let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(0, dims.len());
            for axis in (0..dims.len()).rev().filter(|axis| of[*axis]) {
                (strides[axis], size) = (size, size * dims[axis]);
            }
            (strides, size)
        };
        let ((stats, n_stats), (params, n_params)) = (strides(kept), strides(scaled));
        let (mut merged, mut stat, mut param) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
        for axis in (0..dims.len()).filter(|axis| dims[*axis] != 1) {
            let (d, s, p) = (dims[axis], stats[axis], params[axis]);
            match (merged.last_mut(), stat.last_mut(), param.last_mut()) {
                (Some(dim), Some(of_stat), Some(of_param)) if *of_stat == s * d && *of_param == p * d => {
                    (*dim, *of_stat, *of_param) = (*dim * d, s, p);
                }
                _ => {
                    merged.push(d);
                    stat.push(s);
                    param.push(p);
                }
            }
        }
        if merged.is_empty() {
            (merged, stat, param) =
                (SmallVec::from_elem(1, 1), SmallVec::from_elem(0, 1), SmallVec::from_elem(0, 1));
        }
        Self { dims: merged, stat, param, n_stats, n_params }
    }

    /// Number of elements behind each statistic.
    pub fn count(&self) -> usize {
        self.dims.iter().product::<usize>() / self.n_stats.max(1)
    }

    /// Calls `row(first element, statistic, scale)` for each run along the last axis, the length of which is returned
    /// by [`Layout::last`].
    #[inline(always)]
    fn rows(&self, mut row: impl FnMut(usize, usize, usize)) {
        let last = self.dims.len() - 1;
        let mut at: SmallVec<[usize; 4]> = SmallVec::from_elem(0, last);
        let (mut s, mut p) = (0, 0);
        for r in 0..self.dims[..last].iter().product() {
            row(r * self.dims[last], s, p);
            for axis in (0..last).rev() {
                at[axis] += 1;
                s += self.stat[axis];
                p += self.param[axis];
                if at[axis] < self.dims[axis] {
                    break;
                }
                s -= self.stat[axis] * self.dims[axis];
                p -= self.param[axis] * self.dims[axis];
                at[axis] = 0;
            }
        }
    }

    /// Length of the last axis, and whether statistics and scales change along it.
    fn last(&self) -> (usize, bool, bool) {
        let last = self.dims.len() - 1;
        (self.dims[last], self.stat[last] != 0, self.param[last] != 0)
    }

    /// Calls `f(element, statistic, scale)` for each element, in memory's order.
    #[inline(always)]
    fn each(&self, mut f: impl FnMut(usize, usize, usize)) {
        let (n, by_stat, by_param) = self.last();
        self.rows(|x, s, p| match (by_stat, by_param) {
            (false, false) => (0..n).for_each(|i| f(x + i, s, p)),
            (false, true) => (0..n).for_each(|i| f(x + i, s, p + i)),
            (true, false) => (0..n).for_each(|i| f(x + i, s + i, p)),
            (true, true) => (0..n).for_each(|i| f(x + i, s + i, p + i)),
        });
    }

    /// Sums of `f(element, statistic, scale)` over the elements of each statistic.
    #[inline(always)]
    fn by_stat<const K: usize>(&self, mut f: impl FnMut(usize, usize, usize) -> [f64; K]) -> Vec<[f64; K]> {
        let mut sums = vec![[0.0; K]; self.n_stats];
        let (n, by_stat, by_param) = self.last();
        if by_stat {
            self.each(|x, s, p| add(&mut sums[s], f(x, s, p)));
        } else {
            self.rows(|x, s, p| {
                add(&mut sums[s], lanes(n, |i| f(x + i, s, if by_param { p + i } else { p })));
            });
        }
        sums
    }

    /// Sums of `f(element, statistic)` over the elements of each scale.
    #[inline(always)]
    fn by_param<T: Float>(&self, mut f: impl FnMut(usize, usize) -> f64) -> Vec<T> {
        let mut sums = vec![[0.0]; self.n_params];
        let (n, by_stat, by_param) = self.last();
        if by_param {
            self.each(|x, s, p| add(&mut sums[p], [f(x, s)]));
        } else {
            self.rows(|x, s, p| add(&mut sums[p], lanes(n, |i| [f(x + i, if by_stat { s + i } else { s })])));
        }
        sums.iter().map(|[sum]| T::of(*sum)).collect()
    }
}

#[inline(always)]
fn add<const K: usize>(sum: &mut [f64; K], v: [f64; K]) {
    (0..K).for_each(|k| sum[k] += v[k]);
}

/// The sum of `f(0..n)`, as eight sums side by side.
#[inline(always)]
fn lanes<const K: usize>(n: usize, mut f: impl FnMut(usize) -> [f64; K]) -> [f64; K] {
    let mut lanes = [[0.0; K]; 8];
    for block in (0..n / 8 * 8).step_by(8) {
        (0..8).for_each(|k| add(&mut lanes[k], f(block + k)));
    }
    (n / 8 * 8..n).for_each(|i| add(&mut lanes[i % 8], f(i)));
    let mut sum = [0.0; K];
    for lane in lanes {
        add(&mut sum, lane);
    }
    sum
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

/// Means and variances (those of the elements, not an estimate) of `x`.
pub fn moments<T: Float>(layout: &Layout, x: &[T]) -> (Vec<f64>, Vec<f64>) {
    let count = layout.count() as f64;
    let mean: Vec<f64> = layout.by_stat(|i, _, _| [x[i].real()]).iter().map(|[sum]| sum / count).collect();
    let split = split(&mean);
    let squares = layout.by_stat(|i, s, _| {
        let d = centred(x[i], split[s]).real();
        [d * d]
    });
    (mean, squares.iter().map(|[sum]| sum / count).collect())
}

/// `y = (x - mean) / sqrt(variance + eps) * gamma + beta`.
pub fn normalize<T: Float>(
    layout: &Layout,
    stats: &Stats<T>,
    x: &[T],
    gamma: Option<&[T]>,
    beta: Option<&[T]>,
    y: &mut [T],
) {
    let unit = |i: usize, s: usize| centred(x[i], stats.mean[s]) * stats.scale[s];
    match (gamma, beta) {
        (None, None) => layout.each(|i, s, _| y[i] = unit(i, s)),
        (None, Some(b)) => layout.each(|i, s, p| y[i] = unit(i, s) + b[p]),
        (Some(g), None) => layout.each(|i, s, p| y[i] = unit(i, s) * g[p]),
        (Some(g), Some(b)) => layout.each(|i, s, p| y[i] = unit(i, s) * g[p] + b[p]),
    }
}

/// The gradients of [`normalize`], each reading no more of `x` and `gamma` than its formula says.
pub struct Gradients<'a, T> {
    /// As in [`normalize`].
    pub layout: &'a Layout,
    /// As in [`normalize`].
    pub stats: &'a Stats<T>,
    /// As in [`normalize`].
    pub x: &'a [T],
    /// As in [`normalize`].
    pub gamma: Option<&'a [T]>,
    /// Gradient of `y`.
    pub gy: &'a [T],
}

impl<T: Float> Gradients<'_, T> {
    #[inline(always)]
    fn unit(&self, i: usize, s: usize) -> T {
        centred(self.x[i], self.stats.mean[s]) * self.stats.scale[s]
    }

    /// Gradient of the normalised element.
    #[inline(always)]
    fn scaled(&self, i: usize, p: usize) -> T {
        self.gamma.map_or(self.gy[i], |gamma| self.gy[i] * gamma[p])
    }

    /// By `beta`.
    pub fn beta(&self) -> Vec<T> {
        self.layout.by_param(|i, _| self.gy[i].real())
    }

    /// By `gamma`.
    pub fn gamma(&self) -> Vec<T> {
        self.layout.by_param(|i, s| (self.gy[i] * self.unit(i, s)).real())
    }

    /// By `x`, its statistics being given: `put(element, gradient)` for each.
    pub fn x_given(&self, mut put: impl FnMut(usize, T)) {
        self.layout.each(|i, s, p| put(i, self.scaled(i, p) * self.stats.scale[s]));
    }

    /// By the mean that was given.
    pub fn mean_given(&self) -> Vec<T> {
        let sums = self.layout.by_stat(|i, _, p| [self.scaled(i, p).real()]);
        sums.iter().zip(&self.stats.scale).map(|([sum], scale)| -T::of(*sum) * *scale).collect()
    }

    /// By the variance that was given.
    pub fn variance_given(&self) -> Vec<T> {
        let sums = self.layout.by_stat(|i, s, p| [(self.scaled(i, p) * self.unit(i, s)).real()]);
        let half = T::all(-0.5);
        sums.iter()
            .zip(&self.stats.scale)
            .map(|([sum], scale)| half * T::of(*sum) * *scale * *scale)
            .collect()
    }

    /// By `x`, its statistics being its own: `put(element, gradient)` for each. `outer` are the gradients of mean and
    /// variance, where those are outputs.
    pub fn x(&self, outer: Option<(&[T], &[T])>, mut put: impl FnMut(usize, T)) {
        let (scale, count) = (&self.stats.scale, self.layout.count() as f64);
        let sums = self.layout.by_stat(|i, s, p| {
            let g = self.scaled(i, p);
            [g.real(), (g * self.unit(i, s)).real()]
        });
        let pull: Vec<(T, T)> = sums.iter().map(|[g, gx]| (T::of(g / count), T::of(gx / count))).collect();
        let inner = |i: usize, s: usize, p: usize| {
            (self.scaled(i, p) - pull[s].0 - self.unit(i, s) * pull[s].1) * scale[s]
        };
        let Some((mean, variance)) = outer else {
            self.layout.each(|i, s, p| put(i, inner(i, s, p)));
            return;
        };
        let (one, two) = (T::of(1.0 / count), T::of(2.0 / count));
        self.layout.each(|i, s, p| {
            let d = centred(self.x[i], self.stats.mean[s]);
            put(i, inner(i, s, p) + one * mean[s] + two * variance[s] * d);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, Stats, moments, normalize};

    #[test]
    fn a_large_mean_costs_no_digits() {
        let layout = Layout::new(&[4, 3, 250], &[false, true, false], &[false; 3]);
        let x: Vec<f32> = (0..3000).map(|i| 30_000.0 + (i * 7919 % 997) as f32 / 128.0).collect();
        let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let ((mean, variance), (wide_mean, wide_variance)) = (moments(&layout, &x), moments(&layout, &wide));
        let (mut y, mut wide_y) = (vec![0.0; 3000], vec![0.0; 3000]);
        normalize(&layout, &Stats::new(&mean, &variance, 1e-5), &x, None, None, &mut y);
        normalize(&layout, &Stats::new(&wide_mean, &wide_variance, 1e-5), &wide, None, None, &mut wide_y);
        for (y, exact) in y.iter().zip(wide_y) {
            assert!((f64::from(*y) - exact).abs() < 1e-6, "{y} is not {exact}");
        }
    }
}
