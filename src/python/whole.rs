//! Range check for NumPy arrays of integers.

use numpy::{Element, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;

/// Integers of this many bits, apart from the sign, are exact in float32 and float64.
const BITS: u32 = 23;

/// True if an array is contiguous, of 32- or 64-bit integers, and all are from `-2^23` to `2^23 - 1`.
#[pyfunction]
fn are_small_whole(x: &Bound<'_, PyAny>) -> bool {
    /// True if the array has this element type and small magnitudes. None if it has another type or gaps.
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
