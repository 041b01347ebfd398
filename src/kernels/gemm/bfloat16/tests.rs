use half::bf16;

use super::{NumberPart, PairOperand, PairResult, RowMajor, multiply, widened};
use crate::kernels::epilogue::{Activation, Epilogue, Tail};
use crate::kernels::threads::{num_threads, set_num_threads};

/// A matrix in both types, and the values of the narrow one, stored by rows or by columns.
struct Operand {
    /// The numbers in `f32`.
    wide: Vec<f32>,
    /// The same numbers rounded to bfloat16.
    narrow: Vec<bf16>,
    /// The values of the narrow numbers.
    values: Vec<f64>,
    /// The distance of rows.
    row: usize,
    /// The distance of columns.
    col: usize,
}

impl Operand {
    /// A matrix of `rows` x `cols` numbers. The number at position `i` of its memory is `value(i)`.
    fn new(rows: usize, cols: usize, by_columns: bool, value: impl Fn(usize) -> f32) -> Self {
        let wide: Vec<f32> = (0..rows * cols).map(value).collect();
        let narrow: Vec<bf16> = wide.iter().map(|v| bf16::from_f32(*v)).collect();
        let values = narrow.iter().map(|v| v.to_f64()).collect();
        let (row, col) = if by_columns { (1, rows) } else { (cols, 1) };
        Self { wide, narrow, values, row, col }
    }

    /// The matrix as an operand: the bfloat16 copy if `is_narrow`, else the `f32` one.
    fn source(&self, is_narrow: bool) -> PairOperand {
        let p = if is_narrow { self.narrow.as_ptr().cast() } else { self.wide.as_ptr().cast() };
        PairOperand {
            p,
            row: self.row as isize,
            col: self.col as isize,
            is_narrow,
            part: NumberPart::Rounded,
        }
    }

    /// Element (i, j), rounded to bfloat16.
    fn at(&self, i: usize, j: usize) -> f64 {
        self.values[i * self.row + j * self.col]
    }
}

/// A whole number from -4 to 4 that depends on `i`.
fn whole(i: usize) -> f32 {
    ((i * 7 + i / 13) % 9) as f32 - 4.0
}

/// A number from -0.5 to 0.5 that depends on `i`.
fn real(i: usize) -> f32 {
    ((i * 7919 + 31) % 1009) as f32 / 1009.0 - 0.5
}

const SIZES: [(usize, usize, usize); 16] = [
    (1, 1, 1),
    (1, 40, 33),
    (40, 1, 65),
    (3, 17, 65),
    (12, 32, 64),
    (13, 33, 17),
    (65, 3, 1),
    (25, 70, 2),
    (5, 31, 0),
    (64, 64, 64),
    (130, 65, 127),
    (17, 300, 5),
    (300, 17, 300),
    (9, 20, 2049),
    (33, 34, 4100),
    (257, 260, 150),
];

/// A product in tiles of AMX. Instructions that the machine lacks are trapped.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
unsafe fn in_tiles(
    size: (usize, usize, usize),
    a: PairOperand,
    b: PairOperand,
    c: PairResult,
    epilogue: Epilogue<'_, f32>,
) {
    crate::kernels::amx::trap();
    // SAFETY: guaranteed by the caller, and the instructions run. The layouts here have contiguous rows or columns.
    unsafe { super::by_rows(size, a, b, c, epilogue, super::in_pairs::<super::amx::InTiles>) };
}

/// The product for this machine, and the one in tiles where packing works.
fn ways() -> Vec<RowMajor> {
    let mut ways: Vec<RowMajor> = vec![multiply];
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if super::has_pairs() {
        ways.push(in_tiles);
    }
    ways
}

/// The result of a product with whole numbers or others, by bits.
fn result(
    (m, n, k): (usize, usize, usize),
    flags: usize,
    value: fn(usize) -> f32,
    multiply: RowMajor,
) -> (Vec<f64>, Vec<f64>) {
    let flag = |bit: usize| flags >> bit & 1 == 1;
    let a = Operand::new(m, k, flag(0), value);
    let b = Operand::new(k, n, flag(1), |i| value(i + 5));
    let mut c = Operand::new(m, n, flag(2), |i| value(i + 11));
    let (before, narrow) = (Operand::new(m, n, flag(2), |i| value(i + 11)), flag(5));
    let bias: Vec<f32> = (0..m.max(n)).map(|i| value(i + 3)).collect();
    let epilogue = Epilogue {
        accumulate: flag(6),
        row_bias: flag(7).then_some(&bias),
        column_bias: flag(7).then_some(&bias),
        tail: Tail { activation: if flag(7) { Activation::Relu } else { Activation::Identity }, rows: None },
    };
    let p = if narrow { c.narrow.as_mut_ptr().cast() } else { c.wide.as_mut_ptr().cast() };
    let target = PairResult { p, row: c.row as isize, col: c.col as isize, is_narrow: narrow };
    // SAFETY: the matrices have these sizes.
    unsafe { multiply((m, n, k), a.source(flag(3)), b.source(flag(4)), target, epilogue) };
    let mut found = Vec::new();
    let mut expected = Vec::new();
    for i in 0..m {
        for j in 0..n {
            let at = i * c.row + j * c.col;
            found.push(if narrow { c.narrow[at].to_f64() } else { c.wide[at].into() });
            let previous = if narrow { before.narrow[at].to_f64() } else { f64::from(before.wide[at]) };
            let mut sum: f64 = (0..k).map(|p| a.at(i, p) * b.at(p, j)).sum();
            sum += if flag(6) { previous } else { 0.0 };
            if flag(7) {
                sum = (sum + f64::from(bias[i]) + f64::from(bias[j])).max(0.0);
            }
            expected.push(sum);
        }
    }
    (found, expected)
}

#[test]
fn sums_of_whole_numbers_are_exact_in_each_layout_and_type() {
    for size in SIZES {
        for flags in 0..256 {
            // Debug builds are slow.
            let step = (size.0 * size.1 * size.2 / 500).clamp(1, 85);
            if flags % step != 0 {
                continue;
            }
            for multiply in [ways(), vec![widened::multiply]].concat() {
                let (found, expected) = result(size, flags, whole, multiply);
                let stored = |v: f64| if flags >> 5 & 1 == 1 { bf16::from_f64(v).to_f64() } else { v };
                let expected: Vec<f64> = expected.into_iter().map(stored).collect();
                assert!(found == expected, "{size:?} with flags {flags:#b}");
            }
        }
    }
}

#[test]
fn sums_of_rounded_numbers_have_the_errors_of_f32() {
    for size in SIZES {
        for flags in [0, 1, 2, 3, 12, 64] {
            for multiply in ways() {
                let (found, expected) = result(size, flags, real, multiply);
                let bound = (size.2 as f64 + 2.0) * f64::from(f32::EPSILON) * (0.25 * size.2 as f64 + 1.0);
                let is_close = |(found, expected): (&f64, &f64)| (found - expected).abs() <= bound;
                assert!(found.iter().zip(&expected).all(is_close), "{size:?} with flags {flags:#b}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let before = num_threads();
    // Products in tiles have several parts for threads from a larger size on, of columns or of rows.
    let (small, large) = ([0, 1, 2, 3, 4, 24, 31, 32], [0, 27]);
    for (size, all) in [
        ((130, 65, 67), &small[..]),
        ((24, 300, 130), &small[..]),
        ((70, 330, 300), &large[..]),
        ((330, 70, 300), &large[..]),
    ] {
        for &flags in all {
            for multiply in ways() {
                let of = |threads| {
                    set_num_threads(threads);
                    result(size, flags, real, multiply).0
                };
                assert!(of(1) == of(2), "{size:?} with flags {flags:#b}");
            }
        }
    }
    set_num_threads(before);
}

#[test]
fn nan_and_infinity_stay_in_their_rows_and_columns() {
    let value = |i: usize| if i == 4 { f32::NAN } else { 1.0 };
    let (m, n, k) = (3, 40, 5);
    let a = Operand::new(m, k, false, value);
    let b = Operand::new(k, n, false, |i| if i == 39 { f32::INFINITY } else { 1.0 });
    for multiply in ways() {
        let mut c = vec![0.0_f32; m * n];
        let target = PairResult { p: c.as_mut_ptr().cast(), row: n as isize, col: 1, is_narrow: false };
        // SAFETY: the matrices have these sizes.
        unsafe { multiply((m, n, k), a.source(true), b.source(true), target, Epilogue::NONE) };
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let v = c[i * n + j];
            match (i, j) {
                (0, _) => assert!(v.is_nan()),
                (_, 39) => assert_eq!(v, f32::INFINITY),
                _ => assert_eq!(v, 5.0),
            }
        }
    }
}

#[test]
fn padding_holds_no_numbers_of_an_earlier_product() {
    for multiply in ways() {
        for flags in [0, 3, 24, 27] {
            for size in [(37, 33, 33), (7, 5, 17), (64, 40, 30)] {
                result((64, 64, 96), flags, |_| f32::NAN, multiply);
                let (found, expected) = result(size, flags, whole, multiply);
                assert!(found == expected, "{size:?} with flags {flags:#b}");
            }
        }
    }
}
