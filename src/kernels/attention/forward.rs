//! The output of attention, with a running softmax over tiles of keys.

use super::{Attention, KEYS, Mask, QUERIES, ScoreTile, columns, multiply, rows};
use crate::kernels::gemm::Panels;
use crate::kernels::scratch;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, stop};

/// Numbers that are processed together.
const LANES: usize = 16;

impl Attention {
    /// Writes `y = softmax(scale q k' + mask) v`, and [`Given::sums`](super::Given::sums) for the gradient.
    pub fn forward<T: Float>(
        &self,
        [q, k, v]: [&[T]; 3],
        mask: Option<&Mask<'_, T>>,
        y: &mut [T],
        sums: &mut [T],
    ) {
        let Self { heads, queries, keys, width, depth, .. } = *self;
        assert!(q.len() == heads * queries * width && k.len() == heads * keys * width);
        assert!(v.len() == heads * keys * depth && y.len() == heads * queries * depth);
        assert!(sums.len() == 2 * heads * queries);
        let (most, sums) = sums.split_at_mut(heads * queries);
        if keys == 0 || y.is_empty() {
            most.fill(T::NEG_INFINITY);
            return y.fill(T::ZERO);
        }
        if self.is_tiny() || self.hides_odd_rows(mask.is_some(), &[q, k, v]) {
            return self.forward_by_query([q, k, v], mask, y, (most, sums));
        }
        let (of_k, of_v) = (Panels::<T>::size(width, keys), Panels::<T>::size(keys, depth));
        let blocks = queries.div_ceil(QUERIES);
        scratch::with(heads * (of_k + of_v), |packed: &mut [T]| {
            let packed = Shared::new(packed.as_mut_ptr());
            let y = Shared::new(y.as_mut_ptr());
            let (most, sums) = (Shared::new(most.as_mut_ptr()), Shared::new(sums.as_mut_ptr()));
            let panels = |head: usize| {
                let k_at = packed.get().wrapping_add(head * (of_k + of_v));
                (k_at, k_at.wrapping_add(of_k))
            };
            threads::parallel(heads, |head| {
                let (k_at, v_at) = panels(head);
                // SAFETY: each head has its own part of the arrays and of the buffer.
                unsafe {
                    Panels::pack(columns(&k[head * keys * width..], width), width, keys, k_at);
                    Panels::pack(rows(&v[head * keys * depth..], depth), keys, depth, v_at);
                }
            });
            threads::parallel(heads * blocks, |i| {
                let (head, query) = (i / blocks, i % blocks * QUERIES);
                let tile = ScoreTile { head, query, queries: QUERIES.min(queries - query), key: 0, keys: 0 };
                let (k_at, v_at) = panels(head);
                let (k, v) = (Panels::packed(k_at, width), Panels::packed(v_at, keys));
                let row = head * queries + query;
                // SAFETY: each block of queries has its own rows.
                let (y, most, sums) = unsafe {
                    (
                        std::slice::from_raw_parts_mut(y.get().add(row * depth), tile.queries * depth),
                        std::slice::from_raw_parts_mut(most.get().add(row), tile.queries),
                        std::slice::from_raw_parts_mut(sums.get().add(row), tile.queries),
                    )
                };
                let q = &q[row * width..(row + tile.queries) * width];
                self.block(tile, q, (k, v), mask, y, (most, sums));
            });
        });
    }

    /// The outputs of a block of queries.
    fn block<T: Float>(
        &self,
        mut tile: ScoreTile,
        q: &[T],
        (k, v): (Panels<T>, Panels<T>),
        mask: Option<&Mask<'_, T>>,
        y: &mut [T],
        (most, sums): (&mut [T], &mut [T]),
    ) {
        let Self { width, depth, .. } = *self;
        let n = tile.queries;
        scratch::with(n * width + n * KEYS, |buffer: &mut [T]| {
            let (scaled, weights) = buffer.split_at_mut(n * width);
            let scale = T::of(self.scale);
            scaled.iter_mut().zip(q).for_each(|(to, q)| *to = *q * scale);
            most.fill(T::NEG_INFINITY);
            sums.fill(T::ZERO);
            let end = self.reach(tile.query + n);
            for key in (0..end).step_by(KEYS) {
                (tile.key, tile.keys) = (key, KEYS.min(end - key));
                // SAFETY: the panels hold all keys and values of the head, and the others are slices of these sizes.
                unsafe {
                    let a = rows(scaled, width);
                    multiply(
                        (n, tile.keys, width),
                        a,
                        k.column(key, width),
                        weights.as_mut_ptr(),
                        KEYS,
                        false,
                    );
                }
                self.soften(tile, weights, mask, (&mut *most, &mut *sums), y);
                // SAFETY: as above.
                unsafe {
                    let a = rows(weights, KEYS);
                    multiply((n, depth, tile.keys), a, v.row(key), y.as_mut_ptr(), depth, key > 0);
                }
                stop::poll();
            }
            for (r, y) in y.chunks_exact_mut(depth).enumerate() {
                if self.is_hidden(mask, (tile.head, tile.query + r), most[r]) {
                    y.fill(T::ZERO);
                    continue;
                }
                let factor = T::ONE / sums[r];
                for y in y.iter_mut() {
                    *y = *y * factor;
                }
            }
        });
    }

    /// Turns products into exponentials, and rescales the partial result in `y`. `most` and `sums` are the largest
    /// exponents and the sums so far.
    fn soften<T: Float>(
        &self,
        tile: ScoreTile,
        weights: &mut [T],
        mask: Option<&Mask<'_, T>>,
        (most, sums): (&mut [T], &mut [T]),
        y: &mut [T],
    ) {
        let factor = self.factor::<T>();
        vectorised(
            #[inline(always)]
            || {
                for r in 0..tile.queries {
                    let (row, hidden) = weights[r * KEYS..][..tile.keys].split_at_mut(self.seen(tile, r));
                    hidden.fill(T::ZERO);
                    if let Some(mask) = mask {
                        mask.add_to(tile, r, row);
                    }
                    let before = most[r];
                    let largest = largest(row, before);
                    // If all keys are hidden, the base must not be infinite: the difference would be NaN.
                    let base = if largest == T::NEG_INFINITY { T::ZERO } else { largest };
                    let sum = exponentials(row, base);
                    if tile.key > 0 && largest != before {
                        let shrunk = (before - base).exp();
                        sums[r] = sums[r] * shrunk;
                        y[r * self.depth..(r + 1) * self.depth].iter_mut().for_each(|y| *y = *y * shrunk);
                    }
                    most[r] = largest;
                    sums[r] = sums[r] + sum;
                    if self.dropped.is_some() {
                        let row = &mut weights[r * KEYS..][..tile.keys];
                        self.kept(tile, r, |j, kept| row[j] = if kept { row[j] * factor } else { T::ZERO });
                    }
                }
            },
        );
    }
}

/// The largest of some numbers, NaN if one is.
#[inline(always)]
fn largest<T: Float>(x: &[T], start: T) -> T {
    let mut lanes = [start; LANES];
    let (whole, rest) = x.split_at(x.len() / LANES * LANES);
    for x in whole.chunks_exact(LANES) {
        for l in 0..LANES {
            lanes[l] = if x[l] <= lanes[l] { lanes[l] } else { x[l] };
        }
    }
    let more = |most: T, x: T| if x <= most { most } else { x };
    lanes.into_iter().chain(rest.iter().copied()).fold(start, more)
}

/// Replaces numbers by the exponentials of their differences to `base`, and returns the sum.
#[inline(always)]
fn exponentials<T: Float>(x: &mut [T], base: T) -> T {
    let mut lanes = [T::ZERO; LANES];
    let (whole, rest) = x.split_at_mut(x.len() / LANES * LANES);
    for x in whole.chunks_exact_mut(LANES) {
        for l in 0..LANES {
            x[l] = (x[l] - base).exp();
            lanes[l] = lanes[l] + x[l];
        }
    }
    let mut sum = lanes.into_iter().sum::<T>();
    for x in rest {
        *x = (*x - base).exp();
        sum = sum + *x;
    }
    sum
}
