//! `kinnor.autodiff`: entry points of differentiation for Python, and hooks on gradients. The Python side has checked
//! the arguments.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use super::arguments::{flag, some_flag};
use super::calls;
use super::classes::{Variable, collected};
use super::function::Function;
use super::hooks::with_hooks;
use super::scopes;
use super::user_operation;
use crate::Error;
use crate::graph::autodiff::{self, DifferentiateOptions, Root};
use crate::graph::{self, Edge, GradientHook, HookHandle, When};

/// A variable, or a function and the number of one of its outputs.
struct EdgeArgument(Edge);

impl<'a, 'py> FromPyObject<'a, 'py> for EdgeArgument {
    type Error = PyErr;
    fn extract(ob: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(v) = ob.cast::<Variable>() {
            return Ok(Self(Edge::Variable(v.get().variable.clone())));
        }
        let (f, o): (Bound<'py, Function>, usize) = ob.cast::<PyTuple>()?.extract()?;
        let f = f.get().graph_function()?;
        if o >= f.outputs().len() {
            let text = format!("autodiff: expected an output of {}, got number {o}", f.type_name());
            return Err(crate::Error::Index(text).into());
        }
        Ok(Self(Edge::Output(f, o)))
    }
}

/// Differentiates `outputs`. Returns the gradients by `inputs`, or adds them to leaves if `allow_unused` is None.
///
/// Ignores functions made before `since`.
#[pyfunction]
#[pyo3(signature = (outputs, seeds, inputs, retain_graph, create_graph, allow_unused, since = 0))]
fn differentiate<'py>(
    py: Python<'py>,
    outputs: Vec<EdgeArgument>,
    seeds: Vec<Option<Bound<'py, Variable>>>,
    inputs: Option<Vec<EdgeArgument>>,
    #[pyo3(from_py_with = flag)] retain_graph: bool,
    #[pyo3(from_py_with = flag)] create_graph: bool,
    #[pyo3(from_py_with = some_flag)] allow_unused: Option<bool>,
    since: u64,
) -> PyResult<Vec<Option<Bound<'py, Variable>>>> {
    let seed = |seed: Option<Bound<'py, Variable>>| seed.map(|v| v.get().variable.clone());
    let roots: Vec<Root> =
        outputs.into_iter().zip(seeds).map(|(y, g)| Root { edge: y.0, seed: seed(g) }).collect();
    let inputs: Option<Vec<Edge>> = inputs.map(|all| all.into_iter().map(|x| x.0).collect());
    scopes::follow(py);
    let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
    let mut found = Vec::new();
    with_hooks(py, None, None, |pre_hook, post_hook| {
        let options = DifferentiateOptions {
            retain_graph,
            create_graph,
            since,
            refuse_unused: allow_unused == Some(false),
            pre_hook,
            post_hook,
            detach: Some(&detach),
        };
        match (&inputs, allow_unused) {
            (Some(inputs), Some(_)) => found = autodiff::grad(&roots, inputs, &options)?,
            _ => autodiff::backward(&roots, inputs.as_deref(), &options)?,
        }
        Ok(())
    })?;
    found.into_iter().map(|g| g.map(|g| Variable::wrap(py, g)).transpose()).collect()
}

/// Runs backward from a loss of one element with gradient one: the fast path of `autodiff.backward`.
///
/// Returns false and does nothing unless `loss` is a variable of one element that requires grad, and `retain_graph` is
/// None or a bool. The caller then takes the general path.
#[pyfunction]
fn backward_of_loss(
    py: Python<'_>,
    loss: &Bound<'_, PyAny>,
    retain_graph: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let Ok(loss) = loss.cast::<Variable>() else { return Ok(false) };
    let loss = &loss.get().variable;
    let retain_graph = match retain_graph.cast::<PyBool>() {
        Ok(retain) => retain.is_true(),
        Err(_) if retain_graph.is_none() => false,
        Err(_) => return Ok(false),
    };
    if loss.shape().size() != 1 || !loss.need_grad() {
        return Ok(false);
    }
    let root = Root { edge: Edge::Variable(loss.clone()), seed: None };
    scopes::follow(py);
    let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
    with_hooks(py, None, None, |pre_hook, post_hook| {
        let detach = Some(&detach as graph::Detach<'_>);
        let options =
            DifferentiateOptions { retain_graph, pre_hook, post_hook, detach, ..Default::default() };
        autodiff::backward(&[root], None, &options)
    })?;
    Ok(true)
}

/// A user's function that is called with gradients, until it is removed.
struct AutodiffCall {
    /// The time at which it is called.
    when: When,
    /// The user's function. None once it is removed.
    call: Mutex<Option<Py<PyAny>>>,
}

impl GradientHook for AutodiffCall {
    fn call(&self, g: &graph::Variable) -> crate::Result<Option<graph::Variable>> {
        calls::call(|py| {
            let Some(call) = self.call.lock().as_ref().map(|c| c.clone_ref(py)) else { return Ok(None) };
            let result = call.bind(py).call1((Variable::wrap(py, g.clone())?,))?;
            if result.is_none() || self.when == When::Accumulated {
                return Ok(None);
            }
            match result.cast::<Variable>() {
                Ok(v) => Ok(Some(v.get().variable.clone())),
                Err(_) => {
                    let got = result.get_type().name()?;
                    Err(PyErr::from(Error::Type(format!(
                        "hook: expected None or a Variable to be returned, got {got}"
                    ))))
                }
            }
        })
    }

    fn object(&self) -> &(dyn Any + Send + Sync) {
        self
    }
}

/// A registered hook, with a method to remove it.
#[pyclass(frozen, module = "kinnor.autodiff", name = "HookHandle")]
pub(super) struct Handle {
    /// The registration, to remove it.
    hook: HookHandle,
    /// The user's function.
    call: Arc<AutodiffCall>,
}

#[pymethods]
impl Handle {
    /// Removes the hook. A second call does nothing.
    fn remove(&self) {
        self.hook.remove();
        let call = self.call.call.lock().take();
        drop(call);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.remove();
    }
}

/// Registers a hook: `call` receives the gradient of a variable or, depending on `when`, the variable after its
/// gradient was added to.
pub(super) fn register_hook(
    v: &Bound<'_, Variable>,
    when: When,
    call: &Bound<'_, PyAny>,
) -> PyResult<Handle> {
    if !call.is_callable() {
        let got = call.get_type().name()?;
        return Err(Error::Type(format!("hook: expected something to call, got {got}")).into());
    }
    let call = Arc::new(AutodiffCall { when, call: Mutex::new(Some(call.clone().unbind())) });
    let hook = v.get().variable.add_gradient_hook(when, Arc::clone(&call) as Arc<dyn GradientHook>)?;
    collected(v, true);
    Ok(Handle { hook, call })
}

/// Reports to the garbage collector the Python objects that only this variable keeps alive.
pub(super) fn traverse(v: &graph::Variable, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let mut result = Ok(());
    v.visit_own_hooks(|hook| {
        let call = hook.object().downcast_ref::<AutodiffCall>().and_then(|call| call.call.try_lock());
        if let (Some(call), Ok(())) = (call, &result) {
            result = visit.call(&*call);
        }
    });
    v.visit_own_operations(|user| {
        for object in user_operation::objects(user) {
            if result.is_ok() {
                result = visit.call(object);
            }
        }
    });
    result
}

/// The file and line of the user's program that is running.
fn source_line() -> Option<String> {
    Python::try_attach(|py| {
        let line = py.import("kinnor.autodiff.anomaly")?.getattr("source_line")?.call0()?;
        line.extract::<Option<String>>()
    })
    .and_then(Result::ok)
    .flatten()
}

/// Number of live variables, in graphs or held by Python.
#[pyfunction]
fn live_variables() -> usize {
    graph::live_variables()
}

/// Number of run plans made so far.
#[pyfunction]
fn plans_made() -> u64 {
    graph::plans_made()
}

/// Number of functions made so far.
#[pyfunction]
fn births() -> u64 {
    graph::births()
}

/// True if a function made at `since` or later, on the scale of `births`, computes `v`.
#[pyfunction]
fn is_born_since(v: &Bound<'_, Variable>, since: u64) -> bool {
    graph::is_born_since(&v.get().variable, since)
}

/// A record of the variables that functions read and made on this thread while no graph was built.
#[pyclass(frozen, module = "kinnor._core", name = "Notes")]
struct Notes(Mutex<Option<graph::Notes>>);

#[pymethods]
impl Notes {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(Some(graph::Notes::default())))
    }

    /// Exchanges this record with the one that the thread writes to now, which may be none.
    fn swap(&self) {
        let mut own = self.0.lock();
        *own = graph::swap_notes(own.take());
    }

    /// The variables that were read and need a gradient.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, Variable>>> {
        let read = self.0.lock().as_ref().map(|notes| notes.read.clone()).unwrap_or_default();
        read.into_iter().map(|v| Variable::wrap(py, v)).collect()
    }

    /// True if a function made `v` during the recording.
    fn has_made(&self, v: &Bound<'_, Variable>) -> bool {
        self.0.lock().as_ref().is_some_and(|notes| notes.has_made(&v.get().variable))
    }
}

/// The variables that need a gradient and enter a new part of the graph from outside, except `known`.
///
/// The new part consists of the functions that lead to `ends` and were made after `births` returned `since`.
#[pyfunction]
fn taken_from_outside<'py>(
    py: Python<'py>,
    ends: Vec<Bound<'py, Variable>>,
    since: u64,
    known: Vec<Bound<'py, Variable>>,
) -> PyResult<Vec<Bound<'py, Variable>>> {
    let ends: Vec<&graph::Variable> = ends.iter().map(|v| &v.get().variable).collect();
    let known: Vec<&graph::Variable> = known.iter().map(|v| &v.get().variable).collect();
    let taken = graph::taken_from_outside(&ends, since, &known);
    taken.into_iter().map(|v| Variable::wrap(py, v)).collect()
}

/// Adds the functions to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    graph::set_source_line(source_line);
    m.add_class::<Handle>()?;
    m.add_class::<Notes>()?;
    m.add_function(wrap_pyfunction!(differentiate, m)?)?;
    m.add_function(wrap_pyfunction!(backward_of_loss, m)?)?;
    m.add_function(wrap_pyfunction!(births, m)?)?;
    m.add_function(wrap_pyfunction!(is_born_since, m)?)?;
    m.add_function(wrap_pyfunction!(taken_from_outside, m)?)?;
    m.add_function(wrap_pyfunction!(plans_made, m)?)?;
    m.add_function(wrap_pyfunction!(live_variables, m)?)
}

#[pymethods]
impl Variable {
    /// True if gradients flow to it, like `need_grad`. Only leaves of floating-point numbers accept an assignment.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.variable.need_grad()
    }

    #[setter]
    fn set_requires_grad(&self, #[pyo3(from_py_with = flag)] requires_grad: bool) -> PyResult<()> {
        Ok(self.variable.set_requires_grad(requires_grad)?)
    }

    /// Sets `requires_grad` and returns this variable.
    ///
    /// Args:
    ///     mode: True if gradients flow to it.
    ///
    /// Raises:
    ///     RuntimeError: If it holds no floating-point numbers, or a function computes it and `mode` is False.
    #[pyo3(signature = (mode = true))]
    fn requires_grad_(
        slf: Bound<'_, Self>,
        #[pyo3(from_py_with = flag)] mode: bool,
    ) -> PyResult<Bound<'_, Self>> {
        slf.get().variable.set_requires_grad(mode)?;
        Ok(slf)
    }

    /// True if it is a leaf: no function computes it from variables that require grad.
    #[getter]
    fn is_leaf(&self) -> bool {
        self.variable.is_leaf()
    }

    /// The function that computes it, or None if it does not require grad.
    #[getter]
    fn grad_fn(&self) -> Option<Function> {
        self.variable.parent().filter(|_| !self.variable.is_leaf()).map(Function::wrap)
    }

    /// Makes `autodiff.backward` add to the gradient of this variable too, although a function computes it.
    ///
    /// `Variable.backward` always writes this gradient; after this call it does not clear it.
    ///
    /// Raises:
    ///     RuntimeError: If it does not require grad.
    fn retain_grad(&self) -> PyResult<()> {
        Ok(self.variable.retain_grad()?)
    }

    /// True if `retain_grad` was called and a function computes it.
    #[getter]
    fn retains_grad(&self) -> bool {
        self.variable.retains_grad()
    }

    /// Registers a function to call with the gradient of this variable. It is called once in each backward run, when
    /// all contributions have been added up and before the gradient is used.
    ///
    /// Args:
    ///     hook: Takes the gradient, a Variable that it must not change. Returns None, or a gradient to use instead.
    ///
    /// Returns:
    ///     A handle whose `remove()` removes the hook.
    ///
    /// Raises:
    ///     RuntimeError: If it does not require grad.
    fn register_hook(slf: &Bound<'_, Self>, hook: &Bound<'_, PyAny>) -> PyResult<Handle> {
        register_hook(slf, When::Gradient, hook)
    }

    /// Registers a function to call with this leaf after a backward run has added to its gradient.
    ///
    /// Args:
    ///     hook: Takes the variable.
    ///
    /// Returns:
    ///     A handle whose `remove()` removes the hook.
    ///
    /// Raises:
    ///     RuntimeError: If it does not require grad, or a function computes it.
    fn register_post_accumulate_grad_hook(
        slf: &Bound<'_, Self>,
        hook: &Bound<'_, PyAny>,
    ) -> PyResult<Handle> {
        register_hook(slf, When::Accumulated, hook)
    }

    /// True if a gradient was written since the variable was made or its gradient was zeroed or set to None.
    #[getter]
    fn has_grad(&self) -> bool {
        self.variable.has_grad()
    }

    /// Its gradient as a Variable that shares the memory, or None if there is none. After a pass with `create_graph` it
    /// can be differentiated.
    #[getter]
    fn grad_variable<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, Self>>> {
        self.variable.grad_variable().map(|g| Self::wrap(py, g)).transpose()
    }

    /// A variable on the same data that takes no gradient, as `get_unlinked_variable(need_grad=False)`.
    fn detach<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Self>> {
        Self::wrap(py, self.variable.unlinked(Some(false)))
    }
}
