//! Basic indexing: converts the key in Python's brackets (integers, slices, None) to the operations that compute it.

use pyo3::prelude::*;
use pyo3::types::{PyList, PySlice};

use super::arguments::shown;
use super::operands::{Inputs, operand, run};
use crate::Error;
use crate::ops::{Cut, Indexed, Op, Put};

/// Reads an integer. Clamps it to the range of `i64`, which is far outside of any array.
fn whole(v: &Bound<'_, PyAny>) -> Option<i64> {
    let v = v.call_method0("__index__").ok()?;
    let sign = || v.lt(0).map(|negative| if negative { i64::MIN } else { i64::MAX });
    v.extract().ok().or_else(|| sign().ok())
}

/// Reads one entry of a key.
fn cut(entry: &Bound<'_, PyAny>) -> PyResult<Cut> {
    if entry.is_none() {
        return Ok(Cut::New);
    }
    let refused = || Error::Type(format!("index: expected a slice of whole numbers, got {}", shown(entry)));
    let Ok(slice) = entry.cast::<PySlice>() else {
        return Ok(Cut::At(whole(entry).ok_or_else(refused)?));
    };
    let bound = |name: &str| -> PyResult<Option<i64>> {
        let v = slice.getattr(name)?;
        if v.is_none() { Ok(None) } else { Ok(Some(whole(&v).ok_or_else(refused)?)) }
    };
    let step = bound("step")?.unwrap_or(1);
    if step == 0 {
        let text = format!("index: expected a slice with another step than zero, got {}", shown(entry));
        return Err(Error::Value(text).into());
    }
    Ok(Cut::Along(bound("start")?, bound("stop")?, step))
}

/// Reads a whole key.
fn cuts(key: &Bound<'_, PyList>) -> PyResult<Vec<Cut>> {
    key.iter().map(|entry| cut(&entry)).collect()
}

/// The part of `x` that a key names. The key has an entry for each axis, and None for a new axis.
#[pyfunction]
pub(super) fn part<'py>(x: &Bound<'py, PyAny>, key: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyAny>> {
    let inputs: Inputs<'_, 'py> = [operand("index", "x", x)?].into_iter().collect();
    run(x.py(), Op::new(Indexed::new(cuts(key)?)), &inputs, &[])
}

/// `x` with the part replaced by `value`, which is broadcast. Writes to the memory of `x` if `in_place`.
#[pyfunction]
pub(super) fn put<'py>(
    x: &Bound<'py, PyAny>,
    value: &Bound<'py, PyAny>,
    key: &Bound<'py, PyList>,
    in_place: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let inputs = [operand("index", "x", x)?, operand("index", "value", value)?];
    run(x.py(), Op::new(Put::new(cuts(key)?, in_place)), &inputs.into_iter().collect(), &[])
}
