//! Python protocols that Variable and NdArray share: operators, indexing, and conversion to NumPy and other libraries.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyInt, PyType};

use super::arguments::{flag, refused, whole};
use super::classes::{NdArray, Variable};
use super::{functions, numpy, operators};
use crate::graph::settings;
use crate::{Error, graph};

/// An object with array elements. Each class says how to recover elements that were cleared.
pub(super) trait Elements {
    /// The array.
    fn array(&self) -> graph::NdArray;

    /// Adds information to an error of reading, for example the name of the variable.
    fn explain(&self, py: Python<'_>, error: PyErr) -> PyErr {
        let _ = py;
        error
    }

    /// Checks that the elements may be read. An output has elements once a run has computed it.
    fn check_computed(&self, op: &str) -> crate::Result<()>;

    /// Restores elements that a memory budget evicted. Returns true if there were any.
    fn bring_back(&self) -> crate::Result<bool> {
        Ok(false)
    }

    /// The elements as a NumPy array that shares them.
    fn live<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.reading(py, |array| numpy::live_view(py, array))
    }

    /// A NumPy array for reading the elements. It does not count as a write.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.reading(py, |array| numpy::read_view(py, array))
    }

    /// True if the only element is not zero.
    fn truth(&self, py: Python<'_>) -> PyResult<bool> {
        let shape = self.array().shape;
        if shape.size() != 1 {
            let expected = "one element (compare, or ask whether it `is not None`)";
            return Err(Error::shape("bool", expected, [&shape]).into());
        }
        self.check_computed("bool")?;
        self.values(py)?.call_method0("item")?.is_truthy()
    }

    /// Calls `get` on the array. Restores evicted elements and tries again if they are missing.
    fn reading<'py>(
        &self,
        py: Python<'py>,
        read: impl Fn(&graph::NdArray) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.check_computed("array")?;
        let array = self.array();
        match read(&array) {
            Err(_) if array.storage.is_cleared() && self.bring_back()? => read(&array),
            done => done.map_err(|e| self.explain(py, e)),
        }
    }
}

impl Elements for NdArray {
    fn array(&self) -> graph::NdArray {
        self.array.clone()
    }

    fn check_computed(&self, op: &str) -> crate::Result<()> {
        Self::check_computed(self, op)
    }
}

impl Elements for Variable {
    fn array(&self) -> graph::NdArray {
        self.variable.data()
    }

    fn explain(&self, py: Python<'_>, error: PyErr) -> PyErr {
        self.name_cleared(py, error, "data")
    }

    fn bring_back(&self) -> crate::Result<bool> {
        self.variable.bring_back()
    }

    fn check_computed(&self, op: &str) -> crate::Result<()> {
        self.variable.check_computed(op)
    }
}

/// The number of elements as an int that, when it is called, says how to read the length of an axis.
fn counted(py: Python<'_>, size: usize) -> PyResult<Bound<'_, PyAny>> {
    static SIZE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    SIZE.import(py, "kinnor._foreign_attributes", "Size")?.call1((size,))
}

/// Reads `keepdims`. A number is refused, because `x.sum(0, 1)` is meant to sum over two axes.
fn keeps(v: &Bound<'_, PyAny>) -> PyResult<bool> {
    if v.is_exact_instance_of::<PyBool>() || settings::is_nnabla() {
        return flag(v);
    }
    let is_number = v.is_instance_of::<PyInt>();
    let hint = if is_number { " (several axes are a tuple: axis=(0, 1))" } else { "" };
    if v.hasattr("dtype")? { flag(v) } else { Err(refused(&format!("True or False{hint}"), v)) }
}

/// Defines the shared methods for a class.
macro_rules! protocols {
    ($class:ident) => {
        #[pymethods]
        impl $class {
            /// Number of elements.
            #[getter]
            fn size<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                counted(py, self.array().shape.size())
            }

            /// Number of axes.
            #[getter]
            fn ndim(&self) -> usize {
                self.array().shape.ndim()
            }

            /// Number of elements from an axis on.
            ///
            /// Args:
            ///     axis: The axis; -1 or 0 for the whole.
            #[pyo3(signature = (axis = -1), text_signature = "($self, axis=-1)")]
            fn size_from_axis(&self, #[pyo3(from_py_with = whole)] axis: i64) -> PyResult<usize> {
                let shape = self.array().shape;
                if axis > shape.ndim() as i64 {
                    return Err(
                        Error::Axis { op: "size_from_axis".into(), got: axis, ndim: shape.ndim() }.into()
                    );
                }
                Ok(shape.size_from(usize::try_from(axis).unwrap_or(0)))
            }

            #[pyo3(signature = (dtype = None, copy = None))]
            fn __array__<'py>(
                &self,
                py: Python<'py>,
                dtype: Option<Bound<'py, PyAny>>,
                copy: Option<bool>,
            ) -> PyResult<Bound<'py, PyAny>> {
                as_array(self.live(py)?, dtype, copy)
            }

            #[classattr]
            fn __array_ufunc__(py: Python<'_>) -> Py<PyAny> {
                py.None()
            }

            #[pyo3(signature = (**options))]
            fn __dlpack__<'py>(
                &self,
                py: Python<'py>,
                options: Option<&Bound<'py, PyDict>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                self.live(py)?.call_method("__dlpack__", (), options)
            }

            fn __dlpack_device__(&self) -> (i32, i32) {
                (1, 0)
            }

            /// The only element as a Python number.
            fn item<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                let values = self.values(py)?;
                let shape: Vec<usize> = values.getattr("shape")?.extract()?;
                if shape.iter().product::<usize>() != 1 {
                    return Err(Error::shape("item", "an array of one element", [&shape.into()]).into());
                }
                values.call_method0("item")
            }

            /// The elements as a NumPy array that shares them.
            fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.live(py)
            }

            /// The values in another type: an output to which gradients flow for floating-point types.
            ///
            /// Args:
            ///     dtype: A type as NumPy names it.
            ///
            /// Raises:
            ///     CallError: If the type has no gradient and this is a function's output or needs a gradient.
            fn astype<'py>(slf: &Bound<'py, Self>, dtype: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                let dtype = numpy::descriptor(slf.py(), numpy::dtype_from(slf.py(), dtype)?)?;
                slf.py().import("kinnor._python_functions.graph")?.call_method1("astype", (slf, dtype))
            }

            /// Sum over axes, as `functions.sum`.
            ///
            /// Args:
            ///     axis: Axis or axes; all by default.
            ///     keepdims: Keep the axes with length 1.
            #[pyo3(signature = (axis = None, keepdims = false, **more))]
            #[pyo3(text_signature = "($self, axis=None, keepdims=False)")]
            fn sum<'py>(
                slf: &Bound<'py, Self>,
                axis: Option<&Bound<'py, PyAny>>,
                #[pyo3(from_py_with = keeps)] keepdims: bool,
                more: Option<&Bound<'py, PyDict>>, // For errors alone: the function knows the names of PyTorch.
            ) -> PyResult<Bound<'py, PyAny>> {
                functions::call(slf.py(), "sum", (slf, axis, keepdims), more)
            }

            /// Mean over axes, as `functions.mean`.
            ///
            /// Args:
            ///     axis: Axis or axes; all by default.
            ///     keepdims: Keep the axes with length 1.
            #[pyo3(signature = (axis = None, keepdims = false, **more))]
            #[pyo3(text_signature = "($self, axis=None, keepdims=False)")]
            fn mean<'py>(
                slf: &Bound<'py, Self>,
                axis: Option<&Bound<'py, PyAny>>,
                #[pyo3(from_py_with = keeps)] keepdims: bool,
                more: Option<&Bound<'py, PyDict>>, // For errors alone: the function knows the names of PyTorch.
            ) -> PyResult<Bound<'py, PyAny>> {
                functions::call(slf.py(), "mean", (slf, axis, keepdims), more)
            }

            /// Maximum over axes, as `functions.max`.
            ///
            /// Args:
            ///     axis: Axis or axes; all by default.
            ///     keepdims: Keep the axes with length 1.
            #[pyo3(signature = (axis = None, keepdims = false, **more))]
            #[pyo3(text_signature = "($self, axis=None, keepdims=False)")]
            fn max<'py>(
                slf: &Bound<'py, Self>,
                axis: Option<&Bound<'py, PyAny>>,
                #[pyo3(from_py_with = keeps)] keepdims: bool,
                more: Option<&Bound<'py, PyDict>>, // For errors alone: the function knows the names of PyTorch.
            ) -> PyResult<Bound<'py, PyAny>> {
                functions::call(slf.py(), "max", (slf, axis, keepdims), more)
            }

            /// Minimum over axes, as `functions.min`.
            ///
            /// Args:
            ///     axis: Axis or axes; all by default.
            ///     keepdims: Keep the axes with length 1.
            #[pyo3(signature = (axis = None, keepdims = false, **more))]
            #[pyo3(text_signature = "($self, axis=None, keepdims=False)")]
            fn min<'py>(
                slf: &Bound<'py, Self>,
                axis: Option<&Bound<'py, PyAny>>,
                #[pyo3(from_py_with = keeps)] keepdims: bool,
                more: Option<&Bound<'py, PyDict>>, // For errors alone: the function knows the names of PyTorch.
            ) -> PyResult<Bound<'py, PyAny>> {
                functions::call(slf.py(), "min", (slf, axis, keepdims), more)
            }

            /// The axes in reverse order.
            #[getter(T)]
            fn transposed<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                let axes: Vec<usize> = (0..slf.get().array().shape.ndim()).rev().collect();
                functions::call(slf.py(), "transpose", (slf, axes), None)
            }

            fn __len__(&self) -> PyResult<usize> {
                let none =
                    || PyErr::from(Error::Type("len: expected an array with axes, got a scalar".into()));
                self.array().shape.first().copied().ok_or_else(none)
            }

            fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
                if settings::is_nnabla() { Ok(true) } else { self.truth(py) }
            }

            fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
                self.item(py)?.extract()
            }

            fn __getitem__<'py>(
                slf: &Bound<'py, Self>,
                key: Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                slf.py().import("kinnor._python_functions.indexing")?.call_method1("getitem", (slf, key))
            }

            fn __setitem__(
                slf: &Bound<'_, Self>,
                key: Bound<'_, PyAny>,
                value: Bound<'_, PyAny>,
            ) -> PyResult<()> {
                slf.py()
                    .import("kinnor._python_functions.indexing")?
                    .call_method1("setitem", (slf, key, value))
                    .map(drop)
            }

            fn __pos__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
                slf
            }
            fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                operators::scaled(slf.as_any(), -1.0)
            }
            fn __add__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                operators::operator(slf.as_any(), o, &operators::ADD)
            }
            fn __radd__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                operators::reflected(slf.as_any(), o, &operators::ADD)
            }
            fn __sub__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                operators::operator(slf.as_any(), o, &operators::SUB)
            }
            fn __rsub__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                operators::reflected(slf.as_any(), o, &operators::SUB)
            }
            fn __mul__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                operators::operator(slf.as_any(), o, &operators::MUL)
            }
            fn __rmul__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                operators::reflected(slf.as_any(), o, &operators::MUL)
            }
            fn __truediv__<'py>(
                slf: &Bound<'py, Self>,
                o: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                operators::operator(slf.as_any(), o, &operators::DIV)
            }
            fn __rtruediv__<'py>(
                slf: &Bound<'py, Self>,
                o: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                operators::reflected(slf.as_any(), o, &operators::DIV)
            }
            fn __pow__<'py>(
                slf: &Bound<'py, Self>,
                o: &Bound<'py, PyAny>,
                modulo: Option<&Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                operators::power(slf.as_any(), o, modulo)
            }
            fn __rpow__<'py>(
                slf: &Bound<'py, Self>,
                o: &Bound<'py, PyAny>,
                modulo: Option<&Bound<'py, PyAny>>,
            ) -> PyResult<Bound<'py, PyAny>> {
                let _ = modulo;
                operators::reflected(slf.as_any(), o, &operators::POW)
            }
            fn __matmul__<'py>(slf: &Bound<'py, Self>, o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                let constant = operators::constant(slf.as_any(), o)?;
                let o = constant.as_ref().unwrap_or(o);
                slf.py().import("kinnor._python_functions.matmul")?.call_method1("matmul", (slf, o))
            }
            fn __rmatmul__<'py>(
                slf: &Bound<'py, Self>,
                o: &Bound<'py, PyAny>,
            ) -> PyResult<Bound<'py, PyAny>> {
                match operators::constant(slf.as_any(), o)? {
                    Some(o) => {
                        let module = slf.py().import("kinnor._python_functions.matmul")?;
                        module.call_method1("matmul", (o, slf))
                    }
                    None => Ok(slf.py().NotImplemented().into_bound(slf.py())),
                }
            }
        }
    };
}

protocols!(NdArray);
protocols!(Variable);

/// The result of `__array__`: the view, converted or copied as NumPy asks.
fn as_array<'py>(
    view: Bound<'py, PyAny>,
    dtype: Option<Bound<'py, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let view = match dtype {
        Some(dtype) if copy != Some(true) => {
            let kwargs = PyDict::new(view.py());
            kwargs.set_item("copy", false)?;
            let converted = view.call_method("astype", (dtype,), Some(&kwargs))?;
            if copy == Some(false) && !converted.is(&view) {
                let got = view.getattr("dtype")?;
                let text = format!("__array__: expected copy=True to convert {got}, got False");
                return Err(Error::Value(text).into());
            }
            converted
        }
        Some(dtype) => return view.call_method1("astype", (dtype,)),
        None => view,
    };
    if copy == Some(true) { view.call_method0("copy") } else { Ok(view) }
}
