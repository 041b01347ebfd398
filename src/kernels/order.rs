//! Sorting.

use std::cmp::Ordering;

use super::Float;

/// Numbers in order, NaN behind all others.
fn compare<T: Float>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Writes to `from` for each place where in `x` the element is that belongs there when the middle axis, of length
/// `n`, is sorted; `inner` elements lie inside of it.
pub fn sorted<T: Float>(x: &[T], n: usize, inner: usize, reverse: bool, from: &mut [usize]) {
    let mut line: Vec<(T, usize)> = Vec::with_capacity(n);
    for block in (0..x.len()).step_by((n * inner).max(1)) {
        for start in block..block + inner {
            line.clear();
            line.extend((0..n).map(|i| (x[start + i * inner], start + i * inner)));
            if reverse {
                line.sort_by(|a, b| compare(b.0, a.0));
            } else {
                line.sort_by(|a, b| compare(a.0, b.0));
            }
            line.iter().enumerate().for_each(|(i, (_, at))| from[start + i * inner] = *at);
        }
    }
}
