//! `Variable`: a handle on a place in the graph.

use std::fmt::Write;

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::function::Function;
use super::hooks::{self, Callbacks};
use super::ndarray::{NdArray, as_array, preview, shape_from};
use super::{autodiff, error::foreign, functions, numpy, operators};
use crate::Error;
use crate::array::Access;
use crate::graph::mode::{self, CheckSaved, Context};
use crate::graph::{self, BackwardOptions, ForwardOptions, Seed, When};

/// A place in a computation graph: values, their gradient, and the function that computes them.
///
/// Args:
///     shape: Lengths of the axes; none for a scalar.
///     need_grad: Whether gradients flow to it; left open, this follows from what computes it.
///     info: Anything; kept with this handle.
///
/// Raises:
///     ValueError: If the shape is none.
#[pyclass(frozen, subclass, weakref, module = "kinnor", name = "Variable")]
pub(super) struct Variable {
    pub(super) variable: graph::Variable,
    info: Mutex<Option<Py<PyAny>>>,
}

impl Variable {
    pub(super) fn wrap(py: Python<'_>, variable: graph::Variable) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self { variable, info: Mutex::new(None) })
    }
}

fn wrap(variable: graph::Variable) -> Variable {
    Variable { variable, info: Mutex::new(None) }
}

/// A list of NumPy-like or own arrays as what `.data = ` takes.
fn set_array(
    value: &Bound<'_, PyAny>,
    share: impl FnOnce(&graph::NdArray) -> crate::Result<()>,
    own: impl FnOnce() -> graph::NdArray,
) -> PyResult<()> {
    match value.cast::<NdArray>() {
        Ok(array) => Ok(share(&array.get().array)?),
        Err(_) => numpy::assign(&own(), value),
    }
}

#[pymethods]
impl Variable {
    #[new]
    #[pyo3(signature = (shape = None, need_grad = None, info = None))]
    fn new(
        shape: Option<&Bound<'_, PyAny>>,
        need_grad: Option<bool>,
        info: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let shape = shape.map_or(Ok(crate::array::Shape::default()), shape_from)?;
        let variable = graph::Variable::new(shape)?;
        if let Some(on) = need_grad {
            variable.set_need_grad(on);
        }
        Ok(Self { variable, info: Mutex::new(info) })
    }

    /// A variable with a copy of a NumPy array as its values, of the same type.
    ///
    /// Args:
    ///     data: The values.
    ///     grad: The gradient, of the same shape.
    ///     need_grad: Whether gradients flow to it.
    ///
    /// Returns:
    ///     A variable that no function computes.
    ///
    /// Raises:
    ///     ShapeError: If `grad` has another shape than `data`.
    #[staticmethod]
    #[pyo3(signature = (data, grad = None, need_grad = None))]
    fn from_numpy_array(
        data: &Bound<'_, PyAny>,
        grad: Option<&Bound<'_, PyAny>>,
        need_grad: Option<bool>,
    ) -> PyResult<Self> {
        let values = numpy::new_array(&numpy::as_numpy(data)?)?;
        let variable = graph::Variable::new(values.shape.clone())?;
        variable.set_data(&values)?;
        if let Some(grad) = grad {
            variable.set_grad(&numpy::new_array(&numpy::as_numpy(grad)?)?)?;
        }
        if let Some(on) = need_grad {
            variable.set_need_grad(on);
        }
        Ok(wrap(variable))
    }

    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.variable.shape().iter())
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.variable.size()
    }

    /// Number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.variable.shape().ndim()
    }

    /// Number of elements from an axis on.
    ///
    /// Args:
    ///     axis: The axis; -1 or 0 for the whole.
    #[pyo3(signature = (axis = -1), text_signature = "($self, axis=-1)")]
    fn size_from_axis(&self, axis: i64) -> usize {
        self.variable.shape().size_from(usize::try_from(axis).unwrap_or(0))
    }

    /// Gives the variable another shape.
    ///
    /// Args:
    ///     shape: The new shape.
    ///     force: Allow another number of elements; the values are lost then.
    ///
    /// Raises:
    ///     ShapeError: If the number of elements differs and `force` is not set.
    #[pyo3(signature = (shape, force = false))]
    fn reset_shape(&self, shape: &Bound<'_, PyAny>, force: bool) -> PyResult<()> {
        Ok(self.variable.reset_shape(shape_from(shape)?, force)?)
    }

    /// The same elements in another shape.
    ///
    /// Args:
    ///     shape: The new shape; one length may be -1 unless `unlink` is set.
    ///     unlink: Return a variable without parent that shares data and gradient, not a function of this one.
    ///
    /// Raises:
    ///     ShapeError: If the number of elements differs.
    #[pyo3(signature = (shape, unlink = false))]
    fn reshape<'py>(
        slf: &Bound<'py, Self>,
        shape: &Bound<'py, PyAny>,
        unlink: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if unlink {
            let copy = slf.get().variable.reshaped_unlinked(shape_from(shape)?)?;
            return Ok(Self::wrap(py, copy)?.into_any());
        }
        functions::call(py, "reshape", (slf, shape), None)
    }

    /// Whether gradients flow to it: what was set, else what follows from its parent.
    #[getter]
    fn need_grad(&self) -> bool {
        self.variable.need_grad()
    }

    #[setter]
    fn set_need_grad(&self, on: Option<bool>) {
        self.variable.set_need_grad(on.unwrap_or(false));
    }

    /// Whether gradients flow to it, as `need_grad`. Setting it is stricter: only leaves of floating-point numbers take it.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.variable.need_grad()
    }

    #[setter]
    fn set_requires_grad(&self, on: bool) -> PyResult<()> {
        Ok(self.variable.set_requires_grad(on)?)
    }

    /// Sets `requires_grad`, and returns this variable.
    ///
    /// Args:
    ///     mode: Whether gradients flow to it.
    ///
    /// Raises:
    ///     RuntimeError: If it holds no floating-point numbers, or a function computes it and `mode` is False.
    #[pyo3(signature = (mode = true))]
    fn requires_grad_(slf: Bound<'_, Self>, mode: bool) -> PyResult<Bound<'_, Self>> {
        slf.get().variable.set_requires_grad(mode)?;
        Ok(slf)
    }

    /// Whether nothing is differentiated through it: no function computes it from what requires grad.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.variable.is_leaf()
    }

    /// The function that computes it, if it requires grad.
    #[getter]
    fn grad_fn(&self) -> Option<Function> {
        self.variable.parent().filter(|_| !self.variable.is_leaf()).map(Function::wrap)
    }

    /// Lets `autodiff.backward` add to the gradient of this variable, which a function computes, as it does for leaves.
    ///
    /// Raises:
    ///     RuntimeError: If it requires no grad.
    fn retain_grad(&self) -> PyResult<()> {
        Ok(self.variable.retain_grad()?)
    }

    /// Whether `retain_grad` was called on what a function computes.
    #[getter]
    fn retains_grad(&self) -> bool {
        self.variable.retains_grad()
    }

    /// Lets `autodiff` call a function with the gradient of this variable, once a pass, after all contributions to it
    /// were added up and before anything is done with it.
    ///
    /// Args:
    ///     hook: Takes the gradient, a Variable that it must not change, and returns None or what takes its place.
    ///
    /// Returns:
    ///     A handle whose `remove()` removes the hook.
    ///
    /// Raises:
    ///     RuntimeError: If it requires no grad.
    fn register_hook(&self, hook: &Bound<'_, PyAny>) -> PyResult<autodiff::Handle> {
        autodiff::register_hook(&self.variable, When::Gradient, hook)
    }

    /// Lets `autodiff.backward` call a function with this leaf after its gradient was added to.
    ///
    /// Args:
    ///     hook: Takes the variable.
    ///
    /// Returns:
    ///     A handle whose `remove()` removes the hook.
    ///
    /// Raises:
    ///     RuntimeError: If it requires no grad, or a function computes it.
    fn register_post_accumulate_grad_hook(&self, hook: &Bound<'_, PyAny>) -> PyResult<autodiff::Handle> {
        autodiff::register_hook(&self.variable, When::Accumulated, hook)
    }

    /// Whether a gradient was written since it was made, zeroed or set to None.
    #[getter]
    fn has_grad(&self) -> bool {
        self.variable.has_grad()
    }

    /// Its gradient as a Variable on the same memory, or None if there is none. After a pass with `create_graph` it can
    /// be differentiated.
    #[getter]
    fn grad_variable<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Self>>> {
        self.variable.grad_variable().map(|g| Self::wrap(py, g)).transpose()
    }

    /// A variable on the same data to which no gradients flow: as `get_unlinked_variable(need_grad=False)`.
    fn detach<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.variable.unlinked(Some(false)))
    }

    /// Whether its data may be dropped after use and computed again for the backward run.
    #[getter]
    fn recompute(&self) -> bool {
        self.variable.recompute()
    }

    #[setter]
    fn set_recompute(&self, on: bool) {
        self.variable.set_recompute(on);
    }

    /// Whether runs may never clear its memory.
    #[getter]
    fn persistent(&self) -> bool {
        self.variable.persistent()
    }

    #[setter]
    fn set_persistent(&self, on: bool) {
        self.variable.set_persistent(on);
    }

    /// Its name, an empty string if it has none.
    #[getter]
    fn name(&self) -> String {
        self.variable.name().unwrap_or_default()
    }

    #[setter]
    fn set_name(&self, name: Option<String>) {
        self.variable.set_name(name);
    }

    /// The longest path to it from a variable without parent.
    #[getter]
    fn rank(&self) -> u32 {
        self.variable.rank()
    }

    /// Anything that was given with this handle.
    #[getter]
    fn info(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.info.lock().as_ref().map(|i| i.clone_ref(py))
    }

    #[setter]
    fn set_info(&self, info: Option<Py<PyAny>>) {
        let old = std::mem::replace(&mut *self.info.lock(), info);
        drop(old);
    }

    /// Its values as an NdArray that shares them. Assigning an NdArray shares its elements, anything else is copied.
    #[getter]
    fn data(&self) -> NdArray {
        NdArray { array: self.variable.data() }
    }

    #[setter]
    fn set_data(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        set_array(value, |array| self.variable.set_data(array), || self.variable.data())
    }

    /// Its gradient as an NdArray that shares it. Assigning an NdArray shares its elements, anything else is copied;
    /// `None` gives the memory back.
    #[getter]
    fn grad(&self) -> NdArray {
        NdArray { array: self.variable.grad() }
    }

    #[setter]
    fn set_grad(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.is_none() {
            self.variable.drop_grad();
            return Ok(());
        }
        set_array(value, |array| self.variable.set_grad(array), || self.variable.grad())
    }

    /// Its values as a NumPy array that shares them. Assigning copies, a number fills.
    #[getter]
    fn d<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::live_view(py, &self.variable.data()).map_err(|e| self.name_cleared(py, e, "data"))
    }

    #[setter]
    fn set_d(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        set_array(value, |array| self.variable.set_data(array), || self.variable.data())
    }

    /// Its gradient as a NumPy array that shares it. Assigning copies, a number fills.
    #[getter]
    fn g<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::live_view(py, &self.variable.grad()).map_err(|e| self.name_cleared(py, e, "grad"))
    }

    #[setter]
    fn set_g(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        set_array(value, |array| self.variable.set_grad(array), || self.variable.grad())
    }

    /// The function that computes it, or None. (Assigning None cuts it off.)
    #[getter]
    fn parent(&self) -> Option<Function> {
        self.variable.parent().map(Function::wrap)
    }

    #[setter]
    fn set_parent(&self, parent: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        match parent {
            None => {
                self.variable.clear_parent();
                Ok(())
            }
            Some(_) => {
                Err(PyTypeError::new_err("parent: expected None, which cuts the variable off; see rewire_on"))
            }
        }
    }

    fn _clear_parent(&self) {
        self.variable.clear_parent();
    }

    /// What stands in the place of this variable once it is split off: the first half of an assignment by index.
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
        need_grad: Option<bool>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.variable.unlinked(need_grad))
    }

    /// Deprecated: use `get_unlinked_variable`.
    #[pyo3(signature = (need_grad = None))]
    fn unlinked<'py>(&self, py: Python<'py>, need_grad: Option<bool>) -> PyResult<Bound<'py, Self>> {
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
        copy_grad: bool,
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
    fn rewire_on(&self, var: &Self) -> PyResult<()> {
        Ok(self.variable.rewire_on(&var.variable)?)
    }

    /// The same computation on parameters that need no gradient; this graph stays as it is.
    fn no_grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._graph")?.call_method1("without_grad", (slf,))
    }

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
        clear_buffer: bool,
        clear_no_need_grad: bool,
        function_pre_hook: Option<&Bound<'_, PyAny>>,
        function_post_hook: Option<&Bound<'_, PyAny>>,
        memory_budget: Option<usize>,
    ) -> PyResult<()> {
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
    #[pyo3(signature = (grad = Given::default(), clear_buffer = false, communicator_callbacks = None, function_pre_hook = None, function_post_hook = None), text_signature = "($self, grad=1, clear_buffer=False, communicator_callbacks=None, function_pre_hook=None, function_post_hook=None)")]
    fn backward(
        &self,
        py: Python<'_>,
        grad: Given<'_>,
        clear_buffer: bool,
        communicator_callbacks: Option<&Bound<'_, PyAny>>,
        function_pre_hook: Option<&Bound<'_, PyAny>>,
        function_post_hook: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let seed = grad.0.map_or(Ok(Seed::default()), |grad| self.seed(&grad))?;
        let callbacks = Callbacks::new(communicator_callbacks)?;
        let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
        let modified: Option<&(dyn Fn(String) -> crate::Result<()> + Sync)> = match mode::check_saved() {
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

    /// Calls `f` with each function above this variable, each after those that feed it.
    fn visit(&self, f: &Bound<'_, PyAny>) -> PyResult<()> {
        Ok(self
            .variable
            .visit(|function| f.call1((Function::wrap(function.clone()),)).map(drop).map_err(foreign))?)
    }

    /// As `visit`; stops and returns True when `f` returns something true.
    fn visit_check(&self, f: &Bound<'_, PyAny>) -> PyResult<bool> {
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

    /// Sets attributes, and returns this variable.
    #[pyo3(signature = (**kwargs))]
    fn apply<'py>(slf: Bound<'py, Self>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, Self>> {
        for (name, value) in kwargs.into_iter().flatten() {
            slf.setattr(name.cast::<pyo3::types::PyString>()?, value)?;
        }
        Ok(slf)
    }

    /// A variable over the same values with `value` where `mask` is not zero, in place.
    ///
    /// Args:
    ///     mask: Array that broadcasts to this one.
    ///     value: A number.
    fn bool_fill_<'py>(
        slf: &Bound<'py, Self>,
        mask: &Bound<'py, PyAny>,
        value: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._graph")?.call_method1("bool_fill_", (slf, mask, value))
    }

    /// As `bool_fill_`.
    fn masked_fill_<'py>(
        slf: &Bound<'py, Self>,
        mask: &Bound<'py, PyAny>,
        value: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::bool_fill_(slf, mask, value)
    }

    #[pyo3(signature = (dtype = None, copy = None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        as_array(self.variable.data(), py, dtype, copy).map_err(|e| self.name_cleared(py, e, "data"))
    }

    #[classattr]
    fn __array_ufunc__(py: Python<'_>) -> Py<PyAny> {
        py.None()
    }

    #[pyo3(signature = (**options))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.d(py)?.call_method("__dlpack__", (), options)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// The only element as a Python number.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.values(py)?.call_method0("item")
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.item(py)?.extract()
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._indexing")?.call_method1("getitem", (slf, key))
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: Bound<'_, PyAny>, value: Bound<'_, PyAny>) -> PyResult<()> {
        slf.py().import("kinnor._indexing")?.call_method1("setitem", (slf, key, value)).map(drop)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|o| o.get().variable == self.variable)
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.variable.hash(&mut hasher);
        hasher.finish() >> 2
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let v = &self.variable;
        let data = v.data();
        let dtype = data.storage.dtype();
        let mut text = String::new();
        let _ = write!(text, "<Variable({}", data.shape);
        if let Some(dtype) = dtype {
            let _ = write!(text, ", {dtype}");
        }
        let _ = write!(text, ", need_grad={}", if v.need_grad() { "True" } else { "False" });
        if let Some(name) = v.name().filter(|n| !n.is_empty()) {
            let _ = write!(text, ", name='{name}'");
        }
        if let Some(parent) = v.parent() {
            let _ = write!(text, ", by {}", parent.type_name());
        }
        text.push(')');
        match dtype {
            _ if data.storage.is_cleared() => text += ", cleared",
            Some(dtype) => {
                let view = numpy::view(py, &data, dtype, Access::Read)?;
                let _ = write!(text, "\n{}", preview(&view)?);
            }
            None => {}
        }
        Ok(text + ">")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let restore = py.import("kinnor._graph")?.getattr("restore")?;
        let v = &slf.get().variable;
        let values = slf.get().values(py)?.call_method0("copy")?;
        (restore, (values, v.need_grad_flag(), v.persistent(), v.recompute(), v.name()))
            .into_pyobject(py)
            .map(Bound::into_any)
    }

    fn __copy__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.variable.clone())
    }

    fn __deepcopy__<'py>(&self, py: Python<'py>, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        let _ = memo;
        if self.variable.parent().is_some() {
            let text = "deepcopy: expected a variable without parent; take get_unlinked_variable() first";
            return Err(Error::Graph(text.into()).into());
        }
        let copy = self.variable.create_deep_copy(&Context::default(), true)?;
        copy.set_name(self.variable.name());
        Self::wrap(py, copy)
    }

    fn __pos__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        operators::scaled(slf.as_any(), -1.0)
    }
    fn __add__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::operator(slf.as_any(), o, &operators::ADD)
    }
    fn __radd__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::reflected(slf.as_any(), o, &operators::ADD)
    }
    fn __sub__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::operator(slf.as_any(), o, &operators::SUB)
    }
    fn __rsub__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::reflected(slf.as_any(), o, &operators::SUB)
    }
    fn __mul__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::operator(slf.as_any(), o, &operators::MUL)
    }
    fn __rmul__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::reflected(slf.as_any(), o, &operators::MUL)
    }
    fn __truediv__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::operator(slf.as_any(), o, &operators::DIV)
    }
    fn __rtruediv__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        operators::reflected(slf.as_any(), o, &operators::DIV)
    }
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        o: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        operators::power(slf.as_any(), o, modulo)
    }
    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        o: &Bound<'py, PyAny>,
        modulo: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = modulo;
        operators::reflected(slf.as_any(), o, &operators::POW)
    }
    fn __matmul__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._matmul")?.call_method1("matmul", (slf, o))
    }
}

/// An argument that may be left out, which is not the same as None.
#[derive(Default)]
struct Given<'py>(Option<Bound<'py, PyAny>>);

impl<'a, 'py> FromPyObject<'a, 'py> for Given<'py> {
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

    /// A NumPy array to read the values from, which does not count as a write.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::read_view(py, &self.variable.data()).map_err(|e| self.name_cleared(py, e, "data"))
    }

    /// Says of which variable the memory was cleared.
    fn name_cleared(&self, py: Python<'_>, error: PyErr, what: &str) -> PyErr {
        if !error.is_instance_of::<pyo3::exceptions::PyRuntimeError>(py) {
            return error;
        }
        Error::Cleared(format!(
            "{what}: expected values of {}, but the memory was cleared; set persistent on it before the run, or run \
             forward() again",
            self.variable.describe()
        ))
        .into()
    }
}
