//! Errors of calls that are written as in PyTorch or NumPy, and numbers that become arrays.
//!
//! Under NNabla's names, calls are read as NNabla reads them.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyTuple};

use super::arguments::shown;
use super::classes::{NdArray, Variable};
use super::functions::{Row, parameters};
use super::numpy;
use crate::graph::settings;
use crate::ops::{Arg, Kind, Spec, Value};
use crate::{Error, Result};

/// The constant for a number beside an array, if the function is one of two operands. Otherwise returns an error that
/// says what to write for an input that is no array; `error` is the error under NNabla's names.
#[cold]
pub(super) fn instead<'py>(
    row: &Row,
    at: usize,
    x: &Bound<'py, PyAny>,
    given: &[Bound<'py, PyAny>],
    error: PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let spec = row.entry.spec;
    let input = &spec.inputs[at];
    if is_array(x) || settings::is_nnabla() {
        return Err(error);
    }
    let is_number = is_number(x);
    if is_number
        && matches!(spec.inputs, [a, b] if (a.name, b.name) == ("x0", "x1") && input.kind == Kind::float)
    {
        return number(x, given.get(1 - at));
    }
    let first = |list: &Bound<'py, PyAny>| list.get_item(0).is_ok_and(|one| one.is_instance_of::<Variable>());
    let is_list = x.is_instance_of::<PyList>() || x.is_instance_of::<PyTuple>();
    let hint = match input.kind {
        _ if is_list && first(x) => "; kinnor.functions.stack(*x) joins variables".to_string(),
        Kind::list if is_number && !spec.args.is_empty() => {
            format!("; write {}={}", spec.args[0].name, shown(x))
        }
        Kind::optional if is_number || is_list => format!("; the arguments are ({})", parameters(row)),
        _ if is_number => "; kinnor.functions.constant(value, shape) is an array of equal numbers".into(),
        _ if is_list || x.hasattr("__array__")? => "; wrap it: kinnor.Variable.from_numpy_array(x)".into(),
        _ => String::new(),
    };
    let got = x.get_type().name()?;
    let (op, name) = (spec.name, input.name);
    Err(Error::Type(format!("{op}: expected '{name}' to be a Variable or an NdArray, got {got}{hint}"))
        .into())
}

/// True for a `Variable` or an `NdArray`.
fn is_array(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<Variable>() || x.is_instance_of::<NdArray>()
}

/// True for a number of Python or NumPy.
fn is_number(x: &Bound<'_, PyAny>) -> bool {
    x.is_instance_of::<PyFloat>()
        || x.is_instance_of::<PyInt>()
        || (x.hasattr("dtype").unwrap_or(false)
            && x.getattr("shape").and_then(|s| s.is_empty()).unwrap_or(false))
}

/// A number as an array of the kind of the other operand, to which no gradients flow. It has as many axes, which
/// functions need that do not broadcast ranks.
fn number<'py>(x: &Bound<'py, PyAny>, other: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let values = numpy::as_numpy(x)?;
    let is_double = x.is_instance_of::<PyFloat>() && !x.hasattr("dtype")?;
    let values = if is_double { values.call_method1("astype", ("float32",))? } else { values.into_any() };
    let ndim: usize = match other.filter(|other| is_array(other)) {
        Some(other) => other.getattr("ndim")?.extract()?,
        None => 0,
    };
    let values = values.call_method1("reshape", (vec![1; ndim],))?;
    let kind = match other {
        Some(other) if other.is_instance_of::<NdArray>() => x.py().get_type::<NdArray>(),
        _ => x.py().get_type::<Variable>(),
    };
    kind.call_method1("from_numpy_array", (values,))
}

/// The error for more arguments without a name than a function has.
pub(super) fn surplus(py: Python<'_>, row: &Row, given: &[Bound<'_, PyAny>]) -> PyErr {
    let name = row.entry.spec.name;
    let advice = || -> PyResult<Option<String>> {
        py.import("kinnor.compat.foreign_names")?
            .getattr("MORE_ARGUMENTS")?
            .call_method1("get", (name,))?
            .extract()
    };
    let hint = advice().ok().flatten().map(|text| format!("; write {text}"));
    let hint = hint.or_else(|| several(row, given)).unwrap_or_default();
    let (arguments, n) = (parameters(row), given.len());
    Error::Type(format!("{name}: expected ({arguments}), got {n} arguments without a name{hint}")).into()
}

/// Checks a value that was given without a name. A truth value is no number, and a number is neither a truth value nor
/// a word.
pub(super) fn check_place(row: &Row, arg: &Arg, found: &Value, given: &[Bound<'_, PyAny>]) -> Result<()> {
    let expected = match found {
        Value::Bool(_) if !arg.py_type.starts_with("bool") => arg.py_type,
        Value::Int(_) if arg.py_type.starts_with("bool") => "True or False",
        Value::Int(_) if arg.py_type == "str" => "a string",
        _ => return Ok(()),
    };
    if settings::is_nnabla() {
        return Ok(());
    }
    let expected = match expected {
        "int" => "an integer",
        "int | None" => "an integer or None",
        "float" => "a number",
        "float | None" => "a number or None",
        several if several.starts_with("int | Sequence[int") => match several.ends_with("None") {
            true => "an integer, several or None",
            false => "an integer or several",
        },
        other => other,
    };
    let hint = several(row, given).unwrap_or_default();
    let got = format!("{found} without a name; the arguments are ({}){hint}", parameters(row));
    Err(Error::argument(row.entry.spec.name, arg.name, expected, got))
}

/// The hint to write the lengths or axes as one tuple, if they were given one by one.
fn several(row: &Row, given: &[Bound<'_, PyAny>]) -> Option<String> {
    let spec = row.entry.spec;
    let lengths = given.get(spec.inputs.len()..)?;
    let is_lengths = |arg: &Arg| arg.py_type.starts_with("int | Sequence[int");
    let first = spec.args.first().filter(|arg| is_lengths(arg))?;
    let are_whole =
        lengths.iter().all(|one| one.is_instance_of::<PyInt>() && !one.is_instance_of::<PyBool>());
    if lengths.len() < 2 || !are_whole || spec.args.get(1).is_some_and(is_lengths) {
        return None;
    }
    let shown: Vec<String> = lengths.iter().map(shown).collect();
    Some(format!("; write {}=({})", first.name, shown.join(", ")))
}

/// Refuses `randn(3, 4)`, which would be one number with the mean 3, and `randn(2, 3, 4)`.
pub(super) fn check_random(
    spec: &Spec,
    values: &[Option<&Bound<'_, PyAny>>],
    given: &[Bound<'_, PyAny>],
) -> Result<()> {
    if !matches!(spec.name, "rand" | "randn") || given.is_empty() || settings::is_nnabla() {
        return Ok(());
    }
    let names = [spec.args[0].name, spec.args[1].name];
    let shape = values.get(2).copied().flatten();
    let is_tuple = |one: &Bound<'_, PyAny>| one.is_instance_of::<PyTuple>() || one.is_instance_of::<PyList>();
    if given.len() <= 2 && shape.is_some() || given.get(2).is_some_and(|one| !one.is_instance_of::<PyInt>()) {
        return Ok(());
    }
    let shape = match given {
        [one] if is_tuple(one) => shown(one),
        [one] => format!("({},)", shown(one)),
        all => format!("({})", all.iter().map(shown).collect::<Vec<_>>().join(", ")),
    };
    Err(Error::Type(format!(
        "{}: expected `shape` by name or as a tuple; arguments without a name are {} and {}; write shape={shape}, or \
         shape=() for one number",
        spec.name, names[0], names[1]
    )))
}
