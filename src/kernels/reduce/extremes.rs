//! The largest and the smallest elements and their indices, in registers.
//!
//! The smallest element is the largest one with changed signs. Registers skip NaN, so an array with a NaN is searched
//! again. Elements of 16 bits are widened in registers.

use std::ops::Range;

use super::ReducedRows;
use crate::array::Element;
use crate::kernels::map::GRAIN;
use crate::kernels::scratch::List;
use crate::kernels::simd::{Vector, WIDEST, Work};
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Movable, Number, Stored};

/// Registers that are compared side by side along a row.
const SIDE_BY_SIDE: usize = 4;
/// Elements of a row that are looked through together.
const GROUP: usize = 64;
/// Rows whose numbers a `f32` holds to the bit.
const COUNTED: usize = 1 << 20;

impl<E: Stored> ReducedRows<'_, E> {
    /// The largest element for each result, or the smallest, and the index of its first occurrence along the folded
    /// axes. These must have fewer than 2^32 elements. A NaN wins.
    pub fn extremes(&self, smallest: bool) -> List<(E, usize)> {
        if self.inner == 1 { self.of_rows(smallest) } else { self.of_columns(smallest) }
    }

    /// The extreme of each row and its index.
    fn of_rows(&self, smallest: bool) -> List<(E, usize)> {
        let n = self.n;
        // Long rows are cut, and what comes out is joined in order.
        let cuts = if n >= 2 * GRAIN { n.div_ceil(GRAIN) } else { 1 };
        let mut parts = List::repeat((E::ZERO, 0), self.outer * cuts);
        let to = Shared::new(parts.as_mut_ptr());
        threads::ranges(parts.len(), (GRAIN / n.max(1)).max(1), |range| {
            E::with_registers(Along { x: &self.x, n, cuts, range, smallest, to });
        });
        if cuts == 1 {
            return parts;
        }
        // The place was not looked for yet.
        let best = |a: (E, usize), b: (E, usize)| if ahead(b.0, a.0, smallest) { b } else { a };
        let of_row = |(row, parts): (usize, &[(E, usize)])| {
            let (_, start) = parts.iter().copied().reduce(best)?;
            let x = &self.x[row * n..][start..n.min(start + GRAIN)];
            let mut found = [(E::ZERO, 0)];
            let to = Shared::new(found.as_mut_ptr());
            E::with_registers(Along { x, n: x.len(), cuts: 1, range: 0..1, smallest, to });
            Some((found[0].0, start + found[0].1))
        };
        parts.chunks(cuts).enumerate().filter_map(of_row).collect()
    }

    /// The extreme of each column and its index.
    fn of_columns(&self, smallest: bool) -> List<(E, usize)> {
        let (n, inner) = (self.n, self.inner);
        let mut all = List::repeat((E::ZERO, 0), self.outer * inner);
        let to = Shared::new(all.as_mut_ptr());
        self.blocks(|row, columns| {
            let x = &self.x[row * n * inner..][..n * inner];
            // SAFETY: each result is in one block.
            let to = Shared::new(unsafe { to.get().add(row * inner) });
            E::with_registers(Down { x, inner, columns, smallest, to });
        });
        all
    }
}

/// True if `v` replaces `best`, the extreme of the elements before it. The first NaN is never replaced.
fn ahead<E: Stored>(v: E, best: E, smallest: bool) -> bool {
    let (v, best) = (v.wide(), best.wide());
    if v.is_nan() || best.is_nan() {
        return !best.is_nan();
    }
    if smallest { v < best } else { v > best }
}

/// The best of elements that are not none, one after the other.
fn one_by_one<E: Stored>(x: impl Iterator<Item = E>, smallest: bool) -> (E, usize) {
    let best = |a: (E, usize), b: (E, usize)| if ahead(b.0, a.0, smallest) { b } else { a };
    x.enumerate().map(|(i, v)| (v, i)).reduce(best).unwrap_or((E::ZERO, 0))
}

/// A register of the elements from `p` on, negated if `smallest` is set.
///
/// # Safety
/// They must be there, and the instructions too.
#[inline(always)]
unsafe fn signed<V: Vector, E: Stored<Wide = V::T>>(p: *const E, smallest: bool) -> V {
    // SAFETY: guaranteed by the caller.
    unsafe { if smallest { V::zero().sub(E::load(p, None)) } else { E::load(p, None) } }
}

/// The best elements of several rows of `n` elements, each divided into `cuts` parts.
struct Along<'a, E> {
    /// The rows, one after the other.
    x: &'a [E],
    /// The number of elements of a row.
    n: usize,
    /// The number of parts of a row.
    cuts: usize,
    /// The numbers of the parts.
    range: Range<usize>,
    /// Finds the smallest elements, not the largest.
    smallest: bool,
    /// The best element of each part, with its index in the row. Of cut rows, the start of the part instead.
    to: Shared<(E, usize)>,
}

impl<E: Stored> Work<E::Wide> for Along<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        let mut i = self.range.start;
        while i < self.range.end {
            let start = i % self.cuts * GRAIN;
            let end = if self.cuts == 1 { self.n } else { self.n.min(start + GRAIN) };
            let x = &self.x[i / self.cuts * self.n..][start..end];
            // SAFETY: the instructions are there; each part comes once.
            unsafe {
                let find = self.cuts == 1;
                let (best, at) = match self.smallest {
                    true => best_of::<V, E, true>(x, find),
                    false => best_of::<V, E, false>(x, find),
                };
                self.to.get().add(i).write((best, start + at));
            }
            i += 1;
        }
    }
}

/// The best of a row that is not empty, and the first that is as good; zero instead unless the place is to be found.
#[inline(always)]
unsafe fn best_of<V: Vector, E: Stored<Wide = V::T>, const SMALLEST: bool>(
    x: &[E],
    find: bool,
) -> (E, usize) {
    let (n, p) = (x.len(), x.as_ptr());
    let slowly = || {
        let (best, at) = one_by_one(x.iter().copied(), SMALLEST);
        (best, if find { at } else { 0 })
    };
    if n < V::WIDTH {
        return slowly();
    }
    // SAFETY: the registers lie within the row: the last one ends with it.
    unsafe {
        let last = n - V::WIDTH;
        let mut lanes = [signed::<V, E>(p, SMALLEST); SIDE_BY_SIDE];
        let mut numbers = [u32::MAX; SIDE_BY_SIDE];
        let mut i = 0;
        while i + SIDE_BY_SIDE * V::WIDTH <= n {
            for r in 0..SIDE_BY_SIDE {
                let v = signed::<V, E>(p.add(i + r * V::WIDTH), SMALLEST);
                lanes[r] = v.max(lanes[r]);
                numbers[r] &= v.equal(v);
            }
            i += SIDE_BY_SIDE * V::WIDTH;
        }
        while i < n {
            let v = signed::<V, E>(p.add(i.min(last)), SMALLEST);
            lanes[0] = v.max(lanes[0]);
            numbers[0] &= v.equal(v);
            i += V::WIDTH;
        }
        let all = V::zero().equal(V::zero());
        if numbers[0] & numbers[1] & numbers[2] & numbers[3] & all != all {
            return slowly();
        }
        let mut best = [V::T::ZERO; WIDEST];
        lanes[0].max(lanes[1]).max(lanes[2].max(lanes[3])).store(best.as_mut_ptr());
        let mut width = V::WIDTH / 2;
        while width > 0 {
            for l in 0..width {
                best[l] = if best[l + width] > best[l] { best[l + width] } else { best[l] };
            }
            width /= 2;
        }
        if !find {
            return (E::narrowed(if SMALLEST { -best[0] } else { best[0] }), 0);
        }
        // As many at a time as a word has bits: one branch that is hard to foresee.
        let best = V::all(best[0]);
        let group = GROUP.min(n);
        let mut i = 0;
        loop {
            let (mut found, mut k) = (0, 0);
            while k < group {
                let at = k.min(group - V::WIDTH);
                found |= u64::from(signed::<V, E>(p.add(i + at), SMALLEST).equal(best)) << at;
                k += V::WIDTH;
            }
            if found != 0 {
                let at = i + found.trailing_zeros() as usize;
                return (*p.add(at), at);
            }
            i = (i + group).min(n - group);
        }
    }
}

/// The best of each of the columns of rows of `inner` elements.
struct Down<'a, E> {
    /// The rows, one after the other.
    x: &'a [E],
    /// The number of columns.
    inner: usize,
    /// The columns to reduce.
    columns: Range<usize>,
    /// Finds the smallest elements, not the largest.
    smallest: bool,
    /// The best element of each column, and its row.
    to: Shared<(E, usize)>,
}

impl<E: Stored> Work<E::Wide> for Down<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        let mut c = self.columns.start;
        // SAFETY: the columns are there, and the instructions.
        unsafe {
            while c + 4 * V::WIDTH <= self.columns.end {
                self.registers::<V, 4>(c);
                c += 4 * V::WIDTH;
            }
            while c + V::WIDTH <= self.columns.end {
                self.registers::<V, 1>(c);
                c += V::WIDTH;
            }
        }
        while c < self.columns.end {
            self.one(c);
            c += 1;
        }
    }
}

impl<E: Stored> Down<'_, E> {
    /// The best of `M` registers of columns from `c` on.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // counts from the compiler, so that all stays in registers
    unsafe fn registers<V: Vector<T = E::Wide>, const M: usize>(&self, c: usize) {
        let (inner, smallest) = (self.inner, self.smallest);
        let n = self.x.len() / inner;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let p = self.x.as_ptr().add(c);
            let mut numbers = [u32::MAX; M];
            let mut best = [V::zero(); M];
            for r in 0..M {
                best[r] = signed::<V, E>(p.add(r * V::WIDTH), smallest);
                numbers[r] = best[r].equal(best[r]);
            }
            let mut first = 0;
            while first < n {
                let end = n.min(first + COUNTED);
                let before = best;
                let mut at = [V::zero(); M];
                for k in first..end {
                    let count = V::all(E::Wide::of((k - first) as f64));
                    for r in 0..M {
                        let v = signed::<V, E>(p.add(k * inner + r * V::WIDTH), smallest);
                        at[r] = v.where_larger(best[r], count, at[r]);
                        best[r] = v.max(best[r]);
                        numbers[r] &= v.equal(v);
                    }
                }
                for r in 0..M {
                    let mut lanes = [[E::Wide::ZERO; WIDEST]; 3];
                    best[r].store(lanes[0].as_mut_ptr());
                    before[r].store(lanes[1].as_mut_ptr());
                    at[r].store(lanes[2].as_mut_ptr());
                    for l in 0..V::WIDTH {
                        if first == 0 || lanes[0][l] > lanes[1][l] {
                            let k = first + lanes[2][l].real() as usize;
                            let c = c + r * V::WIDTH + l;
                            self.to.get().add(c).write((self.x[k * inner + c], k));
                        }
                    }
                }
                first = end;
            }
            for r in 0..M {
                for l in 0..V::WIDTH {
                    if numbers[r] >> l & 1 == 0 {
                        self.one(c + r * V::WIDTH + l);
                    }
                }
            }
        }
    }

    /// The best of column `c`.
    fn one(&self, c: usize) {
        let best = one_by_one(self.x[c..].iter().step_by(self.inner).copied(), self.smallest);
        // SAFETY: each result comes once, or again.
        unsafe { self.to.get().add(c).write(best) };
    }
}
