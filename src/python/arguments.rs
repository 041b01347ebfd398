//! Conversions of method arguments, for pyo3's `from_py_with`. An error says what was expected; pyo3 adds the name of
//! the argument.

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyList, PyString, PyTuple};

use super::classes::{NdArray, Variable};
use crate::Error;
use crate::environment;
use crate::ops::contract::spec::integer;

/// A TypeError that says what was expected and shows the object that was given.
pub(super) fn refused(expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    Error::Type(format!("expected {expected}, got {}", shown(got))).into()
}

/// The `repr` of an object, cut to a readable length.
pub(super) fn shown(object: &Bound<'_, PyAny>) -> String {
    /// Letters to show at most.
    const MOST: usize = 400;
    let text = object.repr().map_or_else(|_| "something else".into(), |repr| repr.to_string());
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// The most items taken from an iterable that is neither a list nor a tuple, because it may be endless.
pub(super) const MOST: usize = 1 << 16;

/// Calls `each` on the items of a list, a tuple, or another iterable of at most [`MOST`] items, and returns the
/// results.
pub(super) fn items<'py, T>(
    v: &Bound<'py, PyAny>,
    mut each: impl FnMut(Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let is_list = v.is_instance_of::<PyList>() || v.is_instance_of::<PyTuple>();
    let most = if is_list { usize::MAX } else { MOST };
    let mut found = Vec::new();
    for item in v.try_iter()? {
        if found.len() == most {
            return Err(refused(&format!("an iterable of at most {MOST} items"), v));
        }
        let bytes = (found.len() + 1) * size_of::<T>();
        found.try_reserve(1).map_err(|_| Error::Memory { bytes })?;
        found.push(each(item?)?);
    }
    Ok(found)
}

/// Returns an error for unknown arguments of a method, if there are any. It says what to write in place of arguments of
/// other libraries.
pub(super) fn refuse_unknown(op: &str, unknown: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let Some(unknown) = unknown else { return Ok(()) };
    let advice = unknown.py().import("kinnor._foreign_attributes")?;
    advice.call_method1("refuse", (op, unknown)).map(drop)
}

/// Reads a truth value: a Python or NumPy bool, or 0 or 1.
pub(super) fn flag(v: &Bound<'_, PyAny>) -> PyResult<bool> {
    let number = || v.extract::<i64>().ok().filter(|i| matches!(i, 0 | 1)).map(|i| i == 1);
    v.extract().ok().or_else(number).ok_or_else(|| refused("True or False", v))
}

/// Reads a truth value or None.
pub(super) fn some_flag(v: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    (!v.is_none()).then(|| flag(v)).transpose().map_err(|_| refused("True, False or None", v))
}

/// Reads a list of truth values, or None.
pub(super) fn some_flags(v: &Bound<'_, PyAny>) -> PyResult<Option<Vec<bool>>> {
    (!v.is_none())
        .then(|| items(v, |one| flag(&one)))
        .transpose()
        .map_err(|_| refused("a list of True and False, or None", v))
}

/// Reads a list of truth values.
pub(super) fn flags(v: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
    items(v, |one| flag(&one)).map_err(|_| refused("a list of True and False", v))
}

/// Reads a dict.
pub(super) fn dict<'py>(v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    v.cast::<PyDict>().cloned().map_err(|_| refused("a dict", v))
}

/// Reads a number, or an array of one number.
pub(super) fn number(v: &Bound<'_, PyAny>) -> PyResult<f64> {
    let plain = v.is_instance_of::<PyFloat>() || !v.hasattr("item")?;
    let found = if plain { v.extract() } else { v.call_method0("item").and_then(|one| one.extract()) };
    found.map_err(|_| refused("a number", v))
}

/// Reads a whole number.
pub(super) fn whole(v: &Bound<'_, PyAny>) -> PyResult<i64> {
    v.extract().ok().or_else(|| whole_float(v)).ok_or_else(|| refused("a whole number", v))
}

/// Returns the whole number equal to a float, as for `16 / 2`. None if there is none.
pub(super) fn whole_float(v: &Bound<'_, PyAny>) -> Option<i64> {
    let ours = || v.is_instance_of::<NdArray>() || v.is_instance_of::<Variable>();
    let numpys = || v.getattr("ndim").and_then(|n| n.extract::<usize>()).is_ok_and(|n| n == 0) && !ours();
    if v.is_instance_of::<PyFloat>() || numpys() { v.extract().ok().and_then(integer) } else { None }
}

/// Reads an index or a count, which is not negative.
pub(super) fn count(v: &Bound<'_, PyAny>) -> PyResult<usize> {
    length(v).ok_or_else(|| refused("a whole number of zero or more", v))
}

/// Returns the length if the object is a whole number of zero or more.
pub(super) fn length(v: &Bound<'_, PyAny>) -> Option<usize> {
    v.extract().ok().or_else(|| whole_float(v).and_then(|i| usize::try_from(i).ok()))
}

/// Reads a number of bytes, as an integer or as text such as `"64M"`, or None for no limit.
pub(super) fn bytes(v: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if v.is_none() {
        return Ok(None);
    }
    let text = || v.extract::<String>().ok().and_then(|text| environment::bytes(&text));
    let found = v.extract().ok().or_else(text);
    found
        .map(Some)
        .ok_or_else(|| refused("a number of bytes of zero or more, as 67108864 or '64M', or None", v))
}

/// Reads a string.
pub(super) fn text(v: &Bound<'_, PyAny>) -> PyResult<String> {
    v.extract().map_err(|_| refused("a string", v))
}

/// Reads several strings. One string is refused: it is not a list of letters.
pub(super) fn texts(v: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if v.is_instance_of::<PyString>() { None } else { items(v, |one| one.extract()).ok() }
        .ok_or_else(|| refused("a list of strings", v))
}

/// Reads a string or None.
pub(super) fn some_text(v: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    (!v.is_none()).then(|| text(v)).transpose().map_err(|_| refused("a string or None", v))
}

/// Reads an object of one of this library's classes.
pub(super) fn object<'py, T: PyClass>(v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, T>> {
    v.cast::<T>().cloned().map_err(|_| refused(&format!("a {}", T::NAME), v))
}

/// Reads a callable.
pub(super) fn callable<'py>(v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if v.is_callable() { Ok(v.clone()) } else { Err(refused("something to call", v)) }
}
