//! Shapes as arguments of constructors and of `reshape`, and the errors for other arguments.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString, PyTuple};

use super::arguments::{MOST, flag, items, length, shown, whole};
use crate::Error;
use crate::array::Shape;
use crate::graph::settings;

/// Reads the shape that the constructor of `class` is given. Refuses values in its place, such as floating-point
/// numbers or nested lists.
pub(super) fn lengths(class: &str, object: &Bound<'_, PyAny>) -> PyResult<Shape> {
    let refuse = || {
        PyErr::from(Error::Value(format!(
            "{class}: expected the lengths of the axes as whole numbers of zero or more, {MOST} at most, got {}; for \
             an array with these values call {class}.from_numpy_array",
            shown(object)
        )))
    };
    let float = |v: &Bound<'_, PyAny>| match v.is_instance_of::<PyFloat>() {
        true => Ok(true),
        false => v.hasattr("dtype").and_then(|has| Ok(has && v.getattr("dtype")?.getattr("kind")?.eq("f")?)),
    };
    let is_float = match length(object) {
        Some(_) => float(object),
        None if object.hasattr("dtype")? => float(object),
        // Another iterable can be read once only.
        None if !object.is_instance_of::<PyList>() && !object.is_instance_of::<PyTuple>() => Ok(false),
        None => items(object, |v| float(&v)).map(|all| !all.is_empty() && all.into_iter().all(|one| one)),
    };
    match is_float {
        Ok(false) => shape_from(object).map_err(|_| refuse()),
        Ok(true) if settings::is_nnabla() => shape_from(object),
        _ => Err(refuse()),
    }
}

/// Reads a shape from integers or from one sequence of them.
pub(super) fn shape_from(object: &Bound<'_, PyAny>) -> PyResult<Shape> {
    if let Some(one) = length(object) {
        return Ok([one].into());
    }
    let refuse = || {
        PyErr::from(Error::Value(format!(
            "shape: expected whole lengths of zero or more, {MOST} at most, got {}",
            shown(object)
        )))
    };
    let dims = items(object, |d| length(&d).ok_or_else(refuse));
    Ok(dims.map_err(|_| refuse())?.into())
}

/// Reads the shape and `unlink` from the arguments of `reshape`: a shape and perhaps `unlink`, or the lengths one by
/// one.
pub(super) fn reshape_arguments<'py>(
    given: &Bound<'py, PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<(Bound<'py, PyAny>, bool)> {
    let refuse = |got: String| {
        PyErr::from(Error::Type(format!(
            "reshape: expected a shape, as one tuple or as several integers, and `unlink`, got {got}"
        )))
    };
    let (mut shape, mut unlink) = (None, None);
    for (key, one) in named.into_iter().flatten() {
        match key.cast::<PyString>()?.to_str()? {
            "shape" => shape = Some(one),
            "unlink" => unlink = Some(one),
            _ => return Err(refuse(format!("an argument {}", shown(&key)))),
        }
    }
    let is_length = |one: &Bound<'_, PyAny>| !one.is_instance_of::<PyBool>() && whole(one).is_ok();
    let given: Vec<_> = given.iter().collect();
    match (given.as_slice(), &shape, &unlink) {
        ([], Some(_), _) => {}
        ([one], None, _) => shape = Some(one.clone()),
        ([one, flag], None, None) if !is_length(flag) || !is_length(one) => {
            (shape, unlink) = (Some(one.clone()), Some(flag.clone()));
        }
        ([_, _, ..], None, _) if given.iter().all(is_length) => {
            let py = given[0].py();
            shape = Some(PyTuple::new(py, &given)?.into_any());
        }
        _ => return Err(refuse(given.iter().map(shown).collect::<Vec<_>>().join(", "))),
    }
    let shape = shape.ok_or_else(|| refuse("none".into()))?;
    let unlink = unlink.as_ref().map_or(Ok(false), flag);
    let py = shape.py();
    Ok((shape, unlink.map_err(|error| noted(py, error, "unlink"))?))
}

/// Adds a note with the name of the argument to an error, as pyo3 does for other arguments.
pub(super) fn noted(py: Python<'_>, error: PyErr, argument: &str) -> PyErr {
    // Python before 3.11 has no notes.
    let _ = error.value(py).call_method1("add_note", (format!("while processing '{argument}'"),));
    error
}
