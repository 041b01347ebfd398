//! Sorting, and selection of the largest elements. Knows lines of numbers, not shapes.

use std::cmp::Ordering;

use super::Float;
use super::map::GRAIN;
use super::scratch::List;
use super::simd::vectorised;
use super::stop;
use super::threads::{self, Shared};

/// Compares numbers, with NaN last.
fn compare<T: Float>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Compares two elements of a line. Equal ones keep their order.
fn before<T: Float>(a: &(T, usize), b: &(T, usize), reverse: bool) -> Ordering {
    let by_size = if reverse { compare(b.0, a.0) } else { compare(a.0, b.0) };
    by_size.then(a.1.cmp(&b.1))
}

/// Number of comparisons after which sorting a line may be interrupted.
const LONG: usize = 1 << 16;

/// Sorts along the middle axis of length `n`, with `inner` elements inside of it. Writes the source position of each
/// element of the sorted array to `from`.
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
            // SAFETY: each line is used once.
            line.iter()
                .enumerate()
                .for_each(|(i, (_, at))| unsafe { to.get().add(start + i * inner).write(*at) });
        }
    });
}

/// The selected elements of a line.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Number of elements.
    pub k: usize,
    /// Compare absolute values.
    pub abs: bool,
    /// Select the largest instead of the smallest.
    pub largest: bool,
}

impl Choice {
    /// Writes the positions of the selected elements of each line of `n`, in order, equal ones by position. NaN
    /// counts as the largest.
    pub fn places<T: Float>(self, x: &[T], n: usize, index: &mut [usize]) {
        let (k, lines) = (self.k, x.len().checked_div(n).unwrap_or(0));
        assert!(index.len() == lines * k && k <= n);
        let before = |a: &(T, usize), b: &(T, usize)| before(a, b, self.largest);
        // Arrange a line in rows of this many columns. Each column has a maximum.
        let columns = if 8 * k <= n { (4 * k).next_multiple_of(64) } else { 0 };
        let columns = if 2 * columns <= n { columns } else { 0 };
        threads::row_ranges_mut(index, k, (GRAIN / (4 * n.max(1))).max(1), |range, index| {
            let mut buffer = List::repeat(T::ZERO, 2 * columns);
            let (highest, sorted) = buffer.split_at_mut(columns);
            let mut all: List<(T, usize)> = List::with_capacity(if columns > 0 { 2 * k } else { n });
            for (line, index) in range.zip(index.chunks_exact_mut(k)) {
                all.clear();
                let x = &x[line * n..][..n];
                if columns > 0 && self.highest(x, highest) {
                    // `k` columns have an element at least this large, so no smaller one is selected.
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

    /// The key by which elements are compared.
    #[inline(always)]
    fn size<T: Float>(self, v: T) -> T {
        if self.abs { v.abs() } else { v }
    }

    /// The key by which elements are ranked: [`Choice::size`], negated if the smallest elements are selected.
    #[inline(always)]
    fn height<T: Float>(self, v: T) -> T {
        if self.largest { self.size(v) } else { -self.size(v) }
    }

    /// Writes the largest [`Choice::height`] in each column. Returns false if an element is NaN. The written heights
    /// are then undefined.
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
