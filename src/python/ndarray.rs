//! `NdArray`: an array outside of any graph, on which functions run eagerly.

use std::sync::OnceLock;

use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::arguments::{flag, number, object, shown, whole};
use super::classes::{ArrayCell, NdArray};
use super::operands::current_compute;
use super::protocols::Elements;
use super::scopes;
use super::shapes::{lengths, shape_from};
use super::{derived, functions, numpy, operators};
use crate::array::{Access, DType, Storage};
use crate::graph::settings;
use crate::{Error, graph};

/// A new array of the shape that the arguments of `NdArray` give.
fn of_arguments(shape: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>) -> PyResult<graph::NdArray> {
    if let Some(key) = named.and_then(|named| named.keys().iter().next()) {
        return Err(Error::Type(format!(
            "NdArray: expected lengths of axes, got an argument {}",
            shown(&key)
        ))
        .into());
    }
    let shape = match shape.len() {
        1 => lengths("NdArray", &shape.get_item(0)?)?,
        _ => lengths("NdArray", shape.as_any())?,
    };
    Ok(graph::NdArray::new(shape)?)
}

#[pymethods]
impl NdArray {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*shape, **named), text_signature = "(*shape, **named)")]
    fn new(
        cls: &Bound<'_, PyType>,
        shape: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        match cls.is(cls.py().get_type::<Self>()) {
            true => of_arguments(shape, named).map(Self::from),
            false => Ok(Self { array: ArrayCell::Late(OnceLock::new()) }),
        }
    }

    /// Creates the array of an object of a derived class, whose own constructor may take other arguments.
    #[pyo3(signature = (*shape, **named))]
    fn __init__(
        slf: &Bound<'_, Self>,
        shape: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let ArrayCell::Late(array) = &slf.get().array else { return Ok(()) };
        array.set(of_arguments(shape, named)?).map_err(|_| {
            Error::Graph("NdArray.__init__: expected one call, before the array is used, got another".into())
                .into()
        })
    }

    /// An array with a copy of the elements and the type of a NumPy array.
    ///
    /// Args:
    ///     nparr: The NumPy array.
    ///
    /// Returns:
    ///     An NdArray of its shape.
    #[staticmethod]
    fn from_numpy_array(nparr: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(numpy::new_array(&numpy::as_numpy(nparr)?)?.into())
    }

    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.shape.iter())
    }

    /// Distance in elements between neighbours along each axis.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.array.shape.strides())
    }

    /// Type of the elements as NumPy names it.
    ///
    /// Raises:
    ///     RuntimeError: If nothing was written to the array yet.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let unknown =
            || Error::Graph("dtype: expected an array that was written to, got one without memory".into());
        let dtype = self.array.storage.dtype().ok_or_else(unknown)?;
        Ok(numpy::descriptor(py, dtype)?.into_any())
    }

    /// The elements as a NumPy array that shares them, for reading and writing.
    #[getter(data)]
    fn elements<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.live(py)
    }

    #[setter]
    fn set_data(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        numpy::assign(&self.array, value)
    }

    /// True if the last write was `zero()`.
    #[getter]
    fn zeroing(&self) -> bool {
        self.array.storage.is_zeroing()
    }

    /// 1 if elements were written since the memory was allocated or cleared, else 0. A part that `narrow` made counts
    /// its own writes since the whole array was filled.
    #[getter]
    fn modification_count(&self) -> u64 {
        self.array.storage.modification_count()
    }

    /// True if the memory was freed and no element was written since.
    #[getter]
    fn clear_called(&self) -> bool {
        self.array.storage.is_cleared()
    }

    /// The same elements under another shape.
    ///
    /// Args:
    ///     shape: The new shape, of as many elements.
    ///
    /// Raises:
    ///     ShapeError: If the number of elements differs.
    fn view(&self, shape: &Bound<'_, PyAny>) -> PyResult<Self> {
        let shape = shape_from(shape)?;
        if shape.size() != self.array.shape.size() {
            let expected = format!("{} elements", self.array.shape.size());
            return Err(Error::shape("view", expected, [&shape]).into());
        }
        Ok(graph::NdArray { shape, storage: self.array.storage.clone() }.into())
    }

    /// Address of the elements, converted to a type that becomes the type of the array.
    ///
    /// Args:
    ///     dtype: The type.
    ///     ctx: Ignored: there is one device. Exists for NNabla programs.
    ///     write_only: True if the old values are not needed.
    #[pyo3(signature = (dtype, ctx = None, write_only = false))]
    fn data_ptr(
        &self,
        py: Python<'_>,
        dtype: &Bound<'_, PyAny>,
        ctx: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = flag)] write_only: bool,
    ) -> PyResult<usize> {
        let _ = ctx;
        if !write_only {
            self.check_computed("data_ptr")?;
        }
        let access = if write_only { Access::Write } else { Access::ReadWrite };
        let dtype = numpy::dtype_from(py, dtype)?;
        self.array.storage.set_addressed();
        Ok(self.array.storage.access(dtype, access)? as usize)
    }

    /// Converts the array to `dtype` and returns a NumPy array that shares its elements.
    ///
    /// Args:
    ///     dtype: The type.
    ///     ctx: A context. If one is given, nothing is returned.
    #[pyo3(signature = (dtype, ctx = None))]
    fn cast<'py>(
        &self,
        py: Python<'py>,
        dtype: &Bound<'py, PyAny>,
        ctx: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let dtype = numpy::dtype_from(py, dtype)?;
        self.check_computed("cast")?;
        if ctx.is_some() {
            self.array.storage.access(dtype, Access::ReadWrite)?;
            return Ok(None);
        }
        numpy::view(py, &self.array, dtype, Access::ReadWrite).map(Some)
    }

    /// The elements as a NumPy array that shares them.
    ///
    /// Args:
    ///     mode: `r` to read, `rw` to read and write, `w` to write if the old values are not needed.
    ///     dtype: The type. By default the type of the array.
    ///
    /// Raises:
    ///     ValueError: If `mode` is another string.
    #[pyo3(name = "get_data", signature = (mode = "rw", dtype = None))]
    fn data_as<'py>(
        &self,
        py: Python<'py>,
        mode: &str,
        dtype: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let access = match mode {
            "r" => Access::Read,
            "rw" => Access::ReadWrite,
            "w" => Access::Write,
            other => return Err(Error::argument("get_data", "mode", "r, rw or w", other).into()),
        };
        if access != Access::Write {
            self.check_computed("get_data")?;
        }
        let dtype = match dtype {
            Some(dtype) => numpy::dtype_from(py, dtype)?,
            None => self.array.storage.dtype().unwrap_or(DType::F32),
        };
        numpy::view(py, &self.array, dtype, access)
    }

    /// Sets every element to zero lazily, without touching memory.
    fn zero(&self) -> PyResult<()> {
        Ok(self.array.storage.zero()?)
    }

    /// Sets every element to `value` lazily, without touching memory.
    fn fill(&self, #[pyo3(from_py_with = number)] value: f64) -> PyResult<()> {
        Ok(self.array.storage.fill(value)?)
    }

    /// Frees the memory. NumPy arrays that share it keep their values. The array reads as NaN until it is written
    /// again; reading integers or truth values raises ClearedError.
    fn clear(&self) -> PyResult<()> {
        Ok(self.array.storage.clear(false)?)
    }

    /// Copies the elements of another array into this one.
    ///
    /// Args:
    ///     arr: The array to copy, of the same shape.
    ///     use_current_context: True for the type that the current context computes in, False for the type of `arr`.
    ///
    /// Returns:
    ///     This array.
    #[pyo3(signature = (arr, use_current_context = true))]
    fn copy_from<'py>(
        slf: Bound<'py, Self>,
        #[pyo3(from_py_with = object)] arr: Bound<'py, Self>,
        #[pyo3(from_py_with = flag)] use_current_context: bool,
    ) -> PyResult<Bound<'py, Self>> {
        arr.get().check_computed("copy_from")?;
        let own = &slf.get().array;
        if own.shape != arr.get().array.shape {
            return Err(
                Error::shape("copy_from", format!("shape {}", own.shape), [&arr.get().array.shape]).into()
            );
        }
        let from = &arr.get().array.storage;
        let own_dtype = from.dtype().filter(|_| !use_current_context || !from.is_zeroing());
        let dtype = match use_current_context {
            true => {
                scopes::follow(slf.py());
                match own_dtype.filter(|_| settings::is_nnabla()) {
                    Some(dtype) => dtype, // like NNabla 1.39
                    None => current_compute().stored(),
                }
            }
            false => own_dtype.unwrap_or(DType::F32),
        };
        own.storage.copy_if_changed(&arr.get().array.storage, dtype)?;
        Ok(slf)
    }

    /// Part of the array along its first axis, on the same memory.
    ///
    /// Args:
    ///     dim: The axis, which must be 0.
    ///     start: First index.
    ///     length: Number of indices.
    ///
    /// Raises:
    ///     RuntimeError: If the part is not within the array, belongs to another part already, or `dim` is not 0.
    fn narrow(
        &self,
        #[pyo3(from_py_with = whole)] dim: i64,
        #[pyo3(from_py_with = whole)] start: i64,
        #[pyo3(from_py_with = whole)] length: i64,
    ) -> PyResult<Self> {
        let shape = &self.array.shape;
        let refuse =
            |arg: &str, expected: String, got: i64| Err(Error::argument("narrow", arg, expected, got).into());
        let Some(n) = shape.first().copied().filter(|_| dim == 0) else {
            return refuse("dim", "0, for an array with axes".into(), dim);
        };
        if length < 0 {
            return refuse("length", "zero or more".into(), length);
        }
        if start < 0 || start.saturating_add(length) as usize > n {
            return refuse("start", format!("a start of a part within 0..{n}"), start);
        }
        let row = shape.size_from(1);
        let storage = Storage::narrow(&self.array.storage, start as usize * row, length as usize * row)?;
        let shape = std::iter::once(length as usize).chain(shape[1..].iter().copied()).collect();
        Ok(graph::NdArray { shape, storage }.into())
    }

    /// Sets the elements to `value` where `mask` is not zero.
    ///
    /// Args:
    ///     mask: Array that broadcasts to this one.
    ///     value: A number.
    ///
    /// Returns:
    ///     This array.
    fn bool_fill<'py>(
        slf: Bound<'py, Self>,
        mask: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] value: f64,
    ) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        let kwargs = PyDict::new(py);
        kwargs.set_item("outputs", [&slf])?;
        functions::call(py, "bool_fill", (&slf, mask, value), Some(&kwargs))?;
        Ok(slf)
    }

    /// Same as `bool_fill`.
    fn masked_fill<'py>(
        slf: Bound<'py, Self>,
        mask: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = number)] value: f64,
    ) -> PyResult<Bound<'py, Self>> {
        Self::bool_fill(slf, mask, value)
    }

    /// Uses the memory of a NumPy array as its own. Copies it if its layout differs or it is read-only, unless
    /// `writable` says that writing is allowed.
    #[pyo3(signature = (nparr, writable = false))]
    fn _borrow(&self, nparr: &Bound<'_, PyAny>, #[pyo3(from_py_with = flag)] writable: bool) -> PyResult<()> {
        let from = numpy::as_numpy(nparr)?;
        let is_ours = writable || numpy::is_writable(&from);
        numpy::borrow(&self.array, &if is_ours { from } else { from.call_method0("copy")?.cast_into()? })
    }

    /// Compares identity. Functions compare elements.
    fn __richcmp__<'py>(&self, other: &Bound<'py, PyAny>, op: CompareOp) -> PyResult<Bound<'py, PyAny>> {
        let is_same = other.cast::<Self>().is_ok_and(|o| *o.get().array == *self.array);
        operators::compared("NdArray", is_same, other, op)
    }

    fn __hash__(&self) -> u64 {
        std::sync::Arc::as_ptr(&self.array.storage).addr() as u64 >> 4
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let storage = &self.array.storage;
        let shape = &self.array.shape;
        let Some(dtype) = storage.dtype().filter(|_| !storage.is_cleared()) else {
            return Ok(format!("<NdArray({shape}) at {:#x}>", std::sync::Arc::as_ptr(storage).addr()));
        };
        let view = numpy::view(py, &self.array, dtype, Access::Read)?;
        Ok(format!("<NdArray({shape}) {dtype}\n{}>", preview(&view)?))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let restore = py.import("kinnor._python_functions.derived")?.getattr("restore_array")?;
        let values = slf.get().values(py)?.call_method0("copy")?;
        derived::reduced(slf, restore, (values, slf.get_type()).into_pyobject(py)?)
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let copy = Self::of_class(&slf.get_type(), graph::copied(&slf.get().array)?)?;
        derived::copied(slf, copy, None)
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let copy = Self::of_class(&slf.get_type(), graph::copied(&slf.get().array)?)?;
        derived::copied(slf, copy, Some(memo))
    }

    /// Another object for the same elements, of a derived class.
    fn _of_class<'py>(&self, cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        Self::of_class(cls, self.array.clone())
    }

    /// Adds in place.
    fn __iadd__(slf: &Bound<'_, Self>, o: &Bound<'_, PyAny>) -> PyResult<()> {
        operators::in_place(slf, o, &operators::ADD)
    }
    /// Subtracts in place.
    fn __isub__(slf: &Bound<'_, Self>, o: &Bound<'_, PyAny>) -> PyResult<()> {
        operators::in_place(slf, o, &operators::SUB)
    }
    /// Multiplies in place.
    fn __imul__(slf: &Bound<'_, Self>, o: &Bound<'_, PyAny>) -> PyResult<()> {
        operators::in_place(slf, o, &operators::MUL)
    }
    /// Divides in place.
    fn __itruediv__(slf: &Bound<'_, Self>, o: &Bound<'_, PyAny>) -> PyResult<()> {
        operators::in_place(slf, o, &operators::DIV)
    }
}

impl NdArray {
    /// An object of this class or a derived one for an array, made without a call of `__init__`.
    fn of_class<'py>(cls: &Bound<'py, PyType>, array: graph::NdArray) -> PyResult<Bound<'py, PyAny>> {
        let py = cls.py();
        let own = py.get_type::<Self>();
        if cls.is(&own) {
            return Ok(Bound::new(py, Self::from(array))?.into_any());
        }
        let made = own.getattr("__new__")?.call1((cls,))?;
        if let ArrayCell::Late(late) = &made.cast::<Self>()?.get().array {
            let _ = late.set(array); // It is new, and thus unset.
        }
        Ok(made)
    }
}

/// The first elements, formatted for `repr`.
pub(super) fn preview(view: &Bound<'_, PyAny>) -> PyResult<String> {
    let kwargs = PyDict::new(view.py());
    kwargs.set_item("threshold", 20)?;
    kwargs.set_item("edgeitems", 2)?;
    kwargs.set_item("precision", 4)?;
    Ok(view.py().import("numpy")?.call_method("array2string", (view,), Some(&kwargs))?.to_string())
}
