//! Rows times one column, all of whose elements lie one after the other: a product that the memory limits.

use super::blocks::MatrixOperand;
use crate::kernels::Float;
use crate::kernels::simd::vectorised;
use crate::kernels::threads::{Shared, ranges};

/// Terms that are summed up side by side: four registers of them, or one where there are few.
const LANES: usize = 64;
const LANES_OF_FEW: usize = 16;
/// Terms that are few: to add up the lanes would take longer than the sums.
const FEW: usize = 64;
/// Terms that one lane sums up before its sum joins the total.
const BLOCK: usize = 256;
/// Terms that are worth handing over to a thread.
const GRAIN: usize = 1 << 15;

/// Calls `put(i, sum)` with the product of row `i` of `a`, of `m` rows of `k` elements, and `b`.
///
/// # Safety
/// The elements are there, those of each row one after the other.
pub(super) unsafe fn by_rows<T: Float>(
    (m, k): (usize, usize),
    a: MatrixOperand<T>,
    b: *const T,
    put: impl Fn(usize, T) + Sync,
) {
    let first = Shared::read_only(a.p);
    // SAFETY: the caller's promise.
    let b = unsafe { std::slice::from_raw_parts(b, k) };
    ranges(m, GRAIN / k.max(1), |some| {
        for i in some {
            // SAFETY: as above.
            let row = unsafe { std::slice::from_raw_parts(first.get().offset(i as isize * a.row), k) };
            put(i, if k <= FEW { dot::<T, LANES_OF_FEW>(row, b) } else { dot::<T, LANES>(row, b) });
        }
    });
}

/// The sum of the products of elements, in an order that their number decides.
fn dot<T: Float, const LANES: usize>(a: &[T], b: &[T]) -> T {
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
