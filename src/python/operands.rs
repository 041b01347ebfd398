//! Conversion of the inputs of a function call from Python, and of its outputs to Python.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::SmallVec;

use super::arguments::{items, refused};
use super::classes::{NdArray, Variable};
use super::scopes;
use crate::Error;
use crate::graph::settings::{self, Precision};
use crate::graph::{self, connect_detached, evaluate_into};
use crate::ops::Op;

/// An input of a function call: a variable of the graph or an array.
pub(super) enum ArrayOrNumber<'a, 'py> {
    Variable(&'a Bound<'py, Variable>),
    Array(&'a Bound<'py, NdArray>),
}

impl ArrayOrNumber<'_, '_> {
    /// The number of axes.
    pub(super) fn ndim(&self) -> usize {
        match self {
            Self::Variable(v) => v.get().variable.shape().ndim(),
            Self::Array(a) => a.get().array.shape.ndim(),
        }
    }
}

/// Reads one input, named `name` in messages about `op`.
pub(super) fn operand<'a, 'py>(
    op: &str,
    name: &str,
    x: &'a Bound<'py, PyAny>,
) -> PyResult<ArrayOrNumber<'a, 'py>> {
    if let Ok(v) = x.cast::<Variable>() {
        return Ok(ArrayOrNumber::Variable(v));
    }
    if let Ok(a) = x.cast::<NdArray>() {
        a.get().check_computed(op)?;
        return Ok(ArrayOrNumber::Array(a));
    }
    let got = x.get_type().name()?.to_string();
    let hint = if got == "ndarray" { "; wrap it: kinnor.Variable.from_numpy_array(x)" } else { "" };
    Err(Error::Type(format!("{op}: expected '{name}' to be a Variable or an NdArray, got {got}{hint}"))
        .into())
}

/// The variables of a list. A single Variable is refused, although iterating over it would yield its parts.
pub(super) fn variables<'py>(op: &str, list: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, Variable>>> {
    let refused = |got: &Bound<'_, PyAny>| -> PyErr {
        let got = got.get_type().name().map_or_else(|_| "something else".into(), |name| name.to_string());
        Error::Type(format!("{op}: expected a list of Variables, got {got}")).into()
    };
    if list.is_instance_of::<Variable>() {
        return Err(refused(list));
    }
    list.try_iter().map_err(|_| refused(list))?;
    items(list, |v| v.cast::<Variable>().cloned().map_err(|_| refused(&v)))
}

/// The floating-point type in which functions compute in the current context.
pub(super) fn current_compute() -> Precision {
    settings::context(settings::current_context()).compute
}

/// The inputs of a function call.
pub(super) type Inputs<'a, 'py> = SmallVec<[ArrayOrNumber<'a, 'py>; 4]>;

/// Connects an operation to variables, or evaluates it on arrays, and wraps the outputs.
pub(super) fn run<'py>(
    py: Python<'py>,
    op: Op,
    inputs: &Inputs<'_, 'py>,
    into: &[Option<graph::NdArray>],
) -> PyResult<Bound<'py, PyAny>> {
    if inputs.iter().any(|x| matches!(x, ArrayOrNumber::Array(_))) {
        scopes::follow(py);
        let x = inputs
            .iter()
            .map(|x| match x {
                ArrayOrNumber::Variable(v) => {
                    v.get().variable.check_computed(op.name())?;
                    Ok(v.get().variable.data())
                }
                ArrayOrNumber::Array(a) => Ok(a.get().array.clone()),
            })
            .collect::<crate::Result<SmallVec<[graph::NdArray; 4]>>>()?;
        let compute = current_compute();
        let work: usize = x.iter().map(|x| x.shape.size()).sum();
        let y = if work > 1 << 14 && op.on_arrays().is_none() {
            py.detach(|| evaluate_into(&op, &x, compute, into))?
        } else {
            evaluate_into(&op, &x, compute, into)?
        };
        return pack(py, y, |y| NdArray::wrap(py, y).map(Bound::into_any));
    }
    let x: SmallVec<[&graph::Variable; 4]> = inputs
        .iter()
        .filter_map(|x| match x {
            ArrayOrNumber::Variable(v) => Some(&v.get().variable),
            ArrayOrNumber::Array(_) => None,
        })
        .collect();
    connected(py, &op, &x, into)
}

/// Connects an operation to variables and wraps the outputs.
pub(super) fn connected<'py>(
    py: Python<'py>,
    op: &Op,
    x: &[&graph::Variable],
    into: &[Option<graph::NdArray>],
) -> PyResult<Bound<'py, PyAny>> {
    scopes::follow(py);
    let detach = |run: &mut (dyn FnMut() + Send)| py.detach(run);
    let mut y = graph::Outputs::new();
    connect_detached(&mut y, op, x, into, Some(&detach))?;
    pack(py, y, |y| Variable::wrap(py, y).map(Bound::into_any))
}

/// Connects or evaluates a user-defined operation.
pub(super) fn run_user<'py>(
    py: Python<'py>,
    op: Op,
    inputs: &Bound<'py, PyTuple>,
    into: &[Option<graph::NdArray>],
) -> PyResult<Bound<'py, PyAny>> {
    let name = op.name().to_string();
    let all: Vec<Bound<'py, PyAny>> = inputs.iter().collect();
    let inputs = all.iter().map(|x| operand(&name, "inputs", x)).collect::<PyResult<Inputs<'_, 'py>>>()?;
    run(py, op, &inputs, into)
}

/// Returns one output as it is, several as a tuple.
fn pack<'py, T>(
    py: Python<'py>,
    mut outputs: SmallVec<[T; 1]>,
    wrap: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if outputs.len() == 1
        && let Some(only) = outputs.pop()
    {
        return wrap(only);
    }
    let all = outputs.into_iter().map(wrap).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, all)?.into_any())
}

/// Reads the arrays of `outputs=[...]`.
pub(super) fn into_arrays(outputs: &Bound<'_, PyAny>) -> PyResult<Vec<Option<graph::NdArray>>> {
    if outputs.is_none() {
        return Ok(Vec::new());
    }
    let array = |o: Bound<'_, PyAny>| -> PyResult<Option<graph::NdArray>> {
        if o.is_none() {
            return Ok(None);
        }
        match o.cast::<NdArray>() {
            Ok(a) => Ok(Some(a.get().array.clone())),
            Err(_) => {
                let got = o.get_type().name()?;
                Err(Error::Type(format!("outputs: expected NdArrays or None, got {got}")).into())
            }
        }
    };
    outputs.try_iter().map_err(|_| refused("a list of NdArrays for `outputs`", outputs))?;
    items(outputs, array)
}
