//! How a kernel ends before its time: for want of memory, or because the user wants to. Knows errors and time; knows nothing of
//! who asks, nor of what a kernel computes.
//!
//! A kernel that cannot go on unwinds, out of loops on several threads too, to whoever runs it: [`guarded`] makes an error of
//! that. So nothing of what comes after a loop runs on what the loop has left half done.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::RwLock;
use std::time::Duration;

use crate::array::amid_kernel;
use crate::{Error, Result};

/// Asks somebody whether to go on: an error ends the kernel.
pub type Check = fn() -> Result<()>;

/// How often somebody is asked.
pub(super) const EVERY: Duration = Duration::from_millis(40);

static CHECK: RwLock<Option<Check>> = RwLock::new(None);

/// What a thread does at a [`poll`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Nothing: it may hold locks.
    Works,
    /// It asks now and then.
    Asks,
    /// It looks whether the loop that it helps with was ended.
    Helps,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Works) };
    /// When this thread asks next, in milliseconds.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// What a kernel that ends unwinds with.
struct Stopped(Error);

/// What those unwind with who help with a loop that was ended.
struct Ended;

/// Sets who is asked.
pub fn set_check(check: Check) {
    *CHECK.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(check);
}

/// Asks whether to go on.
///
/// # Errors
/// The one to end with.
#[cold]
pub fn ask() -> Result<()> {
    let check = *CHECK.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let role = ROLE.replace(Role::Works); // whoever is asked may run kernels, and asks for itself
    let answer = check.map_or(Ok(()), |check| check());
    ROLE.set(role);
    answer
}

/// Ends the kernel.
#[cold]
pub(crate) fn raise(error: Error) -> ! {
    resume_unwind(Box::new(Stopped(error)))
}

/// Runs kernels that end when memory is short, or the user wants it: what they were to write must not be read then. The
/// caller holds no lock that Python might wait for.
///
/// # Errors
/// Those of `f`, and the one with which a kernel ended.
#[inline]
pub fn guarded<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    caught(Role::Asks, f)
}

/// As [`guarded`], for what the user waits for in any case.
///
/// # Errors
/// Those of `f`, and the one with which a kernel ended.
#[inline]
pub fn unasked<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    caught(Role::Works, f)
}

#[inline]
fn caught<R>(role: Role, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let before = ROLE.replace(role);
    let done = catch_unwind(AssertUnwindSafe(f));
    ROLE.set(before);
    done.unwrap_or_else(|panic| match panic.downcast::<Stopped>() {
        Ok(stopped) => Err(stopped.0),
        Err(panic) => resume_unwind(panic),
    })
}

/// A place at which a kernel may end: between chunks, and now and then within long ones.
#[inline]
pub fn poll() {
    let role = ROLE.get();
    if role != Role::Works {
        look(role);
    }
}

fn look(role: Role) {
    if role == Role::Helps {
        if super::threads::is_ended() {
            resume_unwind(Box::new(Ended));
        }
        return;
    }
    let now = milliseconds();
    if now >= NEXT.get() {
        NEXT.set(now + EVERY.as_millis() as u64);
        amid_kernel(ask).unwrap_or_else(|error| raise(error));
    }
}

/// Whether this thread asks at a [`poll`].
pub(super) fn asks() -> bool {
    ROLE.get() == Role::Asks
}

/// Makes this thread one that helps others.
pub(super) fn help() {
    ROLE.set(Role::Helps);
}

/// A clock that costs less than a chunk: it may be some milliseconds late.
#[cfg(target_os = "linux")]
fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: there is room for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(not(target_os = "linux"))]
fn milliseconds() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::{guarded, poll, raise};
    use crate::Error;
    use crate::kernels::threads::parallel;

    #[test]
    fn a_kernel_that_ends_in_a_loop_is_an_error_of_its_caller() {
        let error = guarded(|| {
            parallel(1000, |i| {
                poll();
                if i == 500 {
                    raise(Error::Memory { bytes: 7 });
                }
            });
            Err::<(), _>(Error::Graph("nothing runs after the loop".into()))
        });
        assert!(matches!(error, Err(Error::Memory { bytes: 7 })));
        parallel(100, |_| poll()); // the threads are there for the next one
    }
}
