//! AMX, the matrix instructions of Intel's servers: whether this process uses them, and products of tiles in memory.
//! Knows tiles, not matrices.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // other processors have no tiles

#[cfg(not(target_arch = "x86_64"))]
mod absent;
#[cfg(target_arch = "x86_64")]
mod machine;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod trapped;

#[cfg(not(target_arch = "x86_64"))]
use absent as machine;
#[cfg(not(target_arch = "x86_64"))]
use absent as tiles;
#[cfg(target_arch = "x86_64")]
pub(super) use tiles::multiply_block;
pub(super) use tiles::{multiply_levels, multiply_pairs};
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
pub(super) use trapped::trap;

use super::simd::{Isa, isa_of_environment};
use crate::environment::WrongSetting;

/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 16;
/// Bytes of a row of a tile.
pub(super) const TILE_BYTES: usize = 64;

/// The matrices that tiles multiply. Step `s` multiplies the words from byte `64 s` on of the left rows by the rows at
/// byte `steps[s]` of the right matrix.
pub(super) struct TileFactors<'a> {
    /// The first word of the left matrix.
    pub(super) a: *const u8,
    /// The distance from a row of the left matrix to the next, in bytes.
    pub(super) a_row: usize,
    /// The first word of the right matrix.
    pub(super) b: *const u8,
    /// The distance from a row of the right matrix to the next, in bytes.
    pub(super) b_row: usize,
    /// The place of the right rows of each step, in bytes.
    pub(super) steps: &'a [isize],
}

/// The tiles of this thread in use. Dropping it releases them, so that the system has nothing to save when it changes
/// threads, and other libraries find no configuration of ours.
pub(super) struct TilesInUse(());

impl TilesInUse {
    /// Uses tiles of 16 rows of 64 bytes.
    ///
    /// # Safety
    /// The process must be allowed to use tiles.
    pub(super) unsafe fn new() -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { tiles::configure_whole() };
        Self(())
    }

    /// Uses tiles for products of 32 bytes of a row.
    ///
    /// # Safety
    /// As [`TilesInUse::new`].
    #[cfg(target_arch = "x86_64")]
    pub(super) unsafe fn half() -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { tiles::configure_half() };
        Self(())
    }
}

impl Drop for TilesInUse {
    fn drop(&mut self) {
        // SAFETY: the tiles were configured.
        unsafe { tiles::release() };
    }
}

/// Signed left bytes and unsigned right bytes of a block of terms.
#[cfg(target_arch = "x86_64")]
pub(super) struct TileBlock {
    /// The first byte of the left rows.
    pub(super) a: *const u8,
    /// The distance from a row of the left matrix to the next, in bytes.
    pub(super) a_row: usize,
    /// The right rows of 64 bytes, one after the other.
    pub(super) b: *const u8,
    /// The number of products of tiles. At least 1.
    pub(super) steps: usize,
    /// Bytes of a left row in each of them: 64 for whole tiles, or 32.
    pub(super) depth: usize,
}

/// The sums of tiles in memory: `f32`, or `i32` for products of integers.
#[derive(Clone, Copy)]
pub(super) struct TileSums {
    /// The first sum.
    pub(super) p: *mut u8,
    /// The distance from a row to the next, in bytes.
    pub(super) row: usize,
    /// True if the products are added to what is there.
    pub(super) accumulate: bool,
}

/// The numbers that tiles multiply. A processor may multiply one kind only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileNumbers {
    Bfloat16,
    Integers,
}

/// Use of AMX in this process, for one kind of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AmxState {
    /// The machine or the system has none, or the environment forbids it.
    Off,
    /// The first product was wrong.
    Wrong,
    On,
}

impl AmxState {
    /// The use of AMX for these numbers. `is_right` computes a first product, after the system gave its permission.
    pub(super) fn of(numbers: TileNumbers, is_right: impl FnOnce() -> bool) -> Self {
        if !is_allowed(&isa_of_environment()) || !machine::multiplies_tiles(numbers) {
            return Self::Off;
        }
        if is_right() { Self::On } else { Self::Wrong }
    }
}

/// True if `KINNOR_ISA` does not end below AMX.
fn is_allowed(highest: &Result<Option<Isa>, WrongSetting>) -> bool {
    !matches!(highest, Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::is_allowed;
    use crate::environment::{self, WrongSetting};
    use crate::kernels::simd::Isa;

    #[test]
    fn a_lower_set_of_instructions_forbids_tiles() {
        let wrong: Result<Option<()>, WrongSetting> = environment::setting("PATH", "a test", |_| None);
        assert!(
            is_allowed(&Ok(None)) && is_allowed(&Err(wrong.expect_err("a setting that nothing matches")))
        );
        assert!(!is_allowed(&Ok(Some(Isa::Avx512))) && !is_allowed(&Ok(Some(Isa::Portable))));
    }
}
