//! What is done around a fork of the process. A child has one thread, the one that forked, and a copy of what the others
//! were in the middle of: locks have to be held meanwhile, and counts of what threads do put right.

/// Called before each fork from now on, after it in the parent, and after it in the child. Handlers that were set later are
/// called first before the fork, and last after it: those of a lock that is taken first are set last.
#[cfg(unix)]
pub(crate) fn around(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the handlers are functions that live as long as the process. (Without memory to note them forks go as before.)
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

#[cfg(not(unix))]
pub(crate) fn around(_before: extern "C" fn(), _parent: extern "C" fn(), _child: extern "C" fn()) {}
