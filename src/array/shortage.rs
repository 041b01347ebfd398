//! Fault injection for tests: makes chosen allocations fail.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::account;

/// Allocations since the last call of [`fail_allocations`].
static MADE: AtomicUsize = AtomicUsize::new(0);
/// Number of the first allocation to fail.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// Number of the first later allocation that succeeds.
static END: AtomicUsize = AtomicUsize::new(0);

/// Makes the allocations with these numbers fail, counted from now over all threads, starting at 0. An empty range
/// disables it. Returns the number of allocations since the last call. One test at a time.
pub fn fail_allocations(these: Range<usize>) -> usize {
    account::look_for_shortage(false);
    let made = MADE.swap(0, SeqCst);
    FIRST.store(these.start, SeqCst);
    END.store(these.end, SeqCst);
    account::look_for_shortage(!these.is_empty());
    made
}

/// Counts an allocation. Returns true if it must fail.
#[cold]
pub(super) fn strikes() -> bool {
    let number = MADE.fetch_add(1, SeqCst);
    (FIRST.load(SeqCst)..END.load(SeqCst)).contains(&number)
}
