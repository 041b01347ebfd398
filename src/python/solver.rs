//! `Solver`: the one class for all solvers of the registry. `kinnor.solvers` derives a class from it for each entry.

use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};

use super::arguments::{flag, number, refuse_unknown, shown, texts};
use super::calls;
use super::classes::{NdArray, Variable};
use super::values::{to_python, value, wrong};
use crate::graph::{self, settings};
use crate::ops::Value;
use crate::solvers::{self, Existing, Hooks, ParameterState, SOLVERS, SolverEntry, SolverState};
use crate::{Error, Result};

/// A solver: an update rule, its parameters and their states.
#[pyclass(frozen, subclass, module = "kinnor._core")]
pub(super) struct Solver {
    /// Set by `__init__`. Arguments of a derived class may differ.
    solver: OnceLock<solvers::Solver<graph::Variable>>,
}

impl Solver {
    /// The solver, or an error if `__init__` was not called.
    fn solver(&self) -> Result<&solvers::Solver<graph::Variable>> {
        self.solver.get().ok_or_else(|| {
            Error::Graph(
                "Solver: expected the __init__ of a derived class to call that of a rule such as Sgd, got a solver \
                 without a rule"
                    .into(),
            )
        })
    }
}

/// The two dicts of hooks of all solvers, before and after each parameter, from `kinnor.hooks`.
fn global(py: Python<'_>) -> PyResult<&'static [Py<PyDict>; 2]> {
    static GLOBAL: PyOnceLock<[Py<PyDict>; 2]> = PyOnceLock::new();
    GLOBAL.get_or_try_init(py, || {
        let hooks = py.import("kinnor.hooks")?.getattr("SOLVER")?;
        let dict = |when: &str| Ok::<_, PyErr>(hooks.get_item(when)?.cast_into::<PyDict>()?.unbind());
        Ok([dict("pre")?, dict("post")?])
    })
}

/// A hook, if there is one.
type Callable = Option<Py<PyAny>>;

/// Calls `work` with the hooks of this call combined with the hooks of all solvers. Releases Python's lock meanwhile.
fn hooked<T: Send>(
    py: Python<'_>,
    names: [&str; 2],
    given: [Callable; 2],
    work: impl FnOnce(Hooks<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    for (name, hook) in names.iter().zip(&given) {
        if let Some(hook) = hook.as_ref().filter(|h| !h.bind(py).is_callable()) {
            let got = hook.bind(py).get_type().name()?;
            return Err(Error::Type(format!("{name}: expected something to call, got {got}")).into());
        }
    }
    let [before, after] = global(py)?;
    let mut pre: Vec<_> = before.bind(py).values().iter().map(Bound::unbind).collect();
    let [own_pre, own_post] = given;
    pre.extend(own_pre);
    let mut post: Vec<_> = own_post.into_iter().collect();
    post.extend(after.bind(py).values().iter().map(Bound::unbind));

    let call =
        |hooks: &[Py<PyAny>]| calls::call(|py| hooks.iter().try_for_each(|hook| hook.call0(py).map(drop)));
    let done = py.detach(|| {
        let (mut before, mut after) = (|| call(&pre), || call(&post));
        let mut hooks = Hooks::none();
        if !pre.is_empty() {
            hooks.pre = Some(&mut before);
        }
        if !post.is_empty() {
            hooks.post = Some(&mut after);
        }
        work(hooks)
    });
    Ok(done?)
}

impl Solver {
    /// Makes the solver of a registry entry from Python arguments.
    fn made(
        entry: &SolverEntry,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<solvers::Solver<graph::Variable>> {
        let name = entry.spec.name;
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
                (Some(v), _) => value(&v)?.ok_or_else(|| wrong(name, arg, &v))?,
                (None, Some(default)) => default(),
                (None, None) => return Err(fail(format!("expected '{}', which is missing", arg.name))),
            });
        }
        Ok(entry.solver(&values)?)
    }
}

/// Keyword names of the hooks of `update`.
const OF_UPDATE: [&str; 2] = ["update_pre_hook", "update_post_hook"];
/// Keyword names of the hooks of other methods.
const OF_STEP: [&str; 2] = ["pre_hook", "post_hook"];

#[pymethods]
impl Solver {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(*args, **kwargs)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self { solver: OnceLock::new() }
    }

    /// Makes the solver. Under NNabla's names, a solver without a rule may be made as a base class of wrappers.
    #[pyo3(signature = (*args, **kwargs))]
    fn __init__(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let name = args.get_item(0).ok().and_then(|name| name.extract::<String>().ok());
        let Some(entry) = name.as_deref().and_then(solvers::find) else {
            if settings::is_nnabla() {
                return Ok(());
            }
            let got = args.get_item(0).map_or_else(|_| "no argument".into(), |name| shown(&name));
            return Err(Error::Key(format!("Solver: expected the name of a solver, got {got}")).into());
        };
        let made = Self::made(entry, &args.get_slice(1, args.len()), kwargs)?;
        self.solver.set(made).map_err(|_| {
            Error::Graph(format!("{}.__init__: expected one call, got another", entry.spec.name)).into()
        })
    }

    /// Name of the solver.
    #[getter]
    fn name(&self) -> Result<&'static str> {
        Ok(self.solver()?.name())
    }

    /// The arguments that it was made with. Under NNabla's names, numbers are rounded to single precision.
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        for (name, v) in self.solver()?.info() {
            info.set_item(name, to_python(py, &v)?)?;
        }
        Ok(info)
    }

    /// Registers parameters to update.
    ///
    /// Args:
    ///     param_dict: Variables by name.
    ///     reset: Remove all earlier parameters and states.
    ///     retain_state: Without `reset`, keep the states of a parameter whose name was registered before.
    ///
    /// Raises:
    ///     ShapeError: If kept states have another shape. Nothing is changed then.
    #[pyo3(signature = (param_dict, reset = true, retain_state = false))]
    fn set_parameters(
        &self,
        param_dict: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = flag)] reset: bool,
        #[pyo3(from_py_with = flag)] retain_state: bool,
    ) -> PyResult<()> {
        let solver = self.solver()?;
        let refuse = |what: String| {
            PyErr::from(Error::Type(format!(
                "{}.set_parameters: expected Variables by name, got {what}",
                solver.name()
            )))
        };
        let Ok(items) = param_dict.call_method0("items") else {
            return Err(refuse(param_dict.get_type().name()?.to_string()));
        };
        let mut parameters = Vec::new();
        for item in items.try_iter()? {
            let (key, v): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item?.extract()?;
            let name: String = key.extract().map_err(|_| refuse(format!("the name {key}")))?;
            let Ok(v) = v.cast::<Variable>() else {
                return Err(refuse(format!("{} for '{name}'", v.get_type().name()?)));
            };
            parameters.push((name, v.get().variable.clone()));
        }
        let existing = match (reset, retain_state) {
            (true, _) => Existing::Removed,
            (false, true) => Existing::Succeeded,
            (false, false) => Existing::Replaced,
        };
        Ok(solver.set_parameters(parameters, existing)?)
    }

    /// Removes parameters and their states.
    ///
    /// Args:
    ///     keys: Their names. Unknown names are ignored.
    fn remove_parameters(&self, #[pyo3(from_py_with = texts)] keys: Vec<String>) -> PyResult<()> {
        Ok(self.solver()?.remove_parameters(keys.iter().map(String::as_str))?)
    }

    /// Removes all parameters and their states.
    fn clear_parameters(&self) -> Result<()> {
        self.solver()?.clear_parameters();
        Ok(())
    }

    /// The parameters.
    ///
    /// Returns:
    ///     Variables by name, in the order of registration.
    fn get_parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, v) in self.solver()?.parameters() {
            found.set_item(name, Variable::wrap(py, v)?)?;
        }
        Ok(found)
    }

    /// Number of updates and state arrays by name, for each parameter. `get_states` converts them for users.
    fn _states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, state) in self.solver()?.states() {
            let arrays = PyDict::new(py);
            for ParameterState { name, shape, data } in state.pstate {
                arrays.set_item(name, NdArray::wrap(py, graph::NdArray { shape, storage: data })?)?;
            }
            found.set_item(name, (state.t, arrays))?;
        }
        Ok(found)
    }

    /// Copies states from the form of `_states`.
    fn _set_states(&self, states: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut ready = Vec::new();
        for (key, state) in states {
            let (t, arrays): (u32, Bound<'_, PyDict>) = state.extract()?;
            let mut pstate = Vec::new();
            for (name, array) in arrays {
                let array = array.cast::<NdArray>()?.get().array.clone();
                pstate.push(ParameterState {
                    name: name.extract()?,
                    shape: array.shape,
                    data: array.storage,
                });
            }
            ready.push((key.extract()?, SolverState { t, pstate }));
        }
        Ok(self.solver()?.set_states(ready)?)
    }

    /// The learning rate that was set. Under NNabla's names, it is rounded to single precision.
    fn learning_rate(&self) -> Result<f64> {
        Ok(self.solver()?.learning_rate())
    }

    /// Sets the learning rate of later updates.
    ///
    /// Args:
    ///     learning_rate: A finite number, not negative.
    ///
    /// Raises:
    ///     ArgumentError: If it is negative, infinite or NaN.
    fn set_learning_rate(&self, #[pyo3(from_py_with = number)] learning_rate: f64) -> PyResult<()> {
        Ok(self.solver()?.set_learning_rate(learning_rate)?)
    }

    /// Sets all gradients to zero lazily. Updates skip a parameter until a backward run writes its gradient.
    #[pyo3(signature = (**unknown), text_signature = "($self)")]
    fn zero_grad(&self, unknown: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        refuse_unknown("Solver.zero_grad", unknown)?;
        Ok(self.solver()?.zero_grad()?)
    }

    /// True if weight decay is part of an update instead of being added to gradients.
    fn weight_decay_is_fused(&self) -> Result<bool> {
        Ok(self.solver()?.weight_decay_is_fused())
    }

    /// Moves each parameter by one step.
    ///
    /// Args:
    ///     update_pre_hook: Called before each parameter.
    ///     update_post_hook: Called after each parameter.
    ///
    /// Raises:
    ///     ShapeError: If a parameter changed its shape.
    ///     ClearedError: If values or a gradient were cleared. Nothing is changed then.
    #[pyo3(signature = (update_pre_hook = None, update_post_hook = None))]
    fn update(&self, py: Python<'_>, update_pre_hook: Callable, update_post_hook: Callable) -> PyResult<()> {
        let solver = self.solver()?;
        hooked(py, OF_UPDATE, [update_pre_hook, update_post_hook], |hooks| solver.update(hooks))
    }

    /// Adds `decay_rate` times the values to the gradients. If decay is fused, the next update uses this rate instead.
    ///
    /// Args:
    ///     decay_rate: A finite number, not negative.
    ///     pre_hook: Called before each parameter.
    ///     post_hook: Called after each parameter.
    ///
    /// Raises:
    ///     ArgumentError: If the rate is negative, infinite or NaN.
    #[pyo3(signature = (decay_rate, pre_hook = None, post_hook = None))]
    fn weight_decay(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] decay_rate: f64,
        pre_hook: Callable,
        post_hook: Callable,
    ) -> PyResult<()> {
        let solver = self.solver()?;
        hooked(py, OF_STEP, [pre_hook, post_hook], |hooks| solver.weight_decay(decay_rate, hooks))
    }

    /// Scales each gradient whose L2 norm exceeds `clip_norm` down to that norm.
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
        #[pyo3(from_py_with = number)] clip_norm: f64,
        pre_hook: Callable,
        post_hook: Callable,
    ) -> PyResult<()> {
        let solver = self.solver()?;
        hooked(py, OF_STEP, [pre_hook, post_hook], |hooks| solver.clip_grad_by_norm(clip_norm, hooks))
    }

    /// Scales all gradients down to a common L2 norm of `max_norm`, if it is larger.
    ///
    /// If the norm is infinite or NaN, the gradients do not change.
    ///
    /// Args:
    ///     max_norm: The largest norm; 0 clips nothing.
    ///
    /// Returns:
    ///     The norm before clipping.
    ///
    /// Raises:
    ///     ArgumentError: If the norm is negative or not a number.
    fn clip_grad_by_global_norm(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = number)] max_norm: f64,
    ) -> PyResult<f64> {
        Ok(py.detach(|| self.solver()?.clip_grad_by_global_norm(max_norm))?)
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
        #[pyo3(from_py_with = number)] scale: f64,
        pre_hook: Callable,
        post_hook: Callable,
    ) -> PyResult<()> {
        let solver = self.solver()?;
        hooked(py, OF_STEP, [pre_hook, post_hook], |hooks| solver.scale_grad(scale, hooks))
    }

    /// True if any gradient has an infinite element.
    #[pyo3(signature = (pre_hook = None, post_hook = None))]
    fn check_inf_grad(&self, py: Python<'_>, pre_hook: Callable, post_hook: Callable) -> PyResult<bool> {
        let solver = self.solver()?;
        hooked(py, OF_STEP, [pre_hook, post_hook], |hooks| solver.check_inf_grad(hooks))
    }

    /// True if any gradient has a NaN element.
    #[pyo3(signature = (pre_hook = None, post_hook = None))]
    fn check_nan_grad(&self, py: Python<'_>, pre_hook: Callable, post_hook: Callable) -> PyResult<bool> {
        let solver = self.solver()?;
        hooked(py, OF_STEP, [pre_hook, post_hook], |hooks| solver.check_nan_grad(hooks))
    }

    /// True if any gradient has an infinite or NaN element.
    #[pyo3(signature = (pre_hook = None, post_hook = None))]
    fn check_inf_or_nan_grad(
        &self,
        py: Python<'_>,
        pre_hook: Callable,
        post_hook: Callable,
    ) -> PyResult<bool> {
        let solver = self.solver()?;
        hooked(py, OF_STEP, [pre_hook, post_hook], |hooks| solver.check_inf_or_nan_grad(hooks))
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let Some(solver) = slf.get().solver.get() else {
            return Ok(format!("<{} without a rule>", slf.get_type().name()?));
        };
        let plain = |v: &Value| match v {
            Value::Float(v) => (*v as f32).to_string(),
            other => other.to_string(),
        };
        let args: Vec<_> = solver.info().iter().map(|(name, v)| format!("{name}={}", plain(v))).collect();
        Ok(format!("{}({})", solver.name(), args.join(", ")))
    }
}

/// Name, annotation and default of an argument.
type Argument = (&'static str, &'static str, Py<PyAny>);

/// Name, docstring and arguments of every solver.
#[pyfunction]
fn _solvers(py: Python<'_>) -> PyResult<Vec<(&'static str, String, Vec<Argument>)>> {
    let row = |entry: &'static SolverEntry| {
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
