//! Plain arguments of methods, for `from_py_with`. What is refused is told here; which argument it was, pyo3 adds.

use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::Error;

pub(super) fn refused(expected: &str, got: &Bound<'_, PyAny>) -> PyErr {
    Error::Type(format!("expected {expected}, got {}", shown(got))).into()
}

/// What Python shows of an object.
pub(super) fn shown(object: &Bound<'_, PyAny>) -> String {
    object.repr().map_or_else(|_| "something else".into(), |repr| repr.to_string())
}

/// True or False, those of NumPy, 1 or 0.
pub(super) fn flag(v: &Bound<'_, PyAny>) -> PyResult<bool> {
    let number = || v.extract::<i64>().ok().filter(|i| matches!(i, 0 | 1)).map(|i| i == 1);
    v.extract().ok().or_else(number).ok_or_else(|| refused("True or False", v))
}

/// A `flag` or None.
pub(super) fn some_flag(v: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    (!v.is_none()).then(|| flag(v)).transpose().map_err(|_| refused("True, False or None", v))
}

/// A list of `flag`s or None.
pub(super) fn some_flags(v: &Bound<'_, PyAny>) -> PyResult<Option<Vec<bool>>> {
    let flags = |v: &Bound<'_, PyAny>| v.try_iter()?.map(|one| flag(&one?)).collect::<PyResult<Vec<_>>>();
    (!v.is_none()).then(|| flags(v)).transpose().map_err(|_| refused("a list of True and False, or None", v))
}

/// A dict.
pub(super) fn dict<'py>(v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    v.cast::<PyDict>().cloned().map_err(|_| refused("a dict", v))
}

/// A number, or an array of one.
pub(super) fn number(v: &Bound<'_, PyAny>) -> PyResult<f64> {
    v.extract().map_err(|_| refused("a number", v))
}

/// A whole number.
pub(super) fn whole(v: &Bound<'_, PyAny>) -> PyResult<i64> {
    v.extract().map_err(|_| refused("a whole number", v))
}

/// A place in a list, or a count.
pub(super) fn count(v: &Bound<'_, PyAny>) -> PyResult<usize> {
    v.extract().map_err(|_| refused("a whole number of zero or more", v))
}

/// A number of bytes, or None for no limit.
pub(super) fn bytes(v: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let refuse = |_| refused("a number of bytes of zero or more, or None", v);
    if v.is_none() { Ok(None) } else { v.extract().map(Some).map_err(refuse) }
}

/// A string.
pub(super) fn text(v: &Bound<'_, PyAny>) -> PyResult<String> {
    v.extract().map_err(|_| refused("a string", v))
}

/// Several strings; one alone is not several of one letter.
pub(super) fn texts(v: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let all = || v.try_iter()?.map(|one| one?.extract()).collect::<PyResult<_>>();
    if v.is_instance_of::<PyString>() { None } else { all().ok() }
        .ok_or_else(|| refused("a list of strings", v))
}

/// A string or None.
pub(super) fn some_text(v: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    (!v.is_none()).then(|| text(v)).transpose().map_err(|_| refused("a string or None", v))
}

/// An object of a class of ours.
pub(super) fn object<'py, T: PyClass>(v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, T>> {
    v.cast::<T>().cloned().map_err(|_| refused(&format!("a {}", T::NAME), v))
}

/// Something to call.
pub(super) fn callable<'py>(v: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if v.is_callable() { Ok(v.clone()) } else { Err(refused("something to call", v)) }
}
