//! Attention query by query, for small heads, and for arrays with infinities or NaN: a hidden row contributes nothing,
//! even if it holds NaN.
//!
//! Products of tiles multiply hidden rows by zero, which gives NaN for such rows.

use super::{Attention, Given, Mask, ScoreTile};
use crate::kernels::map::{GRAIN, all_finite};
use crate::kernels::scratch::List;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, stop};

impl Attention {
    /// True if rows that may be hidden from a query are not finite.
    pub(super) fn hides_odd_rows<T: Float>(&self, is_masked: bool, rows: &[&[T]]) -> bool {
        (self.causal || is_masked) && !rows.iter().all(|rows| all_finite(rows))
    }

    /// The keys that a query attends to but for the mask, as a tile of one query.
    fn keys_of(&self, head: usize, query: usize) -> ScoreTile {
        ScoreTile { head, query, queries: 1, key: 0, keys: self.reach(query + 1) }
    }

    /// Writes the exponents of the weights of a tile of one query. Negative infinity where the mask hides the key.
    fn exponents<T: Float>(
        &self,
        tile: ScoreTile,
        [q, k]: [&[T]; 2],
        mask: Option<&Mask<'_, T>>,
        to: &mut [T],
    ) {
        let (width, scale) = (self.width, T::of(self.scale));
        let q = &q[(tile.head * self.queries + tile.query) * width..][..width];
        for (key, to) in to.iter_mut().enumerate() {
            let k = &k[(tile.head * self.keys + key) * width..][..width];
            *to = q.iter().zip(k).map(|(q, k)| *q * scale * *k).sum();
        }
        if let Some(mask) = mask {
            mask.add_to(tile, 0, to);
        }
    }

    /// As [`Attention::forward`].
    pub(super) fn forward_by_query<T: Float>(
        &self,
        [q, k, v]: [&[T]; 3],
        mask: Option<&Mask<'_, T>>,
        y: &mut [T],
        (most, sums): (&mut [T], &mut [T]),
    ) {
        let Self { heads, queries, keys, depth, .. } = *self;
        let to = [y.as_mut_ptr(), most.as_mut_ptr(), sums.as_mut_ptr()].map(Shared::new);
        let grain = (GRAIN / (queries * keys * (self.width + depth)).max(1)).max(1);
        threads::ranges(heads, grain, |some| {
            let mut weights = List::repeat(T::ZERO, keys);
            for (head, query) in some.flat_map(|head| (0..queries).map(move |query| (head, query))) {
                let (tile, row) = (self.keys_of(head, query), head * queries + query);
                let weights = &mut weights[..tile.keys];
                self.exponents(tile, [q, k], mask, weights);
                let largest =
                    weights.iter().fold(T::NEG_INFINITY, |most, w| if *w <= most { most } else { *w });
                let sum = exponentials(weights, largest);
                self.drop_some(tile, weights);
                // SAFETY: each head has its own rows.
                let y = unsafe {
                    to[1].get().add(row).write(largest);
                    to[2].get().add(row).write(sum);
                    std::slice::from_raw_parts_mut(to[0].get().add(row * depth), depth)
                };
                y.fill(T::ZERO);
                if !self.is_hidden(mask, (head, query), largest) {
                    for (key, w) in weights.iter().enumerate() {
                        add_row(y, *w / sum, &v[(head * keys + key) * depth..]);
                    }
                }
                stop::poll();
            }
        });
    }

    /// Applies dropout to the weights of a tile of one query.
    fn drop_some<T: Float>(&self, tile: ScoreTile, weights: &mut [T]) {
        let factor = self.factor::<T>();
        self.kept(tile, 0, |j, kept| weights[j] = if kept { weights[j] * factor } else { T::ZERO });
    }

    /// Adds the gradients of a head. See [`Attention::backward`].
    pub(super) fn backward_by_query<T: Float>(
        &self,
        head: usize,
        given: &Given<'_, T>,
        [to_q, to_k, to_v]: [Option<Shared<T>>; 3],
        mut to_mask: Option<&mut [T]>,
    ) {
        let Self { heads, queries, keys, width, depth, .. } = *self;
        let (most, sums) = given.sums.split_at(heads * queries);
        let scale = T::of(self.scale);
        let (mut weights, mut slopes) = (List::repeat(T::ZERO, keys), List::repeat(T::ZERO, keys));
        for query in 0..queries {
            let (tile, row) = (self.keys_of(head, query), head * queries + query);
            if self.is_hidden(given.mask.as_ref(), (head, query), most[row]) {
                continue;
            }
            let (weights, slopes) = (&mut weights[..tile.keys], &mut slopes[..tile.keys]);
            self.exponents(tile, [given.q, given.k], given.mask.as_ref(), weights);
            let gy = &given.gy[row * depth..][..depth];
            let along = dot(gy, &given.y[row * depth..]);
            exponentials(weights, most[row]);
            for (key, (w, slope)) in weights.iter_mut().zip(slopes.iter_mut()).enumerate() {
                *w = if *w == T::ZERO { T::ZERO } else { *w / sums[row] };
                *slope = dot(gy, &given.v[(head * keys + key) * depth..]);
            }
            self.drop_some(tile, slopes);
            for (w, slope) in weights.iter().zip(slopes.iter_mut()) {
                *slope = if *w == T::ZERO { T::ZERO } else { *w * (*slope - along) };
            }
            self.drop_some(tile, weights);
            if let Some((to, mask)) = to_mask.as_deref_mut().zip(given.mask.as_ref()) {
                mask.take_in(tile, slopes, to);
            }
            // SAFETY: each head has its own rows, and the caller has exclusive access to all.
            let rows = |to: Option<Shared<T>>, row: usize, size: usize| unsafe {
                to.map(|to| std::slice::from_raw_parts_mut(to.get().add(row * size), size))
            };
            for (key, (w, slope)) in weights.iter().zip(slopes.iter()).enumerate() {
                let of_key = head * keys + key;
                if let Some(to) = rows(to_q, row, width) {
                    add_row(to, *slope * scale, &given.k[of_key * width..]);
                }
                if let Some(to) = rows(to_k, of_key, width) {
                    add_row(to, *slope * scale, &given.q[row * width..]);
                }
                if let Some(to) = rows(to_v, of_key, depth) {
                    add_row(to, *w, gy);
                }
            }
            stop::poll();
        }
    }
}

/// Replaces numbers by the exponentials of their differences to `base`, and returns the sum. Negative infinity becomes
/// zero.
fn exponentials<T: Float>(x: &mut [T], base: T) -> T {
    vectorised(
        #[inline(always)]
        || {
            let mut sum = T::ZERO;
            for x in x {
                *x = if *x == T::NEG_INFINITY { T::ZERO } else { (*x - base).exp() };
                sum = sum + *x;
            }
            sum
        },
    )
}

/// Adds a row with a weight. A weight of zero adds nothing.
fn add_row<T: Float>(to: &mut [T], weight: T, row: &[T]) {
    if weight != T::ZERO {
        to.iter_mut().zip(row).for_each(|(to, v)| *to = *to + weight * *v);
    }
}

/// The inner product with the first elements of `y`.
fn dot<T: Float>(x: &[T], y: &[T]) -> T {
    x.iter().zip(y).map(|(x, y)| *x * *y).sum()
}
