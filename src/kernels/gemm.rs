//! Matrix products behind one entry point. Knows rows, columns and strides, not arrays, graphs or Python.

mod bfloat16;
mod blocks;
mod chunk;
mod fallback;
mod few_columns;
mod inner_products;
mod operand;
mod pack;
mod packed_cache;
mod packed_panels;
mod packing;
mod panels;
mod precision;
mod product;
mod split;
mod tile;

pub(super) use operand::MatrixOperand;
pub use operand::Strided;
pub(super) use pack::ColumnsToPack;
pub(super) use panels::{ONCE, PanelProduct, Panels, Table};
pub use precision::{MatmulPrecision, matmul_precision, set_matmul_precision};
use product::ignores_packed;
pub use product::multiply;
pub(super) use split::EvenSplit;
pub(super) use tile::{Kernels, kernels, kernels_of_pairs};

pub use super::epilogue::Epilogue;
use super::simd::vectorised;
use super::sixteen_bits::{Values, ValuesMut};
use super::threads::{Shared, ranges};
use super::{Float, PerFloat};
use crate::array::{InputCache, Lent};
pub use bfloat16::instructions as bfloat16_instructions;
pub(super) use bfloat16::tiles;
use bfloat16::{NumberPart, PairOperand, PairResult};

/// A matrix in memory: element (r, c) is at offset `r * row_stride + c * col_stride`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a, T> {
    /// The elements.
    data: Values<'a, T>,
    /// Sizes and strides.
    layout: MatrixLayout,
    /// The cache of data derived from the array, such as its packed form, if there is one.
    input_cache: Option<InputCache<'a>>,
}

/// A mutable [`Matrix`].
#[derive(Debug)]
pub struct MatrixMut<'a, T> {
    /// The elements.
    data: ValuesMut<'a, T>,
    /// Sizes and strides.
    layout: MatrixLayout,
}

/// Sizes of a matrix, and the distances between rows and columns in memory.
#[derive(Clone, Copy, Debug)]
struct MatrixLayout {
    /// The number of rows.
    rows: usize,
    /// The number of columns.
    cols: usize,
    /// The distance of adjacent rows, in elements.
    row_stride: usize,
    /// The distance of adjacent columns, in elements.
    col_stride: usize,
}

impl MatrixLayout {
    /// Panics if the matrix exceeds memory of `len` elements. Every later access relies on this check.
    fn new(len: usize, rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> Self {
        let last = |n: usize, stride: usize| n.saturating_sub(1).saturating_mul(stride);
        let fits =
            rows == 0 || cols == 0 || last(rows, row_stride).saturating_add(last(cols, col_stride)) < len;
        assert!(
            fits,
            "a matrix of {rows} x {cols}, strides {row_stride} and {col_stride}, in {len} elements"
        );
        Self { rows, cols, row_stride, col_stride }
    }

    /// The addresses of the matrix whose first element is at `p`.
    fn strided<T>(&self, p: *mut T) -> Strided<T> {
        Strided { p, row: self.row_stride as isize, col: self.col_stride as isize }
    }
}

impl<'a, T: Float> Matrix<'a, T> {
    /// The matrix of `rows` x `cols` that starts at the first element of `data`.
    pub fn new(data: &'a [T], rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> Self {
        Self::strided_values(data.into(), rows, cols, row_stride, col_stride)
    }

    /// The row-major matrix.
    pub fn of_rows(data: &'a [T], rows: usize, cols: usize) -> Self {
        Self::new(data, rows, cols, cols, 1)
    }

    /// As [`Matrix::new`], for values of any type.
    pub fn strided_values(
        data: Values<'a, T>,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        let layout = MatrixLayout::new(data.len(), rows, cols, row_stride, col_stride);
        Self { data, layout, input_cache: None }
    }

    /// As [`Matrix::of_rows`], for values of any type.
    pub fn of_values(data: Values<'a, T>, rows: usize, cols: usize) -> Self {
        Self::strided_values(data, rows, cols, cols, 1)
    }

    /// The same matrix, which is a whole array. As the right matrix of a product with few rows, its packed form may
    /// be cached with the array.
    pub fn of(self, input_cache: Option<InputCache<'a>>) -> Self {
        Self { input_cache, ..self }
    }

    /// The transpose, without moving data.
    pub fn t(self) -> Self {
        let MatrixLayout { rows, cols, row_stride, col_stride } = self.layout;
        let layout = MatrixLayout { rows: cols, cols: rows, row_stride: col_stride, col_stride: row_stride };
        Self { layout, ..self }
    }
}

impl<'a, T: Float> Matrix<'a, T> {
    /// The matrix for a product in bfloat16.
    fn source(&self) -> PairOperand {
        let MatrixLayout { row_stride, col_stride, .. } = self.layout;
        let is_narrow = matches!(self.data, Values::BFloat16(_));
        PairOperand {
            p: self.data.ptr(),
            row: row_stride as isize,
            col: col_stride as isize,
            is_narrow,
            part: NumberPart::Rounded,
        }
    }

    /// The matrix as an operand of a product, if its numbers are given exactly.
    fn operand(&self) -> Option<MatrixOperand<T>> {
        let Values::Exact(data) = self.data else { return None };
        let MatrixLayout { row_stride, col_stride, .. } = self.layout;
        Some(MatrixOperand { p: data.as_ptr(), row: row_stride as isize, col: col_stride as isize })
    }

    /// The matrix packed as the right matrix of products with `a`, if the packed form is cached.
    fn packed(&self, a: &Self) -> Option<Lent<'a, T>> {
        let (input_cache, b) = (self.input_cache?, self.operand()?);
        let shape = (a.layout.rows, self.layout.cols, self.layout.rows);
        if a.operand().is_some_and(|a| ignores_packed(shape, a, b)) {
            return None;
        }
        // SAFETY: `MatrixLayout::new` checked that every element is within the slice.
        unsafe { packed_cache::packed(shape, b, input_cache) }
    }
}

impl<'a, T: Float> MatrixMut<'a, T> {
    /// As [`Matrix::new`], for writing. No two elements may have the same address.
    pub fn new(data: &'a mut [T], rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> Self {
        Self::strided_values(data.into(), rows, cols, row_stride, col_stride)
    }

    /// As [`Matrix::strided_values`], for writing.
    pub fn strided_values(
        data: ValuesMut<'a, T>,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        let layout = MatrixLayout::new(data.len(), rows, cols, row_stride, col_stride);
        Self { data, layout }
    }

    /// As [`Matrix::of_values`], for writing.
    pub fn of_values(data: ValuesMut<'a, T>, rows: usize, cols: usize) -> Self {
        Self::strided_values(data, rows, cols, cols, 1)
    }

    /// As [`Matrix::of_rows`], for writing.
    pub fn of_rows(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        Self::new(data, rows, cols, cols, 1)
    }
}

/// `c = a b`, or `c += a b` if `accumulate` is set. The summation order depends only on shapes and layouts, not on
/// the number of threads.
pub fn gemm<T: Float>(c: MatrixMut<'_, T>, accumulate: bool, a: Matrix<'_, T>, b: Matrix<'_, T>) {
    gemm_then(c, a, b, Epilogue { accumulate, ..Epilogue::NONE });
}

/// `c = epilogue(a b)`, as [`gemm`].
pub fn gemm_then<T: Float>(
    c: MatrixMut<'_, T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    epilogue: Epilogue<'_, T>,
) {
    let lent = if c.layout.col_stride == 1 { b.packed(&a) } else { None };
    product(c, a, b, lent.as_ref().map(place), epilogue);
}

/// The address of a cached packed matrix.
fn place<T>(packed: &Lent<'_, T>) -> Shared<T> {
    Shared::new(packed.ptr())
}

/// As [`gemm_then`], with an optional packed form of the right matrix.
fn product<T: Float>(
    c: MatrixMut<'_, T>,
    a: Matrix<'_, T>,
    b: Matrix<'_, T>,
    packed: Option<Shared<T>>,
    epilogue: Epilogue<'_, T>,
) {
    let MatrixMut { mut data, layout } = c;
    let (m, n, k) = (layout.rows, layout.cols, a.layout.cols);
    assert!(a.layout.rows == m && b.layout.cols == n && b.layout.rows == k, "matrices that do not fit");
    // SAFETY: `MatrixLayout::new` checked that every element of the three matrices is within its slice, and `c` is
    // borrowed exclusively.
    unsafe {
        if let (Values::Exact(of_a), Values::Exact(of_b), ValuesMut::Exact(c)) = (a.data, b.data, &mut data) {
            if matmul_precision() != MatmulPrecision::Highest {
                let (row, col) = (layout.row_stride as isize, layout.col_stride as isize);
                let c = PairResult { p: c.as_mut_ptr().cast(), row, col, is_narrow: false };
                if (T::choose::<ReducedProducts>())((m, n, k), a.source(), b.source(), c, epilogue) {
                    return;
                }
            }
            let c = layout.strided(c.as_mut_ptr());
            let packed = packed.map(|packed| packed.get().cast_const());
            let a = a.layout.strided(of_a.as_ptr().cast_mut());
            return multiply((m, n, k), a, b.layout.strided(of_b.as_ptr().cast_mut()), packed, c, epilogue);
        }
        let is_narrow = matches!(data, ValuesMut::BFloat16(_));
        let (row, col) = (layout.row_stride as isize, layout.col_stride as isize);
        let c = PairResult { p: data.ptr(), row, col, is_narrow };
        (T::choose::<ProductsInBFloat16>())((m, n, k), a.source(), b.source(), c, epilogue);
    }
}

/// `c = a b`, or `c += a b` if `accumulate` is set, element by element if all numbers are given exactly.
fn tiny_product<T: Float>(mut c: MatrixMut<'_, T>, a: Matrix<'_, T>, b: Matrix<'_, T>, accumulate: bool) {
    let (m, n, k) = (c.layout.rows, c.layout.cols, a.layout.cols);
    let (Values::Exact(of_a), Values::Exact(of_b), ValuesMut::Exact(of_c)) = (a.data, b.data, &mut c.data)
    else {
        return product(c, a, b, None, Epilogue::plain(accumulate));
    };
    assert!(a.layout.rows == m && b.layout.cols == n && b.layout.rows == k, "matrices that do not fit");
    let (a, b, to) = (a.layout, b.layout, c.layout);
    vectorised(
        #[inline(always)]
        || {
            for i in 0..m {
                for j in 0..n {
                    let mut sum = T::ZERO;
                    for p in 0..k {
                        let left = of_a[i * a.row_stride + p * a.col_stride];
                        sum = left.mul_add(of_b[p * b.row_stride + j * b.col_stride], sum);
                    }
                    let to = &mut of_c[i * to.row_stride + j * to.col_stride];
                    *to = if accumulate { *to + sum } else { sum };
                }
            }
        },
    );
}

/// A product of matrices that are given in bfloat16, or as numbers to be rounded to it.
type ProductInBFloat16<T> =
    unsafe fn((usize, usize, usize), PairOperand, PairOperand, PairResult, Epilogue<'_, T>);

/// The product for each type of number. Functions in double precision have no operands in bfloat16.
struct ProductsInBFloat16;

impl PerFloat for ProductsInBFloat16 {
    type Of<T: Float> = ProductInBFloat16<T>;

    fn f32() -> ProductInBFloat16<f32> {
        bfloat16::multiply
    }

    fn f64() -> ProductInBFloat16<f64> {
        |_, _, _, _, _| unreachable!("double precision reads no bfloat16")
    }
}

/// A product of the precision of the process, unless it returns false.
type ReducedProduct<T> =
    unsafe fn((usize, usize, usize), PairOperand, PairOperand, PairResult, Epilogue<'_, T>) -> bool;

/// The reduced product for each type of number. Double precision is never reduced.
struct ReducedProducts;

impl PerFloat for ReducedProducts {
    type Of<T: Float> = ReducedProduct<T>;

    fn f32() -> ReducedProduct<f32> {
        precision::multiply
    }

    fn f64() -> ReducedProduct<f64> {
        |_, _, _, _, _| false
    }
}

/// Batched products with no more multiplications than this, and no more terms than a fourth of it, are computed element
/// by element: a kernel would wait longer than it computes.
const TINY: usize = 64;

/// Batched products with fewer multiplications than this are distributed to threads as a whole, if there are several.
const WHOLE: usize = 1 << 22;

/// Computes `count` consecutive results of `rows` x `cols`, row-major, or column-major if `transposed`. Each is the
/// product of the matrices that `factors` returns for its number, or is added to.
pub fn gemm_each<'a, T: Float>(
    mut c: ValuesMut<'_, T>,
    count: usize,
    (rows, cols, transposed): (usize, usize, bool),
    accumulate: bool,
    factors: impl Fn(usize) -> (Matrix<'a, T>, Matrix<'a, T>) + Sync,
) {
    let size = rows * cols;
    assert!(c.len() == count * size, "results that do not fit");
    if count == 0 || size == 0 {
        return;
    }
    let (row_stride, col_stride) = if transposed { (1, rows) } else { (cols, 1) };
    let results = c.shared();
    // If the right matrix is a whole array, all products share it.
    let first = factors(0);
    let terms = first.0.layout.cols;
    let is_tiny = size * terms <= TINY && terms <= TINY / 4;
    let lent = if transposed || is_tiny { None } else { first.1.packed(&first.0) };
    let packed = lent.as_ref().map(place);
    let each = |i: usize| {
        // SAFETY: each product has its own part of the results.
        let c = unsafe { results.part(i * size, size) };
        let (a, b) = factors(i);
        let c = MatrixMut::strided_values(c, rows, cols, row_stride, col_stride);
        if is_tiny {
            tiny_product(c, a, b, accumulate);
        } else {
            product(c, a, b, packed, Epilogue::plain(accumulate));
        }
    };
    let work = size * terms;
    if work < WHOLE && count > 1 {
        ranges(count, (GRAIN / work.max(1)).max(1), |some| some.for_each(each));
    } else {
        (0..count).for_each(each);
    }
}

/// The number of multiplications from which parallel execution pays.
const GRAIN: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::{Float, Matrix, MatrixMut, gemm};

    /// `n` whole numbers from -6 to 6 that depend on the seed.
    fn values<T: Float>(n: usize, seed: usize) -> Vec<T> {
        (0..n).map(|i| T::of(((i * 7 + seed * 5) % 13) as f64 - 6.0)).collect()
    }

    /// Uses small whole numbers, so every sum is exact in any order.
    fn compare<T: Float>(m: usize, n: usize, k: usize, [at, bt, ct, accumulate]: [bool; 4]) {
        let (a, b) = (values::<T>(m * k, 1), values::<T>(k * n, 2));
        let mut c = values::<T>(m * n, 3);
        let before = c.clone();
        let am = if at { Matrix::of_rows(&a, k, m).t() } else { Matrix::of_rows(&a, m, k) };
        let bm = if bt { Matrix::of_rows(&b, n, k).t() } else { Matrix::of_rows(&b, k, n) };
        let (rs, cs) = if ct { (1, m) } else { (n, 1) };
        gemm(MatrixMut::new(&mut c, m, n, rs, cs), accumulate, am, bm);
        for i in 0..m {
            for j in 0..n {
                let product = |l: usize| {
                    let x = a[if at { l * m + i } else { i * k + l }].real();
                    x * b[if bt { j * k + l } else { l * n + j }].real()
                };
                let start = if accumulate { before[i * rs + j * cs].real() } else { 0.0 };
                let expected = start + (0..k).map(product).sum::<f64>();
                assert_eq!(c[i * rs + j * cs].real(), expected, "({i}, {j}) of {m} x {n} x {k}");
            }
        }
    }

    #[test]
    fn products_are_exact_for_whole_numbers_in_every_layout() {
        for (m, n, k) in
            [(1, 1, 1), (3, 5, 7), (1, 17, 33), (16, 1, 4), (33, 19, 65), (4, 4, 0), (0, 3, 2), (3, 0, 2)]
        {
            for flags in 0..16 {
                let flags = [1, 2, 4, 8].map(|bit| flags & bit != 0);
                compare::<f32>(m, n, k, flags);
                compare::<f64>(m, n, k, flags);
            }
        }
    }

    #[test]
    #[should_panic(expected = "a matrix of 2 x 3")]
    fn a_matrix_beyond_its_memory_is_refused() {
        let _ = Matrix::of_rows(&[0.0_f32; 5], 2, 3);
    }
}
