//! Allocations that fail on purpose, so that tests can see what is left when memory is short.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::account;

/// Allocations since tests said which are to fail.
static MADE: AtomicUsize = AtomicUsize::new(0);
/// The first to fail, and the first after it that does not.
static FIRST: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Has those allocations fail, of all that threads make from now on: the first one is number 0. None, for an empty range.
/// Returns how many there were since the last call. For tests: one at a time.
pub fn fail_allocations(these: Range<usize>) -> usize {
    account::look_for_shortage(false);
    let made = MADE.swap(0, SeqCst);
    FIRST.store(these.start, SeqCst);
    END.store(these.end, SeqCst);
    account::look_for_shortage(!these.is_empty());
    made
}

/// Counts an allocation; whether it is one of those.
#[cold]
pub(super) fn strikes() -> bool {
    let number = MADE.fetch_add(1, SeqCst);
    (FIRST.load(SeqCst)..END.load(SeqCst)).contains(&number)
}
