//! The Python bindings: handles, conversions and calls. Contains no arithmetic and no list of operations.

#![allow(clippy::needless_pass_by_value, clippy::unused_self)] // Python decides what a method is called with

mod arguments;
mod autodiff;
mod boxes;
mod calls;
mod classes;
mod derived;
mod error;
mod function;
mod functions;
#[cfg(not(feature = "system-allocator"))]
mod heap;
mod hooks;
mod links;
mod misuse;
mod modes;
mod ndarray;
mod numpy;
mod onnx_files;
mod operands;
mod operators;
mod parts;
mod protocols;
mod runs;
mod safetensors;
mod scopes;
mod shapes;
mod solver;
mod together;
mod user;
mod user_operation;
mod values;
mod variable;
mod whole;

use std::cell::Cell;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::graph::Interrupt;

/// Returns an error if the user wants to interrupt the computation (Ctrl-C).
///
/// Python runs signal handlers on its main thread only, so other threads return without waiting for Python's lock.
fn interrupted() -> Result<(), Interrupt> {
    thread_local! {
        /// Process id, which a fork changes, and true if this is the main thread.
        static IS_MAIN: Cell<(u32, bool)> = const { Cell::new((0, true)) };
    }
    let (process, is_main) = IS_MAIN.get();
    if !is_main && process == std::process::id() {
        return Ok(());
    }
    // An interpreter that is shutting down has no handler to run.
    let asked = Python::try_attach(|py| {
        if process != std::process::id() {
            let is_main = || -> PyResult<bool> {
                let threading = py.import("threading")?;
                let main = threading.call_method0("main_thread")?.getattr("ident")?;
                threading.call_method0("get_ident")?.eq(main)
            };
            IS_MAIN.set((std::process::id(), is_main().unwrap_or(true)));
        }
        py.check_signals().map_err(Into::into)
    });
    asked.unwrap_or(Ok(()))
}

#[pymodule(gil_used = true)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::check_environment().map_err(|e| PyImportError::new_err(e.to_string()))?;
    crate::graph::begin_thread();
    crate::array::headroom::establish();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::register(m)?;
    m.add_class::<classes::NdArray>()?;
    m.add_class::<classes::Variable>()?;
    m.add_class::<function::Function>()?;
    m.add_class::<function::Info>()?;
    m.add_class::<hooks::CommunicatorBackwardCallback>()?;
    m.add_class::<user::PythonFunction>()?;
    m.add_class::<user::FunctionVariable>()?;
    autodiff::register(m)?;
    boxes::register(m)?;
    hooks::register(m)?;
    m.add_function(wrap_pyfunction!(links::use_known_parameter, m)?)?;
    m.add_function(wrap_pyfunction!(links::use_parameter, m)?)?;
    m.add_function(wrap_pyfunction!(parts::part, m)?)?;
    m.add_function(wrap_pyfunction!(parts::put, m)?)?;
    modes::register(m)?;
    functions::register(m)?;
    onnx_files::register(m)?;
    safetensors::register(m)?;
    scopes::register(m)?;
    solver::register(m)?;
    together::register(m)?;
    whole::register(m)?;
    crate::graph::interrupt_check(interrupted);
    Ok(())
}
