//! Stands in for tiles on processors without them. Nothing here is called, since no process may use tiles.

use super::{TileBlock, TileFactors, TileNumbers, TileSums};

/// False: the processor has no tiles.
pub(super) fn multiplies_tiles(_: TileNumbers) -> bool {
    false
}

/// The tiles of this thread in use.
pub(in crate::kernels) struct TilesInUse(());

impl TilesInUse {
    /// # Safety
    /// The process must be allowed to use tiles.
    pub(in crate::kernels) unsafe fn new() -> Self {
        unreachable!("no tiles")
    }
}

/// # Safety
/// As [`TilesInUse::new`].
pub(in crate::kernels) unsafe fn multiply_pairs(_: &TileFactors<'_>, _: usize, _: TileSums) {
    unreachable!("no tiles")
}

/// # Safety
/// As [`TilesInUse::new`].
pub(in crate::kernels) unsafe fn multiply_levels(_: &TileFactors<'_>, _: usize, _: TileSums) {
    unreachable!("no tiles")
}
