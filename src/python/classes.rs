//! The Python classes that wrap variables and arrays of the engine. Their methods are in `variable` and `ndarray`.

use std::ffi::c_void;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::Error;
use crate::array::{Shape, Storage};
use crate::graph::{self, settings};

/// A variable in a computation graph: values, their gradient, and the function that computes them.
///
/// Args:
///     shape: Lengths of the axes. None for a scalar.
///     need_grad: True if gradients flow to it. By default this follows from the function that computes it.
///     info: Any object, stored with this handle.
///
/// Raises:
///     ValueError: If the shape is not valid.
#[pyclass(frozen, subclass, weakref, freelist = 256, module = "kinnor", name = "Variable")]
pub(super) struct Variable {
    /// The handle on the graph's variable.
    pub(super) variable: graph::Variable,
    /// The object that the user stored with this handle.
    pub(super) info: Mutex<Option<Py<PyAny>>>,
}

impl Variable {
    /// A new Python object for a variable. Handles on one variable are equal, not identical.
    pub(super) fn wrap(py: Python<'_>, variable: graph::Variable) -> PyResult<Bound<'_, Self>> {
        let made = Bound::new(py, Self { variable, info: Mutex::new(None) })?;
        collected(&made, any_user_operation_alive());
        Ok(made)
    }
}

/// An array of numbers outside of any graph. Several handles may share its memory. Functions on it run eagerly.
///
/// Args:
///     shape: Lengths of the axes, as integers or one tuple or list of them. None for a scalar.
///
/// Raises:
///     ValueError: If the shape is not valid.
#[pyclass(frozen, subclass, weakref, module = "kinnor", name = "NdArray")]
pub(super) struct NdArray {
    /// The array.
    pub(super) array: ArrayCell,
}

/// The array of an object. An object of a derived class has none until `NdArray.__init__` was called.
pub(super) enum ArrayCell {
    /// Known when the object was made.
    Made(graph::NdArray),
    /// The values of an output that no run had computed when the object was made.
    Output(graph::NdArray),
    /// Set by `NdArray.__init__`.
    Late(OnceLock<graph::NdArray>),
}

impl Deref for ArrayCell {
    type Target = graph::NdArray;

    /// The array. If `NdArray.__init__` was not called, an array without values, whose reading fails.
    fn deref(&self) -> &graph::NdArray {
        match self {
            Self::Made(array) | Self::Output(array) => array,
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
    /// A new Python object for an array.
    pub(super) fn wrap(py: Python<'_>, array: graph::NdArray) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, Self::from(array))
    }

    /// The values of an output that no run has computed yet. Reading them fails until they are written.
    pub(super) fn of_output(array: graph::NdArray) -> Self {
        Self { array: ArrayCell::Output(array) }
    }

    /// Checks that the elements may be read.
    pub(super) fn check_computed(&self, op: &str) -> crate::Result<()> {
        match &self.array {
            ArrayCell::Output(array) if array.storage.is_unwritten() && !settings::is_nnabla() => {
                Err(Error::NotComputed(format!(
                    "{op}: expected computed values, got the array of shape {} of an output that was not computed; \
                     call forward(), or build under nn.auto_forward()",
                    array.shape
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Turns tracking of a variable by Python's garbage collector on or off. Variables without hooks are untracked, which
/// saves time.
pub(super) fn collected(v: &Bound<'_, Variable>, on: bool) {
    let object: *mut c_void = v.as_ptr().cast();
    // SAFETY: the object is alive, its type supports garbage collection, and the attached thread alone changes its
    // tracking.
    unsafe {
        if !on {
            ffi::PyObject_GC_UnTrack(object);
        } else if ffi::PyObject_GC_IsTracked(v.as_ptr()) == 0 {
            ffi::PyObject_GC_Track(object);
        }
    }
}

/// Number of live user-defined operations.
pub(super) static USER_OPERATIONS: AtomicUsize = AtomicUsize::new(0);

/// True if some variable may keep a Python object alive through the function that computes it.
fn any_user_operation_alive() -> bool {
    USER_OPERATIONS.load(Ordering::Relaxed) > 0
}
