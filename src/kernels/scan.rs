//! Running sums and products along the middle axis of `outer` blocks of `n` rows of `inner` elements.

use std::ops::Range;

use super::Float;
use super::map::{self, GRAIN};
use super::row_copies::MANY;
use super::scaled::Scaled;
use super::scratch::{List, Zeros};
use super::threads::{self, Shared};
use crate::array::Shape;

/// The least number of columns that run together, if there are as many.
const COLUMNS: usize = 64;
/// Number of elements of a line that are computed before the next line continues.
const BLOCK: usize = 16;

/// True for a result of a product that may have left the range of numbers.
fn is_odd<T: Float>(v: T) -> bool {
    v == T::ZERO || v.is_nan() || v.abs() == T::INFINITY
}

/// True if products of some of the first of these numbers, with one of the second, may overflow or vanish.
fn may_leave_range<T: Float>(numbers: impl Iterator<Item = (T, T)>) -> bool {
    // The logarithm of a number, and 0 for zero, whose products are exact.
    let size = |v: T| if v == T::ZERO { 0.0 } else { v.real().abs().log2().abs() };
    let (all, most) = numbers.fold((0.0, 0.0_f64), |(all, most), (x, g)| (all + size(x), most.max(size(g))));
    let sum = all + most;
    sum >= -T::MIN_POSITIVE.real().log2() || sum.is_nan()
}

/// A cumulative operation along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// The number of blocks.
    outer: usize,
    /// The number of rows of a block, which is the length of the axis.
    n: usize,
    /// The number of elements of a row.
    inner: usize,
    /// True if the element itself is excluded.
    exclusive: bool,
    /// True if it runs from the end to the start.
    reverse: bool,
}

impl Scan {
    /// Along `axis` of an array of shape `shape`.
    pub fn new(shape: &Shape, axis: usize) -> Self {
        let (outer, inner) = (shape.size_to(axis), shape.size_from(axis + 1));
        Self { outer, n: shape[axis], inner, exclusive: false, reverse: false }
    }

    /// Sets whether the element itself is excluded.
    pub fn exclusive(self, exclusive: bool) -> Self {
        Self { exclusive, ..self }
    }

    /// Sets whether to run from the end to the start.
    pub fn reverse(self, reverse: bool) -> Self {
        Self { reverse, ..self }
    }

    /// Calls `f(state, row, previous row, columns)` for independent runs, in the order of each run, with the offsets
    /// of rows. `begin` makes the state for a number of columns.
    fn rows<S>(
        self,
        begin: impl Fn(usize) -> S + Sync,
        f: impl Fn(&mut S, usize, Option<usize>, Range<usize>) + Sync,
    ) {
        let Self { outer, n, inner, reverse, .. } = self;
        let width = (GRAIN / n.max(1)).clamp(COLUMNS, inner.max(COLUMNS));
        let parts = inner.div_ceil(width);
        threads::ranges(outer * parts, (GRAIN / (n * width.min(inner)).max(1)).max(1), |range| {
            for i in range {
                let (block, start) = (i / parts * n * inner, i % parts * width);
                let columns = start..inner.min(start + width);
                let mut state = begin(columns.len());
                let row = |step: usize| block + inner * if reverse { n - 1 - step } else { step };
                threads::in_turn(n, GRAIN / width.min(inner).max(1), |steps| {
                    for step in steps {
                        f(&mut state, row(step), step.checked_sub(1).map(row), columns.clone());
                    }
                });
            }
        });
    }

    /// The running sums `y[i] = x[0] + ... + x[i]`, or up to `x[i - 1]` if exclusive. Long sums are added in float64.
    pub fn sum<T: Float>(self, x: &[T], y: &mut [T]) {
        // A sum that starts at -0 keeps a first element of -0.
        let first = if self.exclusive { 0.0 } else { -0.0 };
        if self.n <= MANY || size_of::<T>() == size_of::<f64>() {
            return self.run(x, y, T::of(first), |sum| sum, |sum, x| sum + x);
        }
        self.run(x, y, first, T::of, |sum, x| sum + x.real());
    }

    /// The running products `y[i] = x[0] * ... * x[i]`, or up to `x[i - 1]` if exclusive.
    pub fn product<T: Float>(self, x: &[T], y: &mut [T]) {
        self.run(x, y, T::ONE, |product| product, |product, x| product * x);
    }

    /// `y[i]` is `of(s[i])`, or `of(s[i - 1])` if exclusive, where `s[i] = op(s[i - 1], x[i])` begins with `first`.
    #[inline(always)]
    fn run<T: Float, S: Copy + Send + Sync>(
        self,
        x: &[T],
        y: &mut [T],
        first: S,
        of: impl Fn(S) -> T + Sync,
        op: impl Fn(S, T) -> S + Sync,
    ) {
        assert!(x.len() == self.outer * self.n * self.inner && y.len() == x.len());
        let y = Shared::new(y.as_mut_ptr());
        if self.inner == 1 {
            return self.lines(x, y, first, of, op);
        }
        let begin = |columns: usize| List::repeat(first, columns);
        self.rows(begin, |last: &mut List<S>, row, _, columns| {
            let x = &x[row + columns.start..row + columns.end];
            // SAFETY: rows and columns are within both arrays, and no other run has them.
            let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(row + columns.start), x.len()) };
            for ((last, x), y) in last.iter_mut().zip(x).zip(y) {
                let next = op(*last, *x);
                *y = of(if self.exclusive { *last } else { next });
                *last = next;
            }
        });
    }

    /// [`Scan::run`] for contiguous lines. Several are computed together, because each step waits for the previous one.
    #[inline(always)]
    fn lines<T: Float, S: Copy + Send + Sync>(
        self,
        x: &[T],
        y: Shared<T>,
        first: S,
        of: impl Fn(S) -> T + Sync,
        op: impl Fn(S, T) -> S + Sync,
    ) {
        /// Lines that are computed together.
        const TOGETHER: usize = 8;
        let grain = (GRAIN / self.n.max(1)).max(1).next_multiple_of(TOGETHER);
        threads::ranges(self.outer, grain, |range| {
            let rest = range.end - range.len() % TOGETHER;
            (range.start..rest)
                .step_by(TOGETHER)
                .for_each(|line| self.some_lines::<T, S, TOGETHER>(line, x, y, first, &of, &op));
            (rest..range.end).for_each(|line| self.some_lines::<T, S, 1>(line, x, y, first, &of, &op));
        });
    }

    /// Computes `N` lines, a block of each in turn, so that no line leaves the cache before all of it is used.
    #[inline(always)]
    fn some_lines<T: Float, S: Copy, const N: usize>(
        self,
        line: usize,
        x: &[T],
        y: Shared<T>,
        first: S,
        of: impl Fn(S) -> T,
        op: impl Fn(S, T) -> S,
    ) {
        let Self { n, exclusive, reverse, .. } = self;
        let mut last = [first; N];
        threads::in_turn(n, GRAIN, |steps| {
            for start in steps.clone().step_by(BLOCK) {
                let end = steps.end.min(start + BLOCK);
                let part = if reverse { n - end..n - start } else { start..end };
                for (l, last) in last.iter_mut().enumerate() {
                    let part = (line + l) * n + part.start..(line + l) * n + part.end;
                    let x = &x[part.clone()];
                    // SAFETY: `x` has as many elements as `y`, and no other call has these lines.
                    let y = unsafe { std::slice::from_raw_parts_mut(y.get().add(part.start), part.len()) };
                    let mut sum = *last; // in a register, which `y` cannot alias
                    let step = |(x, y): (&T, &mut T)| {
                        let next = op(sum, *x);
                        *y = of(if exclusive { sum } else { next });
                        sum = next;
                    };
                    if reverse {
                        x.iter().zip(y).rev().for_each(step);
                    } else {
                        x.iter().zip(y).for_each(step);
                    }
                    *last = sum;
                }
            }
        });
    }

    /// The gradient `gx` of running products of `x`, which is exact even if an element is zero.
    ///
    /// The product before an element is multiplied by a sum over the later products without that element. The sum is a
    /// scan from the other end: `s[i] = gy[i] + x[i + 1] s[i + 1]`.
    pub fn product_gradient<T: Float>(self, x: &[T], gy: &[T], gx: &mut [T]) {
        let mut later = Zeros::<T>::new(x.len());
        let to = Shared::new(later.as_mut_ptr());
        assert!(x.len() == self.outer * self.n * self.inner && gy.len() == x.len());
        let last = if self.reverse { 0 } else { self.n.saturating_sub(1) };
        self.reverse(!self.reverse).rows(
            |_| (),
            |(), row, after, columns| {
                // No product follows the last element.
                let is_last = after.is_some_and(|after| after / self.inner % self.n == last);
                for j in columns.start + row..columns.end + row {
                    // SAFETY: rows and columns are within all arrays, and no other run has them.
                    unsafe {
                        let at = |i: usize| to.get().add(i).read();
                        to.get().add(j).write(match (after.map(|after| after + j - row), self.exclusive) {
                            (None, true) => T::ZERO,
                            (None, false) => gy[j],
                            (Some(after), true) if is_last => gy[after],
                            (Some(after), true) => gy[after] + x[after] * at(after),
                            (Some(after), false) => gy[j] + x[after] * at(after),
                        });
                    }
                }
            },
        );
        self.exclusive(true).product(x, gx);
        map::update(gx, &later, |g, later| g * later);
        if gx.iter().any(|g| is_odd(*g)) {
            self.widen_product_gradient(x, gy, gx);
        }
    }

    /// Computes the gradients again of lines in which a part of a product may have left the range of numbers.
    fn widen_product_gradient<T: Float>(self, x: &[T], gy: &[T], gx: &mut [T]) {
        let Self { outer, n, inner, exclusive, reverse } = self;
        let mut later = List::repeat(Scaled::ZERO, n);
        for line in 0..outer * inner {
            let start = line / inner * n * inner + line % inner;
            let at = |i: usize| start + inner * if reverse { n - 1 - i } else { i };
            if !(0..n).any(|i| is_odd(gx[at(i)])) || !may_leave_range((0..n).map(|i| (x[at(i)], gy[at(i)]))) {
                continue;
            }
            let (x, gy) = (|i| Scaled::new(x[at(i)].real()), |i| Scaled::new(gy[at(i)].real()));
            for i in (0..n).rev() {
                later[i] = match (i + 1 == n, exclusive) {
                    (true, true) => Scaled::ZERO,
                    (true, false) => gy(i),
                    (false, true) if i + 2 == n => gy(i + 1),
                    (false, true) => gy(i + 1) + x(i + 1) * later[i + 1],
                    (false, false) => gy(i) + x(i + 1) * later[i + 1],
                };
            }
            let mut before = Scaled::ONE;
            for i in 0..n {
                gx[at(i)] = T::of((before * later[i]).value());
                before = before * x(i);
            }
        }
    }
}
