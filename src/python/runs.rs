//! The methods `forward` and `backward` of a variable: conversion of their Python arguments for the engine.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::arguments::{bytes, flag, refuse_unknown};
use super::classes::{NdArray, Variable};
use super::hooks::{self, Callbacks};
use super::numpy;
use super::scopes;
use crate::graph::settings::{self, CheckSaved};
use crate::graph::{BackwardOptions, ForwardOptions, Seed};

#[pymethods]
impl Variable {
    /// Computes this variable. Each function above it runs once.
    ///
    /// Args:
    ///     clear_buffer: Free memory after its last use. A backward run is not possible afterwards.
    ///     clear_no_need_grad: Free memory after its last use unless a gradient reads it.
    ///     function_pre_hook: Called with each function before it runs.
    ///     function_post_hook: Called with each function after it ran.
    ///     memory_budget: Most bytes for the arrays of the graph in this run and the backward run after it. Values are
    ///         dropped and recomputed to stay below it. By default the value of `kinnor.memory_budget`.
    ///
    /// Raises:
    ///     RuntimeError: If no function computes it, or a value that is needed was cleared.
    ///     BudgetError: If the memory budget is too small.
    #[pyo3(signature = (
        clear_buffer = false, clear_no_need_grad = false, function_pre_hook = None, function_post_hook = None,
        memory_budget = None,
    ))]
    fn forward(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = flag)] clear_buffer: bool,
        #[pyo3(from_py_with = flag)] clear_no_need_grad: bool,
        function_pre_hook: Option<&Bound<'_, PyAny>>,
        function_post_hook: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = bytes)] memory_budget: Option<usize>,
    ) -> PyResult<()> {
        scopes::follow(py);
        let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
        hooks::with_hooks(py, function_pre_hook, function_post_hook, |pre_hook, post_hook| {
            self.variable.forward(&ForwardOptions {
                clear_buffer,
                clear_no_need_grad,
                memory_budget,
                pre_hook,
                post_hook,
                detach: Some(&detach),
            })
        })
    }

    /// Propagates gradients from this variable to all variables that it was computed from. Its own gradient does not
    /// change.
    ///
    /// Args:
    ///     grad: The gradient to start from: a number, an array, an NdArray (used by reference), or None for the
    ///         current
    ///         gradient of this variable.
    ///     clear_buffer: Free memory of intermediate variables as soon as it is not needed any more.
    ///     communicator_callbacks: One or a list of `CommunicatorBackwardCallback`.
    ///     function_pre_hook: Called with each function before it runs.
    ///     function_post_hook: Called with each function after it ran.
    ///
    /// Raises:
    ///     RuntimeError: If no function computes it, a needed value was cleared, or `grad` has another shape.
    #[pyo3(
        signature = (
            grad = OptionalArgument::default(), clear_buffer = false, communicator_callbacks = None,
            function_pre_hook = None, function_post_hook = None, **unknown,
        ),
        text_signature = "($self, grad=1, clear_buffer=False, communicator_callbacks=None, \
                          function_pre_hook=None, function_post_hook=None)"
    )]
    fn backward(
        &self,
        py: Python<'_>,
        grad: OptionalArgument<'_>,
        #[pyo3(from_py_with = flag)] clear_buffer: bool,
        communicator_callbacks: Option<&Bound<'_, PyAny>>,
        function_pre_hook: Option<&Bound<'_, PyAny>>,
        function_post_hook: Option<&Bound<'_, PyAny>>,
        unknown: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        refuse_unknown("Variable.backward", unknown)?;
        let seed = grad.0.map_or(Ok(Seed::default()), |grad| self.seed(&grad))?;
        let callbacks = Callbacks::new(communicator_callbacks)?;
        scopes::follow(py);
        let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
        let modified: Option<&(dyn Fn(String) -> crate::Result<()> + Sync)> = match settings::check_saved() {
            CheckSaved::Ignore => None,
            CheckSaved::Warn => Some(&hooks::warn),
            CheckSaved::Raise => Some(&|text| Err(crate::Error::Modified(text))),
        };
        hooks::with_hooks(py, function_pre_hook, function_post_hook, |pre_hook, post_hook| {
            self.variable.backward(&BackwardOptions {
                modified,
                seed,
                clear_buffer,
                callbacks: callbacks.each(),
                pre_hook,
                post_hook,
                detach: Some(&detach),
            })
        })
    }
}

/// An argument that may be left out. Leaving it out differs from passing None.
#[derive(Default)]
struct OptionalArgument<'py>(Option<Bound<'py, PyAny>>);

impl<'a, 'py> FromPyObject<'a, 'py> for OptionalArgument<'py> {
    type Error = PyErr;
    fn extract(ob: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Some(ob.to_owned())))
    }
}

impl Variable {
    /// The starting gradient that the argument `grad` of `backward` describes.
    fn seed(&self, grad: &Bound<'_, PyAny>) -> PyResult<Seed> {
        if grad.is_none() {
            return Ok(Seed::Own);
        }
        if let Ok(array) = grad.cast::<NdArray>() {
            return Ok(Seed::Shared(array.get().array.clone()));
        }
        if let Some(v) = numpy::scalar(grad) {
            return Ok(Seed::Fill(v));
        }
        Ok(Seed::Temporary(numpy::new_array(&numpy::as_numpy(grad)?)?))
    }
}
