//! Addresses held back for small allocations, which cannot report an error: one that fails aborts the process.
//!
//! The global allocator of the extension releases a block of them when the system refuses it memory. From then on new
//! arrays, functions and runs are refused with [`OutOfMemory`], until all blocks are held again. The blocks are
//! addresses without memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use super::out_of_memory::OutOfMemory;
use super::system::Addresses;

/// Bytes of a block.
const BLOCK: usize = 8 << 20;
/// Number of blocks. `mimalloc` would turn 128 MiB into an arena, which it never returns.
const BLOCKS: usize = 8;
/// Size of the largest allocation for which blocks are released.
#[cfg(all(feature = "python", not(feature = "system-allocator")))]
pub(crate) const LARGEST: usize = BLOCK * BLOCKS / 2;

/// Addresses of the blocks. Zero for one that is not held. No lock, because waiting for one may allocate.
static HELD: [AtomicUsize; BLOCKS] = [const { AtomicUsize::new(0) }; BLOCKS];
/// True if a block may be missing.
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Holds all blocks from now on, as far as there are addresses. Called by the owner of the global allocator.
#[cfg(any(feature = "python", test))]
pub(crate) fn establish() {
    let _ = restore();
}

/// Releases one block. Returns false if none is held. Allocates nothing.
#[cfg(any(all(feature = "python", not(feature = "system-allocator")), test))]
pub(crate) fn release() -> bool {
    let Some(addresses) = HELD.iter().find_map(|place| exchange(place, None)) else { return false };
    IS_SHORT.store(true, SeqCst);
    drop(addresses);
    true
}

/// Puts a block into a place, and returns what was there.
fn exchange(place: &AtomicUsize, block: Option<Addresses>) -> Option<Addresses> {
    let old = place.swap(block.map_or(0, Addresses::into_start), SeqCst);
    // SAFETY: places hold blocks of this length, and the exchange gives each to one caller.
    unsafe { Addresses::from_start(old, BLOCK) }
}

/// Returns an error if blocks are missing and the system cannot replace them.
#[inline(always)]
pub(crate) fn check() -> Result<(), OutOfMemory> {
    if IS_SHORT.load(std::sync::atomic::Ordering::Relaxed) { restore() } else { Ok(()) }
}

/// Reserves the missing blocks of addresses. Fails if the system refuses.
#[cold]
fn restore() -> Result<(), OutOfMemory> {
    IS_SHORT.store(false, SeqCst); // first, so that a release meanwhile is seen
    for place in HELD.iter().filter(|place| place.load(SeqCst) == 0) {
        let Some(block) = Addresses::reserve(BLOCK) else {
            IS_SHORT.store(true, SeqCst);
            return Err(OutOfMemory { bytes: BLOCK });
        };
        drop(exchange(place, Some(block))); // another thread may have filled the place
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_replaces_released_blocks() {
        establish();
        assert!(release() && release());
        check().expect("addresses are plenty");
        // Other tests check meanwhile, but none releases.
        assert!(HELD.iter().all(|block| block.load(SeqCst) != 0));
    }
}
