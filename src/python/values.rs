//! Conversion of the constant arguments of operations between Python and the core.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString, PyTuple};

use super::arguments::{MOST, items, refused, shown};
use super::classes::{NdArray, Variable};
use crate::Error;
use crate::ops::contract::spec::integer;
use crate::ops::{self, Value};

/// Converts a Python object to an argument value. None if it is not one.
pub(super) fn value(v: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if v.is_none() {
        return Ok(Some(Value::None));
    }
    if let Ok(v) = v.cast::<PyBool>() {
        return Ok(Some(Value::Bool(v.is_true())));
    }
    if let Ok(v) = v.cast::<PyFloat>() {
        return Ok(Some(Value::Float(v.value())));
    }
    if v.is_instance_of::<PyInt>() {
        let whole = v.extract::<i64>().map(Value::Int);
        return Ok(whole.or_else(|_| v.extract::<f64>().map(Value::Float)).ok());
    }
    if let Ok(v) = v.cast::<PyString>() {
        let text = v.to_str()?;
        return Ok((text.len() <= MOST).then(|| Value::Str(text.to_string())));
    }
    if v.is_instance_of::<Variable>() || v.is_instance_of::<NdArray>() {
        // A variable is refused: its current value would become a constant.
        return Ok(None);
    }
    if v.is_instance_of::<PyTuple>()
        || v.is_instance_of::<PyList>()
        || v.hasattr("tolist")?
        || v.hasattr("__iter__")?
    {
        return sequence(v);
    }
    if let Ok(v) = v.call_method0("__index__").and_then(|v| v.extract::<i64>()) {
        return Ok(Some(Value::Int(v)));
    }
    Ok(v.call_method0("__float__").and_then(|v| v.extract::<f64>()).map(Value::Float).ok())
}

/// Converts a sequence of numbers.
fn sequence(v: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if v.hasattr("tolist")? {
        let plain = v.call_method0("tolist")?;
        return if plain.hasattr("tolist")? { Ok(None) } else { value(&plain) };
    }
    let (mut numbers, mut whole, mut open, mut integers) = (true, true, false, true);
    let found = items(v, |item| match value(&item)? {
        Some(Value::Int(i)) => Ok((Some(i), i as f64)),
        Some(Value::Bool(b)) => Ok((Some(i64::from(b)), f64::from(u8::from(b)))),
        Some(Value::Float(f)) => {
            whole = false;
            let i = integer(f);
            integers &= i.is_some();
            Ok((i, f))
        }
        Some(Value::None) => {
            open = true;
            Ok((None, 0.0))
        }
        _ => {
            numbers = false;
            Err(refused("numbers", v))
        }
    });
    if !numbers {
        return Ok(None);
    }
    let found = found?.into_iter();
    Ok(match (whole, open) {
        (true, false) => Some(Value::Ints(found.filter_map(|(i, _)| i).collect())),
        (false, false) => Some(Value::Floats(found.map(|(_, f)| f).collect())),
        (_, true) => integers.then(|| Value::Bounds(found.map(|(i, _)| i).collect())),
    })
}

/// The number, if an array of one element is given where a number is expected.
pub(super) fn lone_number(arg: &ops::Arg, v: &Bound<'_, PyAny>, found: Value) -> Value {
    match (&found, arg.py_type) {
        (Value::Floats(one), "float") if one.len() == 1 && v.hasattr("tolist").unwrap_or(false) => {
            Value::Float(one[0])
        }
        (Value::Ints(one), "float" | "int") if one.len() == 1 && v.hasattr("tolist").unwrap_or(false) => {
            Value::Int(one[0])
        }
        _ => found,
    }
}

/// The error for an argument of the wrong type.
pub(super) fn wrong(op: &str, arg: &ops::Arg, got: &Bound<'_, PyAny>) -> PyErr {
    let expected = match arg.py_type {
        "float" => "a number",
        "int" => "an integer",
        "bool" => "True or False",
        other => other,
    };
    Error::argument(op, arg.name, expected, shown(got)).into()
}

/// Converts a value for `info.args` in Python.
pub(super) fn to_python<'py>(py: Python<'py>, v: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match v {
        Value::None => py.None().into_bound(py),
        Value::Bool(v) => PyBool::new(py, *v).to_owned().into_any(),
        Value::Int(v) => v.into_pyobject(py)?.into_any(),
        Value::Float(v) => v.into_pyobject(py)?.into_any(),
        Value::Ints(v) => PyList::new(py, v)?.into_any(),
        Value::Bounds(v) => PyList::new(py, v)?.into_any(),
        Value::Floats(v) => PyList::new(py, v)?.into_any(),
        Value::Str(v) => v.into_pyobject(py)?.into_any(),
    })
}
