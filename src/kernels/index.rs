//! Walks over the indices of several arrays that have the same axes with different strides.

use std::ops::Range;

use smallvec::SmallVec;

/// An axis, with its stride in each of `N` arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexAxis<const N: usize> {
    /// The number of elements along the axis.
    pub(super) n: usize,
    /// The distance of adjacent elements in each array.
    pub(super) strides: [usize; N],
}

/// Axes, outermost first.
pub(super) type IndexAxes<const N: usize> = SmallVec<[IndexAxis<N>; 3]>;

impl<const N: usize> IndexAxis<N> {
    /// An axis of one element.
    pub(super) const ONE: Self = Self { n: 1, strides: [0; N] };
}

/// Removes axes of length one, and merges neighbours that are contiguous in all arrays.
pub(super) fn merged<const N: usize>(axes: impl IntoIterator<Item = IndexAxis<N>>) -> IndexAxes<N> {
    let mut all = IndexAxes::<N>::new();
    for axis in axes.into_iter().filter(|axis| axis.n != 1) {
        match all.last_mut() {
            Some(last) if (0..N).all(|i| last.strides[i] == axis.strides[i] * axis.n) => {
                *last = IndexAxis { n: last.n * axis.n, ..axis };
            }
            _ => all.push(axis),
        }
    }
    all
}

/// The indices at position `i` of the axes, counted from `first`.
pub(super) fn indices<const N: usize>(
    axes: &[IndexAxis<N>],
    first: [usize; N],
    mut position: usize,
) -> [usize; N] {
    let mut at = first;
    for axis in axes.iter().rev() {
        let along = position % axis.n;
        position /= axis.n;
        at = std::array::from_fn(|i| at[i] + along * axis.strides[i]);
    }
    at
}

/// Calls `f` with the indices at each of some positions of the axes, counted from `first`.
#[inline(always)]
pub(super) fn walk<const N: usize>(
    axes: &[IndexAxis<N>],
    first: [usize; N],
    positions: Range<usize>,
    mut f: impl FnMut([usize; N]),
) {
    if positions.is_empty() {
        return;
    }
    let (inner, outer) = match axes.split_last() {
        Some((inner, outer)) => (*inner, outer),
        None => (IndexAxis::ONE, &[][..]),
    };
    let mut skip = positions.start % inner.n;
    let mut base = indices(axes, first, positions.start - skip);
    let mut along: SmallVec<[usize; 3]> = SmallVec::from_elem(0, outer.len());
    let mut rest = positions.start / inner.n;
    for (along, axis) in along.iter_mut().zip(outer).rev() {
        *along = rest % axis.n;
        rest /= axis.n;
    }
    let mut left = positions.len();
    loop {
        let n = (inner.n - skip).min(left);
        for k in skip..skip + n {
            f(std::array::from_fn(|i| base[i] + k * inner.strides[i]));
        }
        left -= n;
        if left == 0 {
            return;
        }
        skip = 0;
        for (along, axis) in along.iter_mut().zip(outer).rev() {
            *along += 1;
            base = std::array::from_fn(|i| base[i] + axis.strides[i]);
            if *along < axis.n {
                break;
            }
            base = std::array::from_fn(|i| base[i] - axis.strides[i] * axis.n);
            *along = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{IndexAxis, indices, merged, walk};

    #[test]
    fn a_walk_over_some_positions_finds_the_indices_of_each() {
        let axes = [(2, [60, 1]), (3, [20, 0]), (1, [7, 7]), (5, [4, 2])];
        let axes = axes.map(|(n, strides)| IndexAxis { n, strides });
        let short = merged(axes);
        assert_eq!(short.len(), 3);
        for positions in [0..30, 4..4, 7..23, 29..30] {
            let mut found = Vec::new();
            walk(&short, [3, 9], positions.clone(), |at| found.push(at));
            let expected: Vec<_> = positions.map(|i| indices(&axes, [3, 9], i)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn contiguous_axes_become_one() {
        let axes = [(4, [30]), (5, [6]), (6, [1])].map(|(n, strides)| IndexAxis { n, strides });
        assert_eq!(merged(axes)[..], [IndexAxis { n: 120, strides: [1] }]);
        assert!(merged([IndexAxis { n: 1, strides: [3] }]).is_empty());
    }
}
