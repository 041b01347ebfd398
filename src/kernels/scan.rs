//! Running sums and products along the middle axis of `outer` blocks of `n` rows of `inner` elements.

use std::ops::Range;

use super::Float;
use super::map::GRAIN;
use super::row_copies::MANY;
use super::scaled::Scaled;
use super::scratch::List;
use super::simd::vectorised;
use super::threads::{self, Shared};
use crate::array::Shape;

/// The least number of columns that run together, if there are as many.
const COLUMNS: usize = 64;
/// Lines that are computed together.
const TOGETHER: usize = 8;
/// Number of elements of a line that are computed before the next line continues.
const BLOCK: usize = 16;

/// True if products of some of the first of these numbers, with one of the second, may overflow or vanish.
fn may_leave_range<T: Float>(numbers: impl Iterator<Item = (T, T)>) -> bool {
    // The logarithm of a number, and 0 for zero, whose products are exact.
    let size = |v: T| if v == T::ZERO { 0.0 } else { v.real().abs().log2().abs() };
    let (all, most) = numbers.fold((0.0, 0.0_f64), |(all, most), (x, g)| (all + size(x), most.max(size(g))));
    let sum = all + most;
    sum >= -T::MIN_POSITIVE.real().log2() || sum.is_nan()
}

/// Three numbers for each of some lines.
type LineStates = [[f64; COLUMNS]; 3];

/// Takes a few steps of some lines: `write(line, step, y)` gets the result of `f` for the state of the line and the
/// numbers `read(line, step)`. Lines side by side are computed together if `BESIDE`, others a block of steps at a time.
/// The functions must be `#[inline(always)]`. They own what they use, so that states stay in registers.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops vectorize
fn take_steps<const BESIDE: bool>(
    steps: Range<usize>,
    lines: usize,
    states: &mut LineStates,
    read: impl Fn(usize, usize) -> [f64; 2],
    f: impl Fn([f64; 3], [f64; 2]) -> ([f64; 3], f64),
    write: impl Fn(usize, usize, f64),
) {
    let [mut a, mut b, mut c] = *states;
    *states = vectorised(
        #[inline(always)]
        move || {
            let whole = if BESIDE { lines / TOGETHER * TOGETHER } else { 0 };
            for first in (0..whole).step_by(TOGETHER) {
                let mut s = [[0.0; TOGETHER]; 3];
                for l in 0..TOGETHER {
                    (s[0][l], s[1][l], s[2][l]) = (a[first + l], b[first + l], c[first + l]);
                }
                for step in steps.clone() {
                    let (mut x, mut y) = ([[0.0; TOGETHER]; 2], [0.0; TOGETHER]);
                    for l in 0..TOGETHER {
                        [x[0][l], x[1][l]] = read(first + l, step);
                    }
                    for l in 0..TOGETHER {
                        let state = [s[0][l], s[1][l], s[2][l]];
                        ([s[0][l], s[1][l], s[2][l]], y[l]) = f(state, [x[0][l], x[1][l]]);
                    }
                    for l in 0..TOGETHER {
                        write(first + l, step, y[l]);
                    }
                }
                for l in 0..TOGETHER {
                    (a[first + l], b[first + l], c[first + l]) = (s[0][l], s[1][l], s[2][l]);
                }
            }
            for start in steps.clone().step_by(BLOCK) {
                for l in whole..lines {
                    let mut state = [a[l], b[l], c[l]];
                    for step in start..steps.end.min(start + BLOCK) {
                        let y;
                        (state, y) = f(state, read(l, step));
                        write(l, step, y);
                    }
                    [a[l], b[l], c[l]] = state;
                }
            }
            [a, b, c]
        },
    );
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
    /// scan from the other end: `s[i] = gy[i] + x[i + 1] s[i + 1]`. Both are in double precision.
    pub fn product_gradient<T: Float>(self, x: &[T], gy: &[T], gx: &mut [T]) {
        let Self { outer, n, inner, .. } = self;
        assert!(x.len() == outer * n * inner && gy.len() == x.len() && gx.len() == x.len());
        if x.is_empty() {
            return;
        }
        let gx = Shared::new(gx.as_mut_ptr());
        // Lines along the last axis are a row apart, others are side by side.
        let (blocks, count, most) = if inner == 1 { (1, outer, TOGETHER) } else { (outer, inner, COLUMNS) };
        let (parts, most) = (count.div_ceil(most), most.min(count));
        threads::ranges(blocks * parts, (GRAIN / (n * most)).max(1), |range| {
            let mut later = List::repeat(0.0, n * most);
            for i in range {
                let (block, first) = (i / parts * n * inner, i % parts * most);
                let lines = most.min(count - first);
                // SAFETY: the lines are within all arrays, and no other call has them.
                unsafe {
                    if inner == 1 {
                        self.some_product_gradients::<T, false>(first * n, lines, x, gy, gx, &mut later);
                    } else {
                        self.some_product_gradients::<T, true>(block + first, lines, x, gy, gx, &mut later);
                    }
                }
            }
        });
    }

    /// Computes the gradients of a few lines from element `start` on, at most `COLUMNS`. They lie side by side if
    /// `BESIDE`, else one after the other. There is memory for as many sums in `later`.
    ///
    /// # Safety
    /// The lines must be within the arrays, and no other thread may read or write them in `gx`.
    unsafe fn some_product_gradients<T: Float, const BESIDE: bool>(
        self,
        start: usize,
        lines: usize,
        x: &[T],
        gy: &[T],
        gx: Shared<T>,
        later: &mut [f64],
    ) {
        /// Products of float32 that grow by no more than this along a part of a line are in the range of float64. If
        /// they vanish, so do the gradients.
        const MOST: f64 = 1e90;
        let Self { n, inner, exclusive, reverse, .. } = self;
        let is_double = size_of::<T>() == size_of::<f64>();
        let lines = lines.min(COLUMNS);
        let place = move |l: usize, i: usize| {
            let i = if reverse { n - 1 - i } else { i };
            start + if BESIDE { i * inner + l } else { l * n + i }
        };
        let sum_place = move |l: usize, i: usize| if BESIDE { i * lines + l } else { l * n + i };
        let (x_at, gy_at, sums) = (x.as_ptr(), gy.as_ptr(), later.as_mut_ptr());
        // The last sum, and the element and the gradient of its place.
        let mut states = [[-0.0; COLUMNS], [0.0; COLUMNS], [0.0; COLUMNS]];
        threads::in_turn(n, GRAIN / lines, |steps| {
            take_steps::<BESIDE>(
                steps,
                lines,
                &mut states,
                #[inline(always)]
                move |l, step| {
                    let at = place(l, n - 1 - step);
                    // SAFETY: guaranteed by the caller. Same below.
                    unsafe { [x_at.add(at).read().real(), gy_at.add(at).read().real()] }
                },
                #[inline(always)]
                move |[sum, next, next_gy], [x, gy]| {
                    let sum = if exclusive { next_gy } else { gy } + next * sum;
                    ([sum, x, gy], sum)
                },
                #[inline(always)]
                // SAFETY: as above.
                move |l, step, sum| unsafe { sums.add(sum_place(l, n - 1 - step)).write(sum) },
            );
        });
        // The product so far, the largest one of a part of the line that ends here, and the largest one of all parts.
        let mut states = [[1.0; COLUMNS]; 3];
        threads::in_turn(n, GRAIN / lines, |steps| {
            take_steps::<BESIDE>(
                steps,
                lines,
                &mut states,
                #[inline(always)]
                // SAFETY: as above.
                move |l, i| unsafe {
                    [x_at.add(place(l, i)).read().real(), sums.add(sum_place(l, i)).read()]
                },
                #[inline(always)]
                move |[before, growth, most], [x, later]| {
                    let g = before * later;
                    if is_double {
                        // A product that is zero or not finite may have left the range.
                        let odd = f64::INFINITY;
                        let most = if g.abs() > 0.0 { if g.abs() < odd { most } else { odd } } else { odd };
                        return ([before * x, growth, most], g);
                    }
                    let grown = growth * x.abs();
                    let growth = if grown < 1.0 { 1.0 } else { grown }; // stays NaN
                    ([before * x, growth, if growth <= most { most } else { growth }], g)
                },
                #[inline(always)]
                // SAFETY: as above.
                move |l, i, g| unsafe { gx.get().add(place(l, i)).write(T::of(g)) },
            );
        });
        let most = &states[2];
        for l in 0..lines {
            // The first sum is not finite if a gradient of an output is not.
            if !(most[l] <= MOST && (is_double || later[sum_place(l, 0)].is_finite())) {
                // SAFETY: guaranteed by the caller.
                unsafe { self.widen_product_gradient(|i| place(l, i), x, gy, gx) };
            }
        }
    }

    /// Computes the gradients of a line again if a part of a product may have left the range of numbers.
    ///
    /// # Safety
    /// The indices `at` of elements must be within the arrays, and no other thread may read or write them in `gx`.
    #[cold]
    unsafe fn widen_product_gradient<T: Float>(
        self,
        at: impl Fn(usize) -> usize,
        x: &[T],
        gy: &[T],
        gx: Shared<T>,
    ) {
        let Self { n, exclusive, .. } = self;
        if !may_leave_range((0..n).map(|i| (x[at(i)], gy[at(i)]))) {
            return;
        }
        let mut later = List::repeat(Scaled::ZERO, n);
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
            // SAFETY: guaranteed by the caller.
            unsafe { gx.get().add(at(i)).write(T::of((before * later[i]).value())) };
            before = before * x(i);
        }
    }
}
