//! Arrays broadcast over another: a scalar, a row, or one number per channel.

use crate::array::Shape;
use crate::kernels::broadcast::Cycle;

/// The broadcast pattern of an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct BroadcastCycle(Cycle);

/// The number of equal adjacent elements from which writing them run by run is fast.
const RUN: usize = 8;

impl BroadcastCycle {
    /// The broadcast pattern of an array of shape `x` over one of shape `y`, which must be compatible. `None` if both
    /// have the same size, or if `x` is repeated in several directions or in short runs.
    pub(crate) fn of(x: &Shape, y: &Shape) -> Option<Self> {
        if x.size() == y.size() {
            return None;
        }
        let lead = y.ndim().checked_sub(x.ndim())?;
        let (mut cycle, mut ended) = (Cycle { period: 1, together: 1 }, false);
        for (i, n) in y.iter().enumerate().rev().filter(|(_, n)| **n != 1) {
            match i.checked_sub(lead).map_or(1, |i| x[i]) {
                1 if cycle.period == 1 => cycle.together *= n,
                1 => ended = true,
                _ if ended => return None,
                _ => cycle.period *= n,
            }
        }
        let is_quick = cycle.period == 1 || cycle.together == 1 || cycle.together >= RUN;
        is_quick.then_some(Self(cycle))
    }

    /// True if an array of shape `x` can be used elementwise with one of shape `y`: same size, or broadcast.
    pub(crate) fn fits(x: &Shape, y: &Shape) -> bool {
        x.size() == y.size() || Self::of(x, y).is_some()
    }

    /// True if all chunks of `n` elements that start at multiples of `n` are equal.
    pub(crate) fn is_even(self, n: usize) -> bool {
        self.0.period == 1 || n.is_multiple_of(self.0.period * self.0.together)
    }

    /// Writes the broadcast values for `n` elements of `size` bytes, 4 or 8, from element `start` on.
    ///
    /// # Safety
    /// The array at `from` must be valid, and `to` must have space for the elements.
    pub(crate) unsafe fn gather(self, from: *const u8, to: *mut u8, start: usize, n: usize, size: usize) {
        use std::slice::{from_raw_parts, from_raw_parts_mut};
        let m = self.0.period;
        // SAFETY: guaranteed by the caller.
        unsafe {
            if size == size_of::<u64>() {
                self.gather_as::<u64>(
                    from_raw_parts(from.cast(), m),
                    from_raw_parts_mut(to.cast(), n),
                    start,
                );
            } else {
                self.gather_as::<u32>(
                    from_raw_parts(from.cast(), m),
                    from_raw_parts_mut(to.cast(), n),
                    start,
                );
            }
        }
    }

    /// Copies the elements that positions from `start` on are paired with.
    fn gather_as<T: Copy>(self, from: &[T], to: &mut [T], start: usize) {
        let (Cycle { period, together }, n) = (self.0, to.len());
        if period == 1 {
            return to.fill(from[0]);
        }
        let cycle = n.min(period * together);
        let mut done = 0;
        for (met, n) in self.0.pieces(start, cycle) {
            let some = &mut to[done..done + n];
            match together {
                1 => some.copy_from_slice(&from[met..met + n]),
                _ => some.fill(from[met]),
            }
            done += n;
        }
        while done < n {
            let some = done.min(n - done) / cycle * cycle;
            let some = if some == 0 { n - done } else { some };
            to.copy_within(..some, done);
            done += some;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BroadcastCycle;
    use crate::array::Shape;

    #[test]
    fn pieces_of_a_broadcast_equal_the_whole() {
        let cases: [(&[usize], &[usize]); 8] = [
            (&[], &[2, 3]),
            (&[1], &[7]),
            (&[5], &[3, 5]),
            (&[1, 5, 1, 1], &[2, 5, 3, 4]),
            (&[3, 1], &[3, 9]),
            (&[4, 1, 7], &[3, 4, 1, 7]),
            (&[3, 1, 1, 1], &[3, 2, 2, 2]),
            (&[2, 1], &[5, 2, 11]),
        ];
        for (x, y) in cases {
            let (x, y) = (Shape::from(x), Shape::from(y));
            let spread = BroadcastCycle::of(&x, &y).expect("is spread");
            let from: Vec<u32> = (0..x.size() as u32).collect();
            for start in 0..y.size() {
                for n in 1..=y.size() - start {
                    let mut to = vec![u32::MAX; n];
                    spread.gather_as(&from, &mut to, start);
                    let met = (start..start + n).map(|i| (i / spread.0.together % spread.0.period) as u32);
                    assert!(to.into_iter().eq(met), "{n} of {y} from {start}");
                }
            }
        }
        assert!(BroadcastCycle::of(&Shape::from([3, 1, 4]), &Shape::from([3, 9, 4])).is_none());
        assert!(BroadcastCycle::of(&Shape::from([3, 1]), &Shape::from([3, 2])).is_none());
    }
}
