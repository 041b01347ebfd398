//! Early termination of kernels: out of memory, or interrupted by the user. Knows time, not who interrupts or what a
//! kernel computes.
//!
//! A kernel that cannot continue unwinds, also out of loops on several threads, to its caller. [`guarded`] turns the
//! unwinding into an error, so no code after a loop runs on half-done work.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::RwLock;
use std::time::Duration;

use crate::array::{OutOfMemory, amid_kernel};

/// The error of an interruption check.
pub type Interrupt = Box<dyn std::error::Error + Send + Sync>;

/// Checks whether to continue. An error ends the kernel.
pub type Check = fn() -> Result<(), Interrupt>;

/// The reason for early termination, carried by the unwinding.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// Scratch memory could not be allocated.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// The interruption check returned an error.
    #[error("{0}")]
    Interrupted(Interrupt),
}

/// Interval between interruption checks.
pub(super) const EVERY: Duration = Duration::from_millis(40);

static CHECK: RwLock<Option<Check>> = RwLock::new(None);

/// The role of a thread at a [`poll`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Does nothing: it may hold locks.
    Works,
    /// Runs the interruption check now and then.
    Asks,
    /// Stops if the loop that it helps with was ended.
    Helps,
}

thread_local! {
    static ROLE: Cell<Role> = const { Cell::new(Role::Works) };
    /// Time of the next check of this thread, in milliseconds.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Payload of the unwinding of helpers, if their loop was ended.
struct Ended;

/// Sets the interruption check.
pub fn set_check(check: Check) {
    *CHECK.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(check);
}

/// Runs the interruption check.
///
/// # Errors
/// The error of the check.
#[cold]
pub fn ask() -> Result<(), Interrupt> {
    let check = *CHECK.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let role = ROLE.replace(Role::Works); // the check may run kernels, which must not check again
    let answer = check.map_or(Ok(()), |check| check());
    ROLE.set(role);
    answer
}

/// Ends the kernel.
#[cold]
pub(crate) fn raise(why: Stopped) -> ! {
    resume_unwind(Box::new(why))
}

/// Runs kernels that may end early. Their output must not be read then. The caller must not hold a lock that Python
/// may wait for.
///
/// # Errors
/// Errors of `f`, and the reason for early termination.
#[inline]
pub fn guarded<R, E: From<Stopped>>(f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    caught(Role::Asks, f)
}

/// As [`guarded`], but without interruption checks.
///
/// # Errors
/// Errors of `f`, and the reason for early termination.
#[inline]
pub fn unasked<R, E: From<Stopped>>(f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    caught(Role::Works, f)
}

/// Calls `f` in a role. A kernel that stops within it becomes an error.
#[inline]
fn caught<R, E: From<Stopped>>(role: Role, f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    let before = ROLE.replace(role);
    let done = catch_unwind(AssertUnwindSafe(f));
    ROLE.set(before);
    done.unwrap_or_else(|panic| match panic.downcast::<Stopped>() {
        Ok(stopped) => Err(E::from(*stopped)),
        Err(panic) => resume_unwind(panic),
    })
}

/// A point at which a kernel may end: between chunks, and now and then within long ones.
#[inline]
pub fn poll() {
    let role = ROLE.get();
    if role != Role::Works {
        look(role);
    }
}

/// Ends the loop if the run was stopped. The thread that called the kernel asks at intervals.
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
        amid_kernel(ask).unwrap_or_else(|error| raise(Stopped::Interrupted(error)));
    }
}

/// True if this thread runs the check at a [`poll`].
pub(super) fn asks() -> bool {
    ROLE.get() == Role::Asks
}

/// Runs a part of another thread's loop.
#[cfg(feature = "rayon")]
pub(super) fn helping(part: impl FnOnce()) {
    let before = ROLE.replace(Role::Helps);
    part();
    ROLE.set(before);
}

/// Marks this thread as a helper.
pub(super) fn help() {
    ROLE.set(Role::Helps);
}

/// A cheap clock, which may lag by some milliseconds.
#[cfg(target_os = "linux")]
fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Milliseconds since the first call.
#[cfg(not(target_os = "linux"))]
fn milliseconds() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::{Stopped, guarded, poll, raise};
    use crate::array::OutOfMemory;
    use crate::kernels::threads::parallel;

    #[test]
    fn a_kernel_that_ends_in_a_loop_is_an_error_of_its_caller() {
        let error = guarded(|| {
            parallel(1000, |i| {
                poll();
                if i == 500 {
                    raise(OutOfMemory { bytes: 7 }.into());
                }
            });
            Err::<(), _>(Stopped::Interrupted("nothing runs after the loop".into()))
        });
        assert!(matches!(error, Err(Stopped::Memory(OutOfMemory { bytes: 7 }))));
        parallel(100, |_| poll()); // starts the threads for the next loop
    }
}
