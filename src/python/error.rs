//! Maps the crate's errors to Python exceptions. No other file does.

use pyo3::exceptions::{PyImportError, PyMemoryError, PyOSError};
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::Error;

/// The exception class for panics.
const INTERNAL: &str = "InternalError";

/// Name, base classes and docstring of each exception class. Base classes come before classes derived from them.
const CLASSES: [(&str, &[&str], &str); 18] = [
    ("Error", &["Exception"], "Base class of all errors of this library."),
    (
        "ShapeError",
        &["Error", "ValueError", "RuntimeError"],
        "The shape of an array does not fit the operation or the other arrays.",
    ),
    (
        "DTypeError",
        &["Error", "TypeError", "RuntimeError"],
        "The element type of an array does not fit the operation.",
    ),
    (
        "AxisError",
        &["Error", "IndexError", "ValueError", "RuntimeError"],
        "An array has no axis of this number.",
    ),
    (
        "ArgumentError",
        &["Error", "ValueError", "TypeError", "RuntimeError"],
        "An argument of an operation is out of range.",
    ),
    ("CallError", &["Error", "TypeError"], "A call has arguments of the wrong number or type."),
    ("RangeError", &["Error", "ValueError", "RuntimeError"], "A value is none of the allowed ones."),
    ("IndexRangeError", &["Error", "IndexError", "RuntimeError"], "An index is outside of the array."),
    ("GraphError", &["Error", "RuntimeError"], "The state of the graph does not allow the call."),
    ("ClearedError", &["GraphError"], "A value that is read was cleared."),
    ("NotComputedError", &["GraphError"], "An output is read that no run of its function has computed yet."),
    ("GraphFreedError", &["GraphError"], "The graph freed its values when it was differentiated."),
    ("ModifiedError", &["GraphError"], "A value that a gradient reads was changed after the forward run."),
    ("RecomputeError", &["GraphError"], "A recomputation gave another result than the first one."),
    ("ParameterError", &["Error", "KeyError", "ValueError"], "A parameter does not exist or does not fit."),
    (
        "BudgetError",
        &["Error", "MemoryError"],
        "A memory budget is too small. `least` is the number of bytes that suffices.",
    ),
    (
        "UnsupportedError",
        &["Error", "NotImplementedError"],
        "A feature or combination that Kinnor does not support.",
    ),
    (INTERNAL, &["RuntimeError", "Error"], "A defect of Kinnor: please report it."),
];

/// The created classes, in the order of [`CLASSES`].
static TYPES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();

/// Creates the exception classes and adds them to the module. Most have several base classes.
pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    if TYPES.get(py).is_some() {
        let text = "kinnor: expected to be imported once in a process, in one interpreter; subinterpreters are not \
                    supported, use processes";
        return Err(PyImportError::new_err(text));
    }
    let builtins = py.import("builtins")?;
    let make = builtins.getattr("type")?;
    let mut types = Vec::new();
    for (name, bases, doc) in CLASSES {
        let base = |b: &&str| if m.hasattr(*b)? { m.getattr(*b) } else { builtins.getattr(*b) };
        let bases = bases.iter().map(base).collect::<PyResult<Vec<_>>>()?;
        if name == INTERNAL {
            let class = of_panics(py, &PyTuple::new(py, bases)?, doc)?;
            m.add(name, &class)?;
            types.push(class.unbind());
            continue;
        }
        let dict = PyDict::new(py);
        dict.set_item("__doc__", doc)?;
        dict.set_item("__module__", "kinnor")?;
        if name == "ParameterError" {
            // A KeyError shows its message quoted.
            dict.set_item("__str__", builtins.getattr("Exception")?.getattr("__str__")?)?;
        }
        let class = make.call1((name, PyTuple::new(py, bases)?, dict))?.cast_into::<PyType>()?;
        m.add(name, &class)?;
        types.push(class.unbind());
    }
    TYPES.set(py, types).map_err(|_| PyImportError::new_err("kinnor: expected to be imported once at a time"))
}

/// Turns the class that pyo3 raises for a panic in any method into one of our exceptions, by changing its bases, name
/// and text. (Otherwise it derives from `BaseException`, which `except Exception` does not catch.)
fn of_panics<'py>(py: Python<'py>, bases: &Bound<'py, PyTuple>, doc: &str) -> PyResult<Bound<'py, PyType>> {
    let class = py.get_type::<PanicException>();
    class.setattr("__bases__", bases)?;
    class.setattr("__name__", INTERNAL)?;
    class.setattr("__qualname__", INTERNAL)?;
    class.setattr("__module__", "kinnor")?;
    class.setattr("__doc__", doc)?;
    let text = Error::Internal(String::new()).to_string();
    // A panic that passed through user code has the prefix already. The lambda gets its own globals: a reference to the
    // globals of `__main__` would keep them alive at exit, and open files would not be flushed.
    let code = c"lambda said: lambda e: (lambda t: t if t.startswith(said) else said + t)(', '.join(map(str, e.args)))";
    class.setattr("__str__", py.eval(code, Some(&PyDict::new(py)), None)?.call1((text,))?)?;
    Ok(class)
}

/// An exception of the class `name`.
fn raise(py: Python<'_>, name: &str, text: String) -> PyErr {
    let at = CLASSES.iter().position(|(n, ..)| *n == name);
    match (TYPES.get(py), at) {
        (Some(types), Some(at)) => PyErr::from_type(types[at].bind(py).clone(), text),
        _ => pyo3::exceptions::PyRuntimeError::new_err(text),
    }
}

impl From<Error> for PyErr {
    fn from(e: Error) -> Self {
        let text = e.to_string();
        let least = match e {
            Error::Budget { least, .. } => Some(least),
            Error::BudgetFor { needed, .. } => Some(needed),
            _ => None,
        };
        let name = match e {
            Error::Shape { .. } => "ShapeError",
            Error::DType { .. } => "DTypeError",
            Error::Axis { .. } => "AxisError",
            Error::Argument { .. } => "ArgumentError",
            Error::Type(_) => "CallError",
            Error::Value(_) => "RangeError",
            Error::Index(_) => "IndexRangeError",
            Error::Graph(_) => "GraphError",
            Error::Cleared(_) => "ClearedError",
            Error::NotComputed(_) => "NotComputedError",
            Error::Freed(_) => "GraphFreedError",
            Error::Modified(_) => "ModifiedError",
            Error::Recompute(_) => "RecomputeError",
            Error::Key(_) => "ParameterError",
            Error::NotImplemented(_) => "UnsupportedError",
            Error::Budget { .. } | Error::BudgetFor { .. } => "BudgetError",
            Error::Internal(_) => INTERNAL,
            Error::Memory { .. } => return PyMemoryError::new_err(text),
            Error::Io(e) => return PyOSError::new_err((e.raw_os_error(), e.to_string())),
            Error::Foreign(inner) => match inner.downcast::<PyErr>() {
                Ok(own) => return *own,
                Err(_) => "Error",
            },
        };
        Python::attach(|py| {
            let raised = raise(py, name, text);
            let marked = least.map_or(Ok(()), |least| raised.value(py).setattr("least", least));
            marked.err().unwrap_or(raised)
        })
    }
}

/// Wraps a Python exception so that it passes through the engine unchanged.
pub(super) fn foreign(e: PyErr) -> Error {
    Error::Foreign(Box::new(e))
}
