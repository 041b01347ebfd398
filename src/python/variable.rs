//! `Variable`: a handle on a variable of the graph.

use std::fmt::Write;

use parking_lot::Mutex;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};

use super::arguments::{flag, number, some_flag, some_text};
use super::classes::{NdArray, Variable, collected};
use super::ndarray::preview;
use super::protocols::Elements;
use super::shapes::{lengths, noted, reshape_arguments, shape_from};
use super::{autodiff, derived, functions, numpy, operators, scopes};
use crate::array::{Access, DType, Shape};
use crate::graph::settings::Context;
use crate::{Error, graph};

/// The arguments of `Variable(...)`.
struct VariableArguments {
    /// The shape.
    shape: Shape,
    /// True if gradients flow to the variable. None to follow from its function.
    need_grad: Option<bool>,
    /// The object to store with the handle.
    info: Option<Py<PyAny>>,
}

impl VariableArguments {
    /// Reads the arguments from positional and keyword arguments.
    fn of(given: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        /// The names of the arguments, in order.
        const NAMES: [&str; 3] = ["shape", "need_grad", "info"];
        let refuse = |what: String| PyErr::from(Error::Type(format!("Variable: expected {what}")));
        if given.len() > NAMES.len() && !given.iter().all(|one| is_whole(&one)) {
            return Err(refuse(format!("at most {} arguments, got {}", NAMES.len(), given.len())));
        }
        let mut found = [None, None, None];
        for (place, one) in found.iter_mut().zip(given) {
            *place = Some(one);
        }
        for (key, one) in named.into_iter().flatten() {
            let key = key.cast::<PyString>()?.to_str()?;
            let Some(at) = NAMES.iter().position(|name| *name == key) else {
                let hint = functions::nearest(given.py(), key, NAMES.to_vec());
                return Err(refuse(format!(
                    "arguments {}, got an unexpected keyword argument '{key}'{hint}",
                    NAMES.join(", ")
                )));
            };
            if found[at].replace(one).is_some() {
                return Err(refuse(format!("'{key}' once, got it twice")));
            }
        }
        if found[..2].iter().flatten().filter(|one| is_whole(one)).count() == 2 {
            return Err(refuse(format!(
                "one shape, such as Variable({given}), got the lengths as arguments"
            )));
        }
        let [shape, need_grad, info] = found.map(|one| one.filter(|one| !one.is_none()));
        Ok(Self {
            shape: shape.as_ref().map_or(Ok(Shape::default()), |shape| lengths("Variable", shape))?,
            need_grad: need_grad
                .as_ref()
                .map_or(Ok(None), some_flag)
                .map_err(|error| noted(given.py(), error, "need_grad"))?,
            info: info.map(Bound::unbind),
        })
    }
}

/// True for a whole number of Python, but not for True and False.
fn is_whole(one: &Bound<'_, PyAny>) -> bool {
    one.is_instance_of::<PyInt>() && !one.is_instance_of::<PyBool>()
}

/// True if a class derived from `Variable` overrides a method.
fn overrides(class: &Bound<'_, PyType>, method: &str) -> PyResult<bool> {
    let own = class.py().get_type::<Variable>();
    Ok(!class.is(&own) && !class.getattr(method)?.is(&own.getattr(method)?))
}

/// A variable for `Variable.__new__` to hold, so that a copy is of the class of the original.
#[pyclass(frozen)]
struct Made(graph::Variable);

impl Variable {
    /// A variable without arguments yet: a derived class passes them to `Variable.__init__` later. Reading it fails
    /// until then.
    fn unset() -> PyResult<Self> {
        let variable = graph::Variable::new(Shape::default())?;
        variable.data().storage.clear(true)?;
        Ok(wrap(variable))
    }

    /// Applies the arguments that a derived class passes to `Variable.__init__`. If its own `__new__` has `made` the
    /// variable, arguments that do not fit are ignored: they were meant for `__new__`.
    fn set_up(
        &self,
        given: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
        made: bool,
    ) -> PyResult<()> {
        let is_unset = self.variable.data().storage.is_cleared();
        if !is_unset && given.is_empty() && named.is_none_or(PyDictMethods::is_empty) {
            return Ok(());
        }
        let given = match VariableArguments::of(given, named) {
            Err(_) if made && !is_unset => return Ok(()),
            given => given?,
        };
        self.variable.reset_shape(given.shape.clone(), true)?;
        if self.variable.data().storage.is_cleared() {
            self.variable.set_data(&graph::NdArray::new(given.shape)?)?;
        }
        match given.need_grad {
            Some(on) => self.variable.set_need_grad(on),
            None => self.variable.unset_need_grad(),
        }
        let old = std::mem::replace(&mut *self.info.lock(), given.info);
        drop(old); // Which may run the user's code.
        Ok(())
    }
}

/// A handle without `info`.
fn wrap(variable: graph::Variable) -> Variable {
    Variable { variable, info: Mutex::new(None) }
}

/// Assignment to `.data`: shares the elements of an NdArray, copies anything else.
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
    #[classmethod]
    #[pyo3(signature = (*given, **named), text_signature = "(shape=None, need_grad=None, info=None)")]
    fn new(
        cls: &Bound<'_, PyType>,
        given: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        scopes::follow(cls.py());
        if given.len() == 1
            && let Ok(one) = given.get_item(0)
            && let Ok(made) = one.cast_exact::<Made>()
        {
            return Ok(wrap(made.get().0.clone()));
        }
        let made = VariableArguments::of(given, named).and_then(|given| {
            let variable = graph::Variable::new(given.shape)?;
            if let Some(on) = given.need_grad {
                variable.set_need_grad(on);
            }
            Ok(Self { variable, info: Mutex::new(given.info) })
        });
        match made {
            Err(_) if overrides(cls, "__init__")? => Self::unset(),
            made => made,
        }
    }

    /// Initialises a variable of a derived class, whose constructor may have other arguments. Also makes Python's
    /// garbage collector track a variable with `info`.
    #[pyo3(signature = (*given, **named))]
    fn __init__(
        slf: &Bound<'_, Self>,
        given: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let class = slf.get_type();
        if overrides(&class, "__init__")? {
            slf.get().set_up(given, named, overrides(&class, "__new__")?)?;
        }
        if slf.get().info.lock().is_some() {
            collected(slf, true);
        }
        Ok(())
    }

    /// A variable with a copy of a NumPy array as its values, in the same type.
    ///
    /// Args:
    ///     data: The values.
    ///     grad: The gradient, of the same shape.
    ///     need_grad: True if gradients flow to it.
    ///
    /// Returns:
    ///     A variable that no function computes.
    ///
    /// Raises:
    ///     ShapeError: If `grad` has another shape than `data`.
    #[staticmethod]
    #[pyo3(signature = (data, grad = None, need_grad = None))]
    fn from_numpy_array(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        grad: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = some_flag)] need_grad: Option<bool>,
    ) -> PyResult<Self> {
        scopes::follow(py);
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

    /// Changes the shape of the variable.
    ///
    /// Args:
    ///     shape: The new shape.
    ///     force: Allow another number of elements. The values are lost then.
    ///
    /// Raises:
    ///     ShapeError: If the number of elements differs and `force` is not set.
    #[pyo3(signature = (shape, force = false))]
    fn reset_shape(
        &self,
        shape: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] force: bool,
    ) -> PyResult<()> {
        Ok(self.variable.reset_shape(shape_from(shape)?, force)?)
    }

    /// The same elements in another shape.
    ///
    /// Args:
    ///     shape: The new shape, as one tuple or as several integers. One length may be -1 unless `unlink` is set.
    ///     unlink: Return a variable without parent that shares data and gradient, instead of an output of a function.
    ///
    /// Raises:
    ///     ShapeError: If the number of elements differs.
    ///
    /// Example:
    ///     >>> import kinnor as nn
    ///     >>> nn.Variable((2, 3)).reshape(3, 2).shape
    ///     (3, 2)
    #[pyo3(signature = (*shape, **named), text_signature = "($self, *shape, unlink=False)")]
    fn reshape<'py>(
        slf: &Bound<'py, Self>,
        shape: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let (shape, unlink) = reshape_arguments(shape, named)?;
        if unlink {
            let copy = slf.get().variable.reshaped_unlinked(shape_from(&shape)?)?;
            return Ok(Self::wrap(py, copy)?.into_any());
        }
        functions::call(py, "reshape", (slf, shape), None)
    }

    /// True if gradients flow to it: the value that was set, else a consequence of its parent.
    #[getter]
    fn need_grad(&self) -> bool {
        self.variable.need_grad()
    }

    #[setter]
    fn set_need_grad(&self, #[pyo3(from_py_with = some_flag)] need_grad: Option<bool>) {
        self.variable.set_need_grad(need_grad.unwrap_or(false));
    }

    /// True if its data may be dropped after use and recomputed for the backward run.
    #[getter]
    fn recompute(&self) -> bool {
        self.variable.recompute()
    }

    #[setter]
    fn set_recompute(&self, #[pyo3(from_py_with = flag)] recompute: bool) {
        self.variable.set_recompute(recompute);
    }

    /// True if runs must never clear its memory.
    #[getter]
    fn persistent(&self) -> bool {
        self.variable.persistent()
    }

    #[setter]
    fn set_persistent(&self, #[pyo3(from_py_with = flag)] persistent: bool) {
        self.variable.set_persistent(persistent);
    }

    /// Its name. An empty string if it has none.
    #[getter]
    fn name(&self) -> String {
        self.variable.name().unwrap_or_default()
    }

    #[setter]
    fn set_name(&self, #[pyo3(from_py_with = some_text)] name: Option<String>) {
        self.variable.set_name(name);
    }

    /// The longest path to it from a variable without parent.
    #[getter]
    fn rank(&self) -> u32 {
        self.variable.rank()
    }

    /// The object that was stored with this handle.
    #[getter]
    fn info(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.info.lock().as_ref().map(|i| i.clone_ref(py))
    }

    #[setter]
    fn set_info(slf: &Bound<'_, Self>, info: Option<Py<PyAny>>) {
        if info.is_some() {
            collected(slf, true);
        }
        let old = std::mem::replace(&mut *slf.get().info.lock(), info);
        drop(old);
    }

    /// Its values as an NdArray that shares them. Assigning an NdArray shares its elements; anything else is copied.
    #[getter]
    fn data(&self) -> PyResult<NdArray> {
        let array = self.variable.data();
        if array.storage.is_cleared() {
            self.variable.bring_back()?;
        }
        match array.storage.is_unwritten() && !self.variable.is_computed() {
            true => Ok(NdArray::of_output(array)),
            false => Ok(array.into()),
        }
    }

    #[setter]
    fn set_data(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        set_array(value, |array| self.variable.set_data(array), || self.variable.data())
    }

    /// Its gradient as an NdArray that shares it. Assigning an NdArray shares its elements, assigning None frees the
    /// memory, and anything else is copied.
    #[getter]
    fn grad(&self) -> NdArray {
        self.variable.grad().into()
    }

    #[setter]
    fn set_grad(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.is_none() {
            self.variable.drop_grad();
            return Ok(());
        }
        set_array(value, |array| self.variable.set_grad(array), || self.variable.grad())
    }

    /// Type of the values as NumPy names it: `float32` for a variable that was not written to.
    ///
    /// Raises:
    ///     NotComputedError: If it is a function's output that no run has computed.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.variable.check_computed("dtype")?;
        let dtype = self.variable.data().storage.dtype().unwrap_or(DType::F32);
        Ok(numpy::descriptor(py, dtype)?.into_any())
    }

    /// Its values as a NumPy array that shares them. Assigning an array copies it, assigning a number fills the values.
    ///
    /// Raises:
    ///     NotComputedError: If it is a function's output that no run has computed: call `forward()`, or build the
    ///         graph under `auto_forward()`.
    #[getter]
    fn d<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.live(py)
    }

    #[setter]
    fn set_d(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        set_array(value, |array| self.variable.set_data(array), || self.variable.data())
    }

    /// Its gradient as a NumPy array that shares it. Assigning an array copies it, assigning a number fills the
    /// gradient.
    #[getter]
    fn g<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::live_view(py, &self.variable.grad()).map_err(|e| self.name_cleared(py, e, "grad"))
    }

    #[setter]
    fn set_g(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        set_array(value, |array| self.variable.set_grad(array), || self.variable.grad())
    }

    /// Its values as a NumPy array that the caller owns, without a copy if possible. The next run writes to other
    /// memory. Until then, the variable shows what the caller writes.
    fn _handed_out<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.variable.has_own_memory() {
            self.reading(py, |array| numpy::handed_out(py, array))
        } else {
            self.values(py)?.call_method0("copy")
        }
    }

    /// Sets attributes and returns this variable.
    #[pyo3(signature = (**kwargs))]
    fn apply<'py>(slf: Bound<'py, Self>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, Self>> {
        let set = |v: &Bound<'py, Self>| {
            let mut given = kwargs.into_iter().flatten();
            given.try_for_each(|(name, value)| v.setattr(name.cast::<PyString>()?, value))
        };
        // Several attributes are set all or none: they are tried on a temporary variable first.
        if kwargs.is_some_and(|k| k.len() > 1) && slf.get_type().is(slf.py().get_type::<Self>()) {
            set(&Self::wrap(slf.py(), graph::Variable::new(slf.get().variable.shape())?)?)?;
        }
        set(&slf)?;
        Ok(slf)
    }

    /// Replaces elements in place by `value` where `mask` is not zero. Returns the resulting variable.
    ///
    /// Args:
    ///     mask: Array that broadcasts to this one.
    ///     value: A number.
    fn bool_fill_<'py>(
        slf: &Bound<'py, Self>,
        mask: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] value: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("kinnor._python_functions.graph")?.call_method1("bool_fill_", (slf, mask, value))
    }

    /// Same as `bool_fill_`.
    fn masked_fill_<'py>(
        slf: &Bound<'py, Self>,
        mask: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] value: f64,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::bool_fill_(slf, mask, value)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(info) = self.info.try_lock() {
            visit.call(&*info)?;
        }
        autodiff::traverse(&self.variable, &visit)
    }

    fn __clear__(&self) {
        let info = self.info.lock().take();
        drop(info);
        self.variable.drop_own_hooks();
    }

    /// Compares identity. Functions compare elements.
    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        let is_same = other.cast::<Self>().is_ok_and(|o| o.get().variable == self.variable);
        operators::compared("Variable", is_same, other, op)
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
                if v.is_stale() {
                    text += ", stale: an input changed since";
                }
                let view = numpy::view(py, &data, dtype, Access::Read)?;
                let _ = write!(text, "\n{}", preview(&view)?);
            }
            None if data.storage.is_unwritten() && !v.is_computed() => text += ", not computed",
            None => {}
        }
        Ok(text + ">")
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let restore = py.import("kinnor._python_functions.graph")?.getattr("restore")?;
        let v = &slf.get().variable;
        let values = slf.get().values(py)?.call_method0("copy")?;
        let parts = (values, v.need_grad_flag(), v.persistent(), v.recompute(), v.name(), slf.get_type());
        derived::reduced(slf, restore, parts.into_pyobject(py)?)
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let copy = Self::of_class(&slf.get_type(), slf.get().variable.clone())?;
        if let Some(info) = &*slf.get().info.lock() {
            *copy.cast::<Self>()?.get().info.lock() = Some(info.clone_ref(slf.py()));
            collected(copy.cast::<Self>()?, true);
        }
        derived::copied(slf, copy, None)
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let v = &slf.get().variable;
        if v.parent().is_some() {
            let text = "deepcopy: expected a variable without parent; take get_unlinked_variable() first";
            return Err(Error::Graph(text.into()).into());
        }
        let copy = v.create_deep_copy(&Context::default(), true)?;
        copy.set_name(v.name());
        copy.set_persistent(v.persistent());
        copy.set_recompute(v.recompute());
        derived::copied(slf, Self::of_class(&slf.get_type(), copy)?, Some(memo))
    }

    /// Another object for the same variable, of a derived class.
    fn _of_class<'py>(&self, cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        Self::of_class(cls, self.variable.clone())
    }
}

impl Variable {
    /// An object of this class or a derived one for a variable, made without a call of `__init__`.
    fn of_class<'py>(cls: &Bound<'py, PyType>, variable: graph::Variable) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let own = py.get_type::<Self>();
        if cls.is(&own) {
            return Ok(Self::wrap(py, variable)?.into_any());
        }
        own.getattr("__new__")?.call1((cls, Bound::new(py, Made(variable))?))
    }

    /// Adds the name of the variable to the error of a cleared value.
    pub(super) fn name_cleared(&self, py: Python<'_>, error: PyErr, what: &str) -> PyErr {
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
