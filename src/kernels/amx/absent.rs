//! Replaces the kernels in tiles on processors without tiles. Only the detection is called there.

use super::{TileFactors, TileNumbers, TileSums};

/// False: the processor has no tiles.
pub(super) fn multiplies_tiles(_: TileNumbers) -> bool {
    false
}

/// # Safety
/// The process must be allowed to use tiles.
pub(super) unsafe fn configure_whole() {
    unreachable!("no tiles")
}

/// # Safety
/// As [`configure_whole`].
pub(super) unsafe fn release() {
    unreachable!("no tiles")
}

/// # Safety
/// As [`configure_whole`].
pub(in crate::kernels) unsafe fn multiply_pairs(_: &TileFactors<'_>, _: usize, _: TileSums) {
    unreachable!("no tiles")
}

/// # Safety
/// As [`configure_whole`].
pub(in crate::kernels) unsafe fn multiply_levels(_: &TileFactors<'_>, _: usize, _: TileSums) {
    unreachable!("no tiles")
}
