//! The gradients of attention. The weights are computed again, tile by tile.

use super::{Attention, KEYS, Mask, QUERIES, ScoreTile, columns, multiply, rows};
use crate::kernels::gemm::{MatrixOperand, Panels};
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{self, Shared};
use crate::kernels::{Float, stop};

/// Elements that are computed together, as many as the widest register has.
const LANES: usize = 16;

/// The operands of a backward run, and the results of the forward run.
pub struct Given<'a, T> {
    /// Queries.
    pub q: &'a [T],
    /// Keys.
    pub k: &'a [T],
    /// Values.
    pub v: &'a [T],
    /// The mask, if any.
    pub mask: Option<Mask<'a, T>>,
    /// The output.
    pub y: &'a [T],
    /// The largest exponent of each query. Then the sum of the exponentials of the differences to it, of each query.
    ///
    /// The logarithm of the whole sum would lose the sum beside a large exponent.
    pub sums: &'a [T],
    /// The gradient of the output.
    pub gy: &'a [T],
}

/// Gradients to add to, if requested.
pub struct WantedAttention<'a, T> {
    /// The gradient of the queries.
    pub q: Option<&'a mut [T]>,
    /// The gradient of the keys.
    pub k: Option<&'a mut [T]>,
    /// The gradient of the values.
    pub v: Option<&'a mut [T]>,
    /// The gradient of the mask, in the layout of the mask.
    pub mask: Option<&'a mut [T]>,
}

impl Attention {
    /// Adds the gradients.
    pub fn backward<T: Float>(&self, given: &Given<'_, T>, wanted: WantedAttention<'_, T>) {
        let Self { heads, queries, keys, width, depth, .. } = *self;
        assert!(given.q.len() == heads * queries * width && given.k.len() == heads * keys * width);
        assert!(given.v.len() == heads * keys * depth && given.gy.len() == heads * queries * depth);
        assert!(given.y.len() == given.gy.len() && given.sums.len() == 2 * heads * queries);
        if given.q.is_empty() && given.gy.is_empty() || keys == 0 {
            return;
        }
        let place = |g: &mut Option<&mut [T]>, n: usize| {
            g.as_mut().map(|g| {
                assert!(g.len() == n);
                Shared::new(g.as_mut_ptr())
            })
        };
        let by_query = self.is_tiny()
            || self.hides_odd_rows(given.mask.is_some(), &[given.q, given.k, given.v, given.gy]);
        let WantedAttention { mut q, mut k, mut v, mask } = wanted;
        let to = [place(&mut q, given.q.len()), place(&mut k, given.k.len()), place(&mut v, given.v.len())];
        let of_head = |head: usize, to_mask: Option<&mut [T]>| match by_query {
            true => self.backward_by_query(head, given, to, to_mask),
            false => self.of_head(head, given, to, to_mask),
        };
        match mask {
            // Several heads may add to one element.
            Some(mask) => (0..heads).for_each(|head| of_head(head, Some(&mut *mask))),
            None => threads::parallel(heads, |head| of_head(head, None)),
        }
    }

    /// Adds the gradients of a head.
    fn of_head<T: Float>(
        &self,
        head: usize,
        given: &Given<'_, T>,
        [to_q, to_k, to_v]: [Option<Shared<T>>; 3],
        mut to_mask: Option<&mut [T]>,
    ) {
        let Self { queries, keys, width, depth, .. } = *self;
        let of = |x: &'_ [T], n: usize| -> *const T { x[head * n..(head + 1) * n].as_ptr() };
        let (q_at, k_at) = (of(given.q, queries * width), of(given.k, keys * width));
        let (v_at, gy_at) = (of(given.v, keys * depth), of(given.gy, queries * depth));
        let sizes = [
            queries * width,
            keys * width,
            Panels::<T>::size(width, keys),
            Panels::<T>::size(keys, width),
            Panels::<T>::size(depth, keys),
            Panels::<T>::size(queries, depth),
            Panels::<T>::size(queries, width),
            queries,
            2 * QUERIES * KEYS,
        ];
        scratch::with(sizes.iter().sum(), |mut buffer: &mut [T]| {
            let mut parts: [&mut [T]; 9] = Default::default();
            for (part, n) in parts.iter_mut().zip(sizes) {
                (*part, buffer) = buffer.split_at_mut(n);
            }
            let [q, k, k_columns, k_rows, v_columns, gy_rows, q_rows, along, tiles] = parts;
            let scale = T::of(self.scale);
            let is_hidden =
                |i: usize| self.is_hidden(given.mask.as_ref(), (head, i), given.sums[head * queries + i]);
            let hidden: List<bool> = (0..queries).map(is_hidden).collect();
            // A query whose keys are all hidden contributes nothing, even if its row and gradient are not finite.
            let seen_gy = without_hidden(&hidden, &given.gy[head * queries * depth..], depth);
            let gy_at = if seen_gy.is_empty() { gy_at } else { seen_gy.as_ptr() };
            // SAFETY: the slices have these sizes, and the buffer is as large as the panels.
            let (k_columns, k_rows, v_columns, gy_rows, q_rows) = unsafe {
                (0..q.len()).for_each(|i| q[i] = *q_at.add(i) * scale);
                for i in (0..queries).filter(|i| hidden[*i]) {
                    q[i * width..(i + 1) * width].fill(T::ZERO);
                }
                (0..k.len()).for_each(|i| k[i] = *k_at.add(i) * scale);
                let lying = |p: *const T, n: usize| MatrixOperand { p, row: n as isize, col: 1 };
                Panels::pack(lying(k_at, width).transposed(), width, keys, k_columns.as_mut_ptr());
                Panels::pack(rows(k, width), keys, width, k_rows.as_mut_ptr());
                Panels::pack(lying(v_at, depth).transposed(), depth, keys, v_columns.as_mut_ptr());
                Panels::pack(lying(gy_at, depth), queries, depth, gy_rows.as_mut_ptr());
                Panels::pack(rows(q, width), queries, width, q_rows.as_mut_ptr());
                (
                    Panels::packed(k_columns.as_mut_ptr(), width),
                    Panels::packed(k_rows.as_mut_ptr(), keys),
                    Panels::packed(v_columns.as_mut_ptr(), depth),
                    Panels::packed(gy_rows.as_mut_ptr(), queries),
                    Panels::packed(q_rows.as_mut_ptr(), queries),
                )
            };
            self.along(head, given, along);
            let (weights, slopes) = tiles.split_at_mut(QUERIES * KEYS);
            let first = |to: Option<Shared<T>>, n: usize| to.map(|to| to.get().wrapping_add(head * n));
            let to_q = first(to_q, queries * width);
            let (to_k, to_v) = (first(to_k, keys * width), first(to_v, keys * depth));
            for key in (0..keys).step_by(KEYS) {
                let start = if self.causal { key / QUERIES * QUERIES } else { 0 };
                for query in (start..queries).step_by(QUERIES) {
                    let queries = QUERIES.min(queries - query);
                    let n = KEYS.min(keys - key).min(self.reach(query + queries).saturating_sub(key));
                    let tile = ScoreTile { head, query, queries, key, keys: n };
                    // SAFETY: tiles are within the arrays of the head, which no other thread adds to.
                    unsafe {
                        let a = rows(&q[query * width..], width);
                        let b = k_columns.column(key, width);
                        multiply((queries, n, width), a, b, weights.as_mut_ptr(), KEYS, false);
                        let a = MatrixOperand { p: gy_at.add(query * depth), row: depth as isize, col: 1 };
                        let b = v_columns.column(key, depth);
                        multiply((queries, n, depth), a, b, slopes.as_mut_ptr(), KEYS, false);
                    }
                    self.slope(tile, given, (along, &hidden), weights, slopes);
                    if let Some((to, mask)) = to_mask.as_deref_mut().zip(given.mask.as_ref()) {
                        mask.take_in(tile, slopes, to);
                    }
                    // SAFETY: as above.
                    unsafe {
                        if let Some(to) = to_v {
                            let (a, to) = (columns(weights, KEYS), to.add(key * depth));
                            multiply((n, depth, queries), a, gy_rows.row(query), to, depth, true);
                        }
                        if let Some(to) = to_k {
                            let (a, to) = (columns(slopes, KEYS), to.add(key * width));
                            multiply((n, width, queries), a, q_rows.row(query), to, width, true);
                        }
                        if let Some(to) = to_q {
                            let mut first = 0;
                            for seen in hidden[query..query + queries].split(|hidden| *hidden) {
                                if !seen.is_empty() {
                                    let a = rows(&slopes[first * KEYS..], KEYS);
                                    let to = to.add((query + first) * width);
                                    multiply((seen.len(), width, n), a, k_rows.row(key), to, width, true);
                                }
                                first += seen.len() + 1;
                            }
                        }
                    }
                    stop::poll();
                }
            }
        });
    }

    /// Writes the inner products of the outputs of a head and their gradients.
    fn along<T: Float>(&self, head: usize, given: &Given<'_, T>, to: &mut [T]) {
        vectorised(
            #[inline(always)]
            || {
                for (i, sum) in to.iter_mut().enumerate() {
                    let row = head * self.queries + i;
                    let row = row * self.depth..(row + 1) * self.depth;
                    *sum = dot(&given.gy[row.clone()], &given.y[row]);
                }
            },
        );
    }

    /// Turns products of queries and keys into weights, and products of gradients and values into gradients of the
    /// softmax input.
    fn slope<T: Float>(
        &self,
        tile: ScoreTile,
        given: &Given<'_, T>,
        (along, all_hidden): (&[T], &[bool]),
        weights: &mut [T],
        slopes: &mut [T],
    ) {
        let factor = self.factor::<T>();
        let (most, sums) = given.sums.split_at(self.heads * self.queries);
        let first = tile.head * self.queries + tile.query;
        vectorised(
            #[inline(always)]
            || {
                for r in 0..tile.queries {
                    let seen = self.seen(tile, r);
                    let row = &mut weights[r * KEYS..][..tile.keys];
                    let slope = &mut slopes[r * KEYS..][..tile.keys];
                    if all_hidden[tile.query + r] {
                        row.fill(T::ZERO);
                        slope.fill(T::ZERO);
                        continue;
                    }
                    if let Some(mask) = &given.mask {
                        mask.add_to(tile, r, &mut row[..seen]);
                    }
                    let (most, share) = (most[first + r], T::ONE / sums[first + r]);
                    let along = along[tile.query + r];
                    if self.dropped.is_none() {
                        // Whole registers, which may contain hidden keys.
                        let n = seen.next_multiple_of(LANES).min(tile.keys);
                        for (w, s) in row[..n].iter_mut().zip(&mut slope[..n]) {
                            *w = (*w - most).exp() * share;
                            *s = *w * (*s - along);
                        }
                        row[seen..].fill(T::ZERO);
                        slope[seen..].fill(T::ZERO);
                        continue;
                    }
                    let (row, hidden) = row.split_at_mut(seen);
                    hidden.fill(T::ZERO);
                    let (slope, hidden) = slope.split_at_mut(seen);
                    hidden.fill(T::ZERO);
                    for w in row.iter_mut() {
                        *w = (*w - most).exp() * share;
                    }
                    self.kept(ScoreTile { keys: seen, ..tile }, r, |j, kept| {
                        let by = if kept { slope[j] * factor } else { T::ZERO };
                        slope[j] = row[j] * (by - along);
                        row[j] = if kept { row[j] * factor } else { T::ZERO };
                    });
                }
            },
        );
    }
}

/// The gradients of a head's outputs, `gy`, with zeros for hidden queries. Empty if no query is hidden.
fn without_hidden<T: Float>(hidden: &[bool], gy: &[T], depth: usize) -> List<T> {
    let mut seen = List::<T>::with_capacity(0);
    if hidden.contains(&true) {
        seen.extend_from_slice(&gy[..hidden.len() * depth]);
        for i in (0..hidden.len()).filter(|i| hidden[*i]) {
            seen[i * depth..(i + 1) * depth].fill(T::ZERO);
        }
    }
    seen
}

/// The inner product of `x` with as many elements of `y`. The products are added in lanes, so that the loop is
/// vectorized.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // plain loops vectorize
fn dot<T: Float>(x: &[T], y: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    let y = &y[..x.len()];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for l in 0..LANES {
            lanes[l] = lanes[l] + x[l] * y[l];
        }
    }
    for (lane, (x, y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *lane = *lane + *x * *y;
    }
    let mut n = LANES / 2;
    while n > 0 {
        for l in 0..n {
            lanes[l] = lanes[l] + lanes[l + n];
        }
        n /= 2;
    }
    lanes[0]
}
