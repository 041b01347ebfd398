//! The microkernel with the instruction `tdpbf16ps`: 32 x 32 sums in four tiles, from two tiles of the left and two of
//! the right matrix.
//!
//! For each sum, an instruction adds up 16 products of the first and 16 of the second numbers of pairs, each in `f32`.
//! Then it adds both to the sum. Subnormal numbers count as zero.

use std::arch::asm;
use std::mem::MaybeUninit;

use crate::kernels::gemm::bfloat16::blocks::DEPTH;
use crate::kernels::gemm::bfloat16::pair_tile::{PairTile, TileEpilogue};
use crate::kernels::gemm::bfloat16::tile::{PANEL, WIDTH, store};
use crate::kernels::gemm::bfloat16::tiles::{TALLEST, TILE_PAIRS, TILE_ROWS, TileFactors, TileSums};

/// The argument of `ldtilecfg`.
#[repr(C, align(64))]
struct TileConfig([u8; 64]);

/// All eight tiles have 16 rows of 64 bytes.
static WHOLE_TILES: TileConfig = {
    let mut bytes = [0; 64];
    bytes[0] = 1; // the palette
    let mut tile = 0;
    while tile < 8 {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = TILE_ROWS as u8;
        tile += 1;
    }
    TileConfig(bytes)
};

/// The tiles of this thread in use. Dropping it releases them, so that the system has nothing to save when it changes
/// threads, and other libraries find no configuration of ours.
pub(in crate::kernels::gemm::bfloat16) struct TilesInUse(());

impl TilesInUse {
    /// # Safety
    /// The process must be allowed to use tiles.
    pub(in crate::kernels::gemm::bfloat16) unsafe fn new() -> Self {
        // SAFETY: guaranteed by the caller. Reads 64 bytes.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const WHOLE_TILES, options(nostack, preserves_flags, readonly));
        }
        Self(())
    }
}

impl Drop for TilesInUse {
    fn drop(&mut self) {
        // SAFETY: the tiles were configured, so the instruction exists.
        unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
    }
}

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
            let sums = TileSums { p: t.c.cast(), row: 4 * t.c_row as usize, accumulate };
            return multiply(&factors, rows, sums);
        }
        let mut buffer = UnstoredSums(MaybeUninit::uninit());
        let is_whole = t.part.is_first && t.part.is_last;
        let to = if is_whole { buffer.0.as_mut_ptr().cast::<f32>() } else { t.sums };
        multiply(&factors, rows, TileSums { p: to, row: 4 * PANEL, accumulate: !t.part.is_first });
        if t.part.is_last {
            store(t, to, rows, if t.n > WIDTH { 2 } else { 1 });
        }
    }
}

/// Computes 32 columns of sums, of 16 rows, or of 32 if `rows` is more.
///
/// # Safety
/// For each step the left rows must have 64 bytes, and the right matrix 16 rows of 128 bytes. The sums of all 16 or 32
/// rows must be valid, and the tiles of this thread in use.
#[inline(always)]
pub(in crate::kernels::gemm::bfloat16) unsafe fn multiply(
    factors: &TileFactors<'_>,
    rows: usize,
    sums: TileSums,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if rows > TILE_ROWS { two_rows_of_tiles(factors, sums) } else { one_row_of_tiles(factors, sums) }
    }
}

/// Multiplies pairs of left tiles, one above the other, by pairs of right tiles side by side. The compiler does not
/// know registers of tiles, so this is one block of instructions.
///
/// Left tiles are loaded with the hint that they are not soon read again: the right ones then stay in the L1 cache.
///
/// # Safety
/// As [`multiply`].
unsafe fn two_rows_of_tiles(f: &TileFactors<'_>, sums: TileSums) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "lea {low}, [{sums} + {below}]",
            "test {accumulate}, {accumulate}",
            "jz 2f",
            "tileloadd tmm0, [{sums} + {c_row}]",
            "tileloadd tmm1, [{sums} + {c_row} + 64]",
            "tileloadd tmm2, [{low} + {c_row}]",
            "tileloadd tmm3, [{low} + {c_row} + 64]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "mov {low}, {a_row}",
            "shl {low}, 4",
            "add {low}, {a}",
            "test {steps}, {steps}",
            "jz 5f",
            "4:",
            "mov {right}, [{places}]",
            "add {right}, {b}",
            "tileloaddt1 tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{right} + {b_row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right} + {b_row} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloaddt1 tmm5, [{low} + {a_row}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 64",
            "add {low}, 64",
            "add {places}, 8",
            "dec {steps}",
            "jnz 4b",
            "5:",
            "tilestored [{sums} + {c_row}], tmm0",
            "tilestored [{sums} + {c_row} + 64], tmm1",
            "add {sums}, {below}",
            "tilestored [{sums} + {c_row}], tmm2",
            "tilestored [{sums} + {c_row} + 64], tmm3",
            a = inout(reg) f.a => _,
            low = out(reg) _,
            a_row = in(reg) f.a_row,
            b = in(reg) f.b,
            b_row = in(reg) f.b_row,
            right = out(reg) _,
            places = inout(reg) f.steps.as_ptr() => _,
            steps = inout(reg) f.steps.len() => _,
            sums = inout(reg) sums.p => _,
            c_row = in(reg) sums.row,
            below = in(reg) TILE_ROWS * sums.row,
            accumulate = in(reg) usize::from(sums.accumulate),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// As [`two_rows_of_tiles`], with one left tile in each step.
///
/// # Safety
/// As [`multiply`].
unsafe fn one_row_of_tiles(f: &TileFactors<'_>, sums: TileSums) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "test {accumulate}, {accumulate}",
            "jz 2f",
            "tileloadd tmm0, [{sums} + {c_row}]",
            "tileloadd tmm1, [{sums} + {c_row} + 64]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "3:",
            "test {steps}, {steps}",
            "jz 5f",
            "4:",
            "mov {right}, [{places}]",
            "add {right}, {b}",
            "tileloaddt1 tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{right} + {b_row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right} + {b_row} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, 64",
            "add {places}, 8",
            "dec {steps}",
            "jnz 4b",
            "5:",
            "tilestored [{sums} + {c_row}], tmm0",
            "tilestored [{sums} + {c_row} + 64], tmm1",
            a = inout(reg) f.a => _,
            a_row = in(reg) f.a_row,
            b = in(reg) f.b,
            b_row = in(reg) f.b_row,
            right = out(reg) _,
            places = inout(reg) f.steps.as_ptr() => _,
            steps = inout(reg) f.steps.len() => _,
            sums = in(reg) sums.p,
            c_row = in(reg) sums.row,
            accumulate = in(reg) usize::from(sums.accumulate),
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
