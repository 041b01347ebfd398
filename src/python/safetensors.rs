//! Reads the header of files in the safetensors format, for `kinnor.files.parameter_file`, which writes them.
//!
//! Knows the format; knows no variables and no values.

use std::collections::HashMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors};

/// NumPy's names of the element types that both know.
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

/// Name, dtype, shape and byte offset in the file of a tensor.
type TensorEntry = (String, &'static str, Vec<usize>, usize);

/// A ValueError with the message of the parser.
fn refuse(error: SafeTensorError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Reads the header of a safetensors file and checks it against the length of the file.
///
/// Args:
///     content: The bytes of the file.
///
/// Returns:
///     A tuple (name, dtype, shape, offset of the first byte) for each tensor, in the order of the file. Then a dict of
///     the texts in the header.
///
/// Raises:
///     ValueError: If the file is not valid, or NumPy has no such dtype.
#[pyfunction]
fn read_safetensors(content: &[u8]) -> PyResult<(Vec<TensorEntry>, HashMap<String, String>)> {
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
    module.add_function(wrap_pyfunction!(read_safetensors, module)?)
}
