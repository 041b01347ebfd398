//! Broadcasting of parameters over an array, block by block: along each axis a parameter has the length of the array,
//! or one. Knows offsets, not the meaning of parameters.

use std::ops::Range;

use super::map::GRAIN;
use super::threads::{self, Shared};
use crate::array::Shape;

/// An array cut into pieces within which each of `N` parameters is either constant or has one value for each element.
pub struct BroadcastBlocks<'a, const N: usize> {
    /// The shape of the array.
    shape: &'a Shape,
    /// The shape of each parameter, which broadcasts to the shape of the array.
    parameters: [&'a Shape; N],
    /// First of the axes that a piece spans.
    axis: usize,
}

/// A contiguous run of elements.
pub struct BroadcastBlock<const N: usize> {
    /// Its range in the array.
    pub range: Range<usize>,
    /// Offset and number of values of each parameter: one value for each element, or one for all.
    places: [(usize, usize); N],
}

impl<const N: usize> BroadcastBlock<N> {
    /// The range of values of parameter `i`: one for each element, or one for all.
    #[inline(always)]
    pub fn of(&self, i: usize) -> Range<usize> {
        let (start, n) = self.places[i];
        start..start + n
    }
}

impl<'a, const N: usize> BroadcastBlocks<'a, N> {
    /// Parameters of these shapes, broadcast over an array of that `shape`. All have the same number of axes.
    pub fn new(shape: &'a Shape, parameters: [&'a Shape; N]) -> Self {
        // Along the last axes a parameter either is constant or has the full lengths.
        let uniform = |from: usize| {
            parameters.iter().all(|p| {
                let mut axes = (from..shape.ndim()).map(|i| (p[i], shape[i]));
                axes.clone().all(|(p, _)| p == 1) || axes.all(|(p, x)| p == x)
            })
        };
        let axis = (0..shape.ndim()).rev().take_while(|from| uniform(*from)).last().unwrap_or(shape.ndim());
        Self { shape, parameters, axis }
    }

    /// Offset in parameter `i` for row number `row` of the axes before `axis`.
    fn start(&self, i: usize, mut row: usize) -> usize {
        let p = self.parameters[i];
        let (mut at, mut step) = (0, p.size_from(self.axis));
        for axis in (0..self.axis).rev() {
            let n = self.shape[axis];
            if p[axis] != 1 {
                at += row % n * step;
            }
            step *= p[axis];
            row /= n;
        }
        at
    }

    /// Calls `work` with each piece, in parallel.
    pub fn blocks(&self, work: impl Fn(BroadcastBlock<N>) + Sync) {
        let n = self.shape.size_from(self.axis);
        if self.shape.size() == 0 {
            return;
        }
        let (rows, cuts) = (self.shape.size_to(self.axis), n.div_ceil(GRAIN));
        threads::ranges(rows * cuts, (GRAIN / n).max(1), |range| {
            for i in range {
                let (row, from) = (i / cuts, i % cuts * GRAIN);
                let len = GRAIN.min(n - from);
                let place = |i: usize| match self.parameters[i].size_from(self.axis) {
                    1 => (self.start(i, row), 1),
                    _ => (self.start(i, row) + from, len),
                };
                work(BroadcastBlock {
                    range: row * n + from..row * n + from + len,
                    places: std::array::from_fn(place),
                });
            }
        });
    }

    /// As [`BroadcastBlocks::blocks`], with the elements of `y` in each piece. `y` has the shape of the array.
    pub fn blocks_mut<T: Send>(&self, y: &mut [T], work: impl Fn(BroadcastBlock<N>, &mut [T]) + Sync) {
        assert_eq!(y.len(), self.shape.size(), "an array that has not the shape");
        let to = Shared::new(y.as_mut_ptr());
        self.blocks(|piece| {
            let (start, n) = (piece.range.start, piece.range.len());
            // SAFETY: pieces are within the shape, and each element belongs to one of them.
            work(piece, unsafe { std::slice::from_raw_parts_mut(to.get().add(start), n) });
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn every_element_is_paired_with_its_parameter() {
        let shapes: [(&[usize], &[usize]); 7] = [
            (&[2, 3, 4], &[1, 3, 1]),
            (&[2, 3, 4], &[2, 1, 4]),
            (&[2, 3, 4], &[1, 1, 1]),
            (&[2, 3, 4], &[2, 3, 4]),
            (&[3, 20_000], &[1, 20_000]),
            (&[], &[]),
            (&[0, 3], &[1, 3]),
        ];
        for (x, p) in shapes {
            let (x, p) = (Shape::from(x), Shape::from(p));
            let found = Mutex::new(vec![None; x.size()]);
            BroadcastBlocks::new(&x, [&p]).blocks(|piece| {
                let places = piece.of(0);
                for (k, i) in piece.range.clone().enumerate() {
                    let at = places.start + if places.len() == 1 { 0 } else { k };
                    assert_eq!(found.lock()[i].replace(at), None);
                }
            });
            let mut times = vec![0; x.size()];
            BroadcastBlocks::new(&x, [&p])
                .blocks_mut(&mut times, |_, times| times.iter_mut().for_each(|n| *n += 1));
            assert!(times.iter().all(|n| *n == 1));
            for (i, at) in found.lock().iter().enumerate() {
                let (mut expected, mut left, mut step) = (0, i, 1);
                for axis in (0..x.ndim()).rev() {
                    expected += if p[axis] == 1 { 0 } else { left % x[axis] * step };
                    (left, step) = (left / x[axis], step * p[axis]);
                }
                assert_eq!(*at, Some(expected));
            }
        }
    }
}
