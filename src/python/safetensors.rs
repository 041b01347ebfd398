//! Files of tensors in the safetensors format, for `kinnor.parameter_file`.
//!
//! Knows the format; knows no variables. Values cross as bytes, so that every type of element is treated alike.

use std::collections::HashMap;
use std::path::PathBuf;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView};

/// NumPy's names of the types of elements that both know.
const DTYPES: [(&str, Dtype); 13] = [
    ("bool", Dtype::BOOL),
    ("int8", Dtype::I8),
    ("uint8", Dtype::U8),
    ("int16", Dtype::I16),
    ("uint16", Dtype::U16),
    ("int32", Dtype::I32),
    ("uint32", Dtype::U32),
    ("int64", Dtype::I64),
    ("uint64", Dtype::U64),
    ("float16", Dtype::F16),
    ("bfloat16", Dtype::BF16),
    ("float32", Dtype::F32),
    ("float64", Dtype::F64),
];

/// Name, dtype, shape and values of a tensor.
type Tensor<'py> = (String, String, Vec<usize>, PyReadonlyArray1<'py, u8>);

/// Name, dtype, shape and place in the file of a tensor.
type Entry = (String, &'static str, Vec<usize>, usize);

fn refuse(error: SafeTensorError) -> PyErr {
    match error {
        SafeTensorError::IoError(error) => error.into(),
        other => PyValueError::new_err(other.to_string()),
    }
}

/// Write a file.
///
/// Args:
///     path: The file; what it holds is lost.
///     tensors: A tuple (name, dtype, shape, values as bytes) for each tensor.
///     metadata: Texts by name.
///
/// Raises:
///     ValueError: If a dtype does not exist in the format, or if values do not fit dtype and shape.
///     OSError: If the file cannot be written.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // arguments are extracted by value
fn save_safetensors(
    path: PathBuf,
    tensors: Vec<Tensor<'_>>,
    metadata: HashMap<String, String>,
) -> PyResult<()> {
    let views = tensors.iter().map(|(name, dtype, shape, values)| {
        let known = DTYPES.iter().find(|(known, _)| known == dtype);
        let (_, dtype) = known.ok_or_else(|| {
            PyValueError::new_err(format!(
                "save_safetensors: expected a dtype of safetensors, got {dtype} of {name:?}"
            ))
        })?;
        Ok((name, TensorView::new(*dtype, shape.clone(), values.as_slice()?).map_err(refuse)?))
    });
    let views = views.collect::<PyResult<Vec<_>>>()?;
    safetensors::serialize_to_file(views, Some(metadata), &path).map_err(refuse)
}

/// What the bytes of a file hold, all of it checked against their number.
///
/// Args:
///     content: The bytes of the file.
///
/// Returns:
///     A tuple (name, dtype, shape, place of the first byte) for each tensor in the order of the file, and the
///     texts of the header by name.
///
/// Raises:
///     ValueError: If it is no such file, or if NumPy has no such dtype.
#[pyfunction]
fn read_safetensors(content: &[u8]) -> PyResult<(Vec<Entry>, HashMap<String, String>)> {
    let (header, metadata) = SafeTensors::read_metadata(content).map_err(refuse)?;
    let start = size_of::<u64>() + header;
    let entries = metadata.offset_keys().into_iter().filter_map(|name| {
        let info = metadata.info(&name)?;
        let Some((dtype, _)) = DTYPES.iter().find(|(_, known)| *known == info.dtype) else {
            let text = format!("read_safetensors: expected a dtype of NumPy, got {} of {name:?}", info.dtype);
            return Some(Err(PyValueError::new_err(text)));
        };
        Some(Ok((name, *dtype, info.shape.clone(), start + info.data_offsets.0)))
    });
    Ok((entries.collect::<PyResult<_>>()?, metadata.metadata().clone().unwrap_or_default()))
}

/// Adds the functions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(save_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(read_safetensors, module)?)
}
