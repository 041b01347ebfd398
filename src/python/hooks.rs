//! Python callbacks around functions: hooks of one run, hooks of all runs, communicator callbacks.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use super::arguments::flag;
use super::calls;
use super::classes::{NdArray, Variable};
use super::function::Function;
use super::scopes;
use crate::Error;
use crate::graph::{self, CommunicatorCallback, ForwardOptions, FunctionHook};

/// Receives the progress of a backward run. Subclass it and pass an object as `communicator_callbacks`.
#[pyclass(frozen, subclass, module = "kinnor", name = "CommunicatorBackwardCallback")]
pub(super) struct CommunicatorBackwardCallback;

#[pymethods]
impl CommunicatorBackwardCallback {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>) -> Self {
        Self
    }

    /// Called after the backward run of each function.
    fn on_finish_function_backward(&self, f: &Bound<'_, PyAny>) {
        let _ = f;
    }

    /// Called once, at the end of the backward run.
    fn on_finish_backward(&self) {}
}

/// The communicator callbacks of one run.
pub(super) struct Callbacks(Vec<One>);

/// One callback.
struct One(Py<PyAny>);

impl Callbacks {
    /// Reads None, one callback or a list of callbacks.
    pub(super) fn new(given: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(given) = given.filter(|g| !g.is_none()) else { return Ok(Self(Vec::new())) };
        let list: Vec<Bound<'_, PyAny>> =
            match given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
                true => given.try_iter()?.collect::<PyResult<_>>()?,
                false => vec![given.clone()],
            };
        let checked = |c: Bound<'_, PyAny>| match c.is_instance_of::<CommunicatorBackwardCallback>() {
            true => Ok(One(c.unbind())),
            false => Err(PyErr::from(Error::Type(format!(
                "communicator_callbacks: expected CommunicatorBackwardCallback, got {}",
                c.get_type().name()?
            )))),
        };
        Ok(Self(list.into_iter().map(checked).collect::<PyResult<_>>()?))
    }

    /// The callbacks as the engine calls them.
    pub(super) fn each(&self) -> Vec<&dyn CommunicatorCallback> {
        self.0.iter().map(|c| c as &dyn CommunicatorCallback).collect()
    }
}

impl CommunicatorCallback for One {
    fn on_finish_function_backward(&self, f: &graph::Function) -> crate::Result<()> {
        calls::call(|py| {
            let f = Function::wrap(f.clone());
            self.0.call_method1(py, "on_finish_function_backward", (f,)).map(drop)
        })
    }

    fn on_finish_backward(&self) -> crate::Result<()> {
        calls::call(|py| self.0.call_method0(py, "on_finish_backward").map(drop))
    }
}

/// The functions of a backward run from `function` in order, each with the gradients that it completes.
///
/// A gradient is given by its index in `grads`.
#[pyfunction]
fn completed_gradients(
    function: &Bound<'_, Function>,
    grads: Vec<Bound<'_, NdArray>>,
) -> PyResult<Vec<(Function, Vec<usize>)>> {
    let grads: Vec<graph::NdArray> = grads.iter().map(|grad| grad.get().array.clone()).collect();
    let run = function.get().graph_function()?.completed_gradients(&grads);
    Ok(run.into_iter().map(|(f, complete)| (Function::wrap(f), complete)).collect())
}

/// Issues a Python warning. Returns an error if a warning filter raises one.
pub(super) fn warn(text: String) -> crate::Result<()> {
    calls::call(|py| {
        let category = py.get_type::<PyUserWarning>();
        let text = std::ffi::CString::new(text).unwrap_or_default();
        PyErr::warn(py, &category, &text, 1)
    })
}

/// Hooks by key.
type Registered = Mutex<Vec<(String, Py<PyAny>)>>;

/// Hooks of all runs, before and after each function, in the order of registration.
static GLOBAL: [Registered; 2] = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
/// True if any hook of all runs is registered.
static ANY_GLOBAL: AtomicBool = AtomicBool::new(false);

/// Registers a hook of all runs. Returns true if the key was free. `when` is 0 for before, 1 for after each function.
#[pyfunction]
fn set_global_hook(when: usize, key: String, hook: Py<PyAny>) -> bool {
    let mut hooks = GLOBAL[when & 1].lock();
    if hooks.iter().any(|(k, _)| *k == key) {
        return false;
    }
    hooks.push((key, hook));
    ANY_GLOBAL.store(true, Ordering::Relaxed);
    true
}

/// Removes a hook of all runs. Returns true if there was one.
#[pyfunction]
fn unset_global_hook(when: usize, key: &str) -> bool {
    let removed = {
        let mut hooks = GLOBAL[when & 1].lock();
        let at = hooks.iter().position(|(k, _)| k == key);
        at.map(|at| hooks.remove(at))
    };
    ANY_GLOBAL.store(GLOBAL.iter().any(|hooks| !hooks.lock().is_empty()), Ordering::Relaxed);
    removed.is_some()
}

/// The hooks of all runs, before (0) or after (1) each function.
fn global(py: Python<'_>, when: usize) -> Vec<Py<PyAny>> {
    GLOBAL[when].lock().iter().map(|(_, hook)| hook.clone_ref(py)).collect()
}

/// Calls `f` with the hooks of this run combined with the hooks of all runs.
pub(super) fn with_hooks(
    py: Python<'_>,
    pre: Option<&Bound<'_, PyAny>>,
    post: Option<&Bound<'_, PyAny>>,
    f: impl FnOnce(Option<FunctionHook<'_>>, Option<FunctionHook<'_>>) -> crate::Result<()>,
) -> PyResult<()> {
    for (name, hook) in [("function_pre_hook", pre), ("function_post_hook", post)] {
        if let Some(hook) = hook.filter(|h| !h.is_none() && !h.is_callable()) {
            let got = hook.get_type().name()?;
            return Err(Error::Type(format!("{name}: expected something to call, got {got}")).into());
        }
    }
    let (pre, post) = (pre.filter(|h| !h.is_none()), post.filter(|h| !h.is_none()));
    if pre.is_none() && post.is_none() && !ANY_GLOBAL.load(Ordering::Relaxed) {
        return Ok(f(None, None)?);
    }
    let mut before = global(py, 0);
    before.extend(pre.map(|h| h.clone().unbind()));
    let mut after: Vec<Py<PyAny>> = post.map(|h| h.clone().unbind()).into_iter().collect();
    after.extend(global(py, 1));
    let call = |hooks: &[Py<PyAny>], f: &graph::Function| {
        calls::call(|py| {
            hooks.iter().try_for_each(|hook| hook.call1(py, (Function::wrap(f.clone()),)).map(drop))
        })
    };
    let (before_each, after_each) =
        (|f: &graph::Function| call(&before, f), |f: &graph::Function| call(&after, f));
    let pre: Option<FunctionHook<'_>> = (!before.is_empty()).then_some(&before_each);
    let post: Option<FunctionHook<'_>> = (!after.is_empty()).then_some(&after_each);
    Ok(f(pre, post)?)
}

/// Computes several variables in one run. Each function runs once, and none of the variables is cleared.
///
/// Args:
///     variables: Variables. A variable that no function computes is skipped.
///     clear_buffer: As `Variable.forward`.
///     clear_no_need_grad: As `Variable.forward`.
///     function_pre_hook: As `Variable.forward`.
///     function_post_hook: As `Variable.forward`.
#[pyfunction]
#[pyo3(signature = (
    variables, clear_buffer = false, clear_no_need_grad = false, function_pre_hook = None, function_post_hook = None,
))]
fn forward_all(
    py: Python<'_>,
    variables: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = flag)] clear_buffer: bool,
    #[pyo3(from_py_with = flag)] clear_no_need_grad: bool,
    function_pre_hook: Option<&Bound<'_, PyAny>>,
    function_post_hook: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let variables = super::operands::variables("forward_all", variables)?;
    let all: Vec<&graph::Variable> = variables.iter().map(|v| &v.get().variable).collect();
    scopes::follow(py);
    let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
    with_hooks(py, function_pre_hook, function_post_hook, |pre_hook, post_hook| {
        graph::forward_all(
            &all,
            &ForwardOptions {
                clear_buffer,
                clear_no_need_grad,
                pre_hook,
                post_hook,
                detach: Some(&detach),
                ..ForwardOptions::default()
            },
        )
    })
}

/// Derives the shapes of several variables again, where shapes above them changed. Runs no function.
///
/// Args:
///     variables: Variables.
///     since: The result of an earlier call. Skips variables whose shapes were derived after it, and everything above
///         them.
///
/// Returns:
///     The number of changes of shapes so far.
#[pyfunction]
#[pyo3(signature = (variables, since = None))]
fn set_up_all(py: Python<'_>, variables: &Bound<'_, PyAny>, since: Option<u64>) -> PyResult<u64> {
    let variables = super::operands::variables("set_up_all", variables)?;
    let all: Vec<&graph::Variable> = variables.iter().map(|v| &v.get().variable).collect();
    scopes::follow(py);
    Ok(graph::set_up_all(&all, since)?)
}

/// Gradients of `outputs` by `inputs` as variables of a graph, starting from `grad_outputs`. None for an input that is
/// not reached.
#[pyfunction]
fn grad_graph<'py>(
    py: Python<'py>,
    outputs: Vec<Bound<'py, Variable>>,
    inputs: Vec<Bound<'py, Variable>>,
    grad_outputs: Vec<Bound<'py, Variable>>,
) -> PyResult<Vec<Option<Bound<'py, Variable>>>> {
    let refs =
        |list: &[Bound<'py, Variable>]| list.iter().map(|v| v.get().variable.clone()).collect::<Vec<_>>();
    let (y, x, gy) = (refs(&outputs), refs(&inputs), refs(&grad_outputs));
    scopes::follow(py);
    let found = graph::grad(&y.iter().collect::<Vec<_>>(), &x.iter().collect::<Vec<_>>(), &gy)?;
    found.into_iter().map(|g| g.map(|g| Variable::wrap(py, g)).transpose()).collect()
}

/// Adds the functions to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(set_global_hook, m)?)?;
    m.add_function(wrap_pyfunction!(unset_global_hook, m)?)?;
    m.add_function(wrap_pyfunction!(completed_gradients, m)?)?;
    m.add_function(wrap_pyfunction!(forward_all, m)?)?;
    m.add_function(wrap_pyfunction!(set_up_all, m)?)?;
    m.add_function(wrap_pyfunction!(grad_graph, m)?)
}
