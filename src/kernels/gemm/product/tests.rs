use super::{Strided, multiply};
use crate::kernels::Float;
use crate::kernels::epilogue::{Activation, Epilogue, RowFunctions, Tail, Twice};
use crate::kernels::threads::{num_threads, set_num_threads};

/// A matrix of small whole numbers, or of numbers between -1 and 1, stored in one of three layouts.
struct Matrix<T> {
    /// The elements and the gaps between them.
    data: Vec<T>,
    /// The distance of rows.
    row: usize,
    /// The distance of columns.
    col: usize,
}

impl<T: Float> Matrix<T> {
    /// A matrix of pseudorandom numbers. Layout 0 is by rows with a gap, 1 is by columns, 2 has a gap after each
    /// element. `whole` gives whole numbers from -4 to 4.
    fn new(m: usize, n: usize, layout: usize, seed: u64, whole: bool) -> Self {
        let (row, col) = match layout {
            0 => (n + 3, 1),
            1 => (1, m),
            _ => (2 * n + 1, 2),
        };
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let v = (state >> 40) as f64 / (1u64 << 24) as f64;
            T::all(if whole { (v * 9.0).floor() - 4.0 } else { v * 2.0 - 1.0 })
        };
        let len = m.max(1) * (2 * n + 4) + 2;
        Self { data: (0..len).map(|_| next()).collect(), row, col }
    }

    /// `n` elements from `at` on, `step` apart, in double precision.
    fn line(&self, at: usize, step: usize, n: usize) -> Vec<f64> {
        (0..n).map(|i| real(self.data[at + i * step])).collect()
    }

    /// The matrix as an operand of a product.
    fn strided(&self) -> Strided<T> {
        Strided { p: self.data.as_ptr().cast_mut(), row: self.row as isize, col: self.col as isize }
    }
}

/// The number in double precision.
fn real<T: Float>(v: T) -> f64 {
    v.real()
}

/// The inner product of two lines, and the sum of the magnitudes of its terms. A plain loop, since tests are not
/// optimized.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    let (mut sum, mut size, mut p) = (0.0, 0.0, 0);
    while p < a.len() {
        let term = a[p] * b[p];
        sum += term;
        size += if term < 0.0 { -term } else { term };
        p += 1;
    }
    (sum, size)
}

/// Asserts that a product with each epilogue matches sums in double precision. `slack` is in units of rounding of the
/// sum of magnitudes.
fn check<T: Float>((m, n, k): (usize, usize, usize), layouts: [usize; 3], epilogues: &[usize], slack: f64) {
    let whole = slack == 0.0;
    let a = Matrix::<T>::new(m, k, layouts[0], 1, whole);
    let b = Matrix::<T>::new(k, n, layouts[1], 2, whole);
    let columns: Vec<_> = (0..n).map(|j| b.line(j * b.col, b.row, k)).collect();
    let rows = (0..m).map(|i| a.line(i * a.row, a.col, k));
    let sums: Vec<Vec<_>> =
        rows.map(|row| columns.iter().map(|column| dot(&row, column)).collect()).collect();
    for &epilogue in epilogues {
        check_epilogue((m, n, k), [&a, &b], layouts, epilogue, slack, &sums);
    }
}

/// Asserts that a product with one epilogue matches `sums`, and that no other memory changes. Bits 0 to 4 of `epilogue`
/// mean accumulate, row bias, column bias, ReLU and a row function.
fn check_epilogue<T: Float>(
    (m, n, k): (usize, usize, usize),
    [a, b]: [&Matrix<T>; 2],
    layouts: [usize; 3],
    epilogue: usize,
    slack: f64,
    sums: &[Vec<(f64, f64)>],
) {
    let whole = slack == 0.0;
    let mut c = Matrix::<T>::new(m, n, layouts[2], 3, whole);
    let rows = Matrix::<T>::new(1, m, 0, 4, whole).data;
    let columns = Matrix::<T>::new(1, n, 0, 5, whole).data;
    let before = c.data.clone();
    let twice = Twice::<T>(std::marker::PhantomData);
    let what = Epilogue {
        accumulate: epilogue & 1 != 0,
        row_bias: (epilogue & 2 != 0).then_some(&rows[..m]),
        column_bias: (epilogue & 4 != 0).then_some(&columns[..n]),
        tail: Tail {
            activation: if epilogue & 8 != 0 { Activation::Relu } else { Activation::Identity },
            rows: (epilogue & 16 != 0).then_some(&twice as &dyn RowFunctions),
        },
    };
    let target = Strided { p: c.data.as_mut_ptr(), row: c.row as isize, col: c.col as isize };
    // SAFETY: three separate matrices with space for the shapes.
    unsafe { multiply((m, n, k), a.strided(), b.strided(), None, target, what) };
    let mut touched = vec![false; before.len()];
    for i in 0..m {
        for j in 0..n {
            let at = i * c.row + j * c.col;
            touched[at] = true;
            let more = [
                if what.accumulate { real(before[at]) } else { 0.0 },
                what.row_bias.map_or(0.0, |bias| real(bias[i])),
                what.column_bias.map_or(0.0, |bias| real(bias[j])),
            ];
            let (sum, size) = more.into_iter().fold(sums[i][j], |(s, z), t| (s + t, z + t.abs()));
            let expected = if epilogue & 8 != 0 { f64::max(sum, 0.0) } else { sum };
            let expected = if epilogue & 16 != 0 { 2.0 * expected } else { expected };
            let error = (real(c.data[at]) - expected).abs();
            assert!(
                error <= slack * real(T::EPSILON) * size,
                "({i}, {j}) of {m} x {n} x {k}, {layouts:?}, epilogue {epilogue}: {} for {expected}",
                real(c.data[at])
            );
        }
    }
    let kept = (0..before.len()).filter(|&i| !touched[i]).all(|i| c.data[i] == before[i]);
    assert!(kept, "{m} x {n} x {k}, {layouts:?}: wrote beside the result");
}

/// Rows, columns and terms of small products.
const SIZES: [usize; 9] = [0, 1, 2, 5, 8, 13, 17, 33, 50];

#[test]
fn small_products_are_exact_in_every_layout() {
    for m in SIZES {
        for n in SIZES {
            for (case, k) in [0, 1, 3, 16, 19].into_iter().enumerate() {
                for layout in 0..9 {
                    let layouts = [layout % 3, layout / 3, (m + n + case) % 2];
                    check::<f32>((m, n, k), layouts, &[(m + n + layout) % 32], 0.0);
                    check::<f64>((m, n, k), layouts, &[(m + n + layout) % 32], 0.0);
                }
            }
        }
    }
    for epilogue in 0..32 {
        check::<f32>((7, 35, 9), [0, 0, 2], &[epilogue], 0.0);
        check::<f64>((27, 19, 300), [0, 1, 1], &[epilogue], 0.0);
    }
}

#[test]
fn blocked_products_are_exact() {
    for (size, layouts) in [
        ((130, 150, 600), [0, 0, 0]),
        ((130, 150, 600), [0, 1, 0]),
        ((131, 97, 513), [1, 0, 0]),
        ((61, 230, 257), [1, 1, 0]),
        ((97, 131, 300), [2, 2, 1]),
        ((100, 90, 700), [0, 0, 1]),
        ((4200, 70, 20), [0, 0, 0]),
        ((50, 4230, 17), [0, 1, 0]),
        ((8, 300, 5000), [0, 0, 0]),
        ((70, 3, 5000), [1, 0, 0]),
        // Few columns or few rows.
        ((100, 6, 300), [0, 0, 0]),
        ((7, 61, 4500), [0, 1, 0]),
        ((7, 61, 130), [0, 1, 1]),
        ((67, 1, 17000), [0, 1, 0]),
        ((1, 67, 131), [0, 1, 2]),
        ((3, 600, 45), [0, 0, 0]),
        ((531, 4, 45), [1, 1, 1]),
        ((2, 70, 45), [1, 0, 2]),
    ] {
        check::<f32>(size, layouts, &[0, 1, 22, 31], 0.0);
        check::<f64>(size, layouts, &[0, 1, 22, 31], 0.0);
    }
}

#[test]
fn sums_of_reals_are_accurate() {
    for size in [(33, 40, 1000), (100, 120, 2000), (3, 5, 20_000), (1, 1, 50_000)] {
        check::<f32>(size, [0, 0, 0], &[1], 8.0);
        check::<f64>(size, [0, 0, 0], &[1], 8.0);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let threads = num_threads();
    for (m, n, k) in [
        (64, 64, 64),
        (200, 130, 300),
        (8, 1000, 500),
        (500, 10, 90),
        (1000, 70, 300),
        (3, 900, 200),
        (1, 900, 300),
    ] {
        for layout in 0..4 {
            let a = Matrix::<f32>::new(m, k, layout % 2, 1, false);
            let b = Matrix::<f32>::new(k, n, layout / 2, 2, false);
            let results = [1, 2, 5].map(|count| {
                set_num_threads(count);
                let mut c = vec![0.0_f32; m * n];
                let target = Strided { p: c.as_mut_ptr(), row: n as isize, col: 1 };
                // SAFETY: three separate matrices with space for the shapes.
                unsafe { multiply((m, n, k), a.strided(), b.strided(), None, target, Epilogue::NONE) };
                c.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(results[0] == results[1] && results[0] == results[2], "{m} x {n} x {k}");
        }
    }
    set_num_threads(threads);
}
