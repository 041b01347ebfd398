//! Products of tiles for kernels that pack their own operands. Only AMX has tiles.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_variables))]

#[cfg(target_arch = "x86_64")]
use super::amx;
pub(in crate::kernels) use crate::kernels::amx::{
    TILE_ROWS, TileFactors, TileSums, TilesInUse, multiply_pairs,
};

/// Pairs in a row of a left tile.
pub(in crate::kernels) const TILE_PAIRS: usize = 16;
/// Rows of sums that are computed together.
pub(in crate::kernels) const TALLEST: usize = 2 * TILE_ROWS;
/// Columns of sums that are computed together.
pub(in crate::kernels) const COLUMNS: usize = 32;

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
        crate::kernels::amx::trap();
        return true;
    }
    false
}
