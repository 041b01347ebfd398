//! Attention by tiles: weights of a few queries and keys at a time, so that memory grows with the lengths, not with
//! their product. Knows slices, not shapes, graphs or Python.
//!
//! Method: Dao et al., FlashAttention, 2022, arXiv:2205.14135. The running softmax is from Milakov and Gimelshein,
//! 2018.

mod backward;
mod by_query;
mod forward;

pub use backward::{Given, WantedAttention};

use super::Float;
use super::epilogue::Epilogue;
use super::gemm::{MatrixOperand, ONCE, PanelProduct, Panels, Table, kernels};
use super::random::PhiloxKey;
use super::scratch::List;

/// Queries of a tile.
const QUERIES: usize = 64;
/// Keys of a tile: a multiple of the block of random numbers, and of the columns of a panel.
const KEYS: usize = 256;
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

/// A tile: its head, queries and keys.
#[derive(Clone, Copy)]
struct ScoreTile {
    /// The index of the head, over all samples.
    head: usize,
    /// The first query.
    query: usize,
    /// The number of queries.
    queries: usize,
    /// The first key.
    key: usize,
    /// The number of keys.
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

    /// True if a head has so few products that packing would take longer than to compute them one by one.
    fn is_tiny(&self) -> bool {
        self.queries * self.keys * (self.width + self.depth) <= 256
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

    /// Adds the gradients of a tile to the gradient of the mask.
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
    let product = PanelProduct {
        kernels: kernels(),
        m,
        n,
        k,
        a,
        b,
        table: Table::None,
        batch: ONCE,
        c,
        c_row,
        epilogue,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { product.run() };
}
