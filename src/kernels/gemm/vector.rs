//! Products of row-major rows with one contiguous column, which are limited by memory bandwidth.

use std::ops::Range;

use super::operand::MatrixOperand;
use crate::kernels::Float;
use crate::kernels::simd::{Vector, Work, vectorised};
use crate::kernels::threads::{Shared, ranges};

/// The number of parallel sums: four registers, or one if there are few terms.
const LANES: usize = 64;
/// The number of parallel sums if there are few terms.
const LANES_OF_FEW: usize = 16;
/// The number of terms up to which adding up the lanes would take longer than the sums.
const FEW: usize = 64;
/// Terms that one lane adds up before its sum is added to the total.
const BLOCK: usize = 256;
/// The number of terms from which parallel execution pays.
const GRAIN: usize = 1 << 15;

/// Calls `put(i, sum)` with the product of row `i` of `a`, which has `m` rows of `k` elements, and `b`.
///
/// # Safety
/// The elements must be readable, and each row contiguous.
pub(super) unsafe fn by_rows<T: Float>(
    (m, k): (usize, usize),
    a: MatrixOperand<T>,
    b: *const T,
    put: impl Fn(usize, T) + Sync,
) {
    let first = Shared::read_only(a.p);
    // SAFETY: guaranteed by the caller.
    let b = unsafe { std::slice::from_raw_parts(b, k) };
    ranges(m, GRAIN / k.max(1), |rows| {
        let a = MatrixOperand { p: first.get().cast_const(), ..a };
        if k <= FEW {
            return T::in_registers(ShortRows { a, rows, b, put: &put });
        }
        for i in rows {
            // SAFETY: as above.
            let row = unsafe { std::slice::from_raw_parts(a.at(i, 0), k) };
            put(i, dot(row, b));
        }
    });
}

/// Rows of at most [`FEW`] elements, processed in groups of as many rows as a register has lanes. `put` receives
/// their sums.
struct ShortRows<'a, T, F> {
    /// The matrix.
    a: MatrixOperand<T>,
    /// The rows to process.
    rows: Range<usize>,
    /// The vector.
    b: &'a [T],
    /// Receives the number of each row and its sum.
    put: &'a F,
}

impl<T: Float, F: Fn(usize, T)> Work<T> for ShortRows<'_, T, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = T>>(self) {
        let Self { a, rows, b, put } = self;
        for start in rows.clone().step_by(V::WIDTH) {
            let n = V::WIDTH.min(rows.end - start);
            // SAFETY: the caller guarantees the instruction set, the rows are valid, and the buffer holds a register.
            unsafe {
                let mut sums = [V::zero(); 16];
                for (i, sum) in sums.iter_mut().enumerate().take(n) {
                    *sum = lanes::<V>(a.at(start + i, 0), b);
                }
                V::transpose(&mut sums);
                let mut half = V::WIDTH / 2;
                while half > 0 {
                    (0..half).for_each(|l| sums[l] = sums[l].add(sums[l + half]));
                    half /= 2;
                }
                let mut found = [T::ZERO; 16];
                sums[0].store(found.as_mut_ptr());
                found.iter().enumerate().take(n).for_each(|(i, sum)| put(start + i, *sum));
            }
        }
    }
}

/// Sums of products of elements in [`LANES_OF_FEW`] lanes, reduced to one register.
///
/// # Safety
/// The instructions of `V` must be available, and `a` must have as many elements as `b`.
#[inline(always)]
unsafe fn lanes<V: Vector>(a: *const V::T, b: &[V::T]) -> V {
    let mut parts = LANES_OF_FEW / V::WIDTH;
    // SAFETY: guaranteed by the caller, and masks keep within the elements.
    unsafe {
        let mut sums = [V::zero(); LANES_OF_FEW / 2];
        for at in (0..b.len()).step_by(LANES_OF_FEW) {
            for (part, sum) in sums.iter_mut().enumerate().take(parts) {
                let at = b.len().min(at + part * V::WIDTH);
                let mask = V::first(b.len() - at);
                let (a, b) = (V::load_masked(a.add(at), mask), V::load_masked(b.as_ptr().add(at), mask));
                *sum = a.mul_add(b, *sum);
            }
        }
        while parts > 1 {
            parts /= 2;
            (0..parts).for_each(|part| sums[part] = sums[part].add(sums[part + parts]));
        }
        sums[0]
    }
}

/// The inner product of two slices, in an order that depends only on their length.
fn dot<T: Float>(a: &[T], b: &[T]) -> T {
    vectorised(
        #[inline(always)]
        || {
            let mut total = T::ZERO;
            for (a, b) in a.chunks(LANES * BLOCK).zip(b.chunks(LANES * BLOCK)) {
                let mut sums = [T::ZERO; LANES];
                let (mut a, mut b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
                for (a, b) in (&mut a).zip(&mut b) {
                    for l in 0..LANES {
                        sums[l] = a[l].mul_add(b[l], sums[l]);
                    }
                }
                for (sum, (a, b)) in sums.iter_mut().zip(a.remainder().iter().zip(b.remainder())) {
                    *sum = a.mul_add(*b, *sum);
                }
                let mut n = LANES / 2;
                while n > 0 {
                    for l in 0..n {
                        sums[l] = sums[l] + sums[l + n];
                    }
                    n /= 2;
                }
                total = total + sums[0];
            }
            total
        },
    )
}
