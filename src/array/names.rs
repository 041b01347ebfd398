//! Fingerprints of values: equal fingerprints mean equal values, without comparing elements.
//!
//! Derived data (a cast, a packed weight) is valid as long as the fingerprint stays the same. Other threads may write
//! at any time, so fingerprints follow a protocol. A writer removes the fingerprint before its first element
//! ([`Storage::touch`]) and again after its last ([`Storage::wrote`], or [`Storage::settle`] with a new one). A
//! reader takes the fingerprint before it looks up the address, and reads afterwards. A fingerprint assigned during a
//! write is therefore gone when the write ends, and data derived from half-written values is never found again.
//! Memory is replaced, and its address published, under the lock. A Python view writes unobserved: no fingerprint
//! exists while a view lives, and each view changes it ([`Storage::lasting_name`]).

use std::sync::atomic::{AtomicU64, Ordering};

use super::Storage;
use super::gone::WATCHED;
use super::storage::{UNNAMED, WRITABLE};

/// Low bits that are zero in a fingerprint. [`Storage::saved`] puts the low bits of the version there.
const COUNT: u64 = 0xFFFF;

/// The fingerprint alone, from a result of [`Storage::saved`].
#[inline(always)]
pub fn name_of(saved: u64) -> u64 {
    saved & !COUNT
}

/// Never a result of [`Storage::saved`].
pub(super) const STALE: u64 = 0;

impl Storage {
    /// The number of writes. Different versions mean that values may have changed. Writes through a view are not
    /// counted.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Announces a write in place.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.version.store(self.version() + 1, Ordering::Relaxed);
        self.content.store(UNNAMED, Ordering::Relaxed);
        if self.watched.load(Ordering::Relaxed) & WATCHED != 0 {
            self.disturb();
        }
    }

    /// Ends a write in place. A fingerprint taken meanwhile belongs to half-written values and is dropped.
    #[inline(always)]
    #[doc(hidden)]
    pub fn wrote(&self) {
        self.unname();
        if self.place.load(Ordering::Relaxed) & WRITABLE == 0 {
            self.wrote_together();
        }
    }

    #[inline(always)]
    pub(super) fn unname(&self) {
        self.content.store(UNNAMED, Ordering::Release);
    }

    /// The fingerprint of the values. Writes through a Python view are not observed.
    #[inline(always)]
    pub fn content(&self) -> u64 {
        match self.content.load(Ordering::Acquire) {
            UNNAMED => self.name_content(),
            name => name,
        }
    }

    #[cold]
    fn name_content(&self) -> u64 {
        static NAMES: AtomicU64 = AtomicU64::new(COUNT + 1);
        let name = NAMES.fetch_add(COUNT + 1, Ordering::Relaxed);
        // Another thread may have assigned one meanwhile.
        match self.content.compare_exchange(UNNAMED, name, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => name,
            Err(named) => named,
        }
    }

    /// Sets the fingerprint of values just written to one derived from their inputs: recomputing them from the same
    /// inputs gives the same fingerprint.
    #[inline(always)]
    pub(crate) fn set_content(&self, content: u64) {
        self.computed.store(self.version() as u16, Ordering::Relaxed);
        self.content.store(content, Ordering::Release);
    }

    /// [`Storage::content`] with the low bits of the version in its low bits, for functions that save their inputs.
    #[inline(always)]
    pub fn saved(&self) -> u64 {
        self.content() | self.version() & COUNT
    }

    /// The result of [`Storage::saved`] once the elements being written have this fingerprint.
    #[inline(always)]
    pub(crate) fn saved_as(&self, name: u64) -> u64 {
        name | self.version() & COUNT
    }

    /// The low bits of the version that a function last computed here.
    pub(crate) fn computed_version(&self) -> u64 {
        u64::from(self.computed.load(Ordering::Relaxed))
    }

    /// The version encoded in `saved`, and the current one. None if there was no version or it is unchanged, so other
    /// elements were saved.
    pub(crate) fn versions_since(&self, saved: u64) -> Option<(u64, u64)> {
        let now = self.version();
        let since = now.wrapping_sub(saved) & COUNT;
        (since > 0 && since <= now).then(|| (now - since, now))
    }
}
