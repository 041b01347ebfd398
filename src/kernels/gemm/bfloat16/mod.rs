//! Products of matrices in bfloat16 with sums in `f32`. `f32` operands are rounded to bfloat16 while they are packed.
//!
//! On x86-64 the instruction `vdpbf16ps` adds two products to each sum of a register, and `tdpbf16ps` of AMX 32 to each
//! sum of a tile. On 64-bit ARM `bfmmla` adds four to each sum of a register. Machines without them widen the operands
//! and compute in `f32`.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "aarch64")]
mod arm;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod blocks;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod pair_tile;
mod source;
#[cfg(target_arch = "x86_64")]
mod tile;
pub(in crate::kernels) mod tiles;
mod widened;

#[cfg(target_arch = "aarch64")]
pub(super) use arm::has_pairs;
#[cfg(target_arch = "aarch64")]
use arm::{pack, tile};
pub(super) use source::{NumberPart, PairOperand};

use crate::kernels::epilogue::{Epilogue, Tail};

/// A result in memory, of `f32`, or of bfloat16 if `is_narrow`.
#[derive(Clone, Copy, Debug)]
pub(super) struct PairResult {
    /// The first element.
    pub(super) p: *mut u8,
    /// The distance from a row to the next, in elements.
    pub(super) row: isize,
    /// The distance from a column to the next, in elements.
    pub(super) col: isize,
    /// True if elements are in bfloat16.
    pub(super) is_narrow: bool,
}

// SAFETY: only an address. Users of the address ensure safe access.
unsafe impl Sync for PairResult {}

/// `c = epilogue(a b)`, where `c` is `m` x `n` and the sums have `k` terms.
///
/// # Safety
/// As [`super::multiply`]. Functions of written rows must be none if the result is narrow.
pub(super) unsafe fn multiply(
    (m, n, k): (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if n == 1 {
            // In `f32`, a column is summed in more parts than in pairs, so that partial sums overflow later.
            return widened::multiply((m, n, k), a, b, c, epilogue);
        }
        by_rows((m, n, k), a, b, c, epilogue, row_major);
    }
}

/// A product as [`multiply`]. It is fast if rows of the result are contiguous.
type RowMajor = unsafe fn((usize, usize, usize), PairOperand, PairOperand, PairResult, Epilogue<'_, f32>);

/// As [`multiply`]. A result with contiguous columns is computed as its transpose.
unsafe fn by_rows(
    (m, n, k): (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
    row_major: RowMajor,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(epilogue.row_bias.is_none_or(|bias| bias.len() >= m), "a bias of too few rows");
    assert!(epilogue.column_bias.is_none_or(|bias| bias.len() >= n), "a bias of too few columns");
    assert!(!c.is_narrow || epilogue.tail.rows.is_none(), "functions of rows of `f32`");
    let is_transposed = c.row == 1 && (c.col != 1 || n == 1);
    if is_transposed {
        let c = PairResult { row: c.col, col: c.row, ..c };
        // SAFETY: guaranteed by the caller.
        return unsafe { row_major((n, m, k), b.transposed(), a.transposed(), c, epilogue.transposed()) };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { row_major((m, n, k), a, b, c, epilogue) };
}

/// As [`multiply`]. Fast if rows of the result are contiguous.
unsafe fn row_major(
    size: (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if has_pairs() && c.col == 1 {
        // SAFETY: the machine has the instructions, and the caller guarantees the rest.
        return unsafe {
            #[cfg(target_arch = "x86_64")]
            if amx::pays(size) && amx::is_on() {
                return in_pairs::<amx::InTiles>(size, a, b, c, epilogue);
            }
            in_pairs::<blocks::InRegisters>(size, a, b, c, epilogue);
        };
    }
    // SAFETY: guaranteed by the caller.
    unsafe { widened::multiply(size, a, b, c, epilogue) };
}

/// As [`row_major`], for contiguous rows.
///
/// # Safety
/// As [`multiply`], and the machine must have the instructions of the kernels.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
unsafe fn in_pairs<K: blocks::PairKernels>(
    (m, n, k): (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) {
    let product =
        blocks::PairProduct { m, n, k, a, b, c: c.p, c_row: c.row, is_narrow: c.is_narrow, epilogue };
    if !c.is_narrow || k <= blocks::DEPTH {
        // SAFETY: guaranteed by the caller.
        return unsafe { product.run::<K>() };
    }
    // SAFETY: as above.
    unsafe {
        widened::in_f32((m, n, k), c, epilogue.accumulate, |sums| {
            let c_row = n as isize;
            blocks::PairProduct { c: sums.cast(), c_row, is_narrow: false, ..product }.run::<K>();
        });
    }
}

/// The instructions that multiply numbers in bfloat16 on this machine.
pub fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if has_pairs() {
        return amx::instructions(amx::state());
    }
    #[cfg(target_arch = "aarch64")]
    if has_pairs() {
        return "bfmmla";
    }
    "float32"
}

/// True if this machine multiplies pairs of bfloat16 numbers.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_pairs() -> bool {
    crate::kernels::simd::has_pairs()
}

/// False: kernels for pairs are for other processors.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn has_pairs() -> bool {
    false
}

/// The epilogue without functions of written rows.
fn without_rows(epilogue: Epilogue<'_, f32>) -> Epilogue<'_, f32> {
    Epilogue { tail: Tail { rows: None, ..epilogue.tail }, ..epilogue }
}

#[cfg(test)]
mod tests;
