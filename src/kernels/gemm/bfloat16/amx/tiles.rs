//! The microkernel with the instruction `tdpbf16ps`, and its epilogue.
//!
//! For each sum, an instruction adds up 16 products of the first and 16 of the second numbers of pairs, each in `f32`.
//! Then it adds both to the sum. Subnormal numbers count as zero.

use std::mem::MaybeUninit;

use crate::kernels::amx::{TILE_ROWS, TileFactors, TileSums, multiply_pairs};
use crate::kernels::gemm::bfloat16::blocks::DEPTH;
use crate::kernels::gemm::bfloat16::pair_tile::{PairTile, TileEpilogue};
use crate::kernels::gemm::bfloat16::tile::{PANEL, WIDTH, store};
use crate::kernels::gemm::bfloat16::tiles::{TALLEST, TILE_PAIRS};

/// The sums of a [`PairTile`], row by row.
#[repr(align(64))]
struct UnstoredSums(MaybeUninit<[f32; PANEL * TALLEST]>);

/// Steps of the longest sum for which [`STEPS`] has places.
const MOST_STEPS: usize = DEPTH / (2 * TILE_PAIRS) + 1;

/// The place of each step in a packed right matrix, in bytes.
static STEPS: [isize; MOST_STEPS] = {
    let mut places = [0; MOST_STEPS];
    let mut step = 0;
    while step < MOST_STEPS {
        places[step] = (step * TILE_PAIRS * PANEL * 4) as isize;
        step += 1;
    }
    places
};

/// Computes a tile of at most [`TALLEST`] rows.
///
/// The left matrix must be readable, and its rows must have numbers, up to a multiple of [`TILE_ROWS`] rows. The number
/// of pairs must be a multiple of [`TILE_PAIRS`], and `a_pair` must be 4.
///
/// # Safety
/// The memory of the tile must be valid, and the tiles of this thread in use.
pub(super) unsafe fn tile(t: &PairTile, rows: usize) {
    debug_assert!(t.a_pair == 4 && t.pairs.is_multiple_of(TILE_PAIRS) && rows <= TALLEST);
    let TileEpilogue { accumulate, row_bias, column_bias, relu } = t.epilogue;
    let has_no_epilogue = !t.is_narrow && !relu && row_bias.is_null() && column_bias.is_null();
    let is_direct = has_no_epilogue && t.part.is_first && t.part.is_last && t.n == PANEL;
    let factors = TileFactors {
        a: t.a,
        a_row: t.a_row,
        b: t.b.cast(),
        b_row: 4 * PANEL,
        steps: &STEPS[..t.pairs / TILE_PAIRS],
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        if is_direct && rows.is_multiple_of(TILE_ROWS) {
            let sums = TileSums { p: t.c, row: 4 * t.c_row as usize, accumulate };
            return multiply_pairs(&factors, rows, sums);
        }
        let mut buffer = UnstoredSums(MaybeUninit::uninit());
        let is_whole = t.part.is_first && t.part.is_last;
        let to = if is_whole { buffer.0.as_mut_ptr().cast::<f32>() } else { t.sums };
        multiply_pairs(
            &factors,
            rows,
            TileSums { p: to.cast(), row: 4 * PANEL, accumulate: !t.part.is_first },
        );
        if t.part.is_last {
            store(t, to, rows, if t.n > WIDTH { 2 } else { 1 });
        }
    }
}
