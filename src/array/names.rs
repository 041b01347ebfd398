//! Names of values, by which a reader knows that they are the same as before without looking at them.
//!
//! What is made of values (a copy in another type, a packed weight) is used as long as their name stays the same. Threads
//! may write them meanwhile, so that a name holds by this protocol: a write takes the name away before its first element
//! ([`Storage::touch`]) and again after its last ([`Storage::wrote`], or [`Storage::settle`] with a name of its own); a
//! reader takes the name before it looks where the values are, and reads them after that. A name that was given while a
//! write was under way is gone when that is over, and what was made of values half written is never found again. Memory
//! is replaced, and its place published, under the lock. A view in Python writes unseen: there is no name while one
//! lives, and each changes the name ([`Storage::lasting_name`]).

use std::sync::atomic::{AtomicU64, Ordering};

use super::Storage;
use super::gone::WATCHED;
use super::storage::WRITABLE;

/// The name of values that nobody asked for the name of since they were written.
pub(super) const UNNAMED: u64 = 0;

/// Low bits that are zero in a name, where [`Storage::saved`] puts those of the number of writes.
const COUNT: u64 = 0xFFFF;

/// The name alone in what [`Storage::saved`] returned.
#[inline(always)]
pub fn name_of(saved: u64) -> u64 {
    saved & !COUNT
}

/// Never what [`Storage::saved`] returns.
pub(super) const STALE: u64 = 0;

impl Storage {
    /// The number of writes; unequal versions mean that values may have changed. Those through a view are not seen.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Says that the elements are about to be written in place.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.version.store(self.version() + 1, Ordering::Relaxed);
        self.content.store(UNNAMED, Ordering::Relaxed);
        if self.watched.load(Ordering::Relaxed) & WATCHED != 0 {
            self.disturb();
        }
    }

    /// Says that what was to be written in place is there: whoever named the values meanwhile has read them half written.
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

    /// A name for the values: as long as it is the same, so are they. Writes through a view in Python are not seen.
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
        // Another thread may have named it meanwhile.
        match self.content.compare_exchange(UNNAMED, name, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => name,
            Err(named) => named,
        }
    }

    /// Names the values that were just written after what they were computed from: whoever computes them again from the
    /// same finds the same name.
    #[inline(always)]
    pub(crate) fn set_content(&self, content: u64) {
        self.computed.store(self.version() as u16, Ordering::Relaxed);
        self.content.store(content, Ordering::Release);
    }

    /// [`Storage::content`] and, in its low bits, how often the elements were written: for one that saves them.
    #[inline(always)]
    pub fn saved(&self) -> u64 {
        self.content() | self.version() & COUNT
    }

    /// What [`Storage::saved`] will be once the elements, which are being written, have their name.
    #[inline(always)]
    pub(crate) fn saved_as(&self, name: u64) -> u64 {
        name | self.version() & COUNT
    }

    /// The low bits of the version of what a function last computed here.
    pub(crate) fn computed_version(&self) -> u64 {
        u64::from(self.computed.load(Ordering::Relaxed))
    }

    /// The version whose low bits are those of `saved`, and the one of now; none where there was none, or it is the same:
    /// then other elements were saved.
    pub(crate) fn versions_since(&self, saved: u64) -> Option<(u64, u64)> {
        let now = self.version();
        let since = now.wrapping_sub(saved) & COUNT;
        (since > 0 && since <= now).then(|| (now - since, now))
    }
}
