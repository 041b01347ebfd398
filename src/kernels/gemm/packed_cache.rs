//! Cache of packed right matrices, attached to arrays whose values persist.

use super::operand::MatrixOperand;
use super::pack::ColumnsToPack;
use super::packing::{COLUMNS, depth, packs_right, plain_depth};
use super::tile::kernels;
use crate::array::{InputCache, Lent};
use crate::kernels::Float;
use crate::kernels::threads::{Shared, parallel};

/// The number of adjacent columns of tiles that are packed together.
const TOGETHER: usize = 4;
/// The number of rows of the left matrix above which packing is a small part of the work.
const MANY: usize = 256;
/// The largest size, in bytes, of a matrix that is packed as a whole.
const LARGEST: usize = 16 << 20;
/// The number of elements from which few rows read a matrix faster in packed form than row-major. For a single row,
/// the distance between matrix rows must also be a multiple of [`MEETING`].
const SPARED: usize = 1 << 14;
/// Distance in bytes of rows that map to the same sets of the L1 cache. So do rows a multiple of it apart.
const MEETING: usize = 2048;

/// True if caching the packed right matrix of a product of `m` x `n` with sums of `k` terms pays. `is_packed` is true
/// if the product packs it in any case, `in_rows` if it is row-major.
fn pays<T: Float>((m, n, k): (usize, usize, usize), is_packed: bool, in_rows: bool) -> bool {
    if m > MANY || n > COLUMNS {
        return false;
    }
    if is_packed {
        return m > 1;
    }
    let is_large = in_rows && n > kernels::<T>().panel() && n * k >= SPARED;
    is_large && (m > 1 || (n * size_of::<T>()).is_multiple_of(MEETING))
}

/// The packed form of the right matrix `b`, which is a whole persistent array, block after block. Only if it [`pays`]
/// and the matrix was used before.
///
/// # Safety
/// The matrix must be valid.
pub(super) unsafe fn packed<T: Float>(
    (m, n, k): (usize, usize, usize),
    b: MatrixOperand<T>,
    input_cache: InputCache<'_>,
) -> Option<Lent<'_, T>> {
    let is_packed = packs_right(kernels::<T>(), (m, n, k), b.col);
    if !pays::<T>((m, n, k), is_packed, b.col == 1) {
        return None;
    }
    let depth = if is_packed { depth(k) } else { plain_depth(k) };
    let size = packed_size::<T>(n, k)?;
    // The output and the gradient of the input use the matrix in different orientations. Its number of rows follows
    // from the array.
    let mut lent = input_cache.lend::<T>(usize::from(b.col == 1), [size_of::<T>(), n, depth], size)?;
    if !lent.is_made() {
        // SAFETY: guaranteed by the caller, and the buffer holds all columns of all blocks.
        unsafe { pack((n, k), depth, b, lent.ptr()) };
        lent.made();
    }
    Some(lent)
}

/// The number of elements of a packed matrix of `k` rows, unless it is too large.
pub(super) fn packed_size<T: Float>(n: usize, k: usize) -> Option<usize> {
    Some(n.next_multiple_of(kernels::<T>().panel()) * k).filter(|size| size * size_of::<T>() <= LARGEST)
}

/// Packs a whole right matrix, in blocks of `depth` rows, one after the other.
///
/// # Safety
/// The matrix must be valid, and `to` must have space for [`packed_size`] elements.
pub(super) unsafe fn pack<T: Float>((n, k): (usize, usize), depth: usize, b: MatrixOperand<T>, to: *mut T) {
    let MatrixOperand { p, row, col } = b;
    let (kernels, wide) = (kernels::<T>(), kernels::<T>().panel());
    let (from, to) = (Shared::read_only(p), Shared::new(to));
    let together = wide * if col == 1 { TOGETHER } else { 1 };
    let (columns, pieces) = (n.next_multiple_of(wide), n.div_ceil(together));
    parallel(k.div_ceil(depth) * pieces, |i| {
        let (p, first) = (i / pieces * depth, i % pieces * together);
        let k = depth.min(k - p);
        // SAFETY: guaranteed by the caller, and each task writes its own part.
        unsafe {
            (kernels.pack_columns)(&ColumnsToPack {
                from: MatrixOperand { p: from.get().cast_const(), row, col }.at(p, first),
                row,
                col,
                k,
                n: together.min(n - first),
                to: to.get().add(p * columns + first * k),
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::array::{Access, DType, InputCache, Storage};
    use crate::kernels::Float;
    use crate::kernels::gemm::{Matrix, MatrixMut, gemm};

    /// `n` numbers from -0.5 to 0.5 that depend on the seed.
    fn values<T: Float>(n: usize, seed: usize) -> Vec<T> {
        (0..n).map(|i| T::of(((i * 7919 + seed * 31) % 1009) as f64 / 1009.0 - 0.5)).collect()
    }

    /// Asserts that products with a cached right matrix equal those without, also after the matrix changed. Returns
    /// true if the packed matrix of the last products is cached.
    fn check<T: Float>(dtype: DType, (m, n, k): (usize, usize, usize), transposed: bool) -> bool {
        let (storage, _) = Storage::to_write(n * k, dtype).expect("memory");
        let a = values::<T>(m * k, 1);
        let mut is_kept = false;
        for seed in 2..5 {
            let place = storage.access(dtype, Access::Write).expect("memory").cast::<T>();
            // SAFETY: the storage has this many elements of this type, and nothing else refers to it.
            let b = unsafe { std::slice::from_raw_parts_mut(place, n * k) };
            b.copy_from_slice(&values(n * k, seed));
            let b = if transposed { Matrix::of_rows(b, n, k).t() } else { Matrix::of_rows(b, k, n) };
            let product = |b| {
                let mut c = vec![T::ZERO; m * n];
                gemm(MatrixMut::of_rows(&mut c, m, n), false, Matrix::of_rows(&a, m, k), b);
                c.iter().map(|v| v.real()).collect::<Vec<_>>()
            };
            let expected = product(b);
            let input_cache = b.of(Some(InputCache::new(&storage, place.cast())));
            for _ in 0..3 {
                assert!(product(input_cache) == expected, "{m} x {n} x {k}, transposed: {transposed}");
            }
            is_kept = input_cache.packed(&Matrix::of_rows(&a, m, k)).is_some_and(|packed| packed.is_made());
        }
        is_kept
    }

    #[test]
    fn a_cached_packed_matrix_changes_no_bit_and_follows_writes() {
        let sizes = [
            ((32, 512, 192), [true; 2]),
            ((33, 130, 1000), [true; 2]),
            ((200, 70, 400), [true; 2]),
            ((5, 70, 400), [true, false]),
            ((3, 30, 100), [false; 2]),
            ((7, 40, 5000), [true, false]),
            ((1, 70, 400), [false; 2]),
            ((1, 512, 100), [true, false]),
            ((300, 70, 400), [false; 2]),
        ];
        for (size, kept) in sizes {
            for transposed in [false, true] {
                assert_eq!(
                    check::<f32>(DType::F32, size, transposed),
                    kept[usize::from(transposed)],
                    "{size:?}"
                );
                assert_eq!(
                    check::<f64>(DType::F64, size, transposed),
                    kept[usize::from(transposed)],
                    "{size:?}"
                );
            }
        }
    }
}
