//! Whole numbers of NumPy arrays: how large they are. Knows NumPy's arrays; knows no others.

use numpy::{Element, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;

/// Numbers of so many bits, beside their sign, are whole in every type that functions compute in.
const BITS: u32 = 23;

/// Whether an array has whole numbers of 32 or 64 bits alone, one after the other, and all are from `-2^23` to `2^23 - 1`.
#[pyfunction]
fn are_small_whole(x: &Bound<'_, PyAny>) -> bool {
    fn of<T: Element + Copy>(x: &Bound<'_, PyAny>, magnitude: impl Fn(T) -> u64) -> Option<bool> {
        let x = x.cast::<PyArrayDyn<T>>().ok()?.try_readonly().ok()?;
        Some(x.as_slice().ok()?.iter().fold(0, |bits, v| bits | magnitude(*v)) >> BITS == 0)
    }
    let found = of::<i64>(x, |v| (v ^ (v >> 63)) as u64)
        .or_else(|| of::<i32>(x, |v| u64::from((v ^ (v >> 31)) as u32)))
        .or_else(|| of::<u64>(x, |v| v))
        .or_else(|| of::<u32>(x, u64::from));
    found.unwrap_or(false)
}

/// Adds the function to the module.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(are_small_whole, m)?)
}
