//! The microkernel with the instruction `tdpbf16ps`: 32 x 32 sums in four tiles, from two tiles of the left and two of
//! the right matrix.
//!
//! For each sum, an instruction adds up 16 products of the first and 16 of the second numbers of pairs, each in `f32`.
//! Then it adds both to the sum. Subnormal numbers count as zero.

use std::arch::asm;
use std::mem::MaybeUninit;

use crate::kernels::gemm::bfloat16::pair_tile::PairTile;
use crate::kernels::gemm::bfloat16::tile::{PANEL, WIDTH, store};

/// Rows of a tile.
pub(in crate::kernels::gemm::bfloat16) const TILE_ROWS: usize = 16;
/// Pairs in a row of a left tile.
pub(in crate::kernels::gemm::bfloat16) const TILE_PAIRS: usize = 16;
/// Rows of sums that the microkernel computes.
pub(in crate::kernels::gemm::bfloat16) const TALLEST: usize = 2 * TILE_ROWS;

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
    pub(super) unsafe fn new() -> Self {
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
struct TileSums(MaybeUninit<[f32; PANEL * TALLEST]>);

/// Computes a tile of at most [`TALLEST`] rows.
///
/// The left matrix must be readable, and its rows must have numbers, up to a multiple of [`TILE_ROWS`] rows. The number
/// of pairs must be a multiple of [`TILE_PAIRS`], and `a_pair` must be 4.
///
/// # Safety
/// The memory of the tile must be valid, and the tiles of this thread in use.
pub(super) unsafe fn tile(t: &PairTile, rows: usize) {
    debug_assert!(t.a_pair == 4 && t.pairs.is_multiple_of(TILE_PAIRS) && rows <= TALLEST);
    let mut sums = TileSums(MaybeUninit::uninit());
    let to = sums.0.as_mut_ptr().cast::<f32>();
    // SAFETY: guaranteed by the caller.
    unsafe {
        let multiply = if rows > TILE_ROWS { two_rows_of_tiles } else { one_row_of_tiles };
        multiply(t.a, t.a_row, t.b, t.pairs / TILE_PAIRS, to);
        store(t, to, rows, if t.n > WIDTH { 2 } else { 1 });
    }
}

/// Multiplies `steps` pairs of left tiles, one above the other, by as many pairs of right tiles side by side. The
/// compiler does not know registers of tiles, so this is one block of instructions.
///
/// # Safety
/// The left matrix must have 32 rows of `steps` times 64 bytes, the right one `steps` times 2 KiB, and the sums 4 KiB.
/// The tiles of this thread must be in use.
unsafe fn two_rows_of_tiles(a: *const u8, a_row: usize, b: *const u32, steps: usize, sums: *mut f32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "test {steps}, {steps}",
            "jz 3f",
            "2:",
            "tileloadd tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{b} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b} + {row} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{low} + {a_row}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 64",
            "add {low}, 64",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            "3:",
            "tilestored [{sums} + {row}], tmm0",
            "tilestored [{sums} + {row} + 64], tmm1",
            "tilestored [{sums} + {row} + 2048], tmm2",
            "tilestored [{sums} + {row} + 2112], tmm3",
            a = inout(reg) a => _,
            low = inout(reg) a.wrapping_add(TILE_ROWS * a_row) => _,
            a_row = in(reg) a_row,
            b = inout(reg) b => _,
            row = in(reg) 4 * PANEL,
            steps = inout(reg) steps => _,
            sums = in(reg) sums,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// As [`two_rows_of_tiles`], with one left tile in each step.
///
/// # Safety
/// As there, with 16 rows and 2 KiB of sums.
unsafe fn one_row_of_tiles(a: *const u8, a_row: usize, b: *const u32, steps: usize, sums: *mut f32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "test {steps}, {steps}",
            "jz 3f",
            "2:",
            "tileloadd tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{b} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b} + {row} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, 64",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            "3:",
            "tilestored [{sums} + {row}], tmm0",
            "tilestored [{sums} + {row} + 64], tmm1",
            a = inout(reg) a => _,
            a_row = in(reg) a_row,
            b = inout(reg) b => _,
            row = in(reg) 4 * PANEL,
            steps = inout(reg) steps => _,
            sums = in(reg) sums,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}
