//! Sums of powers, also where the powers leave the range of the elements.

use std::ops::Range;

use super::{Fold, ReducedRows, sums, without};
use crate::array::Shape;
use crate::kernels::broadcast::BroadcastLayout;
use crate::kernels::scratch::{List, Zeros};
use crate::kernels::{Float, Number};

/// Sums of `|x|^p` over axes. A sum that overflows or loses digits is kept in units of the largest `|x|^p` behind it.
pub struct PowerSums {
    /// The sums, each in its unit.
    sums: Zeros<f64>,
    /// The unit of each sum, of `|x|`; zero where the sum is as it is. None if all are.
    units: Option<Zeros<f64>>,
    /// The power.
    p: f64,
    /// Added to each sum by the caller, before it takes the root.
    eps: f64,
}

/// The range of sums of powers that neither overflow nor lose digits. Other sums are computed in units.
#[derive(Clone, Copy)]
pub struct PlainRange {
    /// The least sum that loses no digits.
    least: f64,
    /// The largest sum that does not overflow.
    most: f64,
}

impl PlainRange {
    /// The range for sums of `n` powers of type `T`.
    pub fn of<T: Float>(n: usize) -> Self {
        Self { least: 4.0 * n as f64 * T::MIN_POSITIVE.real(), most: T::MAX.real() }
    }

    /// True if a sum plus `eps` is outside. NaN is not: no unit changes it.
    pub fn excludes(self, sum: f64, eps: f64) -> bool {
        sum > self.most || sum + eps < self.least
    }

    /// The unit for a sum that is outside: the largest magnitude behind it, unless that is zero or infinite.
    pub fn unit(self, sum: f64, eps: f64, largest: f64) -> Option<f64> {
        (largest > 0.0 && largest.is_finite() && self.excludes(sum, eps)).then_some(largest)
    }
}

/// The largest magnitude; NaN is skipped.
struct LargestMagnitude;

impl<T: Float> Fold<T> for LargestMagnitude {
    type Part = T;
    fn none(&self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn with(&self, part: T, x: T, _: usize) -> T {
        let x = x.abs();
        if x > part { x } else { part }
    }
    #[inline(always)]
    fn join(&self, a: T, b: T) -> T {
        if b > a { b } else { a }
    }
}

/// The sums over `axes` of `of(x)`, which is `|x|^p` in the precision of the elements. `wide` is the same in float64.
/// The caller adds `eps` to each sum, so digits far below it may be lost.
#[inline(always)]
pub fn power_sums<T: Float>(
    x: &[T],
    shape: &Shape,
    axes: &[usize],
    (p, eps): (f64, f64),
    of: impl Fn(T) -> T + Sync + Copy,
    wide: impl Fn(f64) -> f64 + Sync + Copy,
) -> PowerSums {
    let sums = sums(x, shape, axes, of);
    let mut all = PowerSums { sums, units: None, p, eps };
    let n = x.len().checked_div(all.sums.len()).unwrap_or(0);
    let range = PlainRange::of::<T>(n);
    if n > 0 && all.sums.iter().any(|sum| range.excludes(*sum, eps)) {
        all.rescale(x, shape, axes, range, wide);
    }
    all
}

impl PowerSums {
    /// Sums again, in units of the largest element, where sums leave the range.
    #[cold]
    fn rescale<T: Float>(
        &mut self,
        x: &[T],
        shape: &Shape,
        axes: &[usize],
        range: PlainRange,
        wide: impl Fn(f64) -> f64 + Sync + Copy,
    ) {
        let mut units = Zeros::new(self.sums.len());
        let least = self.eps.powf(1.0 / self.p);
        ReducedRows::new(x, shape, axes).fold(&LargestMagnitude, |i, largest: T| {
            units[i] = range.unit(self.sums[i], self.eps, largest.real().max(least)).unwrap_or(0.0);
        });
        if units.iter().all(|unit| *unit == 0.0) {
            return;
        }
        {
            let units = &units[..];
            let [sums] = BroadcastLayout::new(&without(shape, axes), shape).sums(
                #[inline(always)]
                // SAFETY: the indices are within arrays of these shapes.
                move |i, _, at| unsafe {
                    let unit = *units.get_unchecked(i);
                    [if unit == 0.0 { 0.0 } else { wide(x.get_unchecked(at).real().abs() / unit) }]
                },
            );
            for (i, unit) in units.iter().enumerate().filter(|(_, unit)| **unit > 0.0) {
                self.sums[i] = sums[i] + (least / unit).powf(self.p);
            }
        }
        self.units = Some(units);
    }

    /// The order of the powers.
    pub fn p(&self) -> f64 {
        self.p
    }

    /// Number of sums.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.sums.len()
    }

    /// Sum `i`, if it is within the range of the elements.
    #[inline(always)]
    pub fn plain(&self, i: usize) -> Option<f64> {
        match &self.units {
            Some(units) if units[i] > 0.0 => None,
            _ => Some(self.sums[i]),
        }
    }

    /// Sum `i`, in its unit.
    pub fn sum(&self, i: usize) -> f64 {
        self.sums[i]
    }

    /// Some of the sums, each in its unit.
    pub fn sums(&self, some: Range<usize>) -> &[f64] {
        &self.sums[some]
    }

    /// True if all sums are within the range of the elements.
    pub fn all_plain(&self) -> bool {
        self.units.is_none()
    }

    /// A unit, and `(sum + eps)^(1 / p)` in that unit.
    pub fn root(&self, i: usize) -> [f64; 2] {
        let (sum, unit) = match self.units.as_ref().map_or(0.0, |units| units[i]) {
            0.0 => (self.sums[i] + self.eps, 1.0),
            unit => (self.sums[i], unit),
        };
        let root = match self.p {
            1.0 => sum,
            2.0 => sum.sqrt(),
            p => Number::pow(sum, 1.0 / p),
        };
        [unit, root]
    }

    /// [`PowerSums::root`] of all sums.
    pub fn roots(&self) -> List<[f64; 2]> {
        (0..self.len()).map(|i| self.root(i)).collect()
    }
}
