//! Sorting.

use std::cmp::Ordering;

use super::Float;
use super::map::GRAIN;
use super::scratch::List;
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
