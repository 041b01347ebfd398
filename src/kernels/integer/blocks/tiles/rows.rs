//! Rows of a left matrix in the order in which the kernels read them.

use super::super::{BlockWeights, quantize};
use super::TALL;
use crate::kernels::Float;
use crate::kernels::scratch::{self, List};
use crate::kernels::simd::vectorised;

/// The numbers of prepared rows, and the kernel that multiplies them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowForm {
    Numbers,
    Whole,
    /// Whole numbers in contiguous rows, a multiple of [`TILE_ROWS`](crate::kernels::amx::TILE_ROWS), for tiles of AMX.
    InTiles,
}

impl RowForm {
    /// Rows of a tile, whose terms are interleaved.
    fn tall(self) -> usize {
        if self == Self::InTiles { 1 } else { TALL }
    }
}

/// Rows in the order in which the kernels read them.
pub(super) struct PreparedRows {
    /// The kind of numbers.
    pub(super) form: RowForm,
    /// Terms, see [`BlockTile`](super::kernels::BlockTile).
    pub(super) x: List<f32>,
    /// Elements of `x` for each row.
    pub(super) each: usize,
    /// Sums of the blocks.
    pub(super) sums: List<f32>,
    /// Steps of the blocks.
    pub(super) steps: List<f32>,
}

impl PreparedRows {
    /// The place of a row in a tile of up to `tall` rows. Returns the first row of the tile, the row within it, and its
    /// number of rows.
    fn place(i: usize, rows: usize, tall: usize) -> (usize, usize, usize) {
        let start = i / tall * tall;
        (start, i - start, tall.min(rows - start))
    }

    /// Elements of a block of whole numbers.
    pub(super) fn words(block: usize) -> usize {
        1 + block / 4
    }

    /// Numbers, with zeros after the last term.
    pub(super) fn of_numbers<T: Float>(weights: &BlockWeights<'_, T>, x: &[T]) -> Self {
        let (terms, blocks, block) = (weights.terms, weights.blocks(), weights.block);
        let (rows, each) = (x.len() / terms, blocks * block);
        let (mut to, mut sums) = (List::repeat(0.0, rows * each), List::repeat(0.0, rows * blocks));
        vectorised(
            #[inline(always)]
            || {
                for (i, x) in x.chunks_exact(terms).enumerate() {
                    let (start, m, count) = Self::place(i, rows, TALL);
                    let to = &mut to[start * each + m..];
                    to.iter_mut().step_by(count).zip(x).for_each(|(to, v)| *to = v.real() as f32);
                    let sums = sums[start * blocks + m..].iter_mut().step_by(count);
                    for (to, x) in sums.zip(x.chunks(block)) {
                        *to = x.iter().map(|v| v.real()).sum::<f64>() as f32;
                    }
                }
            },
        );
        Self { form: RowForm::Numbers, x: to, each, sums, steps: List::repeat(0.0, 0) }
    }

    /// Blocks quantized to whole numbers of 8 bits.
    pub(super) fn of_whole<T: Float>(weights: &BlockWeights<'_, T>, x: &[T], form: RowForm) -> Self {
        let (terms, blocks, block) = (weights.terms, weights.blocks(), weights.block);
        let (rows, per_block) = (x.len() / terms, Self::words(block));
        let each = blocks * per_block;
        let mut to = List::repeat(0.0, rows * each);
        let [mut sums, mut steps] = [(); 2].map(|()| List::repeat(0.0, rows * blocks));
        let (middle, is_paired) = (weights.middle() as i32, weights.bits == 4);
        let mut bytes = List::repeat(0, block);
        scratch::with(block, |levels: &mut [T]| {
            vectorised(
                #[inline(always)]
                || {
                    for (i, x) in x.chunks_exact(terms).enumerate() {
                        let (start, m, count) = Self::place(i, rows, form.tall());
                        for (b, x) in x.chunks(block).enumerate() {
                            levels.fill(T::ZERO);
                            let step = quantize(x, levels);
                            let mut sum = 0;
                            for (to, level) in bytes.iter_mut().zip(&*levels) {
                                let level = level.real() as i32;
                                sum += level;
                                *to = level as u8;
                            }
                            let at = (start * blocks) + b * count + m;
                            (sums[at], steps[at]) = (sum as f32, step.real() as f32);
                            let to = &mut to[start * each + b * per_block * count + m..];
                            let mut to = to.iter_mut().step_by(count);
                            let mut put = |bits: u32| {
                                if let Some(to) = to.next() {
                                    *to = f32::from_bits(bits);
                                }
                            };
                            put((-middle * sum).cast_unsigned());
                            for eight in bytes.as_chunks::<8>().0 {
                                let [a, b, c, d, e, f, g, h] = *eight;
                                let order = if is_paired { [a, c, e, g, b, d, f, h] } else { *eight };
                                order
                                    .as_chunks::<4>()
                                    .0
                                    .iter()
                                    .for_each(|four| put(u32::from_le_bytes(*four)));
                            }
                        }
                    }
                },
            );
        });
        Self { form, x: to, each, sums, steps }
    }
}
