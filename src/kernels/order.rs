//! Sorting, and the choice of the largest elements. Knows lines of numbers; knows no shapes.

use std::cmp::Ordering;

use super::Float;
use super::map::GRAIN;
use super::scratch::List;
use super::simd::vectorised;
use super::stop;
use super::threads::{self, Shared};

/// Numbers in order, NaN behind all others.
fn compare<T: Float>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Which of two elements of a line comes first: of equal ones the one that was first.
fn before<T: Float>(a: &(T, usize), b: &(T, usize), reverse: bool) -> Ordering {
    let by_size = if reverse { compare(b.0, a.0) } else { compare(a.0, b.0) };
    by_size.then(a.1.cmp(&b.1))
}

/// Comparisons after which a line that is sorted may be given up.
const LONG: usize = 1 << 16;

/// Writes to `from` for each place where in `x` the element is that belongs there when the middle axis, of length
/// `n`, is sorted; `inner` elements lie inside of it.
pub fn sorted<T: Float>(x: &[T], n: usize, inner: usize, reverse: bool, from: &mut [usize]) {
    let Some(blocks) = x.len().checked_div(n * inner) else { return };
    let to = Shared::new(from.as_mut_ptr());
    assert_eq!(x.len(), from.len());
    threads::ranges(blocks * inner, (GRAIN / (16 * n)).max(1), |lines| {
        let mut line: List<(T, usize)> = List::with_capacity(n);
        for start in lines.map(|i| i / inner * n * inner + i % inner) {
            line.clear();
            (0..n).for_each(|i| line.push((x[start + i * inner], start + i * inner)));
            if n < LONG {
                line.sort_unstable_by(|a, b| before(a, b, reverse));
            } else {
                let mut compared = 0_usize;
                line.sort_unstable_by(|a, b| {
                    compared += 1;
                    if compared.is_multiple_of(LONG) {
                        stop::poll();
                    }
                    before(a, b, reverse)
                });
            }
            // SAFETY: each line comes once.
            line.iter()
                .enumerate()
                .for_each(|(i, (_, at))| unsafe { to.get().add(start + i * inner).write(*at) });
        }
    });
}

/// Which elements of a line are chosen.
#[derive(Clone, Copy)]
pub struct Choice {
    /// How many.
    pub k: usize,
    /// They are compared by absolute value.
    pub abs: bool,
    /// The largest, rather than the smallest.
    pub largest: bool,
}

impl Choice {
    /// Writes for each line of `n` elements where the chosen ones are, in order, the first of equal ones first. A NaN counts as the
    /// largest.
    pub fn places<T: Float>(self, x: &[T], n: usize, index: &mut [usize]) {
        let (k, lines) = (self.k, x.len().checked_div(n).unwrap_or(0));
        assert!(index.len() == lines * k && k <= n);
        let before = |a: &(T, usize), b: &(T, usize)| before(a, b, self.largest);
        // Each column of a line, laid out in rows of so many, has a highest element.
        let columns = if 8 * k <= n { (4 * k).next_multiple_of(64) } else { 0 };
        let columns = if 2 * columns <= n { columns } else { 0 };
        threads::row_ranges_mut(index, k, (GRAIN / (4 * n.max(1))).max(1), |range, index| {
            let mut room = List::repeat(T::ZERO, 2 * columns);
            let (highest, sorted) = room.split_at_mut(columns);
            let mut all: List<(T, usize)> = List::with_capacity(if columns > 0 { 2 * k } else { n });
            for (line, index) in range.zip(index.chunks_exact_mut(k)) {
                all.clear();
                let x = &x[line * n..][..n];
                if columns > 0 && self.highest(x, highest) {
                    // So many columns have an element that is at least that high: no lower one is chosen.
                    sorted.copy_from_slice(highest);
                    let least = *sorted.select_nth_unstable_by(k - 1, |a, b| compare(*b, *a)).1;
                    for column in (0..columns).filter(|column| highest[*column] >= least) {
                        let own = (column..n).step_by(columns).filter(|i| self.height(x[*i]) >= least);
                        own.for_each(|i| all.push((self.size(x[i]), i)));
                    }
                } else {
                    x.iter().zip(0..).for_each(|(v, i)| all.push((self.size(*v), i)));
                }
                if k < all.len() {
                    all.select_nth_unstable_by(k - 1, before);
                }
                all[..k].sort_unstable_by(before);
                index.iter_mut().zip(&all[..k]).for_each(|(to, (_, i))| *to = *i);
            }
        });
    }

    /// What elements are compared by.
    #[inline(always)]
    fn size<T: Float>(self, v: T) -> T {
        if self.abs { v.abs() } else { v }
    }

    /// [`Choice::size`], turned so that what is chosen is highest.
    #[inline(always)]
    fn height<T: Float>(self, v: T) -> T {
        if self.largest { self.size(v) } else { -self.size(v) }
    }

    /// Writes how high the highest element is of each column; says whether all are numbers, without which nobody knows.
    fn highest<T: Float>(self, x: &[T], highest: &mut [T]) -> bool {
        highest.fill(T::NEG_INFINITY);
        vectorised(
            #[inline(always)]
            move || {
                let mut all_numbers = true;
                for row in x.chunks(highest.len()) {
                    for (highest, v) in highest.iter_mut().zip(row) {
                        let height = self.height(*v);
                        all_numbers &= !v.is_nan();
                        *highest = if height > *highest { height } else { *highest };
                    }
                }
                all_numbers
            },
        )
    }
}
