//! Random numbers by counting: the n-th number of a seed is a function of the two, so that any part of a sequence
//! can be drawn again, by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Offsets are handed out in multiples of this, so that kernels may draw in whole blocks.
pub const BLOCK: u64 = 64;

/// Where a sequence starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Which sequence.
    pub seed: u64,
    /// Number of values before the first.
    pub offset: u64,
}

static SEED: AtomicU64 = AtomicU64::new(0);
static OFFSET: AtomicU64 = AtomicU64::new(0);

/// Starts the library's sequence anew.
pub fn seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
    OFFSET.store(0, Ordering::Relaxed);
}

/// Takes the next `count` numbers of the library's sequence.
pub fn draw(count: u64) -> Key {
    let offset = OFFSET.fetch_add(count.div_ceil(BLOCK) * BLOCK, Ordering::Relaxed);
    Key { seed: SEED.load(Ordering::Relaxed), offset }
}
