//! Triangular matrices: LU and Cholesky decompositions, and linear systems. Knows slices, not shapes.
//!
//! All algorithms work on blocks of columns, so that most of the work is matrix products.

use super::Float;
use super::gemm::{Epilogue, Strided, multiply};
use super::scratch;
use super::simd::vectorised_for;

/// Columns of a block.
const BLOCK: usize = 32;

/// Subtracts a product of two parts of `a` (rows of `n`) from a third part. The factors are at `left` (`rows` x
/// `inner`, transposed if `left_transposed`) and at `right` (`inner` x `columns`). The target is at `from`.
fn subtract<T: Float>(
    a: &mut [T],
    n: usize,
    from: (usize, usize),
    (left, left_transposed): ((usize, usize), bool),
    (right, transposed): ((usize, usize), bool),
    (rows, columns, inner): (usize, usize, usize),
) {
    if rows == 0 || columns == 0 || inner == 0 {
        return;
    }
    scratch::with(rows * inner, |negated: &mut [T]| {
        let width = if left_transposed { rows } else { inner };
        for (r, row) in negated.chunks_exact_mut(width).enumerate() {
            let at = (left.0 + r) * n + left.1;
            row.iter_mut().zip(&a[at..at + width]).for_each(|(to, v)| *to = -*v);
        }
        let (row, col) = (n as isize, 1);
        let negated = Strided { p: negated.as_mut_ptr(), row: width as isize, col };
        let negated =
            if left_transposed { Strided { row: col, col: width as isize, ..negated } } else { negated };
        let last = |at: (usize, usize), rows: usize, columns: usize| (at.0 + rows - 1) * n + at.1 + columns;
        let (right_rows, right_columns) = if transposed { (columns, inner) } else { (inner, columns) };
        assert!(last(from, rows, columns) <= a.len() && last(right, right_rows, right_columns) <= a.len());
        let p = a.as_mut_ptr();
        // SAFETY: both parts are within `a`, and callers pass parts that do not overlap.
        unsafe {
            let to = Strided { p: p.add(from.0 * n + from.1), row, col };
            let right = p.add(right.0 * n + right.1);
            let right = if transposed {
                Strided { p: right, row: col, col: row }
            } else {
                Strided { p: right, row, col }
            };
            let add = Epilogue { accumulate: true, ..Epilogue::NONE };
            multiply((rows, columns, inner), negated, right, None, to, add);
        }
    });
}

/// `y -= factor * x`.
#[inline(always)]
fn take_off<T: Float>(y: &mut [T], x: &[T], factor: T) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = *y - *x * factor;
    }
}

/// Subtracts a multiple of row `from` of `a` from row `to`, both of `n` elements, in some columns.
#[inline(always)]
fn take_off_row<T: Float>(
    a: &mut [T],
    n: usize,
    to: usize,
    from: usize,
    columns: std::ops::Range<usize>,
    factor: T,
) {
    let (first, second) = a.split_at_mut(to.max(from) * n);
    let (low, high) = (&mut first[to.min(from) * n..][columns.clone()], &mut second[columns]);
    if to > from { take_off(high, low, factor) } else { take_off(low, high, factor) }
}

/// LU decomposition of an `n` x `n` matrix in place, with row pivoting. The strict lower triangle holds L (with a
/// unit diagonal), the rest U. `order` is permuted like the rows. Returns true if the number of row swaps is odd.
pub fn decompose<T: Float>(a: &mut [T], n: usize, order: &mut [usize]) -> bool {
    assert!(a.len() == n * n && order.len() == n);
    let mut odd = false;
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        for k in start..end {
            let size = |row: usize| a[row * n + k].abs();
            let pivot = (k + 1..n).fold(k, |best, row| if size(row) > size(best) { row } else { best });
            if pivot != k {
                let (first, second) = a.split_at_mut(pivot * n);
                first[k * n..(k + 1) * n].swap_with_slice(&mut second[..n]);
                order.swap(k, pivot);
                odd = !odd;
            }
            let diagonal = a[k * n + k];
            if diagonal == T::ZERO {
                continue; // the rest of the column is zero or NaN
            }
            vectorised_for::<T, _>(
                #[inline(always)]
                || {
                    for row in k + 1..n {
                        let factor = a[row * n + k] / diagonal;
                        a[row * n + k] = factor;
                        take_off_row(a, n, row, k, k + 1..end, factor);
                    }
                },
            );
        }
        // The rows of the block in the later columns, then all rows below.
        for k in start..end {
            for row in k + 1..end {
                let factor = a[row * n + k];
                take_off_row(a, n, row, k, end..n, factor);
            }
        }
        subtract(
            a,
            n,
            (end, end),
            ((end, start), false),
            ((start, end), false),
            (n - end, n - end, end - start),
        );
    }
    odd
}

/// Solves `a x = b` for `m` columns, in place of `b`. `a` comes from [`decompose`], and the rows of `b` are permuted
/// like its rows.
pub fn solve<T: Float>(a: &[T], n: usize, b: &mut [T], m: usize) {
    assert!(a.len() == n * n && b.len() == n * m);
    vectorised_for::<T, _>(
        #[inline(always)]
        || {
            for row in 0..n {
                for k in 0..row {
                    take_off_row(b, m, row, k, 0..m, a[row * n + k]);
                }
            }
            for row in (0..n).rev() {
                for k in row + 1..n {
                    take_off_row(b, m, row, k, 0..m, a[row * n + k]);
                }
                let diagonal = a[row * n + row];
                b[row * m..(row + 1) * m].iter_mut().for_each(|v| *v = *v / diagonal);
            }
        },
    );
}

/// Cholesky decomposition in place: the upper triangular factor of the symmetric matrix whose upper half is in `a`.
/// The strict lower triangle is overwritten.
pub fn root<T: Float>(a: &mut [T], n: usize) {
    assert!(a.len() == n * n);
    for start in (0..n).step_by(BLOCK) {
        let end = n.min(start + BLOCK);
        vectorised_for::<T, _>(
            #[inline(always)]
            || {
                for k in start..end {
                    let (above, below) = a.split_at_mut((k + 1) * n);
                    let own = &mut above[k * n + k..];
                    let diagonal = own[0].sqrt();
                    for v in own.iter_mut() {
                        *v = *v / diagonal;
                    }
                    for (i, row) in below[..(end - k - 1) * n].chunks_exact_mut(n).enumerate() {
                        take_off(&mut row[k + 1 + i..], &own[1 + i..], own[1 + i]);
                    }
                }
            },
        );
        let rest = n - end;
        subtract(a, n, (end, end), ((start, end), true), ((start, end), false), (rest, rest, end - start));
    }
}

#[cfg(test)]
mod tests {
    use super::{decompose, root, solve};

    /// A matrix by a fixed pattern.
    fn matrix(n: usize) -> Vec<f64> {
        (0..n * n).map(|i| ((i * i * i * 37 + i / n * 11) % 101) as f64 / 50.0 - 1.0).collect()
    }

    #[test]
    fn solutions_satisfy_their_systems() {
        for n in [0, 1, 2, 5, 31, 32, 33, 70] {
            let a = matrix(n);
            let (mut lu, mut order) = (a.clone(), (0..n).collect::<Vec<_>>());
            decompose(&mut lu, n, &mut order);
            let mut x: Vec<f64> = order.iter().map(|row| (*row as f64).sin()).collect();
            solve(&lu, n, &mut x, 1);
            for row in 0..n {
                let sum: f64 = (0..n).map(|k| a[row * n + k] * x[k]).sum();
                assert!((sum - (row as f64).sin()).abs() < 1e-8, "row {row} of {n}: {sum}");
            }
        }
    }

    #[test]
    fn a_cholesky_factor_times_its_transpose_is_the_matrix() {
        for n in [1, 2, 5, 32, 33, 70] {
            let b = matrix(n);
            let product =
                |l: &[f64], i: usize, j: usize| (0..n).map(|k| l[i * n + k] * l[j * n + k]).sum::<f64>();
            let mut a: Vec<f64> = (0..n * n).map(|i| product(&b, i / n, i % n)).collect();
            (0..n).for_each(|i| a[i * n + i] += n as f64);
            let mut u = a.clone();
            root(&mut u, n);
            let at = |i: usize| if i % n > i / n { 0.0 } else { u[i % n * n + i / n] };
            let l: Vec<f64> = (0..n * n).map(at).collect();
            for (i, j) in (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                assert!((product(&l, i, j) - a[i * n + j]).abs() < 1e-9, "({i}, {j}) of {n}");
            }
        }
    }
}
