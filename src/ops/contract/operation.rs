//! An operation as the engine uses it: a trait object that is called with raw memory.

use std::sync::Arc;

use crate::Result;
use crate::array::{DType, Lasting, Shape, Storage};
use crate::ops::contract::bound::Bound;
use crate::ops::{Compute, Facts, Kind, Loops, Memory, Pieces, Shapes, State, Sym, Symbols, Tail, Value};

/// A call of an operation's kernel: untyped memory, with its type.
pub struct Call<'a> {
    /// Given inputs.
    pub x: &'a [Memory<'a>],
    /// Outputs.
    pub y: &'a [Memory<'a>],
    /// Gradients of the outputs (backward only).
    pub gy: &'a [Memory<'a>],
    /// Requested gradients of the inputs, and whether to add to each (backward only).
    pub gx: &'a [Option<(Memory<'a>, bool)>],
    /// The saved state of the function.
    pub state: &'a mut State,
    /// Compute in `f64` instead of `f32`.
    pub double: bool,
    /// The moved inputs and the outputs hold `i64`. A kernel that only moves elements treats their bits as `f64`.
    pub integers: bool,
    /// The narrower type in which outputs of the kernel's type are stored, if any (forward only).
    pub narrow: Option<DType>,
    /// True if dropped values are being recomputed.
    pub recompute: bool,
    /// Operations to apply to the first output before it is written, if the operation `hosts_epilogue` (forward
    /// only).
    pub tail: Tail<'a>,
    /// The input of `cached_input`, if data derived from its values may be cached.
    pub lasting: Option<Lasting<'a>>,
    /// The type to which a fused operation rounds between its layers. None if only its outputs are rounded.
    pub rounds: Option<DType>,
}

impl<'a> Call<'a> {
    /// A plain forward call: nothing is recomputed, cached, rounded or applied to the outputs.
    #[inline(always)]
    pub const fn new(x: &'a [Memory<'a>], y: &'a [Memory<'a>], state: &'a mut State, double: bool) -> Self {
        let (tail, integers, recompute) = (Tail::NOTHING, false, false);
        let (narrow, lasting, rounds) = (None, None, None);
        Self { x, y, gy: &[], gx: &[], state, double, integers, narrow, recompute, tail, lasting, rounds }
    }
}

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
    /// As [`OnArrays::forward`], to recompute dropped values.
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
    /// `LeakyReLU`
    fn type_name(&self) -> &str;
    /// `leaky_relu`
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
    /// As [`shapes`](#method.shapes), given the values of the input [`Facts::shaped_by`], if any.
    fn shapes_by(&self, x: &[&Shape], values: Option<&[f64]>) -> Result<Shapes>;
    /// The element type of output `o`. None for the type in which the operation computes.
    fn output(&self, o: usize) -> Option<DType>;
    /// # Safety
    /// The arrays of the call must be valid, with the shapes and types that the operation declares, and nothing else
    /// may write to them.
    unsafe fn forward(&self, call: Call<'_>) -> Result<()>;
    /// # Safety
    /// As for `forward`, for the arrays that the gradient reads or writes.
    unsafe fn backward(&self, call: Call<'_>) -> Result<()>;
    fn goes_along(&self, x: &[&Shape]) -> bool {
        let _ = x;
        false
    }
    /// # Safety
    /// As for `forward`, for all inputs but the first.
    unsafe fn pieces<'a>(&self, call: Call<'a>) -> Option<&'a (dyn Pieces + 'static)> {
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
    /// Number of multiplications of a forward run, as [`Compute::products`](crate::ops::Compute::products).
    fn products(&self, x: &[&Shape], y: &Shape) -> usize {
        let _ = (x, y);
        0
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
    pub fn shapes(&self, x: &[&Shape]) -> Result<Shapes> {
        self.shapes_by(x, None)
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

impl Op {
    /// A node's operation from an author's operation with all inputs.
    pub(crate) fn new<C: Compute>(op: C) -> Self {
        Self::with_inputs(op, u64::MAX)
    }

    /// As [`Op::new`], with only the inputs in the mask.
    pub(crate) fn with_inputs<C: Compute>(op: C, present: u64) -> Self {
        Self::Shared(Arc::new(Bound::new(op, present)))
    }
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
