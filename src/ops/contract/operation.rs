//! An operation as the engine uses it: a trait object that is called with raw memory.

use std::sync::Arc;

use crate::Result;
use crate::array::{DType, Shape, Storage};
use crate::ops::{Call, ChunkedForward, Facts, Kind, Loops, Shapes, State, Sym, Symbols, Value};

/// An array passed to an operation on arrays.
#[derive(Clone)]
pub struct Array {
    /// The shape.
    pub(crate) shape: Shape,
    /// The data.
    pub(crate) data: Arc<Storage>,
    /// The gradient.
    pub(crate) grad: Arc<Storage>,
}

/// An operation that works on arrays instead of kernels: a user function in Python.
pub trait OnArrays: Send + Sync {
    /// Computes the outputs.
    ///
    /// # Errors
    /// Errors of the user code.
    fn forward(&self, x: &[Array], y: &[Array]) -> Result<()>;
    /// Computes the gradients of the `wanted` inputs. Adds to them if `accumulate` is set.
    ///
    /// # Errors
    /// Errors of the user code.
    fn backward(&self, x: &[Array], y: &[Array], wanted: &[bool], accumulate: &[bool]) -> Result<()>;
    /// Computes the outputs again, to restore dropped values.
    ///
    /// # Errors
    /// Errors of the user code.
    fn recompute(&self, x: &[Array], y: &[Array]) -> Result<()> {
        self.forward(x, y)
    }
}

/// The operation of a node, with its constant arguments bound.
///
/// # Safety
/// The engine relies on the implementation. Kernels access only the arrays of a [`Call`], with the types that `kind`
/// and `output` return. They write only to inputs that their [`Facts`] list as overwritten. Outputs that share the
/// memory of an input have its size.
#[allow(missing_docs, clippy::missing_errors_doc)] // see `Compute`, with inputs numbered as given
pub unsafe trait Operation: Send + Sync + 'static {
    /// The name of the operation's type, such as `LeakyReLU`.
    fn type_name(&self) -> &str;
    /// The name of the function in Python, such as `leaky_relu`.
    fn name(&self) -> &str;
    /// The facts: inputs and outputs that it reads, aliases and overwrites, random numbers, epilogues.
    fn facts(&self) -> &Facts;
    /// The arguments as shown in `info.args`, for inputs of these shapes.
    fn info(&self, x: &[&Shape]) -> Vec<(&'static str, Value)>;
    /// The kind of input `i`.
    fn kind(&self, i: usize) -> Kind;
    /// The declared name of input `i`.
    fn input_name(&self, _: usize) -> &'static str {
        "x"
    }
    /// The shapes of the outputs, given the values of the input [`Facts::shaped_by`], if any.
    fn shapes_by(&self, x: &[&Shape], values: Option<&[f64]>) -> Result<Shapes>;
    /// The element type of output `o`. None for the type in which the operation computes.
    fn output(&self, o: usize) -> Option<DType>;
    /// True if gradients of 16 bits that are not added to stay as they are stored:
    /// [`Compute::moves_back`](crate::ops::Compute::moves_back) or
    /// [`Compute::is_stored_back`](crate::ops::Compute::is_stored_back).
    fn moves_back(&self, x: &[&Shape]) -> bool {
        let _ = x;
        false
    }
    /// # Safety
    /// The arrays of the call must be valid, with the shapes and types that the operation declares, and nothing else
    /// may write to them.
    unsafe fn forward(&self, call: Call<'_>) -> Result<()>;
    /// # Safety
    /// As for `forward`, for the arrays that the gradient reads or writes.
    unsafe fn backward(&self, call: Call<'_>) -> Result<()>;
    /// True if an epilogue can run on the output for inputs of these shapes.
    fn fits_epilogue(&self, x: &[&Shape]) -> bool {
        let _ = x;
        false
    }
    /// # Safety
    /// As for `forward`, for all inputs but the first.
    unsafe fn chunked_forward<'a>(&self, call: Call<'a>) -> Option<&'a (dyn ChunkedForward + 'static)> {
        let _ = call;
        None
    }
    /// The gradients as formulas: one for each input, None for zero.
    fn gradient(&self, s: Symbols) -> Result<Vec<Option<Sym>>>;
    /// The loops that compute in `f64` (if `double`) or `f32`, if it is elementwise.
    fn loops(&self, double: bool) -> Option<Loops> {
        let _ = double;
        None
    }
    /// Multiplications of a forward run, as [`Compute::multiplications`](crate::ops::Compute::multiplications).
    fn multiplications(&self, x: &[&Shape], y: &Shape) -> usize {
        let _ = (x, y);
        0
    }
    /// The counts and values that runs keep for later runs, as [`Compute::progress`](crate::ops::Compute::progress).
    fn progress(&self, state: &State) -> Option<Vec<u8>> {
        let _ = state;
        None
    }
    /// Writes what [`Operation::progress`] returned to an empty state. Returns false for other bytes.
    fn resume(&self, state: &mut State, progress: &[u8]) -> bool {
        let _ = (state, progress);
        false
    }
    /// The operation in the form that runs on arrays, if it is user-defined.
    fn on_arrays(&self) -> Option<&dyn OnArrays> {
        None
    }
    /// A user operation as an object of the language it is written in.
    fn user(&self) -> Option<&dyn std::any::Any> {
        None
    }
}

#[allow(missing_docs, clippy::missing_errors_doc)] // as above
impl dyn Operation {
    /// The shapes of the outputs.
    pub fn shapes(&self, x: &[&Shape]) -> Result<Shapes> {
        self.shapes_by(x, None)
    }

    /// The shape of the only output, if that is the one shape of all inputs.
    #[inline]
    pub(crate) fn kept_shape<'a>(&self, x: &[&'a Shape]) -> Option<&'a Shape> {
        let [shape, others @ ..] = x else { return None };
        let keeps = self.facts().keeps_shape_of == x.len() && others.iter().all(|x| x.is_same(shape));
        debug_assert!(!keeps || self.shapes(x).is_ok_and(|y| *y == [(*shape).clone()]), "{}", self.name());
        keeps.then_some(shape)
    }
}

/// A shared operation. Operations without arguments are static and not counted.
#[derive(Clone)]
pub enum Op {
    /// A static operation.
    Static(&'static dyn Operation),
    /// A counted operation.
    Shared(Arc<dyn Operation>),
}

impl std::ops::Deref for Op {
    type Target = dyn Operation;
    #[inline(always)]
    fn deref(&self) -> &(dyn Operation + 'static) {
        match self {
            Self::Static(op) => *op,
            Self::Shared(op) => &**op,
        }
    }
}
