//! Numbers of threads.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that identifies a thread. If there are more threads than numbers, two share one. Only the cleanup in a
/// forked child depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(NonZeroU32);

impl Thread {
    /// The number of this thread.
    pub(crate) fn current() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        thread_local! {
            static OWN: Cell<Option<NonZeroU32>> = const { Cell::new(None) };
        }
        Self(OWN.get().unwrap_or_else(|| {
            let new = NonZeroU32::MIN.saturating_add(LAST.fetch_add(1, Ordering::Relaxed));
            OWN.set(Some(new));
            crate::ops::begin_thread();
            new
        }))
    }
}
