//! Solvers in Python: one class over the registry, whose rows `kinnor.solvers` makes classes of.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::error::foreign;
use super::functions::{to_python, value};
use super::ndarray::NdArray;
use super::variable::Variable;
use crate::graph;
use crate::ops::Value;
use crate::solvers::{self, Entry, Existing, Hooks, SOLVERS, SolverState, State};
use crate::{Error, Result};

/// A solver: its rule, and the parameters that follow it with their states.
#[pyclass(frozen, subclass, module = "kinnor._core")]
pub(super) struct Solver {
    solver: solvers::Solver<graph::Variable>,
}

/// Runs `work` with hooks made of callables of Python; other threads of Python may run meanwhile.
fn hooked<T: Send>(
    py: Python<'_>,
    pre: Option<Py<PyAny>>,
    post: Option<Py<PyAny>>,
    work: impl FnOnce(Hooks<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let call = |hook: &Option<Py<PyAny>>| -> Result<()> {
        let Some(hook) = hook else { return Ok(()) };
        Python::attach(|py| hook.call0(py).map(drop)).map_err(foreign)
    };
    let done = py.detach(|| {
        let (mut before, mut after) = (|| call(&pre), || call(&post));
        let pre: Option<&mut dyn FnMut() -> Result<()>> = if pre.is_some() { Some(&mut before) } else { None };
        let post: Option<&mut dyn FnMut() -> Result<()>> = if post.is_some() { Some(&mut after) } else { None };
        work(Hooks { pre, post })
    });
    Ok(done?)
}

#[pymethods]
impl Solver {
    #[new]
    #[pyo3(signature = (name, *args, **kwargs))]
    fn new(name: &str, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let entry = solvers::find(name)
            .ok_or_else(|| Error::Key(format!("Solver: expected the name of a solver, got '{name}'")))?;
        let declared = entry.spec.args;
        let fail = |what: String| PyErr::from(Error::Type(format!("{name}: {what}")));
        if args.len() > declared.len() {
            return Err(fail(format!("expected at most {} arguments, got {}", declared.len(), args.len())));
        }
        let mut given: Vec<_> = args.iter().map(Some).collect();
        given.resize(declared.len(), None);
        for (key, v) in kwargs.into_iter().flatten() {
            let key: String = key.extract()?;
            let Some(at) = declared.iter().position(|a| a.name == key) else {
                let names: Vec<_> = declared.iter().map(|a| a.name).collect();
                return Err(fail(format!("expected arguments {}, got '{key}'", names.join(", "))));
            };
            if given[at].replace(v).is_some() {
                return Err(fail(format!("expected '{key}' once, got it twice")));
            }
        }
        let mut values = Vec::with_capacity(declared.len());
        for (arg, v) in declared.iter().zip(given) {
            values.push(match (v, arg.default) {
                (Some(v), _) => value(&v)?.ok_or_else(|| Error::argument(name, arg.name, arg.py_type, &v))?,
                (None, Some(default)) => default(),
                (None, None) => return Err(fail(format!("expected '{}', which is missing", arg.name))),
            });
        }
        Ok(Self { solver: entry.solver(&values)? })
    }

    /// Name of the solver.
    #[getter]
    fn name(&self) -> &'static str {
        self.solver.name()
    }

    /// The arguments that it was made with, in single precision.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        for (name, v) in self.solver.info() {
            info.set_item(name, to_python(py, &v)?)?;
        }
        Ok(info)
    }

    /// Takes parameters to update.
    ///
    /// Args:
    ///     param_dict: Variables by name.
    ///     reset: Forget all parameters and states of before.
    ///     retain_state: Without `reset`, let a parameter whose name was there take over its states.
    ///
    /// Raises:
    ///     ShapeError: If states to take over have another shape; nothing is changed then.
    #[pyo3(signature = (param_dict, reset = true, retain_state = false))]
    fn set_parameters(&self, param_dict: &Bound<'_, PyAny>, reset: bool, retain_state: bool) -> PyResult<()> {
        let refuse = |what: String| {
            PyErr::from(Error::Type(format!("{}.set_parameters: expected Variables by name, got {what}", self.name())))
        };
        let Ok(items) = param_dict.call_method0("items") else {
            return Err(refuse(param_dict.get_type().name()?.to_string()));
        };
        let mut parameters = Vec::new();
        for item in items.try_iter()? {
            let (key, v): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
            let name: String = key.extract().map_err(|_| refuse(format!("the name {key}")))?;
            let Ok(v) = v.cast::<Variable>() else { return Err(refuse(format!("{} for '{name}'", v.get_type().name()?))) };
            parameters.push((name, v.get().variable.clone()));
        }
        let existing = match (reset, retain_state) {
            (true, _) => Existing::Removed,
            (false, true) => Existing::Succeeded,
            (false, false) => Existing::Replaced,
        };
        Ok(self.solver.set_parameters(parameters, existing)?)
    }

    /// Forgets parameters and their states.
    ///
    /// Args:
    ///     keys: Their names; those that are not there are passed over.
    fn remove_parameters(&self, keys: Vec<String>) {
        self.solver.remove_parameters(keys.iter().map(String::as_str));
    }

    /// Forgets all parameters and their states.
    fn clear_parameters(&self) {
        self.solver.clear_parameters();
    }

    /// The parameters.
    ///
    /// Returns:
    ///     Variables by name, in the order in which they came.
    fn get_parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, v) in self.solver.parameters() {
            found.set_item(name, Variable::wrap(py, v)?)?;
        }
        Ok(found)
    }

    /// Number of updates and arrays by name, of each parameter: what `get_states` dresses up.
    fn _states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, state) in self.solver.states() {
            let arrays = PyDict::new(py);
            for State { name, shape, data } in state.pstate {
                arrays.set_item(name, NdArray::wrap(py, graph::NdArray { shape, storage: data })?)?;
            }
            found.set_item(name, (state.t, arrays))?;
        }
        Ok(found)
    }

    /// Takes copies of states in the form of `_states`.
    fn _set_states(&self, states: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut ready = Vec::new();
        for (key, state) in states {
            let (t, arrays): (u32, Bound<'_, PyDict>) = state.extract()?;
            let mut pstate = Vec::new();
            for (name, array) in arrays {
                let array = array.cast::<NdArray>()?.get().array.clone();
                pstate.push(State { name: name.extract()?, shape: array.shape, data: array.storage });
            }
            ready.push((key.extract()?, SolverState { t, pstate }));
        }
        Ok(self.solver.set_states(ready)?)
    }

    /// The learning rate, in single precision.
    fn learning_rate(&self) -> f64 {
        self.solver.learning_rate()
    }

    /// Sets the learning rate of updates to come.
    ///
    /// Args:
    ///     learning_rate: A finite number, not negative.
    ///
    /// Raises:
    ///     ArgumentError: If it is something else.
    fn set_learning_rate(&self, learning_rate: f64) -> PyResult<()> {
        Ok(self.solver.set_learning_rate(learning_rate)?)
    }

    /// Makes all gradients zero, without touching memory. A parameter whose gradient nobody writes is passed over until then.
    fn zero_grad(&self) {
        self.solver.zero_grad();
    }

    /// Whether weight decay is part of an update rather than added to gradients.
    fn weight_decay_is_fused(&self) -> bool {
        self.solver.weight_decay_is_fused()
    }

    /// Moves each parameter by one step.
    ///
    /// Args:
    ///     update_pre_hook: Called before each parameter.
    ///     update_post_hook: Called after each parameter.
    ///
    /// Raises:
    ///     ShapeError: If a parameter changed its shape.
    ///     ClearedError: If values or a gradient were cleared; nothing is changed then.
    #[pyo3(signature = (update_pre_hook = None, update_post_hook = None))]
    fn update(
        &self,
        py: Python<'_>,
        update_pre_hook: Option<Py<PyAny>>,
        update_post_hook: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        hooked(py, update_pre_hook, update_post_hook, |hooks| self.solver.update(hooks))
    }

    /// Adds `decay_rate` times the values to gradients or, where decay is fused, has the next update use this rate.
    ///
    /// Args:
    ///     decay_rate: A finite number, not negative.
    ///     pre_hook: Called before each parameter.
    ///     post_hook: Called after each parameter.
    ///
    /// Raises:
    ///     ArgumentError: If the rate is something else.
    #[pyo3(signature = (decay_rate, pre_hook = None, post_hook = None))]
    fn weight_decay(
        &self,
        py: Python<'_>,
        decay_rate: f64,
        pre_hook: Option<Py<PyAny>>,
        post_hook: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        hooked(py, pre_hook, post_hook, |hooks| self.solver.weight_decay(decay_rate, hooks))
    }

    /// Scales down each gradient whose L2 norm is above `clip_norm`, so that it becomes that.
    ///
    /// Args:
    ///     clip_norm: The largest norm; 0 clips nothing.
    ///     pre_hook: Called before each parameter.
    ///     post_hook: Called after each parameter.
    ///
    /// Raises:
    ///     ArgumentError: If the norm is negative or not finite.
    #[pyo3(signature = (clip_norm, pre_hook = None, post_hook = None))]
    fn clip_grad_by_norm(
        &self,
        py: Python<'_>,
        clip_norm: f64,
        pre_hook: Option<Py<PyAny>>,
        post_hook: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        hooked(py, pre_hook, post_hook, |hooks| self.solver.clip_grad_by_norm(clip_norm, hooks))
    }

    /// Scales all gradients down together if their common L2 norm is above `max_norm`, so that it becomes that.
    ///
    /// A norm that is infinite or not a number leaves the gradients as they are.
    ///
    /// Args:
    ///     max_norm: The largest norm; 0 clips nothing.
    ///
    /// Returns:
    ///     The norm before clipping.
    ///
    /// Raises:
    ///     ArgumentError: If the norm is negative or not a number.
    fn clip_grad_by_global_norm(&self, py: Python<'_>, max_norm: f64) -> PyResult<f64> {
        Ok(py.detach(|| self.solver.clip_grad_by_global_norm(max_norm))?)
    }

    /// Multiplies the gradients by `scale`.
    ///
    /// Args:
    ///     scale: A finite number.
    ///     pre_hook: Called before each parameter.
    ///     post_hook: Called after each parameter.
    ///
    /// Raises:
    ///     ArgumentError: If it is not finite.
    #[pyo3(signature = (scale, pre_hook = None, post_hook = None))]
    fn scale_grad(
        &self,
        py: Python<'_>,
        scale: f64,
        pre_hook: Option<Py<PyAny>>,
        post_hook: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        hooked(py, pre_hook, post_hook, |hooks| self.solver.scale_grad(scale, hooks))
    }

    /// Whether any gradient has an infinite element.
    #[pyo3(signature = (pre_hook = None, post_hook = None))]
    fn check_inf_grad(
        &self,
        py: Python<'_>,
        pre_hook: Option<Py<PyAny>>,
        post_hook: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        hooked(py, pre_hook, post_hook, |hooks| self.solver.check_inf_grad(hooks))
    }

    /// Whether any gradient has an element that is not a number.
    #[pyo3(signature = (pre_hook = None, post_hook = None))]
    fn check_nan_grad(
        &self,
        py: Python<'_>,
        pre_hook: Option<Py<PyAny>>,
        post_hook: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        hooked(py, pre_hook, post_hook, |hooks| self.solver.check_nan_grad(hooks))
    }

    /// Whether any gradient has an element that is infinite or not a number.
    #[pyo3(signature = (pre_hook = None, post_hook = None))]
    fn check_inf_or_nan_grad(
        &self,
        py: Python<'_>,
        pre_hook: Option<Py<PyAny>>,
        post_hook: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        hooked(py, pre_hook, post_hook, |hooks| self.solver.check_inf_or_nan_grad(hooks))
    }

    fn __repr__(&self) -> String {
        let args: Vec<_> = self.solver.info().iter().map(|(name, v)| format!("{name}={v}")).collect();
        format!("{}({})", self.solver.name(), args.join(", "))
    }
}

/// Name, docstring, and name, annotation and default of each argument of every solver.
#[pyfunction]
fn _solvers(py: Python<'_>) -> PyResult<Vec<(&'static str, String, Vec<(&'static str, &'static str, Py<PyAny>)>)>> {
    let row = |entry: &'static Entry| {
        let args = entry.spec.args.iter().map(|a| {
            let default = a.default.map_or(Value::None, |d| d());
            Ok((a.name, a.py_type, to_python(py, &default)?.unbind()))
        });
        Ok((entry.spec.name, entry.spec.doc(), args.collect::<PyResult<_>>()?))
    };
    SOLVERS.iter().map(row).collect()
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Solver>()?;
    m.add_function(wrap_pyfunction!(_solvers, m)?)
}
