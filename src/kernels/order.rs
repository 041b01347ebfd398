//! Sorting.

use std::cmp::Ordering;

use super::Float;
use super::map::GRAIN;
use super::threads::{self, Shared};

/// Numbers in order, NaN behind all others.
fn compare<T: Float>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Writes to `from` for each place where in `x` the element is that belongs there when the middle axis, of length
/// `n`, is sorted; `inner` elements lie inside of it.
pub fn sorted<T: Float>(x: &[T], n: usize, inner: usize, reverse: bool, from: &mut [usize]) {
    let Some(blocks) = x.len().checked_div(n * inner) else { return };
    let to = Shared::new(from.as_mut_ptr());
    assert_eq!(x.len(), from.len());
    threads::ranges(blocks * inner, (GRAIN / (16 * n)).max(1), |lines| {
        let mut line: Vec<(T, usize)> = Vec::with_capacity(n);
        for start in lines.map(|i| i / inner * n * inner + i % inner) {
            line.clear();
            line.extend((0..n).map(|i| (x[start + i * inner], start + i * inner)));
            if reverse {
                line.sort_by(|a, b| compare(b.0, a.0));
            } else {
                line.sort_by(|a, b| compare(a.0, b.0));
            }
            // SAFETY: each line comes once.
            line.iter()
                .enumerate()
                .for_each(|(i, (_, at))| unsafe { to.get().add(start + i * inner).write(*at) });
        }
    });
}
