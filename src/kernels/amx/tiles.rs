//! Microkernels in tiles: 32 x 32 sums in four tiles, from two tiles of the left and two of the right matrix. The
//! compiler does not know registers of tiles, so each kernel is one block of instructions.

use std::arch::asm;

use super::{TILE_BYTES, TILE_ROWS, TileBlock, TileFactors, TileSums};

/// The argument of `ldtilecfg`.
#[repr(C, align(64))]
struct TileConfig([u8; 64]);

impl TileConfig {
    /// Four tiles of sums, two of the left and two of the right matrix, whose products have `depth` bytes of a row.
    const fn new(depth: usize) -> Self {
        let mut bytes = [0; 64];
        bytes[0] = 1; // the palette
        let mut tile = 0;
        while tile < 8 {
            let (is_left, is_right) = (tile == 4 || tile == 5, tile >= 6);
            bytes[16 + 2 * tile] = if is_left { depth } else { TILE_BYTES } as u8;
            bytes[48 + tile] = if is_right { depth / 4 } else { TILE_ROWS } as u8;
            tile += 1;
        }
        Self(bytes)
    }
}

/// Tiles of 16 rows of 64 bytes.
static WHOLE_TILES: TileConfig = TileConfig::new(TILE_BYTES);
/// Left tiles have 32 bytes in a row, and right ones 8 rows.
static HALF_TILES: TileConfig = TileConfig::new(TILE_BYTES / 2);

/// Configures whole tiles.
///
/// # Safety
/// The process must be allowed to use tiles.
pub(super) unsafe fn configure_whole() {
    // SAFETY: guaranteed by the caller.
    unsafe { configure(&WHOLE_TILES) };
}

/// Configures tiles for products of 32 bytes of a row.
///
/// # Safety
/// As [`configure_whole`].
pub(super) unsafe fn configure_half() {
    // SAFETY: guaranteed by the caller.
    unsafe { configure(&HALF_TILES) };
}

/// Configures the tiles.
unsafe fn configure(config: &TileConfig) {
    // SAFETY: guaranteed by the caller. Reads 64 bytes.
    unsafe { asm!("ldtilecfg [{}]", in(reg) config, options(nostack, preserves_flags, readonly)) };
}

/// Releases the tiles.
///
/// # Safety
/// The tiles must have been configured.
pub(super) unsafe fn release() {
    // SAFETY: guaranteed by the caller, so the instruction exists.
    unsafe { asm!("tilerelease", options(nostack, preserves_flags, nomem)) };
}

/// Makes a function that multiplies with the instruction `$dot`, and one for two rows of tiles.
macro_rules! products {
    ($(#[$summary:meta])* $name:ident, $two_rows:ident, $dot:literal) => {
        $(#[$summary])*
        ///
        /// # Safety
        /// For each step the left rows must have 64 bytes, and the right matrix 16 rows of 128 bytes. The sums of all
        /// 16 or 32 rows must be valid. Whole tiles of this thread must be in use.
        pub(in crate::kernels) unsafe fn $name(f: &TileFactors<'_>, rows: usize, sums: TileSums) {
            if rows > TILE_ROWS {
                // SAFETY: guaranteed by the caller.
                return unsafe { $two_rows(f, sums) };
            }
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
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{right} + {b_row} + 64]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
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

        /// As the function above, for two left tiles, one above the other.
        ///
        /// Left tiles are loaded with the hint that they are not soon read again: the right ones then stay in the L1
        /// cache.
        ///
        /// # Safety
        /// As above.
        unsafe fn $two_rows(f: &TileFactors<'_>, sums: TileSums) {
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
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    "tileloadd tmm7, [{right} + {b_row} + 64]",
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    "tileloaddt1 tmm5, [{low} + {a_row}]",
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    concat!($dot, " tmm3, tmm5, tmm7"),
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
    };
}

products!(
    /// Computes 32 columns of sums of products of pairs of bfloat16 numbers, of 16 rows, or of 32 if `rows` is more.
    ///
    /// For each sum, an instruction adds up 16 products of the first and 16 of the second numbers of pairs, each in
    /// `f32`. Then it adds both to the sum. Subnormal numbers count as zero.
    multiply_pairs,
    multiply_pairs_of_two,
    "tdpbf16ps"
);
products!(
    /// Computes 32 columns of sums of products of unsigned left bytes and signed right bytes, modulo 2^32. There are 16
    /// rows, or 32 if `rows` is more than 16.
    multiply_levels,
    multiply_levels_of_two,
    "tdpbusd"
);

/// Computes 16 x 16 sums of products of a block, modulo 2^32.
///
/// # Safety
/// The 16 left rows must have `steps * depth` bytes, and the right matrix `steps * depth / 4` rows. There must be space
/// for the sums. Tiles of this depth must be in use by this thread.
#[inline(always)]
pub(in crate::kernels) unsafe fn multiply_block(block: &TileBlock, sums: *mut i32) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!(
            "tilezero tmm0",
            "4:",
            "tileloadd tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{b} + {b_row}]",
            "tdpbsud tmm0, tmm4, tmm6",
            "add {a}, {depth}",
            "add {b}, {b_step}",
            "dec {steps}",
            "jnz 4b",
            "tilestored [{sums} + {b_row}], tmm0",
            a = inout(reg) block.a => _,
            a_row = in(reg) block.a_row,
            b = inout(reg) block.b => _,
            b_row = in(reg) TILE_BYTES,
            depth = in(reg) block.depth,
            b_step = in(reg) block.depth / 4 * TILE_BYTES,
            steps = inout(reg) block.steps => _,
            sums = in(reg) sums,
            out("tmm0") _, out("tmm4") _, out("tmm6") _,
            options(nostack),
        );
    }
}
