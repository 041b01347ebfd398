//! Products of whole numbers with blocks of levels in tiles of AMX: 16 rows and 16 columns.
//!
//! The sums of a block are stored, scaled and added to the totals. That takes as long as half of the products of a
//! block of 32 terms by `vdpbusd`. A tile with unused rows would hardly be faster, so each tile has 16 rows. `vdpbusd`
//! multiplies the last rows.

#[allow(clippy::wildcard_imports)]
use std::arch::x86_64::*;

use super::{BlockTile, BlockWeights, PreparedRows, WIDE};
use crate::kernels::Float;
use crate::kernels::amx::{TILE_BYTES, TILE_ROWS, TileBlock, TilesInUse, multiply_block};
use crate::kernels::scratch::List;

/// The sums of a tile.
#[repr(align(64))]
struct SumsOfBlock([i32; TILE_ROWS * WIDE]);

/// Bytes of a left row in half a tile.
const HALF: usize = TILE_BYTES / 2;

/// The number of rows that tiles multiply, from the first on.
pub(super) fn rows_in_tiles(rows: usize, block: usize) -> usize {
    if block.is_multiple_of(HALF) { rows / TILE_ROWS * TILE_ROWS } else { 0 }
}

/// The tiles of a thread and the levels that they multiply.
pub(super) struct BlockTiles {
    /// Bytes of a left row in each product of tiles.
    depth: usize,
    /// Terms of a block.
    block: usize,
    /// Levels of 8 bits of a group of columns, if they are stored in 4 bits.
    bytes: List<u8>,
    /// The tiles of this thread.
    _tiles: TilesInUse,
}

impl BlockTiles {
    /// Configures the tiles of this thread for a matrix whose blocks fit tiles.
    ///
    /// # Safety
    /// The process must be allowed to use tiles.
    pub(super) unsafe fn new<T: Float>(weights: &BlockWeights<'_, T>) -> Self {
        let block = weights.block;
        let depth = if block.is_multiple_of(TILE_BYTES) { TILE_BYTES } else { HALF };
        let n = if weights.bits == 4 { weights.blocks() * block * WIDE } else { 0 };
        // SAFETY: guaranteed by the caller.
        let tiles = unsafe { if depth == TILE_BYTES { TilesInUse::new() } else { TilesInUse::half() } };
        Self { depth, block, bytes: List::repeat(0, n), _tiles: tiles }
    }

    /// The levels of a group of columns in 8 bits, in the order in which the rows have their terms.
    ///
    /// # Safety
    /// The machine must have AVX-512, and the levels must be readable.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub(super) unsafe fn levels(&mut self, packed: *const u8) -> *const u8 {
        if self.bytes.is_empty() {
            return packed;
        }
        let low = _mm512_set1_epi8(15);
        for (i, two) in self.bytes.as_chunks_mut::<{ 2 * TILE_BYTES }>().0.iter_mut().enumerate() {
            let to = two.as_mut_ptr();
            // SAFETY: guaranteed by the caller, and there is space for two registers.
            unsafe {
                let eight = _mm512_loadu_si512(packed.add(i * TILE_BYTES).cast());
                let odd = _mm512_srli_epi32::<4>(eight);
                _mm512_storeu_si512(to.cast(), _mm512_and_si512(eight, low));
                _mm512_storeu_si512(to.add(TILE_BYTES).cast(), _mm512_and_si512(odd, low));
            }
        }
        self.bytes.as_ptr()
    }

    /// Computes 16 rows of a tile, whose levels have 8 bits. `each` is the distance of rows of `x`. The results
    /// have the same bits as with `vdpbusd`.
    ///
    /// # Safety
    /// The machine must have AVX-512, the process must be allowed to use tiles, and the memory must be valid.
    pub(super) unsafe fn multiply(&self, t: &BlockTile, each: usize, has_zeros: bool) {
        // SAFETY: guaranteed by the caller.
        unsafe { if has_zeros { self.rows::<true>(t, each) } else { self.rows::<false>(t, each) } }
    }

    /// As [`BlockTiles::multiply`]. `ZEROS` is true if there are zero points.
    ///
    /// # Safety
    /// As [`BlockTiles::multiply`].
    #[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,fma")]
    #[allow(clippy::needless_range_loop)] // loops of constant length stay in registers
    unsafe fn rows<const ZEROS: bool>(&self, t: &BlockTile, each: usize) {
        let mut sums = SumsOfBlock([0; TILE_ROWS * WIDE]);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut totals = [_mm512_setzero_ps(); TILE_ROWS];
            for b in 0..t.blocks {
                let x = t.x.add(b * PreparedRows::words(self.block));
                let block = TileBlock {
                    a: x.add(1).cast(),
                    a_row: each * size_of::<f32>(),
                    b: t.levels.add(b * self.block * WIDE),
                    steps: self.block / self.depth,
                    depth: self.depth,
                };
                multiply_block(&block, sums.0.as_mut_ptr());
                let scales = _mm512_loadu_ps(t.scales.add(WIDE * b));
                for m in 0..TILE_ROWS {
                    let of_block = _mm512_loadu_si512(sums.0.as_ptr().add(m * WIDE).cast());
                    let less = _mm512_set1_epi32(*x.add(m * each).cast::<i32>());
                    let mut sum = _mm512_cvtepi32_ps(_mm512_add_epi32(of_block, less));
                    if ZEROS {
                        let of_row = _mm512_set1_ps(*t.sums.add(m * t.blocks + b));
                        sum = _mm512_fnmadd_ps(_mm512_loadu_ps(t.zeros.add(WIDE * b)), of_row, sum);
                    }
                    let step = _mm512_mul_ps(scales, _mm512_set1_ps(*t.steps.add(m * t.blocks + b)));
                    totals[m] = _mm512_fmadd_ps(sum, step, totals[m]);
                }
            }
            for m in 0..TILE_ROWS {
                _mm512_mask_storeu_ps(t.y.add(m * t.row), t.mask, totals[m]);
            }
        }
    }
}
