//! Copies of objects of classes that Python code derives from `Variable` and `NdArray`.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// True for an object of a class that Python code has derived from `T`.
fn is_derived<T: PyTypeInfo>(object: &Bound<'_, T>) -> bool {
    !object.as_any().get_type().is(object.py().get_type::<T>())
}

/// The result of `__reduce__`: `restore`, its arguments, and the attributes of an object of a derived class.
pub(super) fn reduced<'py, T: PyTypeInfo>(
    object: &Bound<'py, T>,
    restore: Bound<'py, PyAny>,
    arguments: Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if !is_derived(object) {
        return (restore, arguments).into_pyobject(py).map(Bound::into_any);
    }
    let state = py.import("kinnor._python_functions.derived")?.getattr("state")?.call1((object,))?;
    (restore, arguments, state).into_pyobject(py).map(Bound::into_any)
}

/// Gives `copy` the attributes of an object of a derived class, or deep copies of them if there is a `memo`.
pub(super) fn copied<'py, T: PyTypeInfo>(
    object: &Bound<'py, T>,
    copy: Bound<'py, PyAny>,
    memo: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if is_derived(object) {
        let helpers = object.py().import("kinnor._python_functions.derived")?;
        helpers.getattr("copy_state")?.call1((object, &copy, memo))?;
    }
    Ok(copy)
}
