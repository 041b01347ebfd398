//! Products on the calling thread with a right matrix that is already in panels. Used by convolutions.

use std::ops::Range;
use std::ptr;

use super::chunk::{AHEAD, SHALLOW};
use super::operand::MatrixOperand;
use super::split::EvenSplit;
use super::tile::{Kernels, ProductTile, REGULAR, SCATTERED_A, SCATTERED_B};
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;

/// A sum without further offsets.
pub(in crate::kernels) const ONCE: &[(isize, isize)] = &[(0, 0)];
/// Terms of a sum between two accesses to the result.
const DEPTH: usize = 512;
/// The most chains of a sum that are added up before they are added to the result, for smaller rounding errors.
const CHAINS: usize = 8;
/// The number of elements above which a left matrix fills the L2 cache.
const LARGE: usize = 1 << 17;

/// A right matrix in panels of [`Kernels::panel`] columns: row `p` of panel `j` starts at `j next + p row`.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Panels<T> {
    /// The first element.
    pub(in crate::kernels) p: *const T,
    /// The distance from a row of a panel to the next.
    pub(in crate::kernels) row: usize,
    /// The distance from a panel to the next.
    pub(in crate::kernels) next: usize,
}

/// The offsets of rows of a matrix without a regular stride. Elements of a row of the left matrix are contiguous.
#[derive(Clone, Copy)]
pub(in crate::kernels) enum Table<'a> {
    /// Both matrices have regular strides.
    None,
    /// For each row of the left matrix.
    OfLeft(&'a [isize]),
    /// For each row of the right matrix.
    OfRight(&'a [isize]),
}

impl Table<'_> {
    /// The offsets for some terms, if rows of the right matrix are scattered.
    pub(in crate::kernels) fn part(self, terms: Range<usize>) -> Self {
        match self {
            Self::OfRight(table) => Self::OfRight(&table[terms]),
            other => other,
        }
    }
}

/// A product `c = epilogue(a b)`: `a` has `m` rows, `b` has `n` columns, rows of `c` are contiguous and `c_row`
/// apart.
pub(in crate::kernels) struct PanelProduct<'a, T: 'static> {
    /// [`super::tile::kernels`], or [`super::tile::kernels_of_pairs`] if both matrices are of words of pairs.
    pub(in crate::kernels) kernels: &'static Kernels<T>,
    /// Rows of the result.
    pub(in crate::kernels) m: usize,
    /// Columns of the result.
    pub(in crate::kernels) n: usize,
    /// Terms of each sum.
    pub(in crate::kernels) k: usize,
    /// The left matrix.
    pub(in crate::kernels) a: MatrixOperand<T>,
    /// The right matrix.
    pub(in crate::kernels) b: Panels<T>,
    /// The offsets of scattered rows, if any.
    pub(in crate::kernels) table: Table<'a>,
    /// The sum continues over these offsets of the two matrices.
    pub(in crate::kernels) batch: &'a [(isize, isize)],
    /// The first element of the result.
    pub(in crate::kernels) c: *mut T,
    /// The distance from a row of the result to the next.
    pub(in crate::kernels) c_row: usize,
    /// The epilogue, which is applied to each sum.
    pub(in crate::kernels) epilogue: Epilogue<'a, T>,
}

impl<T: Float> PanelProduct<'_, T> {
    /// Computes the product.
    ///
    /// # Safety
    /// The matrices must be valid, and `c` must not be accessed concurrently.
    pub(in crate::kernels) unsafe fn run(&self) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.run_in_chains(usize::MAX) };
    }

    /// Computes the product. Adds up at most `chain` terms before adding them to the previous sum, since long chains
    /// of additions have larger rounding errors.
    ///
    /// # Safety
    /// As [`PanelProduct::run`], and there must be no table if chains are shorter than sums.
    pub(in crate::kernels) unsafe fn run_in_chains(&self, chain: usize) {
        if self.m == 0 || self.n == 0 {
            return;
        }
        let kernels = self.kernels;
        let chained = chain < self.k;
        let chain = if chained { self.k.div_ceil(self.k.div_ceil(chain)) } else { self.k };
        let tallest =
            if chained && self.n > kernels.width { kernels.tallest() / 2 } else { kernels.tallest() };
        let heights = EvenSplit::new(self.m, self.m.div_ceil(tallest));
        let most = if chained { DEPTH.min(CHAINS * chain) } else { DEPTH };
        let depth = self.k.div_ceil(self.k.div_ceil(most).max(1)).max(1);
        // With few rows, registers are left for more columns, which are adjacent unless they are packed.
        let low = self.m <= kernels.low.len()
            && self.b.next == kernels.panel()
            && matches!(self.table, Table::OfRight(_));
        let together = if low { 2 } else { 1 };
        let wide = together * kernels.panel();
        for p in (0..self.k.max(1)).step_by(depth) {
            let k = depth.min(self.k - p);
            let epilogue = self.epilogue.of_part(p == 0, p + k >= self.k);
            let panels = self.n.div_ceil(wide);
            let tile = |panel: usize, row: usize| {
                let (j, rows) = (panel * wide, heights.part(row));
                let b = self.b.p.wrapping_add(panel * together * self.b.next);
                let b = if let Table::OfRight(_) = self.table { b } else { b.wrapping_add(p * self.b.row) };
                // SAFETY: the tile is within the matrices.
                unsafe {
                    self.tile(
                        kernels,
                        (p, k, chain),
                        j,
                        wide.min(self.n - j),
                        rows.start,
                        rows.len(),
                        b,
                        epilogue,
                    );
                };
            };
            // A left matrix that is too large for the L2 cache is read once. The result is visited row by row if
            // sums are short.
            if self.m * k > LARGE || self.k <= SHALLOW {
                (0..heights.parts()).for_each(|row| (0..panels).for_each(|panel| tile(panel, row)));
            } else {
                (0..panels).for_each(|panel| (0..heights.parts()).for_each(|row| tile(panel, row)));
            }
        }
    }

    /// Computes a tile: `rows` rows from `i` on, `n` columns from `j` on, `k` terms from `p` on.
    #[inline(always)]
    unsafe fn tile(
        &self,
        kernels: &Kernels<T>,
        (p, k, chain): (usize, usize, usize),
        j: usize,
        n: usize,
        i: usize,
        rows: usize,
        b: *const T,
        epilogue: Epilogue<'_, T>,
    ) {
        let row = self.b.row as isize;
        let (kind, table, a) = match self.table {
            Table::None => (REGULAR, ptr::null(), self.a.at(i, p)),
            Table::OfLeft(table) => (SCATTERED_A, table[i..].as_ptr(), self.a.p.wrapping_add(p)),
            Table::OfRight(table) => (SCATTERED_B, table[p..].as_ptr(), self.a.at(i, p)),
        };
        let tile = ProductTile {
            k,
            chain,
            n,
            batch: self.batch,
            a,
            a_row: self.a.row,
            a_col: self.a.col,
            b,
            b_row: row,
            table,
            packed: ptr::null_mut(),
            c: self.c.wrapping_add(i * self.c_row + j),
            c_row: self.c_row as isize,
            epilogue: epilogue.part(i, j),
            ahead: b.wrapping_offset(AHEAD * row),
            ahead_step: row,
        };
        // SAFETY: the table was chosen for this machine, and the caller guarantees the rest.
        unsafe {
            if chain < self.k && n > kernels.width {
                kernels.chained[1][2 * rows - 2](&tile);
            } else if chain < self.k {
                kernels.chained[0][rows - 1](&tile);
            } else if n > kernels.panel() {
                kernels.low[rows - 1](&tile);
            } else {
                kernels.tiles[kind][usize::from(n > kernels.width)][rows - 1](&tile);
            }
        }
    }
}
