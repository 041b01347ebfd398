//! An operation as the engine sees it: behind one pointer, called with raw memory.

use std::sync::Arc;

use crate::Result;
use crate::array::{DType, Lasting, Shape, Storage};
use crate::ops::contract::bound::Bound;
use crate::ops::{Compute, Facts, Kind, Loops, Memory, Pieces, Shapes, State, Sym, Symbols, Tail, Value};

/// A call of the kernel of an operation: raw memory, its type told.
pub struct Call<'a> {
    /// Inputs that were given.
    pub x: &'a [Memory<'a>],
    /// Outputs.
    pub y: &'a [Memory<'a>],
    /// Gradients of the outputs (backward only).
    pub gy: &'a [Memory<'a>],
    /// Gradients of the inputs and whether to add to them, where wanted (backward only).
    pub gx: &'a [Option<(Memory<'a>, bool)>],
    /// What the function keeps.
    pub state: &'a mut State,
    /// Compute in `f64` rather than `f32`.
    pub double: bool,
    /// The moved inputs and the outputs hold `i64`, whose bits a kernel that only moves elements sees as `f64`.
    pub integers: bool,
    /// The type in which outputs of the kernel's type are kept, if that is a narrower one (forward only).
    pub narrow: Option<DType>,
    /// Values that were dropped are computed again.
    pub recompute: bool,
    /// What the first output goes through on its way to memory, if the operation `hosts_epilogue` (forward only).
    pub tail: Tail<'a>,
    /// The input of `cached_input`, if what is made of its values may be kept.
    pub lasting: Option<Lasting<'a>>,
    /// The type that the layers of a fused operation round to between each other; none if only its outputs are rounded.
    pub rounds: Option<DType>,
}

/// An array as an operation on arrays sees it.
#[derive(Clone)]
pub struct Array {
    /// Its shape.
    pub(crate) shape: Shape,
    /// Its values.
    pub(crate) data: Arc<Storage>,
    /// Its gradient.
    pub(crate) grad: Arc<Storage>,
}

/// An operation that is not made of kernels and wants the arrays themselves: a user's own function in Python.
pub trait OnArrays: Send + Sync {
    /// Computes the outputs.
    ///
    /// # Errors
    /// Whatever the user's code raises.
    fn forward(&self, x: &[Array], y: &[Array]) -> Result<()>;
    /// Computes the gradients of the inputs that are wanted, adding to them where told.
    ///
    /// # Errors
    /// Whatever the user's code raises.
    fn backward(&self, x: &[Array], y: &[Array], wanted: &[bool], accumulate: &[bool]) -> Result<()>;
    /// As [`OnArrays::forward`], to restore values that were dropped.
    ///
    /// # Errors
    /// Whatever the user's code raises.
    fn recompute(&self, x: &[Array], y: &[Array]) -> Result<()> {
        self.forward(x, y)
    }
}

/// What a node of the graph holds: an operation with its constant arguments bound.
///
/// # Safety
/// The engine believes it: kernels read and write no more than the arrays of a [`Call`] hold, of the types that `kind` and
/// `output` name, and only inputs that it overwrites, by its [`Facts`]; outputs that have the memory of an input are as large.
#[allow(missing_docs, clippy::missing_errors_doc)] // each is the method of `Compute` of the same name, with inputs numbered as given
pub unsafe trait Operation: Send + Sync + 'static {
    /// `LeakyReLU`
    fn type_name(&self) -> &str;
    /// `leaky_relu`
    fn name(&self) -> &str;
    /// What it reads, aliases, overwrites, draws and hosts.
    fn facts(&self) -> &Facts;
    fn info(&self, x: &[&Shape]) -> Vec<(&'static str, Value)>;
    fn kind(&self, i: usize) -> Kind;
    /// What input `i` is called in the declaration.
    fn input_name(&self, _: usize) -> &'static str {
        "x"
    }
    /// As [`shapes`](#method.shapes), given the values of the input that [`Facts::shaped_by`] names, if one is.
    fn shapes_by(&self, x: &[&Shape], values: Option<&[f64]>) -> Result<Shapes>;
    fn output(&self, o: usize) -> Option<DType>;
    /// # Safety
    /// The arrays of the call are there, of the shapes and types that the operation says, and nobody else writes them.
    unsafe fn forward(&self, call: Call<'_>) -> Result<()>;
    /// # Safety
    /// As for `forward`, where the gradient reads or writes them.
    unsafe fn backward(&self, call: Call<'_>) -> Result<()>;
    fn goes_along(&self, x: &[&Shape]) -> bool {
        let _ = x;
        false
    }
    /// # Safety
    /// As for `forward`, of all inputs but the first.
    unsafe fn pieces<'a>(&self, call: Call<'a>) -> Option<&'a (dyn Pieces + 'static)> {
        let _ = call;
        None
    }
    fn gradient(&self, s: Symbols) -> Result<Vec<Option<Sym>>>;
    /// The loops that compute in `f64` (if `double`) or `f32`, if it works element by element.
    fn loops(&self, double: bool) -> Option<Loops> {
        let _ = double;
        None
    }
    fn products(&self, x: &[&Shape], y: &Shape) -> usize {
        let _ = (x, y);
        0
    }
    fn on_arrays(&self) -> Option<&dyn OnArrays> {
        None
    }
    /// What a user's operation is in the language that it is written in.
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

/// A shared operation. Those without arguments live as long as the process and are not counted.
#[derive(Clone)]
pub enum Op {
    /// One of the process.
    Static(&'static dyn Operation),
    /// One of its own.
    Shared(Arc<dyn Operation>),
}

impl Op {
    /// A node's operation from what its author wrote, all inputs being given.
    pub(crate) fn new<C: Compute>(op: C) -> Self {
        Self::with_inputs(op, u64::MAX)
    }

    /// As [`Op::new`] where only the inputs in the mask are given.
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
