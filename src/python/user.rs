//! `PythonFunction`: an operation that a user writes in Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::error::foreign;
use super::ndarray::{NdArray, shape_from};
use super::variable::Variable;
use super::{functions, numpy};
use crate::array::{DType, Shape, Storage};
use crate::graph;
use crate::ops::{Alias, Array, Call, Kind, OnArrays, Op, Operation, Reads, Shapes, Sym, Symbols, Value};
use crate::{Error, Result};

/// Base class of operations written in Python. Override its methods; call an object of it as a function.
#[pyclass(subclass, weakref, dict, module = "kinnor", name = "PythonFunction")]
pub(super) struct PythonFunction {
    /// The context in which it computes.
    #[pyo3(get, set)]
    ctx: Option<Py<PyAny>>,
}

fn must_override<T>(slf: &Bound<'_, PythonFunction>, method: &str) -> PyResult<T> {
    let name = slf.get_type().name()?;
    Err(pyo3::exceptions::PyNotImplementedError::new_err(format!(
        "{name}: expected the class to define {method}"
    )))
}

#[pymethods]
impl PythonFunction {
    #[new]
    #[pyo3(signature = (ctx = None, *_args, **_kwargs))]
    fn new(ctx: Option<Py<PyAny>>, _args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { ctx }
    }

    /// Takes the context, for classes that hand it on from an `__init__` of their own.
    #[pyo3(signature = (ctx = None, *_args, **_kwargs))]
    fn __init__(
        &mut self,
        ctx: Option<Py<PyAny>>,
        _args: &Bound<'_, PyTuple>,
        _kwargs: Option<&Bound<'_, PyDict>>,
    ) {
        self.ctx = ctx;
    }

    /// Name of the operation; the name of the class by default.
    #[getter]
    fn name(slf: &Bound<'_, Self>) -> PyResult<String> {
        Ok(slf.get_type().name()?.to_string())
    }

    /// Number of outputs.
    fn min_outputs(slf: &Bound<'_, Self>) -> PyResult<usize> {
        must_override(slf, "min_outputs()")
    }

    /// Checks the inputs and gives the outputs their shapes by `reset_shape(shape, True)`.
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

    /// Writes the values of the outputs again, which were dropped; without side effects. By default as `forward_impl`.
    fn recompute_impl<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyAny>,
        outputs: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.call_method1("forward_impl", (inputs, outputs))
    }

    /// The rule of the gradient as a graph, for `kinnor.grad` and gradients of gradients.
    ///
    /// Args:
    ///     inputs: The inputs as Variables.
    ///     outputs: The outputs as Variables.
    ///     grad_outputs: The gradients of the outputs as Variables.
    ///     propagate_down: For each input whether its gradient is wanted.
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

    /// Whether the gradient of input `i` reads the values of output `o`.
    fn grad_depends_output_data(slf: &Bound<'_, Self>, i: usize, o: usize) -> PyResult<bool> {
        let _ = (i, o);
        must_override(slf, "grad_depends_output_data(i, o)")
    }

    /// Whether the gradient of input `i` reads the values of input `j`.
    fn grad_depends_input_data(slf: &Bound<'_, Self>, i: usize, j: usize) -> PyResult<bool> {
        let _ = (i, j);
        must_override(slf, "grad_depends_input_data(i, j)")
    }

    #[pyo3(signature = (*inputs, n_outputs = -1, auto_forward = None, outputs = None))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        inputs: &Bound<'py, PyTuple>,
        n_outputs: i64,
        auto_forward: Option<bool>,
        outputs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (n_outputs, auto_forward);
        let into = outputs.map_or(Ok(Vec::new()), functions::into_arrays)?;
        let op = UserOp::bind(slf, inputs)?;
        functions::run_user(slf.py(), Op::Shared(Arc::new(op)), inputs, &into)
    }

    fn __traverse__(&self, visit: pyo3::PyVisit<'_>) -> std::result::Result<(), pyo3::PyTraverseError> {
        self.ctx.as_ref().map_or(Ok(()), |ctx| visit.call(ctx))
    }

    fn __clear__(&mut self) {
        self.ctx = None;
    }
}

/// What the methods of a user's operation get: shape, values and gradient of an input or output.
#[pyclass(frozen, module = "kinnor", name = "FunctionVariable")]
pub(super) struct FunctionVariable {
    array: parking_lot::Mutex<Array>,
}

impl FunctionVariable {
    fn data_array(&self) -> graph::NdArray {
        let a = self.array.lock();
        graph::NdArray { shape: a.shape.clone(), storage: Arc::clone(&a.data) }
    }

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
        NdArray { array: self.data_array() }
    }

    /// The gradient as an NdArray that shares it.
    #[getter]
    fn grad(&self) -> NdArray {
        NdArray { array: self.grad_array() }
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
    fn reset_shape(&self, shape: &Bound<'_, PyAny>, force: bool) -> PyResult<()> {
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

/// The user's object, for the engine to ask for gradients made of variables.
struct Object(Py<PythonFunction>);

impl graph::OnVariables for Object {
    fn gradient(
        &self,
        x: &[graph::Variable],
        y: &[graph::Variable],
        gy: &[graph::Variable],
        wanted: &[bool],
    ) -> Result<Vec<Option<graph::Variable>>> {
        let asked = |py: Python<'_>| -> PyResult<Vec<Option<graph::Variable>>> {
            let list = |all: &[graph::Variable]| {
                PyList::new(
                    py,
                    all.iter().map(|v| Variable::wrap(py, v.clone())).collect::<PyResult<Vec<_>>>()?,
                )
            };
            let args = (list(x)?, list(y)?, list(gy)?, wanted.to_vec());
            let found = self.0.bind(py).call_method1("gradient_impl", args)?;
            let one = |g: PyResult<Bound<'_, PyAny>>| -> PyResult<Option<graph::Variable>> {
                let g = g?;
                if g.is_none() {
                    return Ok(None);
                }
                Ok(Some(g.cast::<Variable>()?.get().variable.clone()))
            };
            found.try_iter()?.map(one).collect()
        };
        Python::attach(asked).map_err(foreign)
    }

    fn object(&self) -> &(dyn std::any::Any + Send + Sync) {
        &self.0
    }
}

/// A user's operation as the engine sees it. What the engine may ask for under its lock was asked of Python before.
struct UserOp {
    user: graph::User,
    object: Py<PythonFunction>,
    name: String,
    n_outputs: usize,
    reads: Vec<Reads>,
}

impl UserOp {
    fn bind(user: &Bound<'_, PythonFunction>, inputs: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let name = user.getattr("name")?.str()?.to_string();
        let n_outputs: usize = user.call_method0("min_outputs")?.extract()?;
        let n = inputs.len();
        let ask = |method: &str, i: usize, count: usize| -> PyResult<u64> {
            let mut mask = 0;
            for j in 0..count.min(64) {
                if user.call_method1(method, (i, j))?.is_truthy()? {
                    mask |= 1 << j;
                }
            }
            Ok(mask)
        };
        let read = |i| -> PyResult<Reads> {
            Ok(Reads {
                inputs: ask("grad_depends_input_data", i, n)?,
                outputs: ask("grad_depends_output_data", i, n_outputs)?,
            })
        };
        let reads = (0..n).map(read).collect::<PyResult<_>>()?;
        let object = user.clone().unbind();
        let rule = Object(object.clone_ref(user.py()));
        Ok(Self { user: graph::User(Box::new(rule)), object, name, n_outputs, reads })
    }

    fn wrap<'py>(py: Python<'py>, arrays: &[Array]) -> PyResult<Bound<'py, PyList>> {
        let wrapped =
            |a: &Array| Bound::new(py, FunctionVariable { array: parking_lot::Mutex::new(a.clone()) });
        PyList::new(py, arrays.iter().map(wrapped).collect::<PyResult<Vec<_>>>()?)
    }

    fn call(&self, method: &str, x: &[Array], y: &[Array]) -> Result<()> {
        Python::attach(|py| {
            let lists = (Self::wrap(py, x)?, Self::wrap(py, y)?);
            self.object.bind(py).call_method1(method, lists).map(drop)
        })
        .map_err(foreign)
    }
}

impl OnArrays for UserOp {
    fn forward(&self, x: &[Array], y: &[Array]) -> Result<()> {
        self.call("forward_impl", x, y)
    }

    fn recompute(&self, x: &[Array], y: &[Array]) -> Result<()> {
        self.call("recompute_impl", x, y)
    }

    fn backward(&self, x: &[Array], y: &[Array], wanted: &[bool], accumulate: &[bool]) -> Result<()> {
        Python::attach(|py| {
            let (x, y) = (Self::wrap(py, x)?, Self::wrap(py, y)?);
            let args = (x, y, wanted.to_vec(), accumulate.to_vec());
            self.object.bind(py).call_method1("backward_impl", args).map(drop)
        })
        .map_err(foreign)
    }
}

impl Operation for UserOp {
    fn type_name(&self) -> &str {
        &self.name
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn info(&self, _: &[&Shape]) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
    fn kind(&self, _: usize) -> Kind {
        Kind::float
    }
    fn shapes(&self, x: &[&Shape]) -> Result<Shapes> {
        Python::attach(|py| -> PyResult<Shapes> {
            let array = |shape: &Shape| Array {
                shape: shape.clone(),
                data: Storage::new(shape.size()),
                grad: Storage::new(shape.size()),
            };
            let inputs: Vec<Array> = x.iter().map(|s| array(s)).collect();
            let outputs: Vec<Array> = (0..self.n_outputs).map(|_| array(&Shape::default())).collect();
            let (x, y) = (Self::wrap(py, &inputs)?, Self::wrap(py, &outputs)?);
            self.object.bind(py).call_method1("setup_impl", (x, &y))?;
            y.iter().map(|y| Ok(y.cast::<FunctionVariable>()?.get().array.lock().shape.clone())).collect()
        })
        .map_err(foreign)
    }
    fn output(&self, _: usize) -> Option<DType> {
        None
    }
    fn forward(&self, _: Call<'_>) -> Result<()> {
        Err(Error::NotImplemented(format!("{}: runs on arrays", self.name)))
    }
    fn backward(&self, _: Call<'_>) -> Result<()> {
        Err(Error::NotImplemented(format!("{}: runs on arrays", self.name)))
    }
    fn has_backward(&self) -> bool {
        true
    }
    fn gradient(&self, _: Symbols) -> Result<Vec<Option<Sym>>> {
        Err(Error::NotImplemented(format!("{}: makes its gradient of variables", self.name)))
    }
    fn reads(&self, gx: usize) -> Reads {
        self.reads.get(gx).copied().unwrap_or(Reads::ALL)
    }
    fn symbol_reads(&self, gx: usize) -> Reads {
        self.reads(gx)
    }
    fn alias(&self, _: usize) -> Option<Alias> {
        None
    }
    fn overwrites(&self, _: usize) -> bool {
        false
    }
    fn is_random(&self) -> bool {
        false
    }
    fn may_clear_inputs(&self) -> bool {
        true
    }
    fn on_arrays(&self) -> Option<&dyn OnArrays> {
        Some(self)
    }
    fn user(&self) -> Option<&dyn std::any::Any> {
        Some(&self.user)
    }
}

/// The arguments that a user's operation says it has, if `op` is one.
pub(super) fn arguments<'py>(py: Python<'py>, op: &Op) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(user) = op.user() else { return Ok(None) };
    let Some(graph::User(user)) = user.downcast_ref() else { return Ok(None) };
    let Some(user) = user.object().downcast_ref::<Py<PythonFunction>>() else { return Ok(None) };
    let args = user.bind(py).getattr_opt("args")?;
    Ok(Some(match args {
        Some(args) => args.cast_into::<PyDict>()?,
        None => PyDict::new(py),
    }))
}
