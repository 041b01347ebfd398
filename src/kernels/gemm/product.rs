//! Matrix product in any layout: packed into blocks, computed by kernels in registers, distributed to threads.
//!
//! The division of a product depends only on its shape and layout, so the result does not depend on the number of
//! threads.

use super::fallback::one_by_one;
use super::operand::{BlockedProduct, MatrixOperand, Strided};
use super::vector;
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::threads::Shared;

/// `c = epilogue(a b)`, where `c` is `m` x `n` and the sums have `k` terms. `packed` is the optional packed form of
/// `b`, see `kept`.
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
    if n == 1 && a.col == 1 && b.row == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { single_column((m, k), a, b.p, (c.p, c.row), epilogue) };
    }
    if m == 1 && a.col == 1 && b.row == 1 {
        // SAFETY: as above, for the transpose of a single column.
        return unsafe { single_column((n, k), b.transposed(), a.p, (c.p, c.col), epilogue.transposed()) };
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

/// Computes a result of one column, with `m` elements `step` apart.
unsafe fn single_column<T: Float>(
    size: (usize, usize),
    a: MatrixOperand<T>,
    b: *const T,
    (c, step): (*mut T, isize),
    epilogue: Epilogue<'_, T>,
) {
    let c = Shared::new(c);
    // SAFETY: the caller of `multiply` guarantees the matrices, and each result is written once.
    unsafe {
        vector::by_rows(size, a, b, |i, sum| {
            let c = c.get().offset(i as isize * step);
            *c = epilogue.of(sum, *c, i, 0);
        });
        epilogue.tail.finish(c.get(), step as usize, size.0, 1);
    }
}

#[cfg(test)]
mod tests;
