//! Products of rows of numbers with weights of few bits, which have a scale and a zero point for each block of terms.

#[cfg(target_arch = "x86_64")]
mod tiles;

use std::ops::Range;

use crate::array::InputCache;
use crate::kernels::gemm::{Matrix, MatrixMut, gemm};
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::vectorised;
use crate::kernels::{Float, threads};

/// Numbers of a panel of weights in scratch memory.
const PANEL: usize = 1 << 20;
/// Rows with larger numbers are multiplied by the weights themselves, since sums of products with levels may overflow.
const LARGEST: f64 = 1e30;
/// The largest level of a quantized input.
const MOST: f64 = 127.0;

/// A matrix of levels in blocks of terms, each with a scale and a zero point.
#[derive(Clone, Copy)]
pub struct BlockWeights<'a, T> {
    /// The levels: for each column its blocks. Two levels of 4 bits share a byte, the first one in its low half.
    pub levels: &'a [u8],
    /// For each column the scales of its blocks.
    pub scales: &'a [T],
    /// For each column the zero points of its blocks; the middle of the levels if empty.
    pub zeros: &'a [T],
    /// Terms of a column. The levels after them, in the last block, have no effect.
    pub terms: usize,
    /// Columns of the matrix.
    pub columns: usize,
    /// Bits of a level: 4 or 8.
    pub bits: usize,
    /// Terms of a block.
    pub block: usize,
}

impl<T: Float> BlockWeights<'_, T> {
    /// Blocks of a column.
    fn blocks(&self) -> usize {
        self.terms.div_ceil(self.block)
    }

    /// Bytes of a block.
    fn block_bytes(&self) -> usize {
        self.block * self.bits / 8
    }

    /// The level that represents zero unless given.
    fn middle(&self) -> f64 {
        f64::from(1 << (self.bits - 1))
    }

    /// Panics unless the slices have the sizes. Every later access relies on this check.
    fn check(&self) {
        let all = self.columns * self.blocks();
        assert!(matches!(self.bits, 4 | 8) && self.block.is_multiple_of(16), "levels of an unknown layout");
        assert_eq!(self.levels.len(), all * self.block_bytes(), "levels of another size");
        assert_eq!(self.scales.len(), all, "scales of another size");
        assert!(self.zeros.is_empty() || self.zeros.len() == all, "zero points of another size");
    }

    /// The weights of a column as numbers.
    #[inline(always)]
    fn widen(&self, column: usize, to: &mut [T]) {
        let (blocks, bytes) = (self.blocks(), self.block_bytes());
        for (b, to) in to.chunks_mut(self.block).enumerate() {
            let at = column * blocks + b;
            let (levels, scale) = (&self.levels[at * bytes..][..bytes], self.scales[at]);
            let zero = if self.zeros.is_empty() { T::all(self.middle()) } else { self.zeros[at] };
            let number = |level: u8| (T::all(f64::from(level)) - zero) * scale;
            if self.bits == 8 {
                to.iter_mut().zip(levels).for_each(|(to, level)| *to = number(*level));
                continue;
            }
            let (pairs, last) = to.as_chunks_mut::<2>();
            pairs.iter_mut().zip(levels).for_each(|(to, two)| *to = [number(two & 15), number(two >> 4)]);
            if let [last] = last {
                *last = number(levels[pairs.len()] & 15);
            }
        }
    }

    /// The products of rows, by panels of the weights as numbers.
    fn multiply_widened(&self, x: &[T], y: &mut [T]) {
        let (terms, columns) = (self.terms, self.columns);
        let rows = y.len() / columns;
        let wide = (PANEL / terms.max(1)).clamp(16, 1024).min(columns);
        scratch::with(wide * terms, |panel: &mut [T]| {
            for first in (0..columns).step_by(wide) {
                let n = wide.min(columns - first);
                let panel = &mut panel[..n * terms];
                threads::rows_mut(panel, terms, (1 << 14) / terms.max(1), |i, to| {
                    vectorised(
                        #[inline(always)]
                        || self.widen(first + i, to),
                    );
                });
                let to = MatrixMut::new(&mut y[first..], rows, n, columns, 1);
                gemm(to, false, Matrix::of_rows(x, rows, terms), Matrix::of_rows(panel, n, terms).t());
            }
        });
    }
}

/// Quantizes a block of numbers to whole numbers from -127 to 127. Returns the number that one of them represents.
#[inline(always)]
fn quantize<T: Float>(x: &[T], to: &mut [T]) -> T {
    let largest = x.iter().fold(T::ZERO, |most, v| if v.abs() > most { v.abs() } else { most });
    let step = largest / T::all(MOST);
    if step.is_zero() {
        to.fill(T::ZERO);
        return T::ZERO;
    }
    for (to, v) in to.iter_mut().zip(x) {
        let level = (*v / step).round();
        // A step may be so small that it has few digits.
        let level = if level > T::all(MOST) { T::all(MOST) } else { level };
        *to = if level < T::all(-MOST) { T::all(-MOST) } else { level };
    }
    step
}

/// True if no number of a row is infinite, NaN or so large that sums of levels may overflow.
#[inline(always)]
fn is_plain<T: Float>(row: &[T]) -> bool {
    let largest = T::all(LARGEST);
    row.iter().fold(true, |all, v| all & (v.abs() <= largest))
}

/// Writes the products of rows of numbers with the weights. With `quantizes`, each block of a row is quantized to 8
/// bits first. Rows with numbers that are infinite, NaN or larger than `1e30` are not quantized.
pub fn multiply_blocks<T: Float>(
    x: &[T],
    weights: &BlockWeights<'_, T>,
    input_cache: Option<InputCache<'_>>,
    quantizes: bool,
    y: &mut [T],
) {
    weights.check();
    let (terms, columns) = (weights.terms, weights.columns);
    if columns == 0 || y.is_empty() {
        return;
    }
    if terms == 0 {
        return y.fill(T::ZERO);
    }
    let rows = y.len() / columns;
    assert!(x.len() == rows * terms && y.len() == rows * columns, "rows of another size");
    let plain: List<bool> = x
        .chunks_exact(terms)
        .map(|row| {
            vectorised(
                #[inline(always)]
                || is_plain(row),
            )
        })
        .collect();
    #[cfg(target_arch = "x86_64")]
    let packed = tiles::PackedBlocks::new(weights, input_cache);
    #[cfg(not(target_arch = "x86_64"))]
    let _ = input_cache;
    let mut start = 0;
    while start < rows {
        let end = start + plain[start..].iter().take_while(|is| **is == plain[start]).count();
        let (is_plain, some) = (plain[start], start..end);
        start = end;
        let (x, y) = (part(x, &some, terms), &mut y[some.start * columns..some.end * columns]);
        #[cfg(target_arch = "x86_64")]
        if is_plain && let Some(packed) = &packed {
            packed.multiply(weights, x, quantizes, y);
            continue;
        }
        if is_plain && quantizes {
            rounded(x, terms, weights.block, |x| weights.multiply_widened(x, y));
        } else {
            weights.multiply_widened(x, y);
        }
    }
}

/// These rows of a matrix.
fn part<'a, T>(x: &'a [T], rows: &Range<usize>, row: usize) -> &'a [T] {
    &x[rows.start * row..rows.end * row]
}

/// Calls `then` with rows whose blocks are rounded to 8 bits.
fn rounded<T: Float>(x: &[T], terms: usize, block: usize, then: impl FnOnce(&[T])) {
    scratch::with(x.len(), |to: &mut [T]| {
        threads::rows_mut(to, terms, (1 << 14) / terms, |i, to| {
            vectorised(
                #[inline(always)]
                || {
                    for (x, to) in x[i * terms..][..terms].chunks(block).zip(to.chunks_mut(block)) {
                        let step = quantize(x, to);
                        for to in to {
                            *to = *to * step;
                        }
                    }
                },
            );
        });
        then(to);
    });
}
