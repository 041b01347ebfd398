//! Values for several arrays at once: all of them take theirs, or none does.
//!
//! Knows arrays and NumPy's; knows no parameters and no files.

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::classes::NdArray;
use super::numpy as np;
use crate::array::{Access, Buffer, DType};
use crate::{Error, graph};

/// New values of an array, with the memory for them.
enum Values<'py> {
    /// To be copied into the memory of the array, which is of their type.
    Copied(Bound<'py, PyUntypedArray>),
    /// To become the memory of the array.
    Adopted(Buffer),
}

/// Does all that can fail, without a change that anybody could see.
fn prepare<'py>(array: &graph::NdArray, value: &Bound<'py, PyAny>) -> PyResult<(DType, Values<'py>)> {
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
        return Ok((dtype, Values::Adopted(buffer)));
    }
    if value.is_c_contiguous() && value.dtype().is_native_byteorder() != Some(false) {
        return Ok((dtype, Values::Copied(value)));
    }
    let kwargs = PyDict::new(value.py());
    kwargs.set_item("order", "C")?;
    let plain = value.call_method("astype", (np::descriptor(value.py(), dtype)?,), Some(&kwargs))?;
    Ok((dtype, Values::Copied(plain.cast_into()?)))
}

/// Gives an array the values that were made ready for it.
fn take(array: &graph::NdArray, dtype: DType, values: Values<'_>) -> PyResult<()> {
    match values {
        Values::Copied(value) => np::copy_in(array, &value, dtype),
        Values::Adopted(buffer) => {
            array.storage.adopt(buffer, dtype);
            // Says so to arrays that are part of this one.
            array.storage.access(dtype, Access::ReadWrite)?;
            array.storage.wrote();
            Ok(())
        }
    }
}

/// Gives arrays the values of NumPy arrays of the same shapes, with their types.
///
/// Args:
///     pairs: An array and its new values, for each.
///
/// Raises:
///     ShapeError: If a shape differs; no array is changed then.
///     MemoryError: If there is no memory for the values; no array is changed then.
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
