//! The error type of the crate, and the conversion of panics to errors. `python/error.rs` maps it to exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::array::{OutOfMemory, Shape};
use crate::environment::WrongSetting;
use crate::kernels::stop::Stopped;

/// Shorthand for a result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error that a caller can cause.
///
/// A message reads *operation: expected …, got …*. A panic is a bug of this crate and never a message to a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes do not fit the operation.
    #[error("{op}: expected {expected}, got {}", shapes(got))]
    Shape {
        /// Name of the operation.
        op: String,
        /// The violated rule, in words.
        expected: String,
        /// The shapes that were given, in the order of the inputs.
        got: Vec<Shape>,
    },
    /// An array has an element type that the operation does not accept.
    #[error("{op}: expected {expected}, got dtype {got}")]
    DType {
        /// Name of the operation.
        op: String,
        /// The accepted types, in words.
        expected: String,
        /// The type that was given.
        got: String,
    },
    /// An axis that the array does not have.
    #[error("{}", no_such_axis(op, *got, *ndim))]
    Axis {
        /// Name of the operation.
        op: String,
        /// The axis that was given.
        got: i64,
        /// Number of axes of the array.
        ndim: usize,
    },
    /// A constant argument has the wrong value.
    #[error("{op}: expected `{arg}` to be {expected}, got {got}")]
    Argument {
        /// Name of the operation.
        op: String,
        /// Name of the argument.
        arg: String,
        /// The accepted values, in words.
        expected: String,
        /// The value that was given.
        got: String,
    },
    /// A call with the wrong number or the wrong types of arguments.
    #[error("{0}")]
    Type(String),
    /// A value out of the accepted range, if no other variant fits better.
    #[error("{0}")]
    Value(String),
    /// An index outside of its array.
    #[error("{0}")]
    Index(String),
    /// The graph does not allow the request: no parent, in-place on a protected value, a graph in use.
    #[error("{0}")]
    Graph(String),
    /// A value that was cleared after it was computed.
    #[error("{0}")]
    Cleared(String),
    /// An output that no run of its function has computed yet.
    #[error("{0}")]
    NotComputed(String),
    /// A graph that was differentiated before, so that its values were freed.
    #[error("{0}")]
    Freed(String),
    /// A value that a gradient reads was overwritten after the function ran.
    #[error("{0}")]
    Modified(String),
    /// A recomputed value differs from the original one.
    #[error("{0}")]
    Recompute(String),
    /// An allocation of this many bytes failed, or exceeded a limit.
    #[error("cannot allocate {bytes} bytes")]
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// The memory budget is too small for a training step, even with recomputation.
    #[error(
        "memory_budget: expected at least {least} bytes, the least that was found to do for this graph, got {got}"
    )]
    Budget {
        /// The smallest budget that would suffice.
        least: usize,
        /// The budget in bytes.
        got: usize,
    },
    /// The memory budget is too small for one function, even if all values that can be recomputed are dropped.
    #[error(
        "memory_budget: expected at least {needed} bytes, which {by} takes with what it reads and what has to stay, \
         got {got}"
    )]
    BudgetFor {
        /// The bytes that this function needs.
        needed: usize,
        /// The budget in bytes.
        got: usize,
        /// Name of the function.
        by: String,
    },
    /// An unknown name.
    #[error("{0}")]
    Key(String),
    /// A feature of NNabla that is not (yet) here.
    #[error("{0}")]
    NotImplemented(String),
    /// A file could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// An error of code that the graph called: a hook, a user-defined function, an interrupt. It is passed on
    /// unchanged.
    #[error("{0}")]
    Foreign(Box<dyn std::error::Error + Send + Sync>),
    /// A panic in this crate.
    #[error("internal error, a defect of Kinnor, please report it: {0}")]
    Internal(String),
}

impl Error {
    /// Converts the payload of a panic.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Self::Internal(text.unwrap_or_else(|| "a panic without a message".into()))
    }

    /// True if it was a panic.
    pub(crate) fn is_panic(&self) -> bool {
        matches!(self, Self::Internal(_))
    }

    /// An [`Error::Shape`] from anything that holds shapes.
    pub fn shape<'a>(
        op: impl Into<String>,
        expected: impl Into<String>,
        got: impl IntoIterator<Item = &'a Shape>,
    ) -> Self {
        Self::Shape { op: op.into(), expected: expected.into(), got: got.into_iter().cloned().collect() }
    }

    /// An [`Error::Argument`].
    pub fn argument(
        op: impl Into<String>,
        arg: impl Into<String>,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Argument { op: op.into(), arg: arg.into(), expected: expected.into(), got: got.to_string() }
    }
}

impl From<OutOfMemory> for Error {
    fn from(OutOfMemory { bytes }: OutOfMemory) -> Self {
        Self::Memory { bytes }
    }
}

impl From<Stopped> for Error {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Memory(error) => error.into(),
            Stopped::Interrupted(error) => Self::Foreign(error),
        }
    }
}

impl From<WrongSetting> for Error {
    fn from(wrong: WrongSetting) -> Self {
        Self::Value(wrong.to_string())
    }
}

/// Runs `f`. A panic in it, or in a worker thread, becomes an [`Error::Internal`].
pub(crate) fn caught<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    // The caller repairs or discards what `f` leaves half done.
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| Err(Error::of_panic(&*panic)))
}

/// The message for an axis that does not exist.
fn no_such_axis(op: &str, got: i64, ndim: usize) -> String {
    match ndim as i64 {
        0 => format!("{op}: expected an array with axes for axis {got}, got a scalar"),
        n => format!("{op}: expected an axis from -{n} to {}, got {got}", n - 1),
    }
}

/// The shapes, in words.
fn shapes(got: &[Shape]) -> String {
    match got {
        [one] => format!("shape {one}"),
        _ => format!("shapes {}", got.iter().map(Shape::to_string).collect::<Vec<_>>().join(", ")),
    }
}
