//! Interpolation along an axis, and its gradient. Knows slices and threads, not shapes.

use super::Float;
use super::map::GRAIN;
use super::scratch::List;
use super::threads::{self, Shared};

/// The source of an element of a resized axis: two positions and their weights. If both positions are equal, the
/// element is copied.
pub type Tap<T> = (usize, usize, [T; 2]);

/// A resized axis of an array of `outer` blocks of rows of `inner` elements.
pub struct Resample<T> {
    /// The number of blocks.
    pub outer: usize,
    /// The number of rows of a block of the original array.
    pub from: usize,
    /// The sources of the rows of a block of the resized array.
    pub taps: List<Tap<T>>,
    /// The number of elements of a row.
    pub inner: usize,
}

impl<T: Float> Resample<T> {
    /// The number of elements of the resized array.
    pub fn resized(&self) -> usize {
        self.outer * self.taps.len() * self.inner
    }

    /// The number of elements of the original array.
    pub fn original(&self) -> usize {
        self.outer * self.from * self.inner
    }

    /// Writes the resized array.
    pub fn forward(&self, x: &[T], y: &mut [T]) {
        assert!(x.len() == self.original() && y.len() == self.resized());
        let nearest = self.is_nearest();
        self.blocks(x, y, |x, y| {
            if nearest || self.inner == 1 {
                return self.block(nearest, x, y);
            }
            for ((low, high, share), y) in self.taps.iter().zip(y.chunks_exact_mut(self.inner)) {
                if low == high {
                    y.copy_from_slice(&x[low * self.inner..][..self.inner]);
                    continue;
                }
                let (low, high) = (&x[low * self.inner..][..self.inner], &x[high * self.inner..]);
                for ((y, low), high) in y.iter_mut().zip(low).zip(high) {
                    *y = *low * share[0] + *high * share[1];
                }
            }
        });
    }

    /// Writes the gradient of the original array.
    pub fn backward(&self, gy: &[T], gx: &mut [T]) {
        assert!(gx.len() == self.original() && gy.len() == self.resized());
        self.blocks(gy, gx, |gy, gx| {
            gx.fill(T::ZERO);
            if self.inner == 1 {
                return threads::in_turn(self.taps.len(), GRAIN, |part| {
                    for ((low, high, share), gy) in self.taps[part.clone()].iter().zip(&gy[part]) {
                        gx[*low] = gx[*low] + *gy * share[0];
                        if low != high {
                            gx[*high] = gx[*high] + *gy * share[1];
                        }
                    }
                });
            }
            for ((low, high, share), gy) in self.taps.iter().zip(gy.chunks_exact(self.inner)) {
                let taps = if low == high { 1 } else { 2 };
                for (at, share) in [low, high].into_iter().zip(share).take(taps) {
                    let gx = &mut gx[at * self.inner..][..self.inner];
                    gx.iter_mut().zip(gy).for_each(|(gx, gy)| *gx = *gx + *gy * *share);
                }
            }
        });
    }

    /// True if each element is a copy of an original one.
    fn is_nearest(&self) -> bool {
        self.taps.iter().all(|(low, high, share)| low == high && share[0] == T::ONE)
    }

    /// Resizes a block of single elements, or of rows that are copied.
    fn block(&self, nearest: bool, x: &[T], y: &mut [T]) {
        match (nearest, self.inner) {
            (true, 1) => threads::in_turn(y.len(), GRAIN, |part| {
                let places = self.taps[part.clone()].iter().zip(&mut y[part]);
                places.for_each(|((from, ..), y)| *y = x[*from]);
            }),
            (true, n) => {
                let rows = self.taps.iter().zip(y.chunks_exact_mut(n));
                rows.for_each(|((from, ..), y)| y.copy_from_slice(&x[from * n..][..n]));
            }
            (false, _) => threads::in_turn(y.len(), GRAIN, |part| {
                for ((low, high, share), y) in self.taps[part.clone()].iter().zip(&mut y[part]) {
                    let between = x[*low] * share[0] + x[*high] * share[1];
                    *y = if low == high { x[*low] } else { between };
                }
            }),
        }
    }

    /// Calls `f` with each block of `from` and the corresponding block of `to`.
    fn blocks(&self, from: &[T], to: &mut [T], f: impl Fn(&[T], &mut [T]) + Sync) {
        let (n, len) = (from.len() / self.outer.max(1), to.len() / self.outer.max(1));
        if n == 0 || len == 0 {
            return;
        }
        let to = Shared::new(to.as_mut_ptr());
        threads::ranges(self.outer, (GRAIN / len).max(1), |range| {
            for i in range {
                // SAFETY: the blocks of `to` lie one after the other, and each comes once.
                let block = unsafe { std::slice::from_raw_parts_mut(to.get().add(i * len), len) };
                f(&from[i * n..(i + 1) * n], block);
            }
        });
    }
}
