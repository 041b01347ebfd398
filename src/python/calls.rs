//! Calls of users' code by the engine: hooks, callbacks, functions of their own.
//!
//! An interpreter that ends takes its lock away from the threads that are left, for good. CPython before 3.14 does that by
//! unwinding such a thread when it asks for the lock, which a program that is not written in C does not survive: the thread
//! is made to wait instead, as it does from 3.14 on.

use pyo3::prelude::*;

use super::error::foreign;
use crate::{Error, Result};

/// Waits for ever when it is dropped by what is no panic.
struct CallEnded;

impl Drop for CallEnded {
    fn drop(&mut self) {
        while !std::thread::panicking() {
            std::thread::park();
        }
    }
}

/// Calls what may run code of the user's.
///
/// # Errors
/// Those of the user's code, and [`Error::Graph`] where there is no interpreter any more.
pub(super) fn call<R>(code: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R> {
    let ended = CallEnded;
    let done = enter(code);
    std::mem::forget(ended);
    done
}

/// A frame of its own: what unwinds it finds the caller's guard.
#[inline(never)]
fn enter<R>(code: impl FnOnce(Python<'_>) -> PyResult<R>) -> Result<R> {
    let ending = || Error::Graph("call of Python: expected an interpreter, got one that is ending".into());
    Python::try_attach(code).ok_or_else(ending)?.map_err(foreign)
}
