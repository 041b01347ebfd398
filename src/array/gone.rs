//! Tracks a set of cleared storages: tells whether all are still cleared, without looking at each of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Storage;

/// Incremented when a watched storage is written.
static DISTURBED: AtomicU64 = AtomicU64::new(1);

/// A number that [`DISTURBED`] never has.
const NEVER: u64 = 0;

/// A moment since which no watched storage was written, if it still lasts.
#[derive(Clone, Copy)]
pub(crate) struct Calm(u64);

impl Calm {
    /// A [`Calm`] that has ended already.
    pub(crate) const NEVER: Self = Self(NEVER);

    /// The current moment.
    pub(crate) fn now() -> Self {
        Self(DISTURBED.load(Ordering::Acquire))
    }

    /// True if no storage that was watched then has been written since.
    #[inline(always)]
    pub(crate) fn lasts(self) -> bool {
        self.0 == DISTURBED.load(Ordering::Acquire)
    }
}

/// Low bit of [`Storage::watched`]: the storage is watched. The other bits count disturbances.
pub(super) const WATCHED: u8 = 1;
/// The amount that one write to a watched storage adds to [`Storage::watched`].
const DISTURBANCE: u8 = 2;
/// A storage with this many disturbances is written in every run and is not watched any more.
const RESTLESS: u8 = 4 * DISTURBANCE;

impl Storage {
    /// Watches the storage: the next write ends the [`Calm`]. Returns true if its memory is freed
    /// ([`Storage::is_given_back`]).
    pub(crate) fn watch(&self) -> bool {
        let before = self.watched.load(Ordering::Relaxed);
        if before >= RESTLESS || !self.is_given_back() {
            return false;
        }
        self.watched.store(before | WATCHED, Ordering::Relaxed);
        // Another thread may have written it meanwhile. Model: `a_write_to_watched_memory_is_noticed`.
        fence(Ordering::SeqCst);
        self.is_given_back()
    }

    /// Notes a write to a watched storage: ends its watch and moves the global count.
    #[cold]
    pub(super) fn disturb(&self) {
        self.watched
            .store((self.watched.load(Ordering::Relaxed) & !WATCHED) + DISTURBANCE, Ordering::Relaxed);
        DISTURBED.fetch_add(1, Ordering::AcqRel);
    }
}

/// Storages, and a record of whether all of them were cleared when they were checked last.
pub(crate) struct Gone {
    /// The storages to check.
    storages: Vec<Arc<Storage>>,
    /// The moment at which all were found cleared and watched, or [`Calm::NEVER`].
    since: Calm,
}

impl Gone {
    /// These storages, not checked yet.
    pub(crate) fn new(storages: Vec<Arc<Storage>>) -> Self {
        Self { storages, since: Calm::NEVER }
    }

    /// The number of storages.
    pub(crate) fn len(&self) -> usize {
        self.storages.len()
    }

    /// True if the memory of each is freed and nothing was written since.
    pub(crate) fn are_gone(&mut self) -> bool {
        if self.since.lasts() {
            return true;
        }
        self.since = Calm::now();
        for storage in &self.storages {
            if !storage.watch() {
                self.since = Calm::NEVER;
                if !storage.is_given_back() {
                    return false;
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Gone, Storage};
    use crate::array::{Access, DType};

    #[test]
    fn each_write_after_a_clear_is_noticed() {
        for len in [3, 5000] {
            let storages: Vec<_> = (0..3).map(|_| Storage::new(len)).collect();
            let mut gone = Gone::new(storages.clone());
            assert!(!gone.are_gone());
            for turn in 0..8 {
                for storage in &storages {
                    storage.access(DType::F32, Access::Write).expect("is there");
                    assert!(!gone.are_gone(), "turn {turn}");
                    storage.clear(true).expect("is whole");
                }
                assert!(gone.are_gone() && gone.are_gone(), "turn {turn}");
                storages[turn % 3].zero().expect("is whole");
                assert!(!gone.are_gone(), "turn {turn}");
                storages[turn % 3].clear(true).expect("is whole");
                assert!(gone.are_gone());
            }
        }
    }
}
