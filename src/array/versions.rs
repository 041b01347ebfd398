//! Versions and fingerprints of storages, by which readers detect writes.
//!
//! Derived data (a cast, a packed weight) is valid as long as the fingerprint stays the same. Other threads may write
//! at any time, so fingerprints follow a protocol. A writer removes the fingerprint before its first element
//! ([`Storage::touch`]) and again after its last ([`Storage::wrote`], or [`Storage::set_fingerprint`] with a new one).
//! A reader takes the fingerprint before it looks up the address, and reads afterwards. A fingerprint assigned during a
//! write is therefore gone when the write ends, and data derived from half-written values is never found again.
//! Memory is replaced, and its address published, under the lock. A Python view writes unobserved: no fingerprint
//! exists while a view lives, and each view changes it ([`Storage::cacheable_fingerprint`]).

use std::sync::atomic::{AtomicU64, Ordering};

use super::fingerprint::{Fingerprint, VERSION, VersionedFingerprint};
use super::gone::WATCHED;
use super::storage::{Storage, WRITABLE};

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
        self.fingerprint.store(Fingerprint::NONE.number(), Ordering::Relaxed);
        if self.watched.load(Ordering::Relaxed) & WATCHED != 0 {
            self.disturb();
        }
    }

    /// Ends a write in place. A fingerprint taken meanwhile belongs to half-written values and is dropped.
    #[inline(always)]
    #[doc(hidden)]
    pub fn wrote(&self) {
        self.drop_fingerprint();
        if self.place.load(Ordering::Relaxed) & WRITABLE == 0 {
            self.wrote_together();
        }
    }

    /// Removes the fingerprint.
    #[inline(always)]
    pub(super) fn drop_fingerprint(&self) {
        self.fingerprint.store(Fingerprint::NONE.number(), Ordering::Release);
    }

    /// The fingerprint of the values. Writes through a Python view are not observed.
    #[inline(always)]
    pub fn fingerprint(&self) -> Fingerprint {
        let own = Fingerprint::from_number(self.fingerprint.load(Ordering::Acquire));
        if own.is_some() { own } else { self.new_fingerprint() }
    }

    /// Slow path of [`Storage::fingerprint`]: assigns a new one.
    #[cold]
    fn new_fingerprint(&self) -> Fingerprint {
        static NEXT: AtomicU64 = AtomicU64::new(VERSION + 1);
        let new = NEXT.fetch_add(VERSION + 1, Ordering::Relaxed);
        // Another thread may have assigned one meanwhile.
        let none = Fingerprint::NONE.number();
        match self.fingerprint.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Fingerprint::from_number(new),
            Err(other) => Fingerprint::from_number(other),
        }
    }

    /// Sets the fingerprint of values just written to one derived from their inputs: recomputing them from the same
    /// inputs gives the same fingerprint.
    #[inline(always)]
    pub(crate) fn set_fingerprint(&self, fingerprint: Fingerprint) {
        self.computed.store(self.version() as u16, Ordering::Relaxed);
        self.fingerprint.store(fingerprint.number(), Ordering::Release);
    }

    /// The fingerprint of the values, with the version.
    #[inline(always)]
    pub fn versioned_fingerprint(&self) -> VersionedFingerprint {
        self.with_version(self.fingerprint())
    }

    /// The result of [`Storage::versioned_fingerprint`] once the elements being written have this fingerprint.
    #[inline(always)]
    pub(crate) fn with_version(&self, fingerprint: Fingerprint) -> VersionedFingerprint {
        fingerprint.with_version(self.version())
    }

    /// True if a function computed the values, and nothing has written since.
    pub(super) fn is_computed(&self) -> bool {
        self.version() as u16 == self.computed.load(Ordering::Relaxed)
    }

    /// The version of a fingerprint that was saved from here, and the current one. None if the version is unchanged,
    /// so another storage was saved.
    pub(crate) fn versions_since(&self, saved: VersionedFingerprint) -> Option<(u64, u64)> {
        self.versions_since_low(saved.version())
    }

    /// As [`Storage::versions_since`], since a function last computed the values.
    pub(crate) fn versions_since_computed(&self) -> Option<(u64, u64)> {
        self.versions_since_low(self.computed.load(Ordering::Relaxed).into())
    }

    /// As [`Storage::versions_since`], from the low bits of a version.
    fn versions_since_low(&self, version: u64) -> Option<(u64, u64)> {
        let now = self.version();
        let since = now.wrapping_sub(version) & VERSION;
        (since > 0 && since <= now).then(|| (now - since, now))
    }
}
