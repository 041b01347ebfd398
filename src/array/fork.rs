//! Handlers around a fork of the process. A child has one thread, and copies of data that other threads were changing.
//! So locks are held during the fork, and per-thread counts are repaired after it.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::thread::LocalKey;

use parking_lot::lock_api::RawMutex as _;
use parking_lot::{MutexGuard, RawMutex};

/// The guard of a lock that a thread holds during a fork. A thread-local of this type has no destructor: registering
/// one could fail for lack of memory.
pub(crate) type HeldGuard<T> = Option<ManuallyDrop<T>>;

/// Holds a lock until [`release`].
pub(crate) fn hold<T: 'static>(held: &'static LocalKey<Cell<HeldGuard<T>>>, guard: T) {
    held.set(Some(ManuallyDrop::new(guard)));
}

/// Takes the guard that this thread holds.
pub(crate) fn release<T: 'static>(held: &'static LocalKey<Cell<HeldGuard<T>>>) -> Option<T> {
    held.take().map(ManuallyDrop::into_inner)
}

/// Unlocks a lock in a child process, which has one thread. The threads that waited for the lock are not there.
/// An ordinary unlock may hand the lock to one of them, and it would stay locked.
pub(crate) fn unlock_in_child<T>(guard: MutexGuard<'static, T>) {
    let mutex = MutexGuard::mutex(&guard);
    std::mem::forget(guard);
    // SAFETY: the only thread of the process has held the lock. Its state is atomic, so it may change behind a
    // reference.
    unsafe { std::ptr::from_ref(mutex.raw()).cast_mut().write(RawMutex::INIT) };
}

/// Registers handlers that run before each fork, after it in the parent, and after it in the child. Before a fork,
/// handlers run in reverse order of registration. So the lock that is taken first must be registered last.
#[cfg(unix)]
pub(crate) fn around(before: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the handlers are functions that live as long as the process. If registration fails, forks go unguarded.
    unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
}

/// Does nothing: only Unix forks processes.
#[cfg(not(unix))]
pub(crate) fn around(_before: extern "C" fn(), _parent: extern "C" fn(), _child: extern "C" fn()) {}
