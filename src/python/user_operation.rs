//! Adapter of a user-defined operation (`PythonFunction`) to the engine's `Operation`. Asks Python for its facts once,
//! when it is applied, and calls its methods in runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use super::arguments::{items, shown};
use super::calls;
use super::classes::{USER_OPERATIONS, Variable};
use super::user::{FunctionVariable, PythonFunction};
use crate::array::{DType, Shape, Storage};
use crate::graph;
use crate::ops::{
    Alias, Array, Call, Facts, InputFacts, Kind, OnArrays, Op, Operation, Reads, Shapes, Sym, Symbols, Value,
};
use crate::{Error, Result};

/// The user's Python object. The engine calls it for gradients built as a graph.
struct Object(Py<PythonFunction>);

impl graph::UserRule for Object {
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
            let one = |g: Bound<'_, PyAny>| -> PyResult<Option<graph::Variable>> {
                if g.is_none() {
                    return Ok(None);
                }
                Ok(Some(g.cast::<Variable>()?.get().variable.clone()))
            };
            items(&found, one)
        };
        calls::call(asked)
    }

    fn object(&self) -> &(dyn std::any::Any + Send + Sync) {
        &self.0
    }
}

/// A user-defined operation as the engine sees it. Its facts were read from Python in advance, so the engine can use
/// them under its lock.
pub(super) struct UserOp {
    /// The user's graph rule, as the engine calls it.
    user: graph::User,
    /// The Python object that defines the operation.
    object: Py<PythonFunction>,
    /// The name of the operation.
    name: String,
    /// The number of outputs.
    n_outputs: usize,
    /// The properties that the user's methods declare.
    facts: Facts,
}

/// The most outputs of a user-defined operation.
const MOST_OUTPUTS: usize = 1 << 16;

impl Drop for UserOp {
    fn drop(&mut self) {
        USER_OPERATIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The Python object of an operation, as often as the operation holds a reference to it.
pub(super) fn objects(user: &graph::User) -> impl Iterator<Item = &Py<PythonFunction>> {
    user.0.object().downcast_ref().into_iter().flat_map(|object| [object, object])
}

/// Reads the result of a user's method: a number of at most `most`.
fn number(name: &str, method: &str, most: usize, returned: Bound<'_, PyAny>) -> PyResult<usize> {
    let found = returned.extract().ok().filter(|n| *n <= most);
    let refused = || {
        Error::Value(format!("{name}: expected `{method}` to return 0 to {most}, got {}", shown(&returned)))
    };
    Ok(found.ok_or_else(refused)?)
}

/// Arrays wrapped for the user's methods, also as a Python list.
struct Wrapped<'py> {
    /// The wrapped arrays.
    all: Vec<Bound<'py, FunctionVariable>>,
    /// The wrapped arrays as a Python list.
    list: Bound<'py, PyList>,
}

impl<'py> Wrapped<'py> {
    fn new(py: Python<'py>, arrays: &[Array]) -> PyResult<Self> {
        let wrapped =
            |a: &Array| Bound::new(py, FunctionVariable { array: parking_lot::Mutex::new(a.clone()) });
        let all = arrays.iter().map(wrapped).collect::<PyResult<Vec<_>>>()?;
        let list = PyList::new(py, &all)?;
        Ok(Self { all, list })
    }
}

impl UserOp {
    /// Reads the facts of an operation from Python: number of outputs, memory sharing, values that gradients read.
    pub(super) fn bind(user: &Bound<'_, PythonFunction>, inputs: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let name = user.getattr("name")?.str()?.to_string();
        let n_outputs = user.call_method0("min_outputs")?;
        let n_outputs: usize = n_outputs.extract().map_err(|_| {
            Error::Type(format!("{name}: expected `min_outputs` to return a count, got {n_outputs}"))
        })?;
        if n_outputs > MOST_OUTPUTS {
            let text =
                format!("{name}: expected `min_outputs` to return at most {MOST_OUTPUTS}, got {n_outputs}");
            return Err(Error::Value(text).into());
        }
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
        let read = |of_inputs: &str, of_outputs: &str| -> PyResult<Vec<Reads>> {
            let each =
                |i| Ok(Reads { inputs: ask(of_inputs, i, n)?, outputs: ask(of_outputs, i, n_outputs)? });
            (0..n).map(each).collect()
        };
        let reads = read("grad_depends_input_data", "grad_depends_output_data")?;
        let more = read("auto_grad_depends_input_data", "auto_grad_depends_output_data")?;
        let alias = |i| -> PyResult<Option<Alias>> {
            let level: usize = number(&name, "inplace_data", 2, user.call_method1("inplace_data", (i,))?)?;
            if level == 0 || n_outputs == 0 {
                return Ok(None);
            }
            let output = user.call_method1("inplace_data_with", (i,))?;
            let output = number(&name, "inplace_data_with", n_outputs.max(1) - 1, output)?;
            Ok(Some(Alias { output, modifies: level == 2 }))
        };
        let aliases = (0..n).map(alias).collect::<PyResult<Vec<_>>>()?;
        let overwrites = |i| user.call_method1("overwrite_input_data_in_forward", (i,))?.is_truthy();
        let overwrites = (0..n).map(overwrites).collect::<PyResult<Vec<_>>>()?;
        let inputs = (0..n).map(|i| InputFacts {
            reads: reads[i],
            symbol_reads: reads[i].or(more[i]),
            alias: aliases[i],
            overwrites: overwrites[i],
            moves: false,
        });
        let keeps_inputs = user.call_method0("prohibit_clear_input_buffers")?.is_truthy()?;
        let facts = Facts { may_clear_inputs: !keeps_inputs, ..Facts::of_users_code(inputs) };
        let object = user.clone().unbind();
        let rule = Object(object.clone_ref(user.py()));
        USER_OPERATIONS.fetch_add(1, Ordering::Relaxed);
        let user = graph::User(Box::new(rule));
        Ok(Self { user, object, name, n_outputs, facts })
    }

    /// Calls a method with wrapped inputs and outputs.
    fn call(&self, method: &str, x: &[Array], y: &[Array]) -> Result<()> {
        calls::call(|py| {
            let (x, outputs) = (Wrapped::new(py, x)?, Wrapped::new(py, y)?);
            self.object.bind(py).call_method1(method, (&x.list, &outputs.list))?;
            let moved = |now: &Array, then: &Array| !Arc::ptr_eq(&now.data, &then.data);
            Ok(self.check_kept(method, "output", &outputs, y, moved)?)
        })
    }

    /// Returns an error if a method changed the shape of an array. Only `setup_impl` may: other methods would lose the
    /// written values.
    fn check_kept(
        &self,
        method: &str,
        what: &str,
        wrapped: &Wrapped<'_>,
        given: &[Array],
        moved: impl Fn(&Array, &Array) -> bool,
    ) -> Result<()> {
        for (n, (now, given)) in wrapped.all.iter().zip(given).enumerate() {
            let now = now.get().array.lock();
            if now.shape != given.shape || moved(&now, given) {
                let shape = &given.shape;
                let expected = format!(
                    "`{method}` to leave {what} {n} with shape {shape}, as `setup_impl` did (reset_shape belongs there)"
                );
                return Err(Error::shape(&self.name, expected, [&now.shape]));
            }
        }
        Ok(())
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
        calls::call(|py| {
            let (inputs, y) = (Wrapped::new(py, x)?, Wrapped::new(py, y)?);
            let args = (&inputs.list, y.list, wanted.to_vec(), accumulate.to_vec());
            self.object.bind(py).call_method1("backward_impl", args)?;
            let moved = |now: &Array, then: &Array| !Arc::ptr_eq(&now.grad, &then.grad);
            Ok(self.check_kept("backward_impl", "input", &inputs, x, moved)?)
        })
    }
}

// SAFETY: it has no kernels, and `shapes` checks that arrays that share memory have equal sizes.
unsafe impl Operation for UserOp {
    fn type_name(&self) -> &str {
        &self.name
    }
    fn name(&self) -> &str {
        &self.name
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
    fn info(&self, _: &[&Shape]) -> Vec<(&'static str, Value)> {
        Vec::new()
    }
    fn kind(&self, _: usize) -> Kind {
        Kind::float
    }
    fn shapes_by(&self, x: &[&Shape], _: Option<&[f64]>) -> Result<Shapes> {
        let y = calls::call(|py| -> PyResult<Shapes> {
            let array = |shape: &Shape| Array {
                shape: shape.clone(),
                data: Storage::new(shape.size()),
                grad: Storage::new(shape.size()),
            };
            let inputs: Vec<Array> = x.iter().map(|s| array(s)).collect();
            let outputs: Vec<Array> = (0..self.n_outputs).map(|_| array(&Shape::default())).collect();
            let (x, y) = (Wrapped::new(py, &inputs)?, Wrapped::new(py, &outputs)?);
            self.object.bind(py).call_method1("setup_impl", (x.list, &y.list))?;
            if y.list.len() != y.all.len() || y.list.iter().zip(&y.all).any(|(now, own)| !now.is(own)) {
                return Err(Error::Value(format!(
                    "{}: expected `setup_impl` to leave its {} outputs in their list, got other ones",
                    self.name, self.n_outputs
                ))
                .into());
            }
            Ok(y.all.iter().map(|y| y.get().array.lock().shape.clone()).collect())
        })?;
        for (i, x) in x.iter().enumerate() {
            if let Some(Alias { output, .. }) = self.facts.alias(i)
                && x.size() != y[output].size()
            {
                let expected =
                    format!("output {output} to have the size of input {i}, whose memory it shares");
                return Err(Error::shape(&self.name, expected, [x, &y[output]]));
            }
        }
        Ok(y)
    }
    fn output(&self, _: usize) -> Option<DType> {
        None
    }
    unsafe fn forward(&self, _: Call<'_>) -> Result<()> {
        Err(Error::NotImplemented(format!("{}: runs on arrays", self.name)))
    }
    unsafe fn backward(&self, _: Call<'_>) -> Result<()> {
        Err(Error::NotImplemented(format!("{}: runs on arrays", self.name)))
    }
    fn gradient(&self, _: Symbols) -> Result<Vec<Option<Sym>>> {
        Err(Error::NotImplemented(format!("{}: makes its gradient of variables", self.name)))
    }
    fn on_arrays(&self) -> Option<&dyn OnArrays> {
        Some(self)
    }
    fn user(&self) -> Option<&dyn std::any::Any> {
        Some(&self.user)
    }
}

/// The arguments that a user-defined operation reports, if `op` is one. None if a method has that name.
pub(super) fn arguments<'py>(py: Python<'py>, op: &Op) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(user) = op.user() else { return Ok(None) };
    let Some(graph::User(user)) = user.downcast_ref() else { return Ok(None) };
    let Some(user) = user.object().downcast_ref::<Py<PythonFunction>>() else { return Ok(None) };
    let args = user.bind(py).getattr_opt("args")?;
    Ok(Some(args.and_then(|args| args.cast_into::<PyDict>().ok()).unwrap_or_else(|| PyDict::new(py))))
}
