//! Handlers around a fork of the process. A child has one thread and copies of everything the other threads were
//! changing, so locks are held during the fork and per-thread counts are repaired.

/// Registers handlers: before each fork, after it in the parent, and after it in the child. Later registrations run
/// first before the fork and last after it, so handlers of the outermost lock are registered last.
#[cfg(unix)]
pub(crate) fn around(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the handlers are functions that live as long as the process. If registration fails, forks go unguarded.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

#[cfg(not(unix))]
pub(crate) fn around(_before: extern "C" fn(), _parent: extern "C" fn(), _child: extern "C" fn()) {}
