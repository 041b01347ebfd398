//! The Python face: handles, conversions and calls. Holds no arithmetic and no list of operations.

#![allow(clippy::needless_pass_by_value, clippy::unused_self)] // Python decides what a method is called with

mod arguments;
mod autodiff;
mod calls;
mod error;
mod function;
mod functions;
mod hooks;
mod links;
mod modes;
mod ndarray;
mod numpy;
mod operands;
mod operators;
mod protocols;
mod runs;
mod safetensors;
mod solver;
mod together;
mod user;
mod user_operation;
mod values;
mod variable;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

#[pymodule(gil_used = true)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    crate::check_environment().map_err(|e| PyImportError::new_err(e.to_string()))?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::register(m)?;
    m.add_class::<ndarray::NdArray>()?;
    m.add_class::<variable::Variable>()?;
    m.add_class::<function::Function>()?;
    m.add_class::<function::Info>()?;
    m.add_class::<hooks::CommunicatorBackwardCallback>()?;
    m.add_class::<user::PythonFunction>()?;
    m.add_class::<user::FunctionVariable>()?;
    autodiff::register(m)?;
    hooks::register(m)?;
    m.add_function(wrap_pyfunction!(links::use_parameter, m)?)?;
    modes::register(m)?;
    functions::register(m)?;
    safetensors::register(m)?;
    solver::register(m)?;
    together::register(m)?;
    // An interpreter that is ending has nobody to interrupt.
    let check = || Python::try_attach(|py| py.check_signals().map_err(error::foreign)).unwrap_or(Ok(()));
    crate::graph::interrupt_check(check);
    Ok(())
}
