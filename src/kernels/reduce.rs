//! Folding an array along some of its axes. The order of the sums is fixed by the shape alone.

mod extremes;
mod powers;

use std::ops::{Deref, Range};

use smallvec::SmallVec;

use super::broadcast::BroadcastLayout;
use super::map::GRAIN;
use super::scratch::{List, Zeros};
use super::simd::vectorised;
use super::threads::{self, Shared};
use super::{Float, Movable, Number, Stored, strided};
use crate::array::{Element, Shape};
pub use powers::{PlainRange, PowerSums, power_sums};

/// Accumulators side by side along a row: closer to the exact sum than one, and independent of each other.
const LANES: usize = 8;
/// Elements that one accumulator takes before it is joined to the total, so that rounding errors stay small.
const BLOCK: usize = 512;
/// Columns that are folded together.
const COLUMNS: usize = 256;

/// A reduction that takes elements one by one, such as a sum.
pub trait Fold<T> {
    /// The result over some elements.
    type Part: Copy + Send + Sync;
    /// The result over no elements.
    fn none(&self) -> Self::Part;
    /// The result that also includes element `x`, which is number `i` along the folded axes.
    fn with(&self, part: Self::Part, x: T, i: usize) -> Self::Part;
    /// The result over the elements of both parts, in order.
    fn join(&self, a: Self::Part, b: Self::Part) -> Self::Part;
}

/// An array as `outer` blocks of `n` rows of `inner` elements. The rows are reduced.
pub struct ReducedRows<'a, E> {
    /// The elements.
    x: RowElements<'a, E>,
    /// The number of blocks.
    outer: usize,
    /// The number of rows of a block.
    n: usize,
    /// The number of elements of a row.
    inner: usize,
}

/// The elements of the rows.
enum RowElements<'a, E> {
    /// Borrowed: they are in order.
    There(&'a [E]),
    /// A copy in another order.
    Copied(List<E>),
}

impl<E> Deref for RowElements<'_, E> {
    type Target = [E];
    fn deref(&self) -> &[E] {
        match self {
            Self::There(x) => x,
            Self::Copied(x) => x,
        }
    }
}

impl<'a, E: Movable> ReducedRows<'a, E> {
    /// `x` with `axes` to be folded, in ascending order; copied only if they lie scattered.
    pub fn new(x: &'a [E], shape: &Shape, axes: &[usize]) -> Self {
        let is_folded = |i: usize| axes.contains(&i);
        let n = (0..shape.ndim()).filter(|i| is_folded(*i)).map(|i| shape[i]).product();
        let long = || (0..shape.ndim()).filter(|i| shape[*i] != 1);
        let first = long().find(|i| is_folded(*i));
        let last = long().rfind(|i| is_folded(*i));
        let (Some(first), Some(last)) = (first, last) else {
            return Self { x: RowElements::There(x), outer: shape.size(), n: 1, inner: 1 };
        };
        if long().filter(|i| (first..=last).contains(i)).all(is_folded) {
            let (outer, inner) = (shape.size_to(first), shape.size_from(last + 1));
            return Self { x: RowElements::There(x), outer, n, inner };
        }
        let kept = (0..shape.ndim()).filter(|i| !is_folded(*i));
        let outer = kept.clone().map(|i| shape[i]).product();
        let order: SmallVec<[usize; 4]> = kept.chain((0..shape.ndim()).filter(|i| is_folded(*i))).collect();
        let mut copy = List::repeat(E::ZERO, x.len());
        strided::transpose(x, shape, &order, &mut copy);
        Self { x: RowElements::Copied(copy), outer, n, inner: 1 }
    }

    /// Calls `work(outer, columns)` for blocks of columns that are folded together, in parallel.
    fn blocks(&self, work: impl Fn(usize, Range<usize>) + Sync) {
        let blocks = self.inner.div_ceil(COLUMNS);
        let grain = (GRAIN / (self.n * COLUMNS.min(self.inner)).max(1)).max(1);
        threads::ranges(self.outer * blocks, grain, |range| {
            for i in range {
                let c = i % blocks * COLUMNS;
                work(i / blocks, c..self.inner.min(c + COLUMNS));
            }
        });
    }
}

impl<T: Float> ReducedRows<'_, T> {
    /// Calls `put(i, part)` with all of the elements that result `i` is made of.
    pub fn fold<F: Fold<T> + Sync>(&self, f: &F, mut put: impl FnMut(usize, F::Part)) {
        let (n, inner) = (self.n, self.inner);
        let mut parts = List::repeat(f.none(), self.outer * inner);
        let to = Shared::new(parts.as_mut_ptr());
        if inner == 1 {
            threads::ranges(self.outer, (GRAIN / n.max(1)).max(1), |range| {
                vectorised(
                    #[inline(always)]
                    move || {
                        for i in range {
                            // SAFETY: each result comes once.
                            unsafe { to.get().add(i).write(row(f, &self.x[i * n..][..n])) };
                        }
                    },
                );
            });
        } else {
            self.blocks(|i, columns| {
                let x = &self.x[i * n * inner..][..n * inner];
                vectorised(
                    #[inline(always)]
                    move || {
                        let parts = fold_columns(f, x, inner, columns.clone());
                        for (c, part) in columns.zip(parts) {
                            // SAFETY: each result is in one block.
                            unsafe { to.get().add(i * inner + c).write(part) };
                        }
                    },
                );
            });
        }
        parts.iter().enumerate().for_each(|(i, part)| put(i, *part));
    }
}

/// Folds a row in blocks, so that errors of long sums stay small.
#[inline(always)]
fn row<T: Float, F: Fold<T>>(f: &F, x: &[T]) -> F::Part {
    let mut total = f.none();
    for (b, block) in x.chunks(BLOCK * LANES).enumerate() {
        let mut parts = [f.none(); LANES];
        for (c, chunk) in block.chunks(LANES).enumerate() {
            let i = b * BLOCK * LANES + c * LANES;
            if let Ok(chunk) = <&[T; LANES]>::try_from(chunk) {
                for l in 0..LANES {
                    parts[l] = f.with(parts[l], chunk[l], i + l);
                }
            } else {
                chunk.iter().enumerate().for_each(|(l, x)| parts[l] = f.with(parts[l], *x, i + l));
            }
        }
        let [a, b, c, d, e, g, h, i] = parts;
        let (left, right) = (f.join(f.join(a, b), f.join(c, d)), f.join(f.join(e, g), f.join(h, i)));
        total = f.join(total, f.join(left, right));
    }
    total
}

/// Folds a few columns of a matrix in blocks.
#[inline(always)]
fn fold_columns<T: Float, F: Fold<T>>(
    f: &F,
    x: &[T],
    inner: usize,
    columns: Range<usize>,
) -> [F::Part; COLUMNS] {
    let mut total = [f.none(); COLUMNS];
    let (c0, width) = (columns.start, columns.len().min(COLUMNS));
    let n = x.len() / inner;
    for r0 in (0..n).step_by(BLOCK) {
        let mut parts = [f.none(); COLUMNS];
        for r in r0..n.min(r0 + BLOCK) {
            let line = &x[r * inner + c0..][..width];
            for c in 0..width {
                parts[c] = f.with(parts[c], line[c], r);
            }
        }
        for c in 0..width {
            total[c] = f.join(total[c], parts[c]);
        }
    }
    total
}

/// The product.
pub struct ProductFold;

impl<T: Float> Fold<T> for ProductFold {
    type Part = T;
    #[inline(always)]
    fn none(&self) -> T {
        T::ONE
    }
    #[inline(always)]
    fn with(&self, part: T, x: T, _: usize) -> T {
        part * x
    }
    #[inline(always)]
    fn join(&self, a: T, b: T) -> T {
        a * b
    }
}

/// `shape` with the axes shrunk to length one.
fn without(shape: &Shape, axes: &[usize]) -> Shape {
    shape.iter().enumerate().map(|(i, d)| if axes.contains(&i) { 1 } else { *d }).collect()
}

/// The sums of `f(x)` over `axes`, in double precision: of single numbers they are exact to the last digit.
#[inline(always)]
pub fn sums<T: Float>(
    x: &[T],
    shape: &Shape,
    axes: &[usize],
    f: impl Fn(T) -> T + Sync + Copy,
) -> Zeros<f64> {
    assert_eq!(x.len(), shape.size());
    let [sums] = BroadcastLayout::new(&without(shape, axes), shape).sums(
        #[inline(always)]
        // SAFETY: the index is one of an array of that shape.
        move |_, _, i| [f(unsafe { *x.get_unchecked(i) })],
    );
    sums
}

/// Writes or adds to `y` the sums of `x`, mapped by `of`. It sums over axes that the shape `to` lacks, or along which
/// it has length one.
pub fn sum_to<E: Stored>(
    x: &[E],
    shape: &Shape,
    to: &Shape,
    y: &mut [E],
    accumulate: bool,
    of: impl Fn(f64) -> E::Wide,
) {
    let (sums, factor) = BroadcastLayout::new(to, shape).sums_of(x);
    for (y, sum) in y.iter_mut().zip(&*sums) {
        let sum = of(*sum / factor);
        *y = E::narrowed(if accumulate { y.wide() + sum } else { sum });
    }
}

/// `y` is the mean of `x` over `axes`, of `n` elements each.
pub fn mean<E: Stored>(x: &[E], shape: &Shape, axes: &[usize], n: f64, y: &mut [E]) {
    let (sums, factor) = BroadcastLayout::new(&without(shape, axes), shape).sums_of(x);
    for (y, sum) in y.iter_mut().zip(&*sums) {
        let of = E::Wide::of;
        let whole = of(*sum / factor);
        // A sum may be beyond the range of its elements, a mean is not.
        *y = E::narrowed(if whole.abs() <= E::Wide::MAX { whole / of(n) } else { of(*sum / n / factor) });
    }
}

/// `y` is `x` summed over `axes`.
pub fn sum<E: Stored>(x: &[E], shape: &Shape, axes: &[usize], y: &mut [E]) {
    sum_to(x, shape, &without(shape, axes), y, false, E::Wide::of);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sums_stay_exact_in_single_precision() {
        let x = vec![0.1_f32; 1 << 20];
        let mut y = [0.0];
        sum(&x, &Shape::from([1 << 20]), &[0], &mut y);
        assert!((f64::from(y[0]) / (f64::from(0.1_f32) * f64::from(1 << 20)) - 1.0).abs() < 6e-8, "{y:?}");
        sum(&x, &Shape::from([1 << 19, 2]), &[0], &mut [0.0; 2]);
    }

    #[test]
    fn extremes_over_separate_axes_have_row_major_indices() {
        let x: Vec<f64> = (0..24).map(|v| f64::from((v * 7) % 24)).collect();
        let shape = Shape::from([2, 3, 4]);
        for (i, (value, at)) in
            ReducedRows::new(&x, &shape, &[0, 2]).extremes(false).iter().copied().enumerate()
        {
            let all: Vec<f64> = (0..8).map(|k| x[k / 4 * 12 + i * 4 + k % 4]).collect();
            assert_eq!(value, all.iter().copied().fold(0.0, f64::max));
            assert_eq!(all[at], value);
        }
    }

    #[test]
    fn the_first_of_the_best_is_found_and_a_nan_before_all() {
        let long = Shape::from([2, 70_000]);
        for (shape, axis) in [(Shape::from([5, 130]), 1), (Shape::from([130, 37]), 0), (long, 1)] {
            let mut x: Vec<f32> = (0..shape.size()).map(|i| (i * 7919 % 101) as f32).collect();
            let (n, step) = (shape[axis], shape.size_from(axis + 1));
            let first = |i: usize| if axis == 1 { i * n } else { i };
            for _ in 0..2 {
                for smallest in [false, true] {
                    for (i, (value, at)) in
                        ReducedRows::new(&x, &shape, &[axis]).extremes(smallest).iter().copied().enumerate()
                    {
                        let line: Vec<f32> = (0..n).map(|k| x[first(i) + k * step]).collect();
                        let nan = line.iter().position(|v| v.is_nan());
                        let best = line.iter().copied().reduce(if smallest { f32::min } else { f32::max });
                        let expected = nan.or(line.iter().position(|v| Some(*v) == best));
                        assert_eq!(
                            (Some(at), value.is_nan()),
                            (expected, nan.is_some()),
                            "{shape}, line {i}"
                        );
                    }
                }
                x[first(1) + (n - 3) * step] = f32::NAN;
                x[first(1) + (n - 7) * step] = f32::NAN;
            }
        }
    }
}
