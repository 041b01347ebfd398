//! The Python classes that wrap variables and arrays of the engine. Their methods are in `variable` and `ndarray`.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::array::{Shape, Storage};
use crate::graph;

/// A place in a computation graph: values, their gradient, and the function that computes them.
///
/// Args:
///     shape: Lengths of the axes; none for a scalar.
///     need_grad: Whether gradients flow to it; left open, this follows from what computes it.
///     info: Anything; kept with this handle.
///
/// Raises:
///     ValueError: If the shape is none.
#[pyclass(frozen, subclass, weakref, freelist = 256, module = "kinnor", name = "Variable")]
pub(super) struct Variable {
    pub(super) variable: graph::Variable,
    pub(super) info: Mutex<Option<Py<PyAny>>>,
}

impl Variable {
    pub(super) fn wrap(py: Python<'_>, variable: graph::Variable) -> PyResult<Bound<'_, Self>> {
        let made = Bound::new(py, Self { variable, info: Mutex::new(None) })?;
        collected(&made, any_user_operation_alive());
        Ok(made)
    }
}

/// An array of numbers that others may share, outside of any graph. Functions on it are computed at once.
///
/// Args:
///     shape: Lengths of the axes, as integers or one tuple or list of them; none for a scalar.
///
/// Raises:
///     ValueError: If the shape is none.
#[pyclass(frozen, subclass, weakref, module = "kinnor", name = "NdArray")]
pub(super) struct NdArray {
    pub(super) array: ArrayCell,
}

/// The array of an object. An object of a derived class has none until `NdArray.__init__` was called.
pub(super) enum ArrayCell {
    Made(graph::NdArray),
    Late(OnceLock<graph::NdArray>),
}

impl Deref for ArrayCell {
    type Target = graph::NdArray;

    /// The array; one without values, whose reading fails, if `NdArray.__init__` was not called.
    fn deref(&self) -> &graph::NdArray {
        match self {
            Self::Made(array) => array,
            Self::Late(array) => array.get_or_init(|| {
                let array = graph::NdArray { shape: Shape::default(), storage: Storage::new(1) };
                let _ = array.storage.clear(true); // An array that is no part of another can be cleared.
                array
            }),
        }
    }
}

impl From<graph::NdArray> for NdArray {
    fn from(array: graph::NdArray) -> Self {
        Self { array: ArrayCell::Made(array) }
    }
}

impl NdArray {
    pub(super) fn wrap(py: Python<'_>, array: graph::NdArray) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self::from(array))
    }
}

/// Whether the garbage collector looks at a variable. It need not look at one that has no hooks, and those are many.
pub(super) fn collected(v: &Bound<'_, Variable>, on: bool) {
    let object: *mut c_void = v.as_ptr().cast();
    // SAFETY: the object is alive, its type takes part in garbage collection, and nobody else changes whether it does.
    unsafe {
        if !on {
            ffi::PyObject_GC_UnTrack(object);
        } else if ffi::PyObject_GC_IsTracked(v.as_ptr()) == 0 {
            ffi::PyObject_GC_Track(object);
        }
    }
}

/// How many operations of users are alive.
pub(super) static USER_OPERATIONS: AtomicUsize = AtomicUsize::new(0);

/// Whether a variable may keep an object of Python's alive through the function that computes it.
fn any_user_operation_alive() -> bool {
    USER_OPERATIONS.load(Ordering::Relaxed) > 0
}
