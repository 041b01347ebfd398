//! `PythonFunction`: the base class of user-defined operations.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::arguments::{count, flag, some_flag, whole};
use super::classes::NdArray;
use super::numpy;
use super::operands::{into_arrays, run_user};
use super::shapes::shape_from;
use super::user_operation::UserOp;
use crate::array::Storage;
use crate::ops::{Array, Op};
use crate::{Error, graph};

/// Base class of operations written in Python. Override its methods, then call an object of it as a function.
///
/// Examples:
///     >>> import kinnor as nn, kinnor.functions as F
///     >>> class Double(F.PythonFunction):
///     ...     def min_outputs(self):
///     ...         return 1
///     ...     def setup_impl(self, inputs, outputs):
///     ...         (x,), (y,) = inputs, outputs
///     ...         y.reset_shape(x.shape, True)
///     ...     def forward_impl(self, inputs, outputs):
///     ...         (x,), (y,) = inputs, outputs
///     ...         y.d = 2 * x.d
///     ...     def backward_impl(self, inputs, outputs, propagate_down, accum):
///     ...         (x,), (y,), (is_added,) = inputs, outputs, accum
///     ...         x.g = x.g + 2 * y.g if is_added else 2 * y.g
///     ...     def grad_depends_input_data(self, i, j):
///     ...         return False
///     ...     def grad_depends_output_data(self, i, o):
///     ...         return False
///     >>> x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
///     >>> y = Double()(x)
///     >>> y.forward()
///     >>> y.backward()
///     >>> y.d.tolist(), x.g.tolist()
///     ([2.0, 4.0], [2.0, 2.0])
#[pyclass(subclass, weakref, dict, module = "kinnor", name = "PythonFunction")]
pub(super) struct PythonFunction {
    /// The context in which it computes.
    #[pyo3(get, set)]
    ctx: Option<Py<PyAny>>,
}

/// The error of a method that a derived class must override.
fn must_override<T>(slf: &Bound<'_, PythonFunction>, method: &str) -> PyResult<T> {
    let name = slf.get_type().name()?;
    Err(pyo3::exceptions::PyNotImplementedError::new_err(format!(
        "{name}: expected the class to define {method}"
    )))
}

#[pymethods]
impl PythonFunction {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { ctx: None } // The arguments are those of the derived class.
    }

    /// Takes the context, for derived classes that pass it on from their own `__init__`.
    #[pyo3(signature = (ctx = None, *_args, **_kwargs))]
    fn __init__(
        &mut self,
        ctx: Option<Py<PyAny>>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) {
        self.ctx = ctx;
    }

    /// Name of the operation. By default the name of the class.
    #[getter]
    fn name(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(slf.get_type().name()?.to_string())
    }

    /// Number of outputs.
    fn min_outputs(slf: &Bound<'_, Self>) -> PyResult<usize> {
        must_override(slf, "min_outputs()")
    }

    /// Checks the inputs and sets the shapes of the outputs by `reset_shape(shape, True)`.
    fn setup_impl(
        slf: &Bound<'_, Self>,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (inputs, outputs);
        must_override(slf, "setup_impl(inputs, outputs)")
    }

    /// Writes the values of the outputs.
    fn forward_impl(
        slf: &Bound<'_, Self>,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (inputs, outputs);
        must_override(slf, "forward_impl(inputs, outputs)")
    }

    /// Writes the gradient of each input for which `propagate_down` is true, adding to it where `accum` is true.
    fn backward_impl(
        slf: &Bound<'_, Self>,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
        propagate_down: &Bound<'_, PyAny>,
        accum: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (inputs, outputs, propagate_down, accum);
        must_override(slf, "backward_impl(inputs, outputs, propagate_down, accum)")
    }

    /// Recomputes the values of the outputs after they were dropped, without side effects. By default calls
    /// `forward_impl`.
    fn recompute_impl<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyAny>,
        outputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.call_method1("forward_impl", (inputs, outputs))
    }

    /// The gradient as a graph, for `kinnor.grad` and gradients of gradients.
    ///
    /// Args:
    ///     inputs: The inputs as Variables.
    ///     outputs: The outputs as Variables.
    ///     grad_outputs: The gradients of the outputs as Variables.
    ///     propagate_down: For each input, True if its gradient is needed.
    ///
    /// Returns:
    ///     For each input a Variable of its shape, or None for zeros.
    fn gradient_impl<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyAny>,
        outputs: &Bound<'py, PyAny>,
        grad_outputs: &Bound<'py, PyAny>,
        propagate_down: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let by_name = slf.py().import("kinnor.function")?.getattr("gradient_by_name")?;
        by_name.call1((slf, inputs, outputs, grad_outputs, propagate_down))
    }

    /// True if the gradient of input `i` reads the values of output `o`.
    fn grad_depends_output_data(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] o: usize,
    ) -> PyResult<bool> {
        let _ = (i, o);
        must_override(slf, "grad_depends_output_data(i, o)")
    }

    /// True if the gradient of input `i` reads the values of input `j`.
    fn grad_depends_input_data(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] j: usize,
    ) -> PyResult<bool> {
        let _ = (i, j);
        must_override(slf, "grad_depends_input_data(i, j)")
    }

    /// True if `gradient_impl` reads input `j` for the gradient of input `i`. Adds to the reads of `backward_impl`.
    fn auto_grad_depends_input_data(
        &self,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] j: usize,
    ) -> bool {
        let _ = (i, j);
        false
    }

    /// True if `gradient_impl` reads output `o` for the gradient of input `i`. Adds to the reads of `backward_impl`.
    fn auto_grad_depends_output_data(
        &self,
        #[pyo3(from_py_with = count)] i: usize,
        #[pyo3(from_py_with = count)] o: usize,
    ) -> bool {
        let _ = (i, o);
        false
    }

    /// Memory that an output shares with input `i`: 0 for none, 1 for equal values, 2 for overwritten values.
    fn inplace_data(&self, #[pyo3(from_py_with = count)] i: usize) -> usize {
        let _ = i;
        0
    }

    /// The number of the output that shares the memory of input `i`, if one does.
    fn inplace_data_with(&self, #[pyo3(from_py_with = count)] i: usize) -> usize {
        let _ = i;
        0
    }

    /// True if `forward_impl` writes to input `i`, as for running statistics.
    fn overwrite_input_data_in_forward(&self, #[pyo3(from_py_with = count)] i: usize) -> bool {
        let _ = i;
        false
    }

    /// True if runs must not clear the inputs.
    fn prohibit_clear_input_buffers(&self) -> bool {
        false
    }

    #[pyo3(signature = (*inputs, n_outputs = -1, auto_forward = None, outputs = None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyTuple>,
        #[pyo3(from_py_with = whole)] n_outputs: i64,
        #[pyo3(from_py_with = some_flag)] auto_forward: Option<bool>,
        outputs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (n_outputs, auto_forward);
        let into = outputs.map_or(Ok(Vec::new()), into_arrays)?;
        let op = UserOp::bind(slf, inputs)?;
        run_user(slf.py(), Op::Shared(Arc::new(op)), inputs, &into)
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        self.ctx.as_ref().map_or(Ok(()), |ctx| visit.call(ctx))
    }

    fn __clear__(&mut self) {
        self.ctx = None;
    }
}

/// An input or output as the methods of a user-defined operation get it: shape, values and gradient.
#[pyclass(frozen, module = "kinnor", name = "FunctionVariable")]
pub(super) struct FunctionVariable {
    /// The shape, the values and the gradient.
    pub(super) array: parking_lot::Mutex<Array>,
}

impl FunctionVariable {
    /// The values.
    fn data_array(&self) -> graph::NdArray {
        let a = self.array.lock();
        graph::NdArray { shape: a.shape.clone(), storage: Arc::clone(&a.data) }
    }

    /// The gradient.
    fn grad_array(&self) -> graph::NdArray {
        let a = self.array.lock();
        graph::NdArray { shape: a.shape.clone(), storage: Arc::clone(&a.grad) }
    }
}

#[pymethods]
impl FunctionVariable {
    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.lock().shape.iter())
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.array.lock().shape.size()
    }

    /// Number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.array.lock().shape.ndim()
    }

    /// The values as an NdArray that shares them.
    #[getter]
    fn data(&self) -> NdArray {
        self.data_array().into()
    }

    /// The gradient as an NdArray that shares it.
    #[getter]
    fn grad(&self) -> NdArray {
        self.grad_array().into()
    }

    /// The values as a NumPy array that shares them. Assigning writes into it.
    #[getter]
    fn d<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::live_view(py, &self.data_array())
    }

    #[setter]
    fn set_d(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.d(value.py())?.set_item(value.py().Ellipsis(), value)
    }

    /// The gradient as a NumPy array that shares it. Assigning writes into it.
    #[getter]
    fn g<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::live_view(py, &self.grad_array())
    }

    #[setter]
    fn set_g(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.g(value.py())?.set_item(value.py().Ellipsis(), value)
    }

    /// Gives it another shape.
    ///
    /// Args:
    ///     shape: The new shape.
    ///     force: Allow another number of elements.
    #[pyo3(signature = (shape, force = false))]
    fn reset_shape(
        &self,
        shape: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] force: bool,
    ) -> PyResult<()> {
        let shape = shape_from(shape)?;
        let mut a = self.array.lock();
        if a.shape.size() != shape.checked_size()? {
            if !force {
                let expected = format!("{} elements as before; pass force=True", a.shape.size());
                return Err(Error::shape("reset_shape", expected, [&shape]).into());
            }
            (a.data, a.grad) = (Storage::new(shape.size()), Storage::new(shape.size()));
        }
        a.shape = shape;
        Ok(())
    }
}
