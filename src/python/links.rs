//! A variable among others: what computes it and what takes it, taking the place of another, copies outside of the graph,
//! visits.

use pyo3::prelude::*;

use super::arguments::{callable, flag, object, shown, some_flag};
use super::classes::Variable;
use super::error::foreign;
use super::function::Function;
use super::scopes;
use crate::graph::settings::{self, Context};
use crate::{Error, graph};

/// What a graph gets for a registered parameter: a variable of that name on its data and gradient, which needs a gradient
/// if `need_grad` and the mode say so.
#[pyfunction]
pub(super) fn use_parameter<'py>(
    py: Python<'py>,
    parameter: &Bound<'py, Variable>,
    #[pyo3(from_py_with = flag)] need_grad: bool,
    name: String,
) -> PyResult<Bound<'py, Variable>> {
    scopes::follow(py);
    let grad = settings::grad_enabled();
    if need_grad && !grad && settings::noting() {
        graph::note_read([&parameter.get().variable.unlinked(Some(true))]);
    }
    let used = parameter.get().variable.unlinked(Some(need_grad && grad));
    used.set_name(Some(name));
    Variable::wrap(py, used)
}

#[pymethods]
impl Variable {
    /// The function that computes it, or None. Assigning None cuts it off; assigning a function puts it back as the output of
    /// that function which is on its data.
    #[getter]
    fn parent(&self) -> Option<Function> {
        self.variable.parent().map(Function::wrap)
    }

    #[setter]
    fn set_parent(&self, parent: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(parent) = parent else {
            self.variable.clear_parent();
            return Ok(());
        };
        let Ok(f) = parent.cast::<Function>() else {
            return Err(
                Error::Type(format!("parent: expected a Function or None, got {}", shown(parent))).into()
            );
        };
        Ok(self.variable.set_parent(&f.get().graph_function()?)?)
    }

    fn _clear_parent(&self) {
        self.variable.clear_parent();
    }

    /// Whether an assignment by index may write into its memory, since nothing else reads that.
    fn _may_be_overwritten(&self) -> bool {
        self.variable.may_be_overwritten()
    }

    /// Has the function that computes it change a copy of its input if something needs that when the graph runs.
    fn _may_take_copy(&self) {
        self.variable.may_take_copy();
    }

    /// What stands in the place of this variable, also for all that took it, once it is split off: the first half of an
    /// assignment by index.
    fn _split_off<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.variable.split_off())
    }

    /// The live functions that take it, each once.
    #[getter]
    fn function_references(&self) -> Vec<Function> {
        self.variable.function_references().into_iter().map(Function::wrap).collect()
    }

    /// Number of live Variables that reach its data.
    #[getter(get_number_of_references)]
    fn number_of_references(&self) -> usize {
        self.variable.number_of_references()
    }

    /// Whether its data must not be cleared, being through in-place functions that of a variable that must not.
    #[getter]
    fn _prohibit_clear_data(&self) -> bool {
        self.variable.prohibit_clear_data()
    }

    /// Raises the first error that happened while a variable was dropped since the last call.
    #[staticmethod]
    fn _check_exception_at_dealloc() -> PyResult<()> {
        Ok(graph::check_errors_at_drop()?)
    }

    /// A variable without parent on the same data and gradient.
    ///
    /// Args:
    ///     need_grad: Whether gradients flow to it; as for this one by default.
    #[pyo3(signature = (need_grad = None))]
    fn get_unlinked_variable<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = some_flag)] need_grad: Option<bool>,
    ) -> PyResult<Bound<'py, Self>> {
        scopes::follow(py);
        Self::wrap(py, self.variable.unlinked(need_grad))
    }

    /// Deprecated: use `get_unlinked_variable`.
    #[pyo3(signature = (need_grad = None))]
    fn unlinked<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = some_flag)] need_grad: Option<bool>,
    ) -> PyResult<Bound<'py, Self>> {
        let category = py.get_type::<pyo3::exceptions::PyDeprecationWarning>();
        PyErr::warn(py, &category, c"unlinked is deprecated: use get_unlinked_variable", 1)?;
        Self::wrap(py, self.variable.unlinked(need_grad))
    }

    /// A variable of its own with copies of the values, and of the gradient if `copy_grad` is set.
    ///
    /// Args:
    ///     context: The device that the copy is for; there is one, so that this is of no consequence.
    ///     copy_grad: Whether to copy the gradient too.
    ///
    /// Returns:
    ///     A variable that no function computes.
    ///
    /// Raises:
    ///     RuntimeError: If none of the backends of `context` exists.
    #[pyo3(signature = (context = None, copy_grad = true))]
    fn create_deep_copy<'py>(
        &self,
        py: Python<'py>,
        context: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = flag)] copy_grad: bool,
    ) -> PyResult<Bound<'py, Self>> {
        if let Some(context) = context {
            context.getattr("compute_type")?;
        }
        Self::wrap(py, self.variable.create_deep_copy(&Context::default(), copy_grad)?)
    }

    /// Takes the place of another variable in the graph: this one is computed by its parent from now on.
    ///
    /// Args:
    ///     var: A variable of the same shape that a function computes; nothing computes it afterwards.
    ///
    /// Raises:
    ///     RuntimeError: If nothing computes `var`, or the shapes differ.
    fn rewire_on(&self, #[pyo3(from_py_with = object)] var: Bound<'_, Self>) -> PyResult<()> {
        Ok(self.variable.rewire_on(&var.get().variable)?)
    }

    /// The same computation on parameters that need no gradient; this graph stays as it is.
    fn no_grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._python_functions.graph")?.call_method1("without_grad", (slf,))
    }

    /// Calls `f` with each function above this variable, each after those that feed it.
    fn visit(&self, #[pyo3(from_py_with = callable)] f: Bound<'_, PyAny>) -> PyResult<()> {
        Ok(self
            .variable
            .visit(|function| f.call1((Function::wrap(function.clone()),)).map(drop).map_err(foreign))?)
    }

    /// As `visit`; stops and returns True when `f` returns something true.
    fn visit_check(&self, #[pyo3(from_py_with = callable)] f: Bound<'_, PyAny>) -> PyResult<bool> {
        for function in self.variable.functions() {
            if f.call1((Function::wrap(function),))?.is_truthy()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Cuts every variable above this one, and itself, off from what computes it.
    fn clear_all_graph_links(&self) {
        self.variable.clear_all_graph_links();
    }
}
