//! Exchange of data between storages and NumPy arrays: views of live memory, and copies into storages.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use ::numpy::npyffi::{self, NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_WRITEABLE, PY_ARRAY_API, PyArray_Descr};
use ::numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use parking_lot::Mutex;
use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyFloat, PyInt};

use super::arguments::refused;
use super::classes::Variable;
use crate::Error;
use crate::array::{Access, Buffer, DType, RunGuard, Shape, Storage};
use crate::graph::{self, NdArray};

/// The owner of the memory of a NumPy view. Keeps the memory alive after the variable is gone.
#[pyclass(frozen, module = "kinnor._core")]
struct Export {
    /// The memory.
    _buffer: Buffer,
}

/// NumPy's descriptor of an element type.
pub(super) fn descriptor(py: Python<'_>, dtype: DType) -> PyResult<Bound<'_, PyArrayDescr>> {
    static KNOWN: PyOnceLock<Vec<Py<PyArrayDescr>>> = PyOnceLock::new();
    if dtype == DType::BF16 {
        let missing = |_| {
            PyErr::from(Error::Type(
                "bfloat16 in NumPy: expected the package ml_dtypes; pip install ml_dtypes".into(),
            ))
        };
        return PyArrayDescr::new(py, py.import("ml_dtypes").map_err(missing)?.getattr("bfloat16")?);
    }
    let known = KNOWN.get_or_try_init(py, || {
        let plain = DType::ALL.iter().map(|d| if *d == DType::BF16 { "uint16" } else { d.name() });
        plain.map(|name| PyArrayDescr::new(py, name).map(Bound::unbind)).collect::<PyResult<Vec<_>>>()
    })?;
    Ok(known[dtype as usize].bind(py).clone())
}

/// The element type of a NumPy descriptor.
pub(super) fn dtype_of(descr: &Bound<'_, PyArrayDescr>) -> PyResult<DType> {
    let found = match (descr.kind(), descr.itemsize()) {
        (b'b', _) => DType::Bool,
        (b'i', 1) => DType::I8,
        (b'u', 1) => DType::U8,
        (b'i', 2) => DType::I16,
        (b'u', 2) => DType::U16,
        (b'i', 4) => DType::I32,
        (b'u', 4) => DType::U32,
        (b'i', 8) => DType::I64,
        (b'u', 8) => DType::U64,
        (b'f', 2) => DType::F16,
        (b'f', 4) => DType::F32,
        (b'f', 8) => DType::F64,
        _ if descr.str()?.to_str()? == "bfloat16" => DType::BF16,
        _ => {
            return Err(Error::DType {
                op: "array".into(),
                expected: "numbers (bool, int, float16, bfloat16, float32 or float64)".into(),
                got: descr.str()?.to_string(),
            }
            .into());
        }
    };
    Ok(found)
}

/// The element type that a Python object names: `np.float32`, `"float32"`, a dtype.
pub(super) fn dtype_from(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<DType> {
    if object.is_none() {
        // NumPy's converter returns nothing for None, without an exception.
        return Err(Error::Type("array: expected a dtype, got None".into()).into());
    }
    dtype_of(&PyArrayDescr::new(py, object.clone()).map_err(|_| refused("a dtype", object))?)
}

/// A NumPy view of the elements. It stays valid after any later change of the array.
pub(super) fn view<'py>(
    py: Python<'py>,
    array: &NdArray,
    dtype: DType,
    access: Access,
) -> PyResult<Bound<'py, PyAny>> {
    let (buffer, ptr) = array.storage.buffer(dtype, access)?;
    over(py, buffer, ptr, dtype, &array.shape, access != Access::Read)
}

/// Hands the elements to NumPy, without a copy if the memory is not shared. Later runs write to a new buffer.
pub(super) fn handed_out<'py>(py: Python<'py>, array: &NdArray) -> PyResult<Bound<'py, PyAny>> {
    let dtype = array.storage.dtype().unwrap_or(DType::F32);
    let buffer = array.storage.hand_out(dtype, array.shape.size())?;
    let ptr = buffer.ptr();
    over(py, buffer, ptr, dtype, &array.shape, true)
}

/// A NumPy array over the memory of a buffer, from `ptr` on.
fn over<'py>(
    py: Python<'py>,
    buffer: Buffer,
    ptr: *mut u8,
    dtype: DType,
    shape: &Shape,
    writable: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let end = ptr.addr() - buffer.ptr().addr() + shape.size() * dtype.size();
    assert!(end <= buffer.bytes(), "memory for its elements");
    let owner = Bound::new(py, Export { _buffer: buffer })?;
    let descr = descriptor(py, dtype)?;
    let mut dims: smallvec::SmallVec<[npyffi::npy_intp; 6]> =
        shape.iter().map(|d| *d as npyffi::npy_intp).collect();
    let flags = NPY_ARRAY_C_CONTIGUOUS | if writable { NPY_ARRAY_WRITEABLE } else { 0 };
    // SAFETY: the memory holds that many elements of the type. It lives as long as `owner`, which becomes the base of
    // the array. Both calls steal the references passed to them.
    unsafe {
        let made = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            PyUntypedArray::type_object_raw(py),
            descr.into_ptr().cast::<PyArray_Descr>(),
            dims.len() as i32,
            dims.as_mut_ptr(),
            std::ptr::null_mut(),
            ptr.cast(),
            flags,
            std::ptr::null_mut(),
        );
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        PY_ARRAY_API.PyArray_SetBaseObject(py, made.as_ptr().cast(), owner.into_ptr());
        Ok(made)
    }
}

/// The writable view for `.d` and `.data`, in the type of the array (`float32` if it has none yet).
pub(super) fn live_view<'py>(py: Python<'py>, array: &NdArray) -> PyResult<Bound<'py, PyAny>> {
    let dtype = array.storage.dtype().unwrap_or(DType::F32);
    view(py, array, dtype, Access::Show)
}

/// A view for reading, which does not count as a write.
pub(super) fn read_view<'py>(py: Python<'py>, array: &NdArray) -> PyResult<Bound<'py, PyAny>> {
    view(py, array, array.storage.dtype().unwrap_or(DType::F32), Access::Read)
}

/// Converts a Python or NumPy object to an array of numbers. Types wider than `float64` are rounded to it.
pub(super) fn as_numpy<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let array = match value.cast::<PyUntypedArray>() {
        Ok(array) => array.clone(),
        Err(_) => value.py().import("numpy")?.call_method1("asarray", (value,))?.cast_into()?,
    };
    let descr = array.dtype();
    if descr.kind() == b'f' && descr.itemsize() > 8 {
        return Ok(array.call_method1("astype", ("float64",))?.cast_into()?);
    }
    Ok(array)
}

/// The number that a Python object holds, if a storage can be filled with it lazily.
pub(super) fn scalar(value: &Bound<'_, PyAny>) -> Option<f64> {
    if let Ok(v) = value.cast::<PyFloat>() {
        return Some(v.value());
    }
    let is_array = value.is_instance_of::<PyUntypedArray>() || value.is_instance_of::<Variable>();
    if is_array || value.is_instance_of::<PyBool>() {
        return None;
    }
    if let Ok(v) = value.cast::<PyInt>() {
        let v: i64 = v.extract().ok()?;
        return (v.unsigned_abs() <= 1 << 53).then_some(v as f64);
    }
    // NumPy scalars.
    let kind: String = value.getattr("dtype").ok()?.getattr("kind").ok()?.extract().ok()?;
    match kind.as_str() {
        "f" => value.extract().ok(),
        "i" | "u" => scalar(&value.call_method0("__index__").ok()?),
        _ => None,
    }
}

/// Assignment as by `.d = value`. A number fills the array lazily. An array is copied with its own type and broadcast
/// as in NumPy.
pub(super) fn assign(array: &NdArray, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Some(v) = scalar(value) {
        let filled = if v == 0.0 { array.storage.zero() } else { array.storage.fill(v) };
        return Ok(filled?);
    }
    let from = as_numpy(value)?;
    let dtype = dtype_of(&from.dtype())?;
    copy_in(array, &from, dtype)
}

/// Copies the elements of a NumPy array into `array` and makes `dtype` its type.
pub(super) fn copy_in(array: &NdArray, from: &Bound<'_, PyUntypedArray>, dtype: DType) -> PyResult<()> {
    let py = from.py();
    let plain = from.is_c_contiguous()
        && from.dtype().is_native_byteorder() != Some(false)
        && from.shape() == &array.shape[..]
        && dtype_of(&from.dtype())? == dtype;
    if plain {
        let _run = RunGuard::new();
        let (source, _) = start_and_flags(from);
        // SAFETY: both hold that many elements of the type, and the guard keeps the storage's memory alive. `copy`
        // allows equal source and target.
        unsafe {
            if array.storage.equals(dtype, source) {
                return Ok(());
            }
            let to = array.storage.access(dtype, Access::Write)?;
            crate::kernels::map::copy(source, to, array.shape.size() * dtype.size());
        }
        array.storage.wrote();
        return Ok(());
    }
    // Refuse shapes that do not fit before the old values are lost.
    let shape = pyo3::types::PyTuple::new(py, array.shape.iter())?;
    let fitting = py.import("numpy")?.call_method1("broadcast_to", (from, shape)).map_err(|_| {
        let got: Shape = from.shape().into();
        PyErr::from(Error::shape("assignment", format!("shape {}", array.shape), [&got]))
    })?;
    let fitting = fitting.call_method0("copy")?; // it may be a view of this very array
    let to = view(py, array, dtype, Access::Write)?;
    to.set_item(py.Ellipsis(), fitting)
}

/// NumPy arrays whose memory is no longer in use, waiting to be released.
///
/// Releasing one may run arbitrary Python code, and a buffer may be dropped under a lock. So they are released between
/// two Python instructions.
static RETURNED: Mutex<Vec<Py<PyAny>>> = Mutex::new(Vec::new());

/// A NumPy array whose memory a storage uses.
struct Lender(Option<Py<PyAny>>);

impl Drop for Lender {
    fn drop(&mut self) {
        RETURNED.lock().extend(self.0.take());
        // SAFETY: may be called on any thread. If Python's queue is full, the next call releases this array too.
        unsafe { pyo3::ffi::Py_AddPendingCall(Some(give_back), std::ptr::null_mut()) };
    }
}

/// Releases the arrays in [`RETURNED`]. Called by Python between two instructions.
extern "C" fn give_back(_: *mut c_void) -> c_int {
    Python::attach(|_| {
        let returned = std::mem::take(&mut *RETURNED.lock());
        drop(returned);
    });
    0
}

/// Address of the first element of a NumPy array, and its flags.
fn start_and_flags(array: &Bound<'_, PyUntypedArray>) -> (*mut u8, c_int) {
    // SAFETY: a live NumPy array has these fields, and Python's lock is held while they are read.
    let fields = unsafe { &(*array.as_array_ptr()).fields };
    (fields.data.cast(), fields.flags)
}

/// True if NumPy allows writing to an array.
pub(super) fn is_writable(array: &Bound<'_, PyUntypedArray>) -> bool {
    start_and_flags(array).1 & NPY_ARRAY_WRITEABLE != 0
}

/// Makes an array use the memory of a NumPy array until it is filled, cleared or written as another type. Copies the
/// elements if the layout differs. The caller guarantees that the memory may be written.
pub(super) fn borrow(array: &NdArray, from: &Bound<'_, PyUntypedArray>) -> PyResult<()> {
    let dtype = dtype_of(&from.dtype())?;
    let got: Shape = from.shape().into();
    if got != array.shape {
        return Err(Error::shape("from_dlpack", format!("shape {}", array.shape), [&got]).into());
    }
    let start = NonNull::new(start_and_flags(from).0);
    let native = from.is_c_contiguous() && from.dtype().is_native_byteorder() != Some(false);
    match start.filter(|s| native && s.align_offset(dtype.size()) == 0 && got.size() > 0) {
        Some(start) if !array.storage.is_narrowed() => {
            let owner = Box::new(Lender(Some(from.clone().into_any().unbind())));
            // SAFETY: the NumPy array has that many elements in a row and lives as long as the owner.
            let buffer = unsafe { Buffer::borrowed(start, got.size() * dtype.size(), owner) };
            let was_borrowed = array.storage.may_be_met(); // which plans know
            array.storage.adopt(buffer, dtype);
            if !was_borrowed && Arc::strong_count(&array.storage) > 1 {
                graph::memory_changed();
            }
            Ok(())
        }
        _ => copy_in(array, from, dtype),
    }
}

/// A new array with a copy of the elements and the type of a NumPy array.
pub(super) fn new_array(from: &Bound<'_, PyUntypedArray>) -> PyResult<NdArray> {
    let shape: Shape = from.shape().into();
    let array = NdArray { storage: Storage::new(shape.checked_size()?), shape };
    copy_in(&array, from, dtype_of(&from.dtype())?)?;
    Ok(array)
}
