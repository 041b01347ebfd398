//! Matrix product in any layout: packed into blocks, computed by kernels in registers, distributed to threads.
//!
//! The division of a product depends only on its shape and layout, so the result does not depend on the number of
//! threads.

use super::fallback::one_by_one;
use super::operand::{BlockedProduct, MatrixOperand, Strided};
use super::tile::kernels;
use super::{few_columns, inner_products};
use crate::kernels::Float;
use crate::kernels::epilogue::{Activation, Epilogue};
use crate::kernels::threads::Shared;

/// `c = epilogue(a b)`, where `c` is `m` x `n` and the sums have `k` terms. `packed` is the optional packed form of
/// `b`, see `packed_cache`.
///
/// # Safety
/// Every element of the matrices must be readable. Elements of `c` must be writable, have distinct addresses, and
/// not be accessed concurrently. `packed` must be made from `b`.
pub unsafe fn multiply<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: Strided<T>,
    b: Strided<T>,
    packed: Option<*const T>,
    c: Strided<T>,
    epilogue: Epilogue<'_, T>,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(epilogue.row_bias.is_none_or(|bias| bias.len() >= m), "a bias of too few rows");
    assert!(epilogue.column_bias.is_none_or(|bias| bias.len() >= n), "a bias of too few columns");
    let operand = |s: Strided<T>| MatrixOperand { p: s.p.cast_const(), row: s.row, col: s.col };
    let (a, b) = (operand(a), operand(b));
    // SAFETY: guaranteed by the caller.
    if unsafe { few_columns_or_rows((m, n, k), a, b, packed.is_some(), c, epilogue) } {
        return;
    }
    // A column-major result is the transpose of a row-major one, and a single column is both.
    let product = if c.col == 1 || n == 1 {
        BlockedProduct { m, n, k, a, b, packed, c: c.p, c_row: c.row, epilogue }
    } else if c.row == 1 || m == 1 {
        BlockedProduct {
            m: n,
            n: m,
            k,
            a: b.transposed(),
            b: a.transposed(),
            packed: None,
            c: c.p,
            c_row: c.col,
            epilogue: epilogue.transposed(),
        }
    } else {
        // SAFETY: guaranteed by the caller.
        return unsafe { one_by_one((m, n, k), a, b, c, epilogue) };
    };
    // SAFETY: guaranteed by the caller.
    unsafe { product.run() };
}

/// A product with at least as many rows as columns: the given one, or its transpose.
struct TallProduct<T> {
    /// True if this is the transposed product.
    is_transposed: bool,
    /// The number of rows.
    m: usize,
    /// The number of columns.
    n: usize,
    /// The left matrix.
    a: MatrixOperand<T>,
    /// The right matrix.
    b: MatrixOperand<T>,
}

impl<T: Float> TallProduct<T> {
    /// The product of these matrices, with `m` rows and `n` columns, or the transposed one.
    fn new((m, n): (usize, usize), a: MatrixOperand<T>, b: MatrixOperand<T>) -> Self {
        if m < n {
            Self { is_transposed: true, m: n, n: m, a: b.transposed(), b: a.transposed() }
        } else {
            Self { is_transposed: false, m, n, a, b }
        }
    }

    /// True if inner products compute `k` terms faster than tiles.
    fn has_inner_products(&self, k: usize) -> bool {
        let wide = if self.is_transposed { 1 } else { kernels::<T>().width };
        let shape = (self.m, self.n, k);
        self.a.col == 1 && inner_products::pays::<T>(shape, wide, self.is_transposed, self.b.row != 1)
    }
}

/// True if a product of `m` x `n` sums of `k` terms does not use a packed form of the right matrix.
pub(super) fn ignores_packed<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: MatrixOperand<T>,
    b: MatrixOperand<T>,
) -> bool {
    TallProduct::new((m, n), a, b).has_inner_products(k)
}

/// Computes a result with few columns or few rows, if there is a faster way than by tiles. Returns false if not.
///
/// # Safety
/// As [`multiply`].
unsafe fn few_columns_or_rows<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: MatrixOperand<T>,
    b: MatrixOperand<T>,
    is_packed: bool,
    c: Strided<T>,
    epilogue: Epilogue<'_, T>,
) -> bool {
    let tall = TallProduct::new((m, n), a, b);
    let (few_rows, shape) = (tall.is_transposed, (tall.m, tall.n, k));
    let is_inner = tall.has_inner_products(k);
    if !is_inner && (tall.a.row != 1 || is_packed || !few_columns::pays(shape, few_rows)) {
        return false;
    }
    let first = Shared::new(c.p);
    let Epilogue { accumulate, row_bias, column_bias, tail } = epilogue;
    let is_plain =
        !accumulate && row_bias.is_none() && column_bias.is_none() && tail.activation == Activation::Identity;
    let put = |i: usize, j: usize, sum| {
        let (i, j) = if few_rows { (j, i) } else { (i, j) };
        // SAFETY: the caller of `multiply` guarantees the matrices, and each result is written once.
        unsafe {
            let c = first.get().offset(i as isize * c.row + j as isize * c.col);
            *c = if is_plain { sum } else { epilogue.of(sum, *c, i, j) };
        }
    };
    let rows_are_contiguous = c.col == 1 || n == 1;
    if !rows_are_contiguous && c.row != 1 && m > 1 {
        return false;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if is_inner {
            if !inner_products::by_rows(shape, tall.a, tall.b, put) {
                return false;
            }
        } else {
            let (step, next) = if few_rows { (c.col, c.row) } else { (c.row, c.col) };
            few_columns::by_columns(shape, tall.a, tall.b, |i, j, sums: &[T]| {
                if is_plain && step == 1 {
                    let c = first.get().wrapping_offset(j as isize * next).wrapping_add(i);
                    std::ptr::copy_nonoverlapping(sums.as_ptr(), c, sums.len());
                } else {
                    sums.iter().enumerate().for_each(|(l, sum)| put(i + l, j, *sum));
                }
            });
        }
        if rows_are_contiguous {
            epilogue.tail.finish(c.p, c.row as usize, m, n);
        } else {
            epilogue.tail.finish(c.p, c.col as usize, n, m);
        }
    }
    true
}

#[cfg(test)]
mod tests;
