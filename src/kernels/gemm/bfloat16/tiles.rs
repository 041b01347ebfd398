//! Products of tiles for kernels that pack their own operands. Only AMX has tiles.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_variables))]

#[cfg(target_arch = "x86_64")]
use super::amx;

/// Rows of a tile.
pub(in crate::kernels) const TILE_ROWS: usize = 16;
/// Pairs in a row of a left tile.
pub(in crate::kernels) const TILE_PAIRS: usize = 16;
/// Rows of sums that are computed together.
pub(in crate::kernels) const TALLEST: usize = 2 * TILE_ROWS;
/// Columns of sums that are computed together.
pub(in crate::kernels) const COLUMNS: usize = 32;

/// The matrices that tiles multiply. Step `s` multiplies the words from byte `64 s` on of the left rows by the rows at
/// byte `steps[s]` of the right matrix.
pub(in crate::kernels) struct TileFactors<'a> {
    /// The first word of the left matrix.
    pub(in crate::kernels) a: *const u8,
    /// The distance from a row of the left matrix to the next, in bytes.
    pub(in crate::kernels) a_row: usize,
    /// The first word of the right matrix.
    pub(in crate::kernels) b: *const u8,
    /// The distance from a row of the right matrix to the next, in bytes.
    pub(in crate::kernels) b_row: usize,
    /// The place of the right rows of each step, in bytes.
    pub(in crate::kernels) steps: &'a [isize],
}

/// The sums of tiles in memory.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct TileSums {
    /// The first sum.
    pub(in crate::kernels) p: *mut f32,
    /// The distance from a row to the next, in bytes.
    pub(in crate::kernels) row: usize,
    /// True if the products are added to what is there.
    pub(in crate::kernels) accumulate: bool,
}

/// True if products use tiles.
pub(in crate::kernels) fn are_used() -> bool {
    #[cfg(target_arch = "x86_64")]
    return super::has_pairs() && amx::is_on();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// True if tiles compute a product of `m` x `n` sums of `k` terms.
pub(in crate::kernels::gemm) fn multiply_matrices(size: (usize, usize, usize)) -> bool {
    #[cfg(target_arch = "x86_64")]
    return amx::pays(size) && are_used();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Lets tests compute in tiles on machines without them, unless they lack other instructions. Then it returns false.
#[cfg(test)]
pub(in crate::kernels) fn trap() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    if super::has_pairs() {
        amx::trapped::trap();
        return true;
    }
    false
}

/// The tiles of this thread in use, until it is dropped.
pub(in crate::kernels) struct HeldTiles {
    /// Their configuration.
    #[cfg(target_arch = "x86_64")]
    _configured: amx::tiles::TilesInUse,
}

impl HeldTiles {
    /// # Safety
    /// The process must be allowed to use tiles.
    pub(in crate::kernels) unsafe fn new() -> Self {
        Self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: guaranteed by the caller.
            _configured: unsafe { amx::tiles::TilesInUse::new() },
        }
    }
}

/// Computes [`COLUMNS`] columns of sums, of 16 rows, or of 32 if `rows` is more.
///
/// # Safety
/// For each step the left rows must have 64 bytes, and the right matrix 16 rows of 128 bytes. The sums of all 16 or 32
/// rows must be valid, and the tiles of this thread in use.
#[inline(always)]
pub(in crate::kernels) unsafe fn multiply(factors: &TileFactors<'_>, rows: usize, sums: TileSums) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        amx::tiles::multiply(factors, rows, sums);
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no tiles");
}
