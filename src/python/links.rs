//! Methods of `Variable` that read or change the graph: parents, consumers, rewiring, visits, copies outside of the
//! graph.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::arguments::{callable, flag, object, shown, some_flag};
use super::classes::Variable;
use super::error::foreign;
use super::function::Function;
use super::scopes;
use crate::array::Shape;
use crate::graph::settings::{self, Context};
use crate::{Error, graph};

/// The variable that stands for a registered parameter in a graph. It has the given name and shares data and gradient
/// with the parameter. It needs a gradient if `need_grad` is set and grad mode is on.
#[pyfunction]
pub(super) fn use_parameter<'py>(
    py: Python<'py>,
    parameter: &Bound<'py, Variable>,
    #[pyo3(from_py_with = flag)] need_grad: bool,
    name: String,
) -> PyResult<Bound<'py, Variable>> {
    used(py, &parameter.get().variable, need_grad, name)
}

/// As `use_parameter`, for the parameter `name` of a scope.
///
/// Returns None if the scope has no such parameter, or if its `need_grad` or its shape differ. `shape` may be None.
#[pyfunction]
pub(super) fn use_known_parameter<'py>(
    py: Python<'py>,
    scope: &Bound<'py, PyDict>,
    name: &Bound<'py, PyString>,
    shape: &Bound<'py, PyAny>,
    need_grad: bool,
    #[pyo3(from_py_with = flag)] as_need_grad: bool,
) -> PyResult<Option<Bound<'py, Variable>>> {
    let Some(known) = scope.get_item(name)? else { return Ok(None) };
    let Ok(known) = known.cast_exact::<Variable>() else { return Ok(None) };
    let known = &known.get().variable;
    if known.need_grad() != need_grad || !(shape.is_none() || is_shape(shape, &known.shape())) {
        return Ok(None);
    }
    used(py, known, as_need_grad, name.to_str()?.into()).map(Some)
}

/// True for a tuple of these lengths.
fn is_shape(tuple: &Bound<'_, PyAny>, shape: &Shape) -> bool {
    let Ok(tuple) = tuple.cast_exact::<PyTuple>() else { return false };
    let is_length =
        |(given, length): (Bound<'_, PyAny>, &usize)| given.extract().is_ok_and(|n: usize| n == *length);
    tuple.len() == shape.len() && tuple.iter().zip(shape.iter()).all(is_length)
}

/// The variable that stands for a parameter in a graph.
fn used<'py>(
    py: Python<'py>,
    parameter: &graph::Variable,
    need_grad: bool,
    name: String,
) -> PyResult<Bound<'py, Variable>> {
    scopes::follow(py);
    let grad = settings::grad_enabled();
    if need_grad && !grad && settings::noting() {
        graph::note_read([&parameter.unlinked(Some(true))]);
    }
    let used = parameter.unlinked(Some(need_grad && grad));
    used.set_name(Some(name));
    Variable::wrap(py, used)
}

#[pymethods]
impl Variable {
    /// The function that computes it, or None. Assigning None disconnects it from the function. Assigning a function
    /// makes it the output of that function that shares its data.
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

    /// Disconnects this variable from the function that computes it.
    fn _clear_parent(&self) {
        self.variable.clear_parent();
    }

    /// True if an assignment by index may overwrite its memory, because nothing else reads it.
    fn _may_be_overwritten(&self) -> bool {
        self.variable.may_be_overwritten()
    }

    /// Allows the function that computes it in place to work on a copy, if its input is needed later in the run.
    fn _may_take_copy(&self) {
        self.variable.may_take_copy();
    }

    /// Moves the current value and its consumers to a new variable, which is returned. First half of an assignment by
    /// index.
    fn _split_off<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.variable.split_off())
    }

    /// The live functions that read it, each once.
    #[getter]
    fn function_references(&self) -> Vec<Function> {
        self.variable.function_references().into_iter().map(Function::wrap).collect()
    }

    /// Number of live Variables that share its data.
    #[getter(get_number_of_references)]
    fn number_of_references(&self) -> usize {
        self.variable.number_of_references()
    }

    /// True if runs must not clear its data: some variable that shares the memory in place forbids it.
    #[getter]
    fn _prohibit_clear_data(&self) -> bool {
        self.variable.prohibit_clear_data()
    }

    /// Raises the first error that occurred while a variable was dropped since the last call.
    #[staticmethod]
    fn _check_exception_at_dealloc() -> PyResult<()> {
        Ok(graph::check_errors_at_drop()?)
    }

    /// A variable without parent that shares data and gradient.
    ///
    /// Args:
    ///     need_grad: True if gradients flow to it. By default the same as for this variable.
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

    /// A new variable with a copy of the values and, if `copy_grad` is set, of the gradient.
    ///
    /// Args:
    ///     context: The device for the copy. Ignored: there is one device.
    ///     copy_grad: True to copy the gradient too.
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

    /// Replaces another variable in the graph: its parent computes this variable from now on.
    ///
    /// Args:
    ///     var: A variable of the same shape that a function computes. It has no parent afterwards.
    ///
    /// Raises:
    ///     RuntimeError: If `var` has no parent, or the shapes differ.
    fn rewire_on(&self, #[pyo3(from_py_with = object)] var: Bound<'_, Self>) -> PyResult<()> {
        Ok(self.variable.rewire_on(&var.get().variable)?)
    }

    /// A copy of this graph on parameters that need no gradient. This graph does not change.
    fn no_grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._python_functions.graph")?.call_method1("without_grad", (slf,))
    }

    /// Calls `f` with each function above this variable, inputs before outputs.
    fn visit(&self, #[pyo3(from_py_with = callable)] f: Bound<'_, PyAny>) -> PyResult<()> {
        Ok(self
            .variable
            .visit(|function| f.call1((Function::wrap(function.clone()),)).map(drop).map_err(foreign))?)
    }

    /// Like `visit`, but stops and returns True as soon as `f` returns a true value.
    fn visit_check(&self, #[pyo3(from_py_with = callable)] f: Bound<'_, PyAny>) -> PyResult<bool> {
        for function in self.variable.functions() {
            if f.call1((Function::wrap(function),))?.is_truthy()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Disconnects this variable and every variable above it from the functions that compute them.
    fn clear_all_graph_links(&self) {
        self.variable.clear_all_graph_links();
    }
}
