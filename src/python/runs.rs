//! The forward and backward runs of a variable: what Python passes to them, and what they are to the engine.

use pyo3::prelude::*;

use super::arguments::{bytes, flag};
use super::classes::{NdArray, Variable};
use super::hooks::{self, Callbacks};
use super::numpy;
use super::scopes;
use crate::graph::settings::{self, CheckSaved};
use crate::graph::{BackwardOptions, ForwardOptions, Seed};

#[pymethods]
impl Variable {
    /// Computes this variable, each function above it once.
    ///
    /// Args:
    ///     clear_buffer: Give memory back after its last use; a backward run is not possible then.
    ///     clear_no_need_grad: Give memory back after its last use unless a gradient will read it.
    ///     function_pre_hook: Called with each function before it runs.
    ///     function_post_hook: Called with each function after it ran.
    ///     memory_budget: Bytes that the arrays of the graph may take at most in this run and the backward run after it:
    ///         values are dropped and computed again as need be. By default that of `kinnor.memory_budget`.
    ///
    /// Raises:
    ///     RuntimeError: If nothing computes it, or a value that is needed was cleared.
    ///     BudgetError: If the memory budget cannot be kept to.
    #[pyo3(signature = (clear_buffer = false, clear_no_need_grad = false, function_pre_hook = None, function_post_hook = None, memory_budget = None))]
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

    /// Propagates gradients from this variable to all that it was computed from. Its own gradient stays as it was.
    ///
    /// Args:
    ///     grad: The gradient to start from: a number, an array, an NdArray (used by reference), or None for the
    ///         gradient that the variable has.
    ///     clear_buffer: Give memory of intermediate variables back once it is not needed any more.
    ///     communicator_callbacks: One or a list of `CommunicatorBackwardCallback`.
    ///     function_pre_hook: Called with each function before it runs.
    ///     function_post_hook: Called with each function after it ran.
    ///
    /// Raises:
    ///     RuntimeError: If nothing computes it, a value that is needed was cleared, or `grad` has another shape.
    #[pyo3(signature = (grad = OptionalArgument::default(), clear_buffer = false, communicator_callbacks = None, function_pre_hook = None, function_post_hook = None), text_signature = "($self, grad=1, clear_buffer=False, communicator_callbacks=None, function_pre_hook=None, function_post_hook=None)")]
    fn backward(
        &self,
        py: Python<'_>,
        grad: OptionalArgument<'_>,
        #[pyo3(from_py_with = flag)] clear_buffer: bool,
        communicator_callbacks: Option<&Bound<'_, PyAny>>,
        function_pre_hook: Option<&Bound<'_, PyAny>>,
        function_post_hook: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
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

/// An argument that may be left out, which is not the same as None.
#[derive(Default)]
struct OptionalArgument<'py>(Option<Bound<'py, PyAny>>);

impl<'a, 'py> FromPyObject<'a, 'py> for OptionalArgument<'py> {
    type Error = PyErr;
    fn extract(ob: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(Some(ob.to_owned())))
    }
}

impl Variable {
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
