//! Products for machines without instructions for bfloat16: operands are widened to `f32`, and results narrowed.

use half::bf16;

use super::{PairOperand, PairResult, without_rows};
use crate::array::{DType, Workspace};
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::operand::Strided;
use crate::kernels::gemm::product;
use crate::kernels::sixteen_bits::{narrow_here, widen_here};
use crate::kernels::stop;
use crate::kernels::threads::{Shared, ranges};

/// Elements that a thread converts at a time.
const GRAIN: usize = 1 << 14;

/// As [`super::multiply`].
///
/// # Safety
/// As [`super::multiply`].
pub(super) unsafe fn multiply(
    (m, n, k): (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) {
    // SAFETY: guaranteed by the caller, and the copies have the sizes of the matrices.
    unsafe {
        let (a, b) = (Widened::new(a, m, k), Widened::new(b, k, n));
        if !c.is_narrow {
            let c = Strided { p: c.p.cast(), row: c.row, col: c.col };
            return product::multiply((m, n, k), a.strided(), b.strided(), None, c, epilogue);
        }
        in_f32((m, n, k), c, epilogue.accumulate, |sums| {
            let c = Strided { p: sums, row: n as isize, col: 1 };
            product::multiply((m, n, k), a.strided(), b.strided(), None, c, without_rows(epilogue));
        });
    }
}

/// Computes a narrow result in `f32`: `compute` gets the previous result, if the product is added to it, and writes
/// `m` x `n` numbers.
///
/// # Safety
/// As [`super::multiply`].
pub(super) unsafe fn in_f32(
    (m, n, _): (usize, usize, usize),
    c: PairResult,
    accumulate: bool,
    compute: impl FnOnce(*mut f32),
) {
    let memory = memory(m * n);
    let sums = Shared::new(memory.ptr());
    let rows = |convert: &(dyn Fn(*mut bf16, *mut f32) + Sync)| {
        ranges(m, GRAIN / n.max(1) + 1, |rows| {
            let c = &c;
            rows.for_each(|i| {
                convert(
                    c.p.cast::<bf16>().wrapping_offset(i as isize * c.row),
                    sums.get().wrapping_add(i * n),
                );
            });
        });
    };
    if accumulate {
        // SAFETY: guaranteed by the caller, and the memory holds as many numbers. Also below.
        rows(&|c_row, sums| unsafe {
            match c.col {
                1 => widen_here(c_row.cast(), DType::BF16, sums, n),
                col => (0..n)
                    .for_each(|j| sums.add(j).write(c_row.wrapping_offset(j as isize * col).read().to_f32())),
            }
        });
    }
    compute(memory.ptr());
    // SAFETY: as above.
    rows(&|c_row, sums| unsafe {
        match c.col {
            1 => narrow_here(sums, c_row.cast(), DType::BF16, n),
            col => (0..n).for_each(|j| {
                c_row.wrapping_offset(j as isize * col).write(bf16::from_f32(sums.add(j).read()));
            }),
        }
    });
}

/// A copy of a matrix in `f32`, rounded to bfloat16.
struct Widened {
    /// The elements.
    memory: Workspace<f32>,
    /// The distance from a row to the next.
    row: isize,
    /// The distance from a column to the next.
    col: isize,
}

impl Widened {
    /// # Safety
    /// The matrix must be valid.
    unsafe fn new(of: PairOperand, rows: usize, cols: usize) -> Self {
        let memory = memory(rows * cols);
        let (is_transposed, to) = (of.col != 1 && of.row == 1, Shared::new(memory.ptr()));
        let (lines, of, n) = if is_transposed { (cols, of.transposed(), rows) } else { (rows, of, cols) };
        ranges(lines, GRAIN / n.max(1) + 1, |lines| {
            for i in lines {
                for j in 0..n {
                    // SAFETY: guaranteed by the caller.
                    unsafe { to.get().add(i * n + j).write(of.get(i, j).to_f32()) };
                }
            }
        });
        let n = n as isize;
        let (row, col) = if is_transposed { (1, n) } else { (n, 1) };
        Self { memory, row, col }
    }

    /// The matrix as an operand of a product in `f32`.
    fn strided(&self) -> Strided<f32> {
        Strided { p: self.memory.ptr(), row: self.row, col: self.col }
    }
}

/// Scratch memory for `n` numbers. Ends the kernel with an error if memory runs out.
fn memory(n: usize) -> Workspace<f32> {
    Workspace::new(n).unwrap_or_else(|error| stop::raise(error.into()))
}
