//! Products of a matrix with contiguous columns and a few vectors. Each column is read once and from start to end, as
//! memory is fastest. Registers hold rows of the result.

use std::ops::Range;

use super::operand::MatrixOperand;
use super::packing::plain_depth;
use super::split::EvenSplit;
use crate::kernels::Float;
use crate::kernels::simd::{Vector, Work};
use crate::kernels::threads::{Shared, num_threads, ranges};

/// The most columns of the right matrix.
const COLUMNS: usize = 4;
/// The fewest terms: the sums of fewer cost less than their way through a buffer.
const TERMS: usize = 32;
/// The fewest rows: half of a register.
const ROWS: usize = 8;
/// The fewest rows if tiles would have no empty lanes, because the columns of the result are contiguous.
const LONG: usize = 256;
/// Rows of the result in a block, whose sums stay in the L1 cache.
const BLOCK: usize = 512;
/// Rows of the result that fill a cache line.
const LINE: usize = 16;
/// The number of multiplications in a chunk.
const GRAIN: usize = 100_000;

/// True if [`by_columns`] is the fastest way to compute `m` x `n` sums of `k` terms. `is_full` is true if tiles would
/// have no empty lanes.
pub(super) fn pays((m, n, k): (usize, usize, usize), is_full: bool) -> bool {
    n <= COLUMNS && k >= TERMS && m >= if is_full { LONG } else { ROWS }
}

/// Calls `put(i, j, sums)` with rows from `i` on of column `j` of the product, until all are complete. Columns of `a`
/// have `m` contiguous elements. `b` has `n` columns of `k` elements.
///
/// # Safety
/// The elements must be readable, and `n` at most [`COLUMNS`].
pub(super) unsafe fn by_columns<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: MatrixOperand<T>,
    b: MatrixOperand<T>,
    put: impl Fn(usize, usize, &[T]) + Sync,
) {
    let least = (GRAIN / (n * k)).max(m.div_ceil(2 * num_threads()));
    let (a_first, b_first) = (Shared::read_only(a.p), Shared::read_only(b.p));
    ranges(m, least.next_multiple_of(LINE), |rows| {
        let a = MatrixOperand { p: a_first.get().cast_const(), ..a };
        let b = MatrixOperand { p: b_first.get().cast_const(), ..b };
        T::in_registers(FewColumns { a, b, rows, n, k, put: &put });
    });
}

/// The sums of a block, aligned to cache lines. The gap keeps columns from the same sets of the L1 cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct ColumnSums<T>([T; BLOCK + LINE]);

/// Some rows of a product.
struct FewColumns<'a, T, F> {
    /// The matrix whose columns are contiguous.
    a: MatrixOperand<T>,
    /// The matrix with few columns.
    b: MatrixOperand<T>,
    /// The rows to compute.
    rows: Range<usize>,
    /// The number of columns.
    n: usize,
    /// The number of terms.
    k: usize,
    /// Receives the first row, the column and the sums of some rows.
    put: &'a F,
}

impl<T: Float, F: Fn(usize, usize, &[T])> Work<T> for FewColumns<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let parts = EvenSplit::new(self.rows.len().div_ceil(LINE), self.rows.len().div_ceil(BLOCK));
        for part in (0..parts.parts()).map(|i| parts.part(i)) {
            let (start, end) = (self.rows.start + part.start * LINE, self.rows.start + part.end * LINE);
            let rows = start..self.rows.end.min(end);
            // SAFETY: guaranteed by the caller.
            unsafe {
                match self.n {
                    1 => self.block::<V, 1, 8>(rows),
                    2 => self.block::<V, 2, 8>(rows),
                    3 => self.block::<V, 3, 4>(rows),
                    _ => self.block::<V, COLUMNS, 4>(rows),
                }
            }
        }
    }
}

impl<T: Float, F: Fn(usize, usize, &[T])> FewColumns<'_, T, F> {
    /// Computes `N` columns of some rows. Adds up terms in the order of tiles, see [`super::tile`]. Reads `P` columns
    /// of the left matrix together.
    #[inline(always)]
    unsafe fn block<V: Vector<T = T>, const N: usize, const P: usize>(&self, rows: Range<usize>) {
        let (depth, len) = (plain_depth(self.k), rows.len().next_multiple_of(LINE));
        let mut sums = [ColumnSums([T::ZERO; BLOCK + LINE]); N];
        let mut totals = None;
        for start in (0..self.k).step_by(depth) {
            let end = self.k.min(start + depth);
            if start > 0 {
                for sums in &mut sums {
                    sums.0[..len].fill(T::ZERO);
                }
            }
            let whole = (end - start) / P * P;
            // SAFETY: guaranteed by the caller.
            unsafe {
                for p in (start..start + whole).step_by(P) {
                    self.add_columns::<V, N, P>(&mut sums, &rows, p);
                }
                for p in start + whole..end {
                    self.add_columns::<V, N, 1>(&mut sums, &rows, p);
                }
            }
            if depth < self.k {
                let totals = totals.get_or_insert([ColumnSums([-T::ZERO; BLOCK + LINE]); N]);
                for (totals, sums) in totals.iter_mut().zip(&sums) {
                    totals.0[..len].iter_mut().zip(&sums.0).for_each(|(total, sum)| *total = *total + *sum);
                }
            }
        }
        for (j, sums) in totals.as_ref().unwrap_or(&sums).iter().enumerate() {
            (self.put)(rows.start, j, &sums.0[..rows.len()]);
        }
    }

    /// Adds the terms of `P` columns of the left matrix from column `p` on.
    #[inline(always)]
    unsafe fn add_columns<V: Vector<T = T>, const N: usize, const P: usize>(
        &self,
        sums: &mut [ColumnSums<T>; N],
        rows: &Range<usize>,
        p: usize,
    ) {
        // SAFETY: the caller guarantees the instruction set, and masks keep within the rows. A block is a whole number
        // of registers.
        unsafe {
            let from: [*const T; P] = std::array::from_fn(|q| self.a.at(rows.start, p + q));
            let factors: [[V; P]; N] =
                std::array::from_fn(|j| std::array::from_fn(|q| V::all(*self.b.at(p + q, j))));
            let whole = rows.len() / V::WIDTH * V::WIDTH;
            for i in (0..whole).step_by(V::WIDTH) {
                add_terms::<V, N, P>(sums, i, &factors, from.map(|p| V::load(p.add(i))));
            }
            if whole < rows.len() {
                let mask = V::first(rows.len() - whole);
                add_terms::<V, N, P>(sums, whole, &factors, from.map(|p| V::load_masked(p.add(whole), mask)));
            }
        }
    }
}

/// Adds `P` terms to the sums of a register of rows, from row `i` of the block on.
#[inline(always)]
unsafe fn add_terms<V: Vector, const N: usize, const P: usize>(
    sums: &mut [ColumnSums<V::T>; N],
    i: usize,
    factors: &[[V; P]; N],
    a: [V; P],
) {
    for (sums, factors) in sums.iter_mut().zip(factors) {
        // SAFETY: the caller guarantees the instruction set, and a block is a whole number of registers.
        unsafe {
            let p = sums.0.as_mut_ptr().add(i);
            factors.iter().zip(a).fold(V::load(p), |sum, (factor, a)| factor.mul_add(a, sum)).store(p);
        }
    }
}
