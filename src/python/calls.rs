//! Calls of user code by the engine: hooks, callbacks and user-defined functions.
//!
//! A Python interpreter that is shutting down never gives its lock to the remaining threads again. Before 3.14, CPython
//! unwinds a thread that asks for the lock, which crashes programs that are not written in C. Here such a thread waits
//! forever instead, as it does in CPython 3.14 and later.

use pyo3::prelude::*;

use super::error::foreign;
use crate::{Error, Result};

/// Guard that blocks its thread forever if it is dropped by CPython's unwinding, not by a panic.
struct CallEnded;

impl Drop for CallEnded {
    fn drop(&mut self) {
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

/// Calls Python code, which may be the user's.
///
/// # Errors
/// Errors of that code, and [`Error::Graph`] if the interpreter is shutting down.
pub(super) fn call<R>(code: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R> {
    let ended = CallEnded;
    let done = enter(code);
    std::mem::forget(ended);
    done
}

/// Runs `code` in a stack frame below the guard's, so that unwinding reaches the guard in [`call`].
#[inline(never)]
fn enter<R>(code: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R> {
    let ending = || Error::Graph("call of Python: expected an interpreter, got one that is ending".into());
    Python::try_attach(code).ok_or_else(ending)?.map_err(foreign)
}
