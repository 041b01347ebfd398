//! The precision of products of `f32` matrices, a choice of the user.

use std::sync::atomic::{AtomicU8, Ordering};

use super::bfloat16::{self, NumberPart, PairOperand, PairResult};
use crate::kernels::epilogue::{Epilogue, Tail};

/// How products of `f32` matrices are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// In `f32`.
    Highest,
    /// As three products in bfloat16, if the machine multiplies in tiles of AMX.
    High,
    /// As a product in bfloat16, if the machine multiplies such numbers.
    Medium,
}

/// The [`MatmulPrecision`] of the process, as a number.
static PRECISION: AtomicU8 = AtomicU8::new(MatmulPrecision::Highest as u8);

/// Sets how products of `f32` matrices are computed, for all threads.
pub fn set_matmul_precision(precision: MatmulPrecision) {
    PRECISION.store(precision as u8, Ordering::Relaxed);
}

/// How products of `f32` matrices are computed.
pub fn matmul_precision() -> MatmulPrecision {
    match PRECISION.load(Ordering::Relaxed) {
        1 => MatmulPrecision::High,
        2 => MatmulPrecision::Medium,
        _ => MatmulPrecision::Highest,
    }
}

/// Computes a product of `f32` matrices in bfloat16, if that is the precision of the process and this machine has
/// instructions for this size. Otherwise does nothing and returns false.
///
/// # Safety
/// As [`bfloat16::multiply`]. No matrix may be in bfloat16.
pub(super) unsafe fn multiply(
    size: (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) -> bool {
    let precision = matmul_precision();
    let is_faster = match precision {
        MatmulPrecision::Highest => false,
        MatmulPrecision::High => bfloat16::tiles::multiply_matrices(size),
        MatmulPrecision::Medium => bfloat16::has_pairs() && size.0 > 1 && size.1 > 1,
    };
    if is_faster {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match precision {
                MatmulPrecision::High => in_three(size, a, b, c, epilogue),
                _ => bfloat16::multiply(size, a, b, c, epilogue),
            }
        }
    }
    is_faster
}

/// A product in which each number is the sum of two in bfloat16. The products of the two smaller parts are left out.
///
/// # Safety
/// As [`bfloat16::multiply`].
pub(super) unsafe fn in_three(
    size: (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) {
    let finite = |of: PairOperand| PairOperand { part: NumberPart::Finite, ..of };
    let rest = |of: PairOperand| PairOperand { part: NumberPart::Rest, ..of };
    let first = Epilogue { row_bias: None, column_bias: None, tail: Tail::NOTHING, ..epilogue };
    let then = Epilogue { accumulate: true, ..first };
    // The smaller products come first, so that they are not lost beside large sums. Only the last one has infinite
    // numbers: times a rest of zero they would be NaN.
    // SAFETY: guaranteed by the caller.
    unsafe {
        bfloat16::multiply(size, rest(a), finite(b), c, first);
        bfloat16::multiply(size, finite(a), rest(b), c, then);
        bfloat16::multiply(size, a, b, c, Epilogue { accumulate: true, ..epilogue });
    }
}

#[cfg(test)]
mod tests {
    use super::{NumberPart, PairOperand, PairResult, in_three, multiply};
    use crate::kernels::epilogue::{Activation, Epilogue, Tail};

    /// `n` numbers between -1 and 1.
    fn noise(n: usize, seed: usize) -> Vec<f32> {
        (0..n).map(|i| (((i * 7919 + seed * 104_729) % 65_537) as f32 / 32_768.5) - 1.0).collect()
    }

    /// A matrix of rows of `cols` numbers, or of columns of `rows` numbers.
    fn operand(v: &[f32], rows: usize, cols: usize, by_columns: bool) -> PairOperand {
        let (row, col) = if by_columns { (1, rows as isize) } else { (cols as isize, 1) };
        PairOperand { p: v.as_ptr().cast(), row, col, is_narrow: false, part: NumberPart::Rounded }
    }

    #[test]
    fn three_products_have_an_error_of_1e_5_of_each_term() {
        let (m, n, k) = (37, 45, 571);
        for flags in 0..8 {
            let [a_columns, b_columns, adds] = [1, 2, 4].map(|bit| flags & bit != 0);
            let (a, b, before) = (noise(m * k, 1), noise(k * n, 2), noise(m * n, 3));
            let bias = noise(n, 4);
            let tail = Tail { activation: Activation::Relu, rows: None };
            let epilogue = Epilogue { column_bias: Some(&bias), tail, ..Epilogue::plain(adds) };
            let mut c = before.clone();
            let to = PairResult { p: c.as_mut_ptr().cast(), row: n as isize, col: 1, is_narrow: false };
            let (of_a, of_b) = (operand(&a, m, k, a_columns), operand(&b, k, n, b_columns));
            // SAFETY: the matrices have these sizes.
            unsafe { in_three((m, n, k), of_a, of_b, to, epilogue) };
            for (at, got) in c.iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let term = |p: usize| {
                    let a = a[if a_columns { p * m + i } else { i * k + p }];
                    f64::from(a) * f64::from(b[if b_columns { j * k + p } else { p * n + j }])
                };
                let (sum, size) = (0..k).map(term).fold((0.0, 0.0), |(s, z), t| (s + t, z + t.abs()));
                let before = if adds { f64::from(before[at]) } else { 0.0 };
                let expected = (sum + before + f64::from(bias[j])).max(0.0);
                assert!(
                    (f64::from(*got) - expected).abs() <= 1e-5 * size,
                    "{got} for {expected}, {flags:#b}"
                );
            }
        }
    }

    #[test]
    fn three_products_keep_infinite_numbers_in_their_rows_and_columns() {
        let (m, n, k) = (20, 40, 64);
        let mut a = vec![1.0; m * k];
        (a[3 * k + 1], a[7 * k + 2], a[9 * k]) = (f32::INFINITY, f32::NAN, 1e-40);
        let b = vec![0.5; k * n];
        let mut c = vec![0.0_f32; m * n];
        let to = PairResult { p: c.as_mut_ptr().cast(), row: n as isize, col: 1, is_narrow: false };
        // SAFETY: the matrices have these sizes.
        unsafe {
            in_three((m, n, k), operand(&a, m, k, false), operand(&b, k, n, false), to, Epilogue::NONE);
        }
        for (i, row) in c.chunks_exact(n).enumerate() {
            let expected = [32.0, f32::INFINITY, f32::NAN, 31.5]
                [[3, 7, 9].iter().position(|r| *r == i).map_or(0, |p| p + 1)];
            assert!(
                row.iter().all(|v| *v == expected || v.is_nan() && expected.is_nan()),
                "row {i}: {row:?}"
            );
        }
    }

    #[test]
    fn products_are_not_reduced_by_default() {
        let v = noise(64, 1);
        let mut c = [0.0_f32; 16];
        let to = PairResult { p: c.as_mut_ptr().cast(), row: 4, col: 1, is_narrow: false };
        let (a, b) = (operand(&v, 4, 16, false), operand(&v, 16, 4, false));
        // SAFETY: the matrices have these sizes.
        assert!(!unsafe { multiply((4, 4, 16), a, b, to, Epilogue::NONE) });
    }
}
