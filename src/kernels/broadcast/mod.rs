//! Broadcasting of two operands: index mapping and loops. Knows shapes and memory, not graphs.
//!
//! Work is divided by shape only, so results do not depend on the number of threads.

mod map;
mod narrow_sums;
mod slopes;
mod sums;

use std::ops::Range;

use smallvec::SmallVec;

pub(super) use sums::{along as sum_along, sum_of};

use super::index::{IndexAxes, IndexAxis, merged, walk};
use super::map::GRAIN;
use super::scratch::Zeros;
use super::simd::vectorised;
use super::threads::{self, Shared};
use crate::array::Shape;

/// Elements of a part that is traversed several times.
const SLAB: usize = 1 << 13;
/// The largest number of groups of parts with separate sums.
const GROUPS: usize = 64;
/// The smallest number of elements per sum for which a group has separate sums.
const LEAST: usize = 16;

/// An axis of the result of broadcasting, with its stride in `a`, `b` and `y`.
type PairAxis = IndexAxis<3>;

impl PairAxis {
    /// An axis of `n` steps with the strides of both operands and the result.
    const fn of(n: usize, a: usize, b: usize, y: usize) -> Self {
        Self { n, strides: [a, b, y] }
    }

    /// The stride in operand `a`, in elements.
    #[inline(always)]
    fn a(&self) -> usize {
        self.strides[0]
    }

    /// The stride in operand `b`, in elements.
    #[inline(always)]
    fn b(&self) -> usize {
        self.strides[1]
    }

    /// The stride in the result `y`, in elements.
    #[inline(always)]
    fn y(&self) -> usize {
        self.strides[2]
    }
}

/// Elements that are repeated cyclically: element `i` of the whole corresponds to element `i / together % period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// The number of elements in a cycle.
    pub period: usize,
    /// The number of adjacent elements that correspond to the same one.
    pub together: usize,
}

impl Cycle {
    /// `n` elements from `start` on, split into chunks. Each is given by its first corresponding element and its
    /// length. All elements of a chunk correspond to that one, or if `together` is 1, to consecutive ones.
    #[inline]
    pub fn pieces(self, start: usize, n: usize) -> impl Iterator<Item = (usize, usize)> {
        let (mut i, end) = (start, start + n);
        std::iter::from_fn(move || {
            let (at, most) = match self.together {
                1 => (i % self.period, self.period - i % self.period),
                together => (i / together % self.period, together - i % together),
            };
            let n = most.min(end - i);
            i += n;
            (n > 0).then_some((at, n))
        })
    }
}

/// The broadcast of two arrays `a` and `b` to an array `y`. Contiguous axes are merged, and an array is repeated
/// along axes that it lacks. Along the last axis `a` and `b` are contiguous or repeated, and `y` is contiguous.
#[derive(Clone, Debug)]
pub struct BroadcastLayout {
    /// All axes but the last, outermost first.
    outer: IndexAxes<3>,
    /// The last axis, along which a loop runs over contiguous elements.
    last: PairAxis,
    /// The indices of the first elements of `a`, `b` and `y`.
    first: [usize; 3],
}

impl BroadcastLayout {
    /// The broadcast shape by NumPy's rules, or `None` if the shapes are incompatible.
    pub fn shape(a: &Shape, b: &Shape) -> Option<Shape> {
        if a == b {
            return Some(a.clone());
        }
        let n = a.ndim().max(b.ndim());
        let dim = |s: &Shape, i: usize| if i + s.ndim() < n { 1 } else { s[i + s.ndim() - n] };
        let both = |i: usize| match (dim(a, i), dim(b, i)) {
            (p, q) if p == q => Some(p),
            (1, q) => Some(q),
            (p, 1) => Some(p),
            _ => None,
        };
        (0..n).map(both).collect()
    }

    /// The broadcast of arrays of shapes `a` and `b`, which [`BroadcastLayout::shape`] accepts.
    pub fn new(a: &Shape, b: &Shape) -> Self {
        if a == b {
            let last = PairAxis::of(a.size(), 1, 1, 1);
            return Self { outer: SmallVec::new(), last, first: [0; 3] };
        }
        let n = a.ndim().max(b.ndim());
        let lift = |s: &Shape| -> SmallVec<[(usize, usize); 4]> {
            let (strides, lead) = (s.strides(), n - s.ndim());
            let of = |i: usize| {
                if i < lead || s[i - lead] == 1 { (1, 0) } else { (s[i - lead], strides[i - lead]) }
            };
            (0..n).map(of).collect()
        };
        let (a, b) = (lift(a), lift(b));
        // An empty axis (0 against 1) has length zero.
        let dim = |i: usize| match (a[i], b[i]) {
            ((p, 0), (q, 0)) => p.min(q),
            ((_, 0), (q, _)) => q,
            ((p, _), _) => p,
        };
        Self::merged((0..n).map(|i| (dim(i), a[i].1, b[i].1)))
    }

    /// The broadcast of an array of lengths `dims` with two arrays that have only the marked axes.
    pub fn of_axes(dims: &[usize], in_a: &[bool], in_b: &[bool]) -> Self {
        let strides = |of: &[bool]| {
            let mut size = 1;
            let mut strides: SmallVec<[usize; 4]> = SmallVec::from_elem(0, dims.len());
            for axis in (0..dims.len()).rev().filter(|axis| of[*axis]) {
                (strides[axis], size) = (size, size * dims[axis]);
            }
            strides
        };
        let (a, b) = (strides(in_a), strides(in_b));
        Self::merged((0..dims.len()).map(|i| (dims[i], a[i], b[i])))
    }

    /// Lengths and strides, without axes of length one, and with contiguous axes merged.
    fn merged(axes: impl Iterator<Item = (usize, usize, usize)>) -> Self {
        // Strides of the result follow from the merged axes, which fit without a heap allocation.
        let short = merged(axes.map(|(n, a, b)| IndexAxis { n, strides: [a, b] }));
        let pair = |axis: &IndexAxis<2>| PairAxis::of(axis.n, axis.strides[0], axis.strides[1], 0);
        let mut all: IndexAxes<3> = short.iter().map(pair).collect();
        let mut y = 1;
        for axis in all.iter_mut().rev() {
            (axis.strides[2], y) = (y, y * axis.n);
        }
        let last = all.pop().unwrap_or(PairAxis::of(1, 1, 1, 1));
        Self { outer: all, last, first: [0; 3] }
    }

    /// The same broadcast with `a` and `b` swapped.
    pub fn swapped(mut self) -> Self {
        self.outer.iter_mut().chain([&mut self.last]).for_each(|axis| axis.strides.swap(0, 1));
        self.first.swap(0, 1);
        self
    }

    /// The number of elements along the last axis.
    pub(super) fn width(&self) -> usize {
        self.last.n
    }

    /// True for `a`, and for `b`, if its element changes along the last axis.
    pub(super) fn last_varies(&self) -> (bool, bool) {
        (self.last.a() != 0, self.last.b() != 0)
    }

    /// True if each element of `a` always corresponds to the same element of `b`.
    pub(super) fn is_same(&self) -> bool {
        self.outer.iter().chain([&self.last]).all(|axis| axis.a() == axis.b())
    }

    /// The number of adjacent elements with the same element of `a`, if `a` is traversed in a [`Cycle`], and `b` with
    /// it.
    pub(super) fn cycle(&self) -> Option<usize> {
        let together = if self.last.a() == 0 { self.last.n } else { 1 };
        let fits = match (&self.outer[..], self.last.a()) {
            ([], 0 | 1) => true,
            ([one], 0) => one.a() == 1,
            ([one], 1) => one.a() == 0,
            ([many, one], 0) => many.a() == 0 && one.a() == 1,
            _ => false,
        };
        (fits && self.is_same()).then_some(together)
    }

    /// The number of elements of `a` per line, and how often each is repeated. Only if an element of `a` is repeated
    /// along the last axis, and the next elements correspond to the next one of `a`.
    pub(super) fn repeats(&self) -> Option<[usize; 2]> {
        let at = self.outer.last().filter(|axis| axis.a() == 1 && self.last.a() == 0)?;
        Some([at.n, self.last.n])
    }

    /// The first elements of the lines of [`BroadcastLayout::repeats`].
    pub(super) fn lines(mut self) -> Self {
        self.outer.pop();
        self.last = PairAxis::of(1, 0, 0, 0);
        self
    }

    /// The number of rows along the last axis.
    pub(super) fn rows(&self) -> usize {
        self.outer.iter().map(|axis| axis.n).product()
    }

    /// The number of elements of `y`.
    pub fn size(&self) -> usize {
        self.rows() * self.last.n
    }

    /// True if all indices are within arrays of these lengths.
    pub fn fits(&self, lengths: [usize; 3]) -> bool {
        let axes = || self.outer.iter().chain([&self.last]);
        let end = |k: usize| self.first[k] + axes().map(|axis| (axis.n - 1) * axis.strides[k]).sum::<usize>();
        self.size() == 0 || (0..3).all(|k| end(k) < lengths[k])
    }

    /// True if `a` is not broadcast: each of its elements is used once.
    pub fn a_is_whole(&self) -> bool {
        self.outer.iter().chain([&self.last]).all(|axis| axis.a() == axis.y())
    }

    /// Calls `row(a, b, y)` with the first indices of each row.
    #[inline(always)]
    pub(super) fn walk(&self, rows: Range<usize>, mut row: impl FnMut(usize, usize, usize)) {
        walk(
            &self.outer,
            self.first,
            rows,
            #[inline(always)]
            |[a, b, y]| row(a, b, y),
        );
    }

    /// The index of the first element of `a` that is used.
    pub fn first_a(&self) -> usize {
        self.first[0]
    }

    /// The part of the broadcast in a range of an outer axis.
    fn slab(&self, axis: usize, range: &Range<usize>) -> Self {
        let mut slab = self.clone();
        let strides = self.outer[axis].strides;
        slab.outer[axis].n = range.len();
        slab.first = std::array::from_fn(|i| self.first[i] + range.start * strides[i]);
        slab
    }

    /// The axis along which parts have separate elements of `a`, and the number of its elements that fits the cache.
    fn slabs_along(&self) -> Option<(usize, usize)> {
        let axis = self.outer.iter().position(|axis| axis.a() != 0).filter(|_| self.size() > GRAIN)?;
        Some((axis, (SLAB / (self.size() / self.outer[axis].n)).max(1)))
    }

    /// Calls `work` in parallel for disjoint parts that cover everything and have separate, adjacent elements of `a`.
    /// Parts are as small as possible and fit a cache.
    pub fn slabs(&self, work: &(dyn Fn(&Self) + Sync)) {
        let Some((axis, grain)) = self.slabs_along() else { return work(self) };
        threads::ranges(self.outer[axis].n, grain, |range| work(&self.slab(axis, &range)));
    }

    /// As [`BroadcastLayout::slabs`], with `K` times `n` sums to which each part adds. Groups of parts share sums,
    /// which are then added in order.
    pub(super) fn slabs_with_sums<const K: usize>(
        &self,
        n: usize,
        work: &(dyn Fn(&Self, [*mut f64; K]) + Sync),
    ) -> [Zeros<f64>; K] {
        let mut sums = [(); K].map(|()| Zeros::new(n));
        let Some((axis, grain)) = self.slabs_along() else {
            work(self, sums.each_mut().map(|sums| sums.as_mut_ptr()));
            return sums;
        };
        let length = self.outer[axis].n;
        let most = (self.size() / (LEAST * n.max(1))).clamp(1, GROUPS);
        let step = length.div_ceil(length.div_ceil(grain).min(most)).next_multiple_of(grain);
        let groups = length.div_ceil(step);
        let mut buffer = Zeros::<f64>::new(groups * K * n);
        let place = Shared::new(buffer.as_mut_ptr());
        threads::parallel(groups, |group| {
            // SAFETY: each group has its own memory.
            let to = std::array::from_fn(|k| unsafe { place.get().add((group * K + k) * n) });
            let end = length.min((group + 1) * step);
            for start in (group * step..end).step_by(grain) {
                work(&self.slab(axis, &(start..end.min(start + grain))), to);
            }
        });
        if n > 0 {
            for group in buffer.chunks_exact(K * n) {
                for (sums, group) in sums.iter_mut().zip(group.chunks_exact(n)) {
                    sums.iter_mut().zip(group).for_each(|(sum, v)| *sum += v);
                }
            }
        }
        sums
    }

    /// Calls `work(rows, columns)` in parallel for parts that cover `y`. Long rows are cut at multiples of a tile.
    fn pieces(&self, work: &(dyn Fn(Range<usize>, Range<usize>) + Sync)) {
        let (rows, n) = (self.rows(), self.last.n);
        if n >= 2 * GRAIN {
            let cuts = n.div_ceil(GRAIN);
            threads::parallel(rows * cuts, |i| {
                let start = i % cuts * GRAIN;
                work(i / cuts..i / cuts + 1, start..n.min(start + GRAIN));
            });
        } else if let Some(grain) = GRAIN.checked_div(n) {
            threads::ranges(rows, grain, |rows| work(rows, 0..n));
        }
    }

    /// Calls `f(a, b, y)` with the indices of corresponding elements. `f` must be `#[inline(always)]`.
    #[inline(always)]
    pub fn each(&self, f: impl Fn(usize, usize, usize) + Sync + Copy) {
        let (by_a, by_b) = (self.last.a() != 0, self.last.b() != 0);
        self.pieces(&|rows, columns| {
            vectorised(
                #[inline(always)]
                move || {
                    self.walk(
                        rows,
                        #[inline(always)]
                        |a, b, y| match (by_a, by_b) {
                            (false, false) => along(
                                &columns,
                                #[inline(always)]
                                |i| f(a, b, y + i),
                            ),
                            (false, true) => along(
                                &columns,
                                #[inline(always)]
                                |i| f(a, b + i, y + i),
                            ),
                            (true, false) => along(
                                &columns,
                                #[inline(always)]
                                |i| f(a + i, b, y + i),
                            ),
                            (true, true) => along(
                                &columns,
                                #[inline(always)]
                                |i| f(a + i, b + i, y + i),
                            ),
                        },
                    );
                },
            );
        });
    }
}

/// A plain loop, since library functions would be compiled for the baseline instructions.
#[inline(always)]
fn along(columns: &Range<usize>, f: impl Fn(usize)) {
    for i in columns.clone() {
        f(i);
    }
}

#[cfg(test)]
mod tests;
