//! Sums of what meets the same element of an array, in float64 and in an order that the shape alone decides.

use std::ops::Range;

use smallvec::SmallVec;

use super::{PairAxis, Pairing};
use crate::kernels::Float;
use crate::kernels::map::{Aligned, GRAIN, LaneBuffer, TILE};
use crate::kernels::scratch::Zeros;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Shared};

/// Sums side by side along a row: closer to the exact sum than one, and independent of each other.
const LANES: usize = 16;
/// Elements that are summed up before they are added to a lane.
const DEEP: usize = 8;
/// Most parts of an array that are summed up each by itself.
const PARTS: usize = 64;
/// Rows whose elements are summed up before they are added to the sums of their columns.
const TOGETHER: usize = 16;

/// A factor that keeps sums of as many float64 numbers as there can be from overflow.
const DOWN: f64 = f64::from_bits((1023 - 64) << 52);

/// Adds what is in those rows and columns of a pairing to its sums.
type Add<'a> = dyn Fn(&Pairing, Range<usize>, Range<usize>, &[Shared<f64>]) + Sync + 'a;

impl Pairing {
    /// For each element of `a` the sums of `f(a, b, y)`, which gets the indices of elements that meet and must be
    /// `#[inline(always)]`. Only the elements from the first on that take part.
    #[inline(always)]
    pub fn sums<const K: usize, S: Float>(
        &self,
        f: impl Fn(usize, usize, usize) -> [S; K] + Sync + Copy,
    ) -> [Zeros<f64>; K] {
        let span = self.span();
        let mut sums = [(); K].map(|()| Zeros::new(span));
        let to = sums.each_mut().map(|sums| Shared::new(sums.as_mut_ptr()));
        self.plan(
            &|part, rows, columns, to: &[Shared<f64>]| {
                let to = std::array::from_fn(|k| to[k].get());
                vectorised(
                    #[inline(always)]
                    move || part.add_sums(rows, columns, to, f),
                );
            },
            &to,
        );
        sums
    }

    /// For each element of `a` the sum of the elements of `x`, an array that meets it as `y`, and what the sum is divided by: 1
    /// unless the sum would overflow.
    pub fn sums_of<T: Float>(&self, x: &[T]) -> (Zeros<f64>, f64) {
        let sums = self.plain_sums_of(x);
        if size_of::<T>() < size_of::<f64>() || sums.iter().all(|sum| sum.is_finite()) {
            return (sums, 1.0);
        }
        // Numbers of float64 have no wider type to add up in.
        let [sums] = self.sums(
            #[inline(always)]
            // SAFETY: the elements are those of `x`.
            |_, _, i| [unsafe { x.get_unchecked(i) }.real() * DOWN],
        );
        (sums, DOWN)
    }

    fn plain_sums_of<T: Float>(&self, x: &[T]) -> Zeros<f64> {
        assert_eq!(x.len(), self.size());
        let mut sums = Zeros::new(self.span());
        let (to, x) = (Shared::new(sums.as_mut_ptr()), Shared::read_only(x.as_ptr()));
        self.plan(
            &|part, rows, columns, to: &[Shared<f64>]| {
                let (to, base) = (to[0].get(), part.first[0]);
                vectorised(
                    #[inline(always)]
                    // SAFETY: the elements are those of `x`, and there is a sum for each of those of `a`.
                    move || unsafe {
                        if part.last.a == 0 {
                            part.walk(
                                rows,
                                #[inline(always)]
                                |a, _, y| {
                                    let p = x.get().add(y + columns.start);
                                    // Of few columns the sums are straight lines of code.
                                    *to.add(a - base) += match columns.len() {
                                        4 => sum_of(p, 4),
                                        LANES => sum_of(p, LANES),
                                        n => sum_of(p, n),
                                    };
                                },
                            );
                        } else {
                            part.add_sums(
                                rows,
                                columns,
                                [to],
                                #[inline(always)]
                                |_, _, y| [x.get().add(y).read()],
                            );
                        }
                    },
                );
            },
            &[to],
        );
        sums
    }

    /// One more than the distance of the first element of `a` that takes part from the last one.
    pub(in crate::kernels) fn span(&self) -> usize {
        if self.size() == 0 {
            // Nothing is summed up, but the elements are there.
            return self
                .outer
                .iter()
                .chain([&self.last])
                .filter(|axis| axis.a != 0)
                .map(|axis| axis.n)
                .product();
        }
        1 + self.outer.iter().chain([&self.last]).map(|axis| (axis.n - 1) * axis.a).sum::<usize>()
    }

    /// Calls `add(part, rows, columns, sums)` so that everything is added to its sum once.
    fn plan(&self, add: &Add<'_>, to: &[Shared<f64>]) {
        let (rows, n, span) = (self.rows(), self.last.n, self.span());
        let total = rows * n;
        if total < 2 * GRAIN {
            return add(self, 0..rows, 0..n, to);
        }
        // Parts of the first axis that have their own sums.
        if let Some(first) = self.outer.first().filter(|axis| axis.a != 0 && axis.n >= 8) {
            let grain = (GRAIN / (total / first.n)).max(1);
            return threads::ranges(first.n, grain, |range| {
                let slab = self.slab(0, &range);
                let own = |to: &Shared<f64>| {
                    // SAFETY: the sums of the part begin here.
                    Shared::new(unsafe { to.get().add(slab.first[0] - self.first[0]) })
                };
                let own: SmallVec<[_; 2]> = to.iter().map(own).collect();
                add(&slab, 0..slab.rows(), 0..n, &own);
            });
        }
        // Parts that each add to sums of their own, which are then added in order.
        let parts = PARTS.min(total / GRAIN).min(total / (16 * span));
        if parts < 2 {
            return add(self, 0..rows, 0..n, to);
        }
        let mut room = Zeros::<f64>::new(parts * to.len() * span);
        let place = Shared::new(room.as_mut_ptr());
        let cut = |of: usize, grain: usize, i: usize| {
            let step = of.div_ceil(parts).next_multiple_of(grain);
            of.min(i * step)..of.min((i + 1) * step)
        };
        threads::parallel(parts, |i| {
            // SAFETY: each part has its own room.
            let own = |k: usize| Shared::new(unsafe { place.get().add((i * to.len() + k) * span) });
            let own: SmallVec<[_; 2]> = (0..to.len()).map(own).collect();
            if rows >= n {
                add(self, cut(rows, 1, i), 0..n, &own);
            } else {
                add(self, 0..rows, cut(n, TILE, i), &own);
            }
        });
        for part in room.chunks_exact(to.len() * span) {
            for (to, part) in to.iter().zip(part.chunks_exact(span)) {
                // SAFETY: the sums are as many.
                part.iter().enumerate().for_each(|(i, sum)| unsafe { *to.get().add(i) += sum });
            }
        }
    }

    /// Adds what is in those rows and columns to its sums.
    #[inline(always)]
    fn add_sums<const K: usize, S: Float>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        to: [*mut f64; K],
        f: impl Fn(usize, usize, usize) -> [S; K] + Sync + Copy,
    ) {
        let (by_a, by_b, base) = (self.last.a != 0, self.last.b != 0, self.first[0]);
        if !by_a {
            self.walk(
                rows,
                #[inline(always)]
                |a, b, y| {
                    let sums = match by_b {
                        true => along(
                            columns.clone(),
                            #[inline(always)]
                            |i| f(a, b + i, y + i),
                        ),
                        false => along(
                            columns.clone(),
                            #[inline(always)]
                            |i| f(a, b, y + i),
                        ),
                    };
                    for k in 0..K {
                        // SAFETY: the sums are of all elements of `a` from `base` on.
                        unsafe { *to[k].add(a - base) += sums[k] };
                    }
                },
            );
            return;
        }
        // Rows below each other that add to the same sums are taken together.
        let below = self.outer.last().filter(|axis| axis.a == 0).copied();
        let PairAxis { n: height, b: down_b, y: down_y, .. } =
            below.unwrap_or(PairAxis { n: 1, a: 0, b: 0, y: 0 });
        let mut row = rows.start;
        while row < rows.end {
            let [a, b, y] = self.row(row);
            let together = (height - row % height).min(rows.end - row) >= TOGETHER;
            let (columns, at) = (columns.clone(), a - base);
            match (together, by_b) {
                (true, true) => add_rows::<K, TOGETHER, S>(
                    columns,
                    to,
                    at,
                    #[inline(always)]
                    |i, r| f(a + i, b + r * down_b + i, y + r * down_y + i),
                ),
                (true, false) => add_rows::<K, TOGETHER, S>(
                    columns,
                    to,
                    at,
                    #[inline(always)]
                    |i, r| f(a + i, b + r * down_b, y + r * down_y + i),
                ),
                (false, true) => add_rows::<K, 1, S>(
                    columns,
                    to,
                    at,
                    #[inline(always)]
                    |i, _| f(a + i, b + i, y + i),
                ),
                (false, false) => add_rows::<K, 1, S>(
                    columns,
                    to,
                    at,
                    #[inline(always)]
                    |i, _| f(a + i, b, y + i),
                ),
            }
            row += if together { TOGETHER } else { 1 };
        }
    }
}

/// Numbers on their way into sums: memory of its own, which the compiler knows to be no other's.
type Rooms<const K: usize, S> = [LaneBuffer<S>; K];

/// Adds `f(i, 0..R)` to sum `at + i`, for each column.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // of several arrays
fn add_rows<const K: usize, const R: usize, S: Float>(
    columns: Range<usize>,
    to: [*mut f64; K],
    at: usize,
    f: impl Fn(usize, usize) -> [S; K],
) {
    let mut rooms: Rooms<K, f64> = [LaneBuffer::EMPTY; K];
    let mut start = columns.start;
    while start < columns.end {
        let n = TILE.min(columns.end - start);
        for i in 0..n {
            let v = pairwise::<K, R>(
                #[inline(always)]
                |r| real(f(start + i, r)),
            );
            for k in 0..K {
                rooms[k].0[i].write(v[k]);
            }
        }
        for k in 0..K {
            for i in 0..n {
                // SAFETY: there is a sum for each column, and all of the tile was written above.
                unsafe { *to[k].add(at + start + i) += rooms[k].0[i].assume_init() };
            }
        }
        start += n;
    }
}

#[inline(always)]
fn real<const K: usize, S: Float>(v: [S; K]) -> [f64; K] {
    let mut real = [0.0; K];
    for k in 0..K {
        real[k] = v[k].real();
    }
    real
}

/// The sums of `f(0..R)`, for `R` of 1, 8 or 16: neighbours first.
#[inline(always)]
fn pairwise<const K: usize, const R: usize>(f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
    if R == 1 {
        return f(0);
    }
    let four = |r| plus(plus(f(r), f(r + 1)), plus(f(r + 2), f(r + 3)));
    let eight = |r| plus(four(r), four(r + 4));
    if R == 8 { eight(0) } else { plus(eight(0), eight(8)) }
}

#[inline(always)]
fn plus<const K: usize>(mut a: [f64; K], b: [f64; K]) -> [f64; K] {
    for k in 0..K {
        a[k] += b[k];
    }
    a
}

/// The sums of `f` over the columns. It must be `#[inline(always)]`.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // of several arrays
pub(in crate::kernels) fn along<const K: usize, S: Float>(
    columns: Range<usize>,
    f: impl Fn(usize) -> [S; K],
) -> [f64; K] {
    let mut sums = [0.0; K];
    if columns.len() < LANES {
        for i in columns {
            sums = plus(sums, real(f(i)));
        }
        return sums;
    }
    let mut rooms: Rooms<K, S> = [LaneBuffer::EMPTY; K];
    let mut start = columns.start;
    while start < columns.end {
        let n = TILE.min(columns.end - start);
        for i in 0..n {
            let v = f(start + i);
            for k in 0..K {
                rooms[k].0[i].write(v[k]);
            }
        }
        for k in 0..K {
            // SAFETY: as many were written.
            sums[k] += unsafe { sum_of(rooms[k].0.as_ptr().cast::<S>(), n) };
        }
        start += n;
    }
    sums
}

/// The sum of `n` numbers from `p` on.
///
/// # Safety
/// They must be there.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops become loops over registers
pub(in crate::kernels) unsafe fn sum_of<S: Float>(p: *const S, n: usize) -> f64 {
    // SAFETY: the caller's promise.
    let at = |i: usize| [unsafe { p.add(i).read() }.real()];
    let mut all = Aligned([0.0; LANES]);
    let (lanes, mut i) = (&mut all.0, 0);
    // Lanes rest in memory, and are added to as seldom as may be.
    while n - i >= DEEP * LANES {
        for l in 0..LANES {
            let [v] = pairwise::<1, DEEP>(
                #[inline(always)]
                |d| at(i + d * LANES + l),
            );
            lanes[l] += v;
        }
        i += DEEP * LANES;
    }
    while n - i >= LANES {
        for l in 0..LANES {
            lanes[l] += at(i + l)[0];
        }
        i += LANES;
    }
    for l in 0..n - i {
        lanes[l] += at(i + l)[0];
    }
    join(lanes)
}

/// The sum of the lanes, by halves, in their place.
#[inline(always)]
fn join(lanes: &mut [f64; LANES]) -> f64 {
    let mut n = LANES / 2;
    while n > 0 {
        for l in 0..n {
            lanes[l] += lanes[l + n];
        }
        n /= 2;
    }
    lanes[0]
}
