//! Scopes of modes, such as `with nn.no_grad()`, that follow `contextvars` contexts: an async task has its own.
//!
//! A context variable holds the innermost scope of the context, which links to the scopes around it. Each scope holds
//! the modes valid in it. The engine reads thread-local copies of the modes. [`follow`] updates the copy before each
//! use. It returns immediately if no context can have changed.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList};

use super::arguments::bytes;
use crate::graph;
use crate::graph::settings::{self, Mode, ScopedModes};

/// A scope that was entered: the modes in it, and the scope around it.
#[pyclass(frozen, module = "kinnor._core")]
struct EnteredModes {
    /// Unique number.
    serial: u64,
    /// The id that `enter_mode` returned. Zero if the modes were set outside of any scope, by `put_mode`.
    id: u64,
    /// The mode to restore on exit.
    old: Option<Mode>,
    /// The modes in the scope.
    modes: ScopedModes,
    /// The scope around it, if any.
    outer: Option<Py<EnteredModes>>,
}

impl Drop for EnteredModes {
    fn drop(&mut self) {
        WATCH.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Flag in [`WATCH`]: contexts may change within threads. Set once a scope is entered in an event loop, or a change is
/// seen.
const CONTEXTS_CHANGE: usize = 1 << (usize::BITS - 1);
/// Number of live [`EnteredModes`] in all threads and contexts, plus the flag [`CONTEXTS_CHANGE`].
static WATCH: AtomicUsize = AtomicUsize::new(0);
/// The source of unique numbers.
static SERIALS: AtomicU64 = AtomicU64::new(1);
/// The context variable.
static VARIABLE: PyOnceLock<ContextVariable> = PyOnceLock::new();
/// `sys.modules`.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

thread_local! {
    /// The serial number of the scope whose modes this thread has. Zero for none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// Number of scopes that this thread has entered and not left.
    static ENTERED: Cell<usize> = const { Cell::new(0) };
}

/// Updates this thread's modes to the modes of its current context.
#[inline(always)]
pub(super) fn follow(py: Python<'_>) {
    let watch = WATCH.load(Ordering::Relaxed);
    if watch != 0 {
        follow_changes(py, watch);
    }
}

/// Reads the context variable, unless all live scopes are this thread's own and contexts do not change within threads.
#[inline(never)]
fn follow_changes(py: Python<'_>, watch: usize) {
    if watch > ENTERED.get() {
        // An error here is an interpreter error, which the next call reports.
        drop(current(py));
    }
}

/// The methods of a variable of `contextvars`, looked up once.
struct ContextVariable {
    /// The method `get` of the variable.
    get: Py<PyAny>,
    /// The method `set` of the variable.
    set: Py<PyAny>,
}

/// The context variable, created on first use. Its default is None.
fn variable(py: Python<'_>) -> PyResult<&ContextVariable> {
    VARIABLE.get_or_try_init(py, || {
        let default = PyDict::new(py);
        default.set_item("default", py.None())?;
        let class = py.import("contextvars")?.getattr("ContextVar")?;
        let variable = class.call(("kinnor.modes",), Some(&default))?;
        Ok(ContextVariable { get: variable.getattr("get")?.unbind(), set: variable.getattr("set")?.unbind() })
    })
}

/// The innermost scope of this context. Updates the thread's modes to it.
fn current(py: Python<'_>) -> PyResult<Option<Py<EnteredModes>>> {
    let found = variable(py)?.get.bind(py).call0()?;
    let scope = found.cast_into::<EnteredModes>().ok();
    let serial = scope.as_ref().map_or(0, |scope| scope.get().serial);
    if serial != CURRENT.get() {
        WATCH.fetch_or(CONTEXTS_CHANGE, Ordering::Relaxed);
        take(serial, scope.as_ref().map_or(ScopedModes::DEFAULT, |scope| scope.get().modes));
    }
    Ok(scope.map(Bound::unbind))
}

/// Sets this thread's modes to the modes of a scope.
fn take(serial: u64, modes: ScopedModes) {
    if settings::memory_budget() != modes.memory_budget() {
        graph::set_memory_budget(modes.memory_budget());
    }
    settings::set_scoped(modes);
    CURRENT.set(serial);
}

/// Sets one mode of this thread. Returns its old value.
fn set(mode: Mode) -> Mode {
    match mode {
        Mode::MemoryBudget(bytes) => Mode::MemoryBudget(graph::set_memory_budget(bytes)),
        other => settings::set_mode(other),
    }
}

/// Makes a scope the innermost one of this context. The thread has its modes already.
fn put(py: Python<'_>, scope: Option<Py<EnteredModes>>) -> PyResult<()> {
    CURRENT.set(scope.as_ref().map_or(0, |scope| scope.get().serial));
    variable(py)?.set.bind(py).call1((scope,))?;
    Ok(())
}

/// Creates a scope with a new serial number.
fn new(
    py: Python<'_>,
    id: u64,
    old: Option<Mode>,
    modes: ScopedModes,
    outer: Option<Py<EnteredModes>>,
) -> PyResult<Py<EnteredModes>> {
    let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
    WATCH.fetch_add(1, Ordering::Relaxed);
    Py::new(py, EnteredModes { serial, id, old, modes, outer })
}

/// Sets [`CONTEXTS_CHANGE`] if this thread runs an event loop.
fn look_for_event_loop(py: Python<'_>) -> PyResult<()> {
    if WATCH.load(Ordering::Relaxed) & CONTEXTS_CHANGE != 0 {
        return Ok(());
    }
    let find = || -> PyResult<Py<PyDict>> {
        Ok(py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?.unbind())
    };
    let modules = MODULES.get_or_try_init(py, find)?.bind(py);
    let Some(events) = modules.get_item(intern!(py, "asyncio.events"))? else { return Ok(()) };
    if !events.call_method0("_get_running_loop")?.is_none() {
        WATCH.fetch_or(CONTEXTS_CHANGE, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads a mode from its name and value in Python.
fn mode(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Mode> {
    Ok(match name {
        "grad" => Mode::Grad(value.extract()?),
        "auto_forward" => Mode::AutoForward(value.extract()?),
        "recompute" => Mode::Recompute(value.extract()?),
        "context" => Mode::Context(value.extract()?),
        "memory_budget" => Mode::MemoryBudget(bytes(value)?),
        "anomaly" => Mode::Anomaly(value.extract()?),
        other => {
            return Err(PyTypeError::new_err(format!("scope: expected the name of a mode, got {other}")));
        }
    })
}

/// Enters a scope with a mode. Returns the id of the scope, for `leave_mode`.
#[pyfunction]
fn enter_mode(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let mode = mode(name, value)?;
    let outer = current(py)?;
    look_for_event_loop(py)?;
    let old = set(mode);
    let id = SERIALS.fetch_add(1, Ordering::Relaxed);
    let entered = new(py, id, Some(old), settings::scoped(), outer).and_then(|scope| put(py, Some(scope)));
    if let Err(error) = entered {
        set(old);
        return Err(error);
    }
    ENTERED.set(ENTERED.get() + 1);
    Ok(id)
}

/// Leaves the innermost scope of this context whose id is in `ids`. Returns the id, or None if there is no such scope.
///
/// Scopes entered later stay open, and so do their modes.
#[pyfunction]
fn leave_mode(py: Python<'_>, ids: &Bound<'_, PyList>) -> PyResult<Option<u64>> {
    ENTERED.set(ENTERED.get().saturating_sub(1));
    look_for_event_loop(py)?;
    let mut next = current(py)?;
    if let Some(scope) = &next
        && let EnteredModes { id, old: Some(old), outer, .. } = scope.get()
        && let Some(newest) = ids.len().checked_sub(1)
        && ids.get_item(newest)?.extract::<u64>()? == *id
    {
        // The common case: scopes end in the reverse order of their beginning.
        set(*old);
        put(py, outer.as_ref().map(|outer| outer.clone_ref(py)))?;
        return Ok(Some(*id));
    }
    let ids: Vec<u64> = ids.extract()?;
    let mut within = Vec::new();
    let left = loop {
        let Some(scope) = next else {
            WATCH.fetch_or(CONTEXTS_CHANGE, Ordering::Relaxed);
            return Ok(None);
        };
        if ids.contains(&scope.get().id) {
            break scope;
        }
        next = scope.get().outer.as_ref().map(|outer| outer.clone_ref(py));
        within.push(scope);
    };
    let EnteredModes { id, old, outer, .. } = left.get();
    let mut outer = outer.as_ref().map(|outer| outer.clone_ref(py));
    let mut old = *old;
    // Passes the mode to restore on to the next inner scope that sets the same mode.
    for scope in within.iter().rev() {
        let EnteredModes { id, old: own, modes, .. } = scope.get();
        let (mut own, mut modes) = (*own, *modes);
        match (&mut own, old) {
            (Some(own), Some(before)) if own.is_alike(&before) => {
                *own = before;
                old = None;
            }
            (_, Some(before)) => modes.set(before),
            _ => {}
        }
        outer = Some(new(py, *id, own, modes, outer)?);
    }
    if let Some(old) = old {
        set(old);
    }
    put(py, outer)?;
    Ok(Some(*id))
}

/// Sets a mode until the end of the innermost scope that sets the same mode, or of the context if there is none.
#[pyfunction]
fn put_mode(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let mode = mode(name, value)?;
    let mut next = current(py)?;
    look_for_event_loop(py)?;
    set(mode);
    let (mut within, mut ends) = (Vec::new(), false);
    while !ends && let Some(scope) = next.take() {
        next = scope.get().outer.as_ref().map(|outer| outer.clone_ref(py));
        ends = scope.get().id == 0 || scope.get().old.is_some_and(|old| old.is_alike(&mode));
        within.push(scope);
    }
    if !ends {
        let mut modes = ScopedModes::DEFAULT;
        modes.set(mode);
        next = Some(new(py, 0, None, modes, None)?);
        ENTERED.set(ENTERED.get() + 1);
    }
    for scope in within.iter().rev() {
        let EnteredModes { id, old, mut modes, .. } = *scope.get();
        modes.set(mode);
        next = Some(new(py, id, old, modes, next)?);
    }
    put(py, next)
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(enter_mode, m)?)?;
    m.add_function(wrap_pyfunction!(leave_mode, m)?)?;
    m.add_function(wrap_pyfunction!(put_mode, m)?)?;
    Ok(())
}
