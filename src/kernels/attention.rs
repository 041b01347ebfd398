//! Attention by tiles: weights of a few queries and keys at a time, so that memory grows with the lengths, not with
//! their product. Knows slices, not shapes, graphs or Python.
//!
//! Method: Dao et al., FlashAttention, 2022, arXiv:2205.14135. The running softmax is from Milakov and Gimelshein,
//! 2018.

use super::epilogue::Epilogue;
use super::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table};
use super::random::PhiloxKey;
use super::scratch::{self, List};
use super::simd::vectorised;
use super::threads::{self, Shared};
use super::{Float, stop};

/// Queries of a tile.
const QUERIES: usize = 64;
/// Keys of a tile: a multiple of the block of random numbers, and of the columns of a panel.
const KEYS: usize = 256;
/// Numbers that are processed together.
const LANES: usize = 16;

/// The sizes and constants of an attention. Arrays hold one head after the other.
pub struct Attention {
    /// The number of heads, over all samples.
    pub heads: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys and values of a head.
    pub keys: usize,
    /// The size of a query and of a key.
    pub width: usize,
    /// The size of a value.
    pub depth: usize,
    /// The scale factor of the products of queries and keys.
    pub scale: f64,
    /// Queries ignore keys at later positions.
    pub causal: bool,
    /// The dropout rate of the weights, and the key of its random numbers.
    pub dropped: Option<(f64, PhiloxKey)>,
}

/// A bias added to the products before the softmax: element (i, j) of head `h` is at `firsts[h] + i * row + j *
/// column`.
pub struct Mask<'a, T> {
    /// The elements.
    pub data: &'a [T],
    /// The index of the first element of each head.
    pub firsts: List<usize>,
    /// The stride of rows, which are queries.
    pub row: usize,
    /// The stride of columns: one, or zero if all are equal.
    pub column: usize,
}

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
    /// The largest exponent of each query, and then the sum of exponentials of the differences to it.
    ///
    /// The logarithm of the whole sum would lose the sum beside a large exponent.
    pub sums: &'a [T],
    /// The gradient of the output.
    pub gy: &'a [T],
}

/// Gradients to add to, if requested.
pub struct WantedAttention<'a, T> {
    /// Of the queries.
    pub q: Option<&'a mut [T]>,
    /// Of the keys.
    pub k: Option<&'a mut [T]>,
    /// Of the values.
    pub v: Option<&'a mut [T]>,
    /// Of the mask, in the same layout.
    pub mask: Option<&'a mut [T]>,
}

/// A tile: its head, queries and keys.
#[derive(Clone, Copy)]
struct ScoreTile {
    head: usize,
    query: usize,
    queries: usize,
    key: usize,
    keys: usize,
}

impl Attention {
    /// Random words of a row of weights, in whole blocks.
    fn drawn_in_row(&self) -> usize {
        self.keys.next_multiple_of(64)
    }

    /// The number of random words drawn.
    pub fn words(&self) -> usize {
        self.heads * self.queries * self.drawn_in_row()
    }

    /// Calls `f` with the number of each weight, head by head and query by query, and whether dropout keeps it.
    pub fn each_kept(&self, mut f: impl FnMut(usize, bool)) {
        let whole = ScoreTile { head: 0, query: 0, queries: 1, key: 0, keys: self.keys };
        for row in 0..self.heads * self.queries {
            let (head, query) = (row / self.queries, row % self.queries);
            self.kept(ScoreTile { head, query, ..whole }, 0, |j, kept| f(row * self.keys + j, kept));
        }
    }

    /// Calls `f` with the columns of row `r` of a tile, and whether dropout keeps each.
    #[inline(always)]
    fn kept(&self, tile: ScoreTile, r: usize, f: impl FnMut(usize, bool)) {
        let Some((p, key)) = self.dropped else { return };
        let row = tile.head * self.queries + tile.query + r;
        let offset = key.offset + (row * self.drawn_in_row() + tile.key) as u64;
        PhiloxKey { offset, ..key }.kept(tile.keys, p, f);
    }

    /// The scale factor of kept weights.
    fn factor<T: Float>(&self) -> T {
        T::of(self.dropped.as_ref().map_or(1.0, |(p, _)| 1.0 / (1.0 - p)))
    }

    /// True if the mask hides every key from a query. `most` is the largest exponent of its weights.
    fn is_hidden<T: Float>(
        &self,
        mask: Option<&Mask<'_, T>>,
        (head, query): (usize, usize),
        most: T,
    ) -> bool {
        let Some(mask) = mask.filter(|_| most == T::NEG_INFINITY) else { return false };
        let at = mask.firsts[head] + query * mask.row;
        (0..self.reach(query + 1)).all(|key| mask.data[at + key * mask.column] == T::NEG_INFINITY)
    }

    /// The number of keys of a tile that row `r` attends to.
    #[inline(always)]
    fn seen(&self, tile: ScoreTile, r: usize) -> usize {
        if self.causal { (tile.query + r + 1).saturating_sub(tile.key).min(tile.keys) } else { tile.keys }
    }

    /// The number of keys that queries before `end` attend to.
    fn reach(&self, end: usize) -> usize {
        if self.causal { self.keys.min(end) } else { self.keys }
    }

    /// Writes `y = softmax(scale q k' + mask) v`, and [`Given::sums`] for the gradient.
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
        let (of_k, of_v) = (Panels::<T>::room(width, keys), Panels::<T>::room(keys, depth));
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
                self.block(
                    tile,
                    &q[row * width..(row + tile.queries) * width],
                    (k, v),
                    mask,
                    y,
                    (most, sums),
                );
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
        scratch::with(n * width + n * KEYS, |room: &mut [T]| {
            let (scaled, weights) = room.split_at_mut(n * width);
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
        let WantedAttention { mut q, mut k, mut v, mask } = wanted;
        let to = [place(&mut q, given.q.len()), place(&mut k, given.k.len()), place(&mut v, given.v.len())];
        match mask {
            // Several heads may add to one element.
            Some(mask) => (0..heads).for_each(|head| self.of_head(head, given, to, Some(&mut *mask))),
            None => threads::parallel(heads, |head| self.of_head(head, given, to, None)),
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
            Panels::<T>::room(width, keys),
            Panels::<T>::room(keys, width),
            Panels::<T>::room(depth, keys),
            Panels::<T>::room(queries, depth),
            Panels::<T>::room(queries, width),
            queries,
            2 * QUERIES * KEYS,
        ];
        scratch::with(sizes.iter().sum(), |mut room: &mut [T]| {
            let mut parts: [&mut [T]; 9] = Default::default();
            for (part, n) in parts.iter_mut().zip(sizes) {
                (*part, room) = room.split_at_mut(n);
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
            for (i, sum) in along.iter_mut().enumerate() {
                let row = (head * queries + i) * depth..(head * queries + i + 1) * depth;
                *sum = dot(&given.gy[row.clone()], &given.y[row]);
            }
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
                    let (row, hidden) = weights[r * KEYS..][..tile.keys].split_at_mut(seen);
                    hidden.fill(T::ZERO);
                    let (slope, hidden) = slopes[r * KEYS..][..tile.keys].split_at_mut(seen);
                    hidden.fill(T::ZERO);
                    if all_hidden[tile.query + r] {
                        row.fill(T::ZERO);
                        slope.fill(T::ZERO);
                        continue;
                    }
                    if let Some(mask) = &given.mask {
                        mask.add_to(tile, r, row);
                    }
                    let (most, share) = (most[first + r], T::ONE / sums[first + r]);
                    let along = along[tile.query + r];
                    if self.dropped.is_none() {
                        for (w, s) in row.iter_mut().zip(slope) {
                            *w = (*w - most).exp() * share;
                            *s = *w * (*s - along);
                        }
                        continue;
                    }
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

impl<T: Float> Mask<'_, T> {
    /// Adds the elements to row `r` of a tile. Negative infinity hides a key regardless of its product.
    #[inline(always)]
    fn add_to(&self, tile: ScoreTile, r: usize, row: &mut [T]) {
        let at = self.firsts[tile.head] + (tile.query + r) * self.row + tile.key * self.column;
        if self.column == 0 {
            let v = self.data[at];
            for w in row.iter_mut() {
                *w = if v == T::NEG_INFINITY { v } else { *w + v };
            }
        } else {
            let add = |(w, v): (&mut T, &T)| *w = if *v == T::NEG_INFINITY { *v } else { *w + *v };
            row.iter_mut().zip(&self.data[at..]).for_each(add);
        }
    }

    /// Adds the gradients of a tile to those of the mask.
    fn take_in(&self, tile: ScoreTile, slopes: &[T], to: &mut [T]) {
        for r in 0..tile.queries {
            let at = self.firsts[tile.head] + (tile.query + r) * self.row + tile.key * self.column;
            for (j, v) in slopes[r * KEYS..][..tile.keys].iter().enumerate() {
                let to = &mut to[at + j * self.column];
                *to = *to + *v;
            }
        }
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

/// A row-major matrix with rows of `n` elements.
fn rows<T>(x: &[T], n: usize) -> MatrixOperand<T> {
    MatrixOperand { p: x.as_ptr(), row: n as isize, col: 1 }
}

/// The transpose of [`rows`].
fn columns<T>(x: &[T], n: usize) -> MatrixOperand<T> {
    MatrixOperand { p: x.as_ptr(), row: 1, col: n as isize }
}

/// `c = a b` or `c += a b`, on this thread.
///
/// # Safety
/// The matrices must be valid, and `c` must not be accessed concurrently.
pub(super) unsafe fn multiply<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: MatrixOperand<T>,
    b: Panels<T>,
    c: *mut T,
    c_row: usize,
    accumulate: bool,
) {
    let epilogue = Epilogue::plain(accumulate);
    let product = PanelProduct { m, n, k, a, b, table: Table::None, batch: ONCE, c, c_row, epilogue };
    // SAFETY: guaranteed by the caller.
    unsafe { product.run() };
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

/// The inner product.
fn dot<T: Float>(x: &[T], y: &[T]) -> T {
    x.iter().zip(y).map(|(x, y)| *x * *y).sum()
}
