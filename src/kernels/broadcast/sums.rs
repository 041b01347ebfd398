//! Sums over broadcast axes, in float64 and in an order that depends only on the shape.

use std::ops::Range;

use smallvec::SmallVec;

use super::{BroadcastLayout, PairAxis};
use crate::array::Element;
use crate::kernels::index::indices;
use crate::kernels::map::{Aligned, GRAIN, LaneBuffer, TILE};
use crate::kernels::scratch::Zeros;
use crate::kernels::simd::vectorised_for;
use crate::kernels::sixteen_bits::{is_narrow, wide_numbers};
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, Stored};

/// The number of parallel sums along a row: more accurate than a single one, and independent of each other.
const LANES: usize = 16;
/// Elements that are added up before they are added to a lane.
const DEEP: usize = 8;
/// The largest number of parts of an array with separate sums.
const PARTS: usize = 64;
/// Rows whose elements are added up before they are added to the sums of their columns.
const TOGETHER: usize = 16;

/// A scale factor that prevents overflow of sums of any possible number of float64 values.
const DOWN: f64 = f64::from_bits((1023 - 64) << 52);

/// Adds the elements in these rows and columns of a broadcast to its sums.
pub(super) type Add<'a> = dyn Fn(&BroadcastLayout, Range<usize>, Range<usize>, &[Shared<f64>]) + Sync + 'a;

impl BroadcastLayout {
    /// For each element of `a`, the sums of `f(a, b, y)`, which receives the indices of corresponding elements and
    /// must be `#[inline(always)]`. Only for elements of `a` from the first used one on.
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
                vectorised_for::<S, _>(
                    #[inline(always)]
                    move || part.add_sums(rows, columns, to, f),
                );
            },
            &to,
        );
        sums
    }

    /// For each element of `a`, the sum of the corresponding elements of `x`, which has the shape of `y`. Also
    /// returns the scale factor by which the sums must be divided: 1 unless a sum would overflow.
    pub fn sums_of<E: Stored>(&self, x: &[E]) -> (Zeros<f64>, f64) {
        let is_finite = |sums: &[f64]| sums.iter().all(|sum| sum.is_finite());
        if is_narrow::<E>() {
            let sums = self.sums_in_registers(x);
            return if is_finite(&sums) { (sums, 1.0) } else { wide_numbers(x, |x| self.sums_of(x)) };
        }
        let sums = self.plain_sums_of(x);
        if size_of::<E>() < size_of::<f64>() || is_finite(&sums) {
            return (sums, 1.0);
        }
        // There is no wider type for sums of float64.
        let [sums] = self.sums(
            #[inline(always)]
            // SAFETY: the indices are within `x`.
            |_, _, i| [unsafe { x.get_unchecked(i) }.wide().real() * DOWN],
        );
        (sums, DOWN)
    }

    /// Sums the elements of `x` that share an element of `a`, in float64.
    fn plain_sums_of<E: Stored>(&self, x: &[E]) -> Zeros<f64> {
        assert_eq!(x.len(), self.size());
        let mut sums = Zeros::new(self.span());
        let (to, x) = (Shared::new(sums.as_mut_ptr()), Shared::read_only(x.as_ptr()));
        self.plan(
            &|part, rows, columns, to: &[Shared<f64>]| {
                let (to, base) = (to[0].get(), part.first[0]);
                vectorised_for::<E, _>(
                    #[inline(always)]
                    // SAFETY: the indices are within `x`, and there is a sum for each element of `a`.
                    move || unsafe {
                        if part.last.a() == 0 {
                            part.walk(
                                rows,
                                #[inline(always)]
                                |a, _, y| {
                                    let p = x.get().add(y + columns.start);
                                    // Sums of few columns are unrolled.
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
                                |_, _, y| [x.get().add(y).read().wide()],
                            );
                        }
                    },
                );
            },
            &[to],
        );
        sums
    }

    /// The distance from the first to the last used element of `a`, plus one.
    pub(in crate::kernels) fn span(&self) -> usize {
        if self.size() == 0 {
            // Nothing is summed up, but the elements exist.
            return self
                .outer
                .iter()
                .chain([&self.last])
                .filter(|axis| axis.a() != 0)
                .map(|axis| axis.n)
                .product();
        }
        1 + self.outer.iter().chain([&self.last]).map(|axis| (axis.n - 1) * axis.a()).sum::<usize>()
    }

    /// Calls `add(part, rows, columns, sums)` such that each element is added to its sum once.
    pub(super) fn plan(&self, add: &Add<'_>, to: &[Shared<f64>]) {
        let (rows, n, span) = (self.rows(), self.last.n, self.span());
        let total = rows * n;
        if total < 2 * GRAIN {
            return add(self, 0..rows, 0..n, to);
        }
        // Parts of the first axis that have separate sums.
        if let Some(first) = self.outer.first().filter(|axis| axis.a() != 0 && axis.n >= 8) {
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
        // Parts that each add to separate sums, which are then added in order.
        let parts = PARTS.min(total / GRAIN).min(total / (16 * span));
        if parts < 2 {
            return add(self, 0..rows, 0..n, to);
        }
        let mut buffer = Zeros::<f64>::new(parts * to.len() * span);
        let place = Shared::new(buffer.as_mut_ptr());
        let cut = |of: usize, grain: usize, i: usize| {
            let step = of.div_ceil(parts).next_multiple_of(grain);
            of.min(i * step)..of.min((i + 1) * step)
        };
        threads::parallel(parts, |i| {
            // SAFETY: each part has its own memory.
            let own = |k: usize| Shared::new(unsafe { place.get().add((i * to.len() + k) * span) });
            let own: SmallVec<[_; 2]> = (0..to.len()).map(own).collect();
            if rows >= n {
                add(self, cut(rows, 1, i), 0..n, &own);
            } else {
                add(self, 0..rows, cut(n, TILE, i), &own);
            }
        });
        for part in buffer.chunks_exact(to.len() * span) {
            for (to, part) in to.iter().zip(part.chunks_exact(span)) {
                // SAFETY: both have the same number of sums.
                part.iter().enumerate().for_each(|(i, sum)| unsafe { *to.get().add(i) += sum });
            }
        }
    }

    /// Adds the elements in these rows and columns to their sums.
    #[inline(always)]
    fn add_sums<const K: usize, S: Float>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        to: [*mut f64; K],
        f: impl Fn(usize, usize, usize) -> [S; K] + Sync + Copy,
    ) {
        let (by_a, by_b, base) = (self.last.a() != 0, self.last.b() != 0, self.first[0]);
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
                        // SAFETY: there are sums for all elements of `a` from `base` on.
                        unsafe { *to[k].add(a - base) += sums[k] };
                    }
                },
            );
            return;
        }
        // Consecutive rows that add to the same sums are processed together.
        let below = self.outer.last().filter(|axis| axis.a() == 0).copied();
        let PairAxis { n: height, strides: [_, down_b, down_y] } = below.unwrap_or(PairAxis::ONE);
        let mut row = rows.start;
        while row < rows.end {
            let [a, b, y] = indices(&self.outer, self.first, row);
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

/// Buffers for numbers to be summed, which the compiler knows do not alias.
type LaneBuffers<const K: usize, S> = [LaneBuffer<S>; K];

/// Adds `f(i, 0..R)` to sum `at + i`, for each column.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // indexes several arrays
fn add_rows<const K: usize, const R: usize, S: Float>(
    columns: Range<usize>,
    to: [*mut f64; K],
    at: usize,
    f: impl Fn(usize, usize) -> [S; K],
) {
    let mut buffers: LaneBuffers<K, f64> = [LaneBuffer::EMPTY; K];
    let mut start = columns.start;
    while start < columns.end {
        let n = TILE.min(columns.end - start);
        for i in 0..n {
            let v = pairwise::<K, R>(
                #[inline(always)]
                |r| real(f(start + i, r)),
            );
            for k in 0..K {
                buffers[k].0[i].write(v[k]);
            }
        }
        for k in 0..K {
            for i in 0..n {
                // SAFETY: there is a sum for each column, and all of the tile was written above.
                unsafe { *to[k].add(at + start + i) += buffers[k].0[i].assume_init() };
            }
        }
        start += n;
    }
}

/// The values in float64.
#[inline(always)]
fn real<const K: usize, S: Float>(v: [S; K]) -> [f64; K] {
    let mut real = [0.0; K];
    for k in 0..K {
        real[k] = v[k].real();
    }
    real
}

/// The pairwise sums of `f(0..R)`, for `R` of 1, 8 or 16, with neighbours added first.
#[inline(always)]
fn pairwise<const K: usize, const R: usize>(f: impl Fn(usize) -> [f64; K]) -> [f64; K] {
    if R == 1 {
        return f(0);
    }
    let four = |r| plus(plus(f(r), f(r + 1)), plus(f(r + 2), f(r + 3)));
    let eight = |r| plus(four(r), four(r + 4));
    if R == 8 { eight(0) } else { plus(eight(0), eight(8)) }
}

/// The sum, element by element.
#[inline(always)]
fn plus<const K: usize>(mut a: [f64; K], b: [f64; K]) -> [f64; K] {
    for k in 0..K {
        a[k] += b[k];
    }
    a
}

/// The sums of `f` over the columns. `f` must be `#[inline(always)]`.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // indexes several arrays
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
    let mut buffers: LaneBuffers<K, S> = [LaneBuffer::EMPTY; K];
    let mut start = columns.start;
    while start < columns.end {
        let n = TILE.min(columns.end - start);
        for i in 0..n {
            let v = f(start + i);
            for k in 0..K {
                buffers[k].0[i].write(v[k]);
            }
        }
        for k in 0..K {
            // SAFETY: this many elements were written.
            sums[k] += unsafe { sum_of(buffers[k].0.as_ptr().cast::<S>(), n) };
        }
        start += n;
    }
    sums
}

/// The sum of `n` numbers from `p` on.
///
/// # Safety
/// They must be readable.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops are vectorized
pub(in crate::kernels) unsafe fn sum_of<E: Stored>(p: *const E, n: usize) -> f64 {
    let mut all = Aligned([0.0; LANES]);
    let lanes = &mut all.0;
    // SAFETY: guaranteed by the caller.
    let at = |i: usize| [unsafe { p.add(i).read() }.wide().real()];
    let mut i = 0;
    // Lanes are in memory, and are updated as rarely as possible.
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

/// The sum of the lanes, by halving, in place.
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
