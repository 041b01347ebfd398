//! How a kernel ends before its time: for want of memory, or because the user wants to. Knows time; knows nothing of
//! who asks, nor of what a kernel computes.
//!
//! A kernel that cannot go on unwinds, out of loops on several threads too, to whoever runs it: [`guarded`] makes an error of
//! that. So nothing of what comes after a loop runs on what the loop has left half done.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::RwLock;
use std::time::Duration;

use crate::array::{OutOfMemory, amid_kernel};

/// An error of whoever is asked.
pub type Interrupt = Box<dyn std::error::Error + Send + Sync>;

/// Asks somebody whether to go on: an error ends the kernel.
pub type Check = fn() -> Result<(), Interrupt>;

/// Why a kernel ended before its time; it unwinds with that.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// There was no memory for what it lays out.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// Somebody did not want it to go on.
    #[error("{0}")]
    Interrupted(Interrupt),
}

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
pub fn ask() -> Result<(), Interrupt> {
    let check = *CHECK.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    let role = ROLE.replace(Role::Works); // whoever is asked may run kernels, and asks for itself
    let answer = check.map_or(Ok(()), |check| check());
    ROLE.set(role);
    answer
}

/// Ends the kernel.
#[cold]
pub(crate) fn raise(why: Stopped) -> ! {
    resume_unwind(Box::new(why))
}

/// Runs kernels that end when memory is short, or the user wants it: what they were to write must not be read then. The
/// caller holds no lock that Python might wait for.
///
/// # Errors
/// Those of `f`, and why a kernel ended.
#[inline]
pub fn guarded<R, E: From<Stopped>>(f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    caught(Role::Asks, f)
}

/// As [`guarded`], for what the user waits for in any case.
///
/// # Errors
/// Those of `f`, and why a kernel ended.
#[inline]
pub fn unasked<R, E: From<Stopped>>(f: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
    caught(Role::Works, f)
}

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
        amid_kernel(ask).unwrap_or_else(|error| raise(Stopped::Interrupted(error)));
    }
}

/// Whether this thread asks at a [`poll`].
pub(super) fn asks() -> bool {
    ROLE.get() == Role::Asks
}

/// Runs a part of a loop of another thread.
#[cfg(feature = "rayon")]
pub(super) fn helping(part: impl FnOnce()) {
    let before = ROLE.replace(Role::Helps);
    part();
    ROLE.set(before);
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
        parallel(100, |_| poll()); // the threads are there for the next one
    }
}
