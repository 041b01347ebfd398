//! Modes, seeds and memory, as plain functions that `kinnor` wraps in context managers.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::array::memory_stats as stats;
use crate::graph;
use crate::graph::mode::{self, Compute, Context};
use crate::kernels::random;

macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)+) => {
        $($(#[$doc])* #[pyfunction] fn $name($($arg: $ty),*) -> $out { $body })+

        fn add_plain(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($name, m)?)?;)+
            Ok(())
        }
    };
}

plain! {
    /// Whether functions run as soon as they are built.
    auto_forward_mode() -> bool = mode::auto_forward();
    /// Sets the default of the process.
    set_auto_forward_mode(on: bool) -> () = mode::set_auto_forward(on);
    /// Sets or lifts the override of this thread; returns the old one.
    scope_auto_forward(on: Option<bool>) -> Option<bool> = mode::scope_auto_forward(on);
    /// Whether functions that are built now take part in differentiation.
    grad_mode() -> bool = mode::grad_enabled();
    /// Sets it for this thread; returns what it was.
    set_grad_mode(on: bool) -> bool = mode::set_grad_enabled(on);
    /// Whether variables that are made now are recomputed.
    recompute_mode() -> bool = mode::recompute();
    /// Sets the default of the process.
    set_recompute_mode(on: bool) -> () = mode::set_recompute(on);
    /// Sets or lifts the override of this thread; returns the old one.
    scope_recompute(on: Option<bool>) -> Option<bool> = mode::scope_recompute(on);
    /// Whether values are being computed again on this thread.
    in_recomputing() -> bool = mode::in_recomputing();
    /// Whether forward runs go depth first.
    depth_first() -> bool = mode::depth_first();
    /// Sets it.
    set_depth_first(on: bool) -> () = mode::set_depth_first(on);
    /// Number of the context in which functions are built now.
    context_mode() -> u16 = mode::current_context();
    /// Sets the default of the process.
    set_context_mode(number: u16) -> () = mode::set_default_context(number);
    /// Sets or lifts the override of this thread; returns the old one.
    scope_context(number: Option<u16>) -> Option<u16> = mode::scope_context(number);
    /// Starts the sequence of random numbers anew.
    seed(value: u64) -> () = random::seed(value);
    /// Gives memory that is kept for reuse back to the system.
    clear_memory_cache() -> () = crate::array::clear_memory_cache();
    /// Starts or stops noting what is cleared after each function.
    record_clear_flags(on: bool) -> () = graph::record_clear_flags(on);
}

/// The number of a context with these parts; `compute` is `float`, `double`, `half` or `bfloat16`.
#[pyfunction]
fn intern_context(
    backend: Vec<String>,
    array_class: String,
    device_id: String,
    compute: &str,
) -> PyResult<u16> {
    let compute = match compute {
        "float" => Compute::Float,
        "double" => Compute::Double,
        "half" => Compute::Half,
        "bfloat16" => Compute::BFloat16,
        other => {
            let expected = "float, double, half or bfloat16";
            return Err(crate::Error::argument("context", "type_config", expected, other).into());
        }
    };
    Ok(mode::intern(&Context { backend, array_class, device_id, compute }))
}

/// The parts of the context with this number: backend, array_class, device_id.
#[pyfunction]
fn context_parts(number: u16) -> (Vec<String>, String, String) {
    let c = mode::context(number);
    (c.backend, c.array_class, c.device_id)
}

/// Bytes in live buffers, kept for reuse, and the most ever live.
#[pyfunction]
fn memory_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let now = stats();
    let dict = PyDict::new(py);
    dict.set_item("live", now.live)?;
    dict.set_item("cached", now.cached)?;
    dict.set_item("peak", now.peak)?;
    Ok(dict)
}

/// What was cleared after each function: for each, the (data, grad) flags of its inputs and of its outputs.
#[pyfunction]
fn recorded_clear_flags() -> Vec<(Vec<graph::ClearFlags>, Vec<graph::ClearFlags>)> {
    graph::recorded_clear_flags().into_iter().map(|r| (r.inputs, r.outputs)).collect()
}

/// Raises the first error that happened while a variable was dropped since the last call.
#[pyfunction]
fn check_errors_at_drop() -> PyResult<()> {
    Ok(graph::check_errors_at_drop()?)
}

/// Adds the functions to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    add_plain(m)?;
    m.add_function(wrap_pyfunction!(intern_context, m)?)?;
    m.add_function(wrap_pyfunction!(context_parts, m)?)?;
    m.add_function(wrap_pyfunction!(memory_stats, m)?)?;
    m.add_function(wrap_pyfunction!(recorded_clear_flags, m)?)?;
    m.add_function(wrap_pyfunction!(check_errors_at_drop, m)?)
}
