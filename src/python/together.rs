//! Assignment to several arrays as a whole: all get their new values, or none does.
//!
//! Knows arrays and NumPy; knows no parameters and no files.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::classes::NdArray;
use super::numpy as np;
use crate::array::{Access, Buffer, DType};
use crate::{Error, graph};

/// New values of an array, with memory allocated for them.
enum GivenValues<'py> {
    /// Copied into the array's memory, which has their type already.
    Copied(Bound<'py, PyUntypedArray>),
    /// Becomes the array's memory.
    Adopted(Buffer),
}

/// Does everything that can fail, without a visible change.
fn prepare<'py>(array: &graph::NdArray, value: &Bound<'py, PyAny>) -> PyResult<(DType, GivenValues<'py>)> {
    let value = np::as_numpy(value)?;
    let got = value.shape().into();
    if array.shape != got {
        return Err(Error::shape("assign_together", format!("shape {}", array.shape), [&got]).into());
    }
    let dtype = np::dtype_of(&value.dtype())?;
    let storage = &array.storage;
    if storage.is_part() {
        storage.access(dtype, Access::Show)?;
    } else if !storage.holds_memory() || storage.is_cleared() || storage.dtype() != Some(dtype) {
        let (buffer, _) = np::new_array(&value)?.storage.pin(dtype, Access::Read)?;
        return Ok((dtype, GivenValues::Adopted(buffer)));
    }
    if value.is_c_contiguous() && value.dtype().is_native_byteorder() != Some(false) {
        return Ok((dtype, GivenValues::Copied(value)));
    }
    let kwargs = PyDict::new(value.py());
    kwargs.set_item("order", "C")?;
    let plain = value.call_method("astype", (np::descriptor(value.py(), dtype)?,), Some(&kwargs))?;
    Ok((dtype, GivenValues::Copied(plain.cast_into()?)))
}

/// Assigns the prepared values to an array.
fn take(array: &graph::NdArray, dtype: DType, values: GivenValues<'_>) -> PyResult<()> {
    match values {
        GivenValues::Copied(value) => np::copy_in(array, &value, dtype),
        GivenValues::Adopted(buffer) => {
            array.storage.adopt(buffer, dtype);
            // Updates arrays that are parts of this one.
            array.storage.access(dtype, Access::ReadWrite)?;
            array.storage.wrote();
            Ok(())
        }
    }
}

/// Assigns NumPy arrays of equal shapes to arrays, including their types.
///
/// Args:
///     pairs: Pairs of an array and its new values.
///
/// Raises:
///     ShapeError: If a shape differs. No array is changed then.
///     MemoryError: If there is no memory for the values. No array is changed then.
#[pyfunction]
fn assign_together(pairs: Vec<(Bound<'_, NdArray>, Bound<'_, PyAny>)>) -> PyResult<()> {
    let ready = pairs.iter().map(|(array, value)| prepare(&array.get().array, value));
    let ready = ready.collect::<PyResult<Vec<_>>>()?;
    let arrays = pairs.iter().map(|(array, _)| &array.get().array);
    arrays.zip(ready).try_for_each(|(array, (dtype, values))| take(array, dtype, values))
}

/// Adds the function to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(assign_together, module)?)
}
