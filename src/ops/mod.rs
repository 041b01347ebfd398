//! Operations: what each one is called, takes, computes and differentiates to.
//!
//! A new operation is one `op!` declaration and one trait impl in a family file, listed in that file's `OPS`. The Python
//! function, its signature, docstring and stub follow from the declaration; its tests from one row in `tests/cases`.
//!
//! There are three ways to say what an operation computes: [`Unary`] and [`Binary`] take one formula on numbers, and
//! everything else implements [`Compute`]. The engine sees all of them as [`Operation`].

mod activation;
mod affine;
mod arithmetic;
mod array;
mod batch_matmul;
mod batch_normalization;
#[cfg(test)]
mod checks;
mod convolution;
mod cumulative;
mod deconvolution;
mod depthwise;
mod diagonal;
mod doubled;
mod elementwise;
mod embed;
mod erase;
mod extreme;
mod group_normalization;
mod indexing;
mod interpolate;
mod join;
mod label;
mod logical;
mod loss;
mod masking;
mod math;
mod max_pooling;
mod nary;
mod nd;
mod normalization;
mod order;
mod pooling;
mod random;
mod rectifier;
mod reduction;
mod regrid;
mod repeat;
mod run;
mod sequence;
mod slicing;
mod softmax;
mod spatial;
pub(crate) mod spec;
mod special;
pub mod symbol;
#[cfg(test)]
mod testing;
mod weight_normalization;
mod whole;

pub use elementwise::{Binary, Unary};
pub use run::{Backward, Grad, InputShapes, Memory, Run, Shapes, State};
pub use spec::{Arg, ArgType, Declared, Input, Kind, Spec, Value};
pub use symbol::{Sym, Symbols};

use std::sync::Arc;

use crate::array::{DType, Shape, Storage};
use crate::kernels::Float;
use crate::{Error, Result};
use spec::op;

/// Which inputs and outputs a gradient reads, as bit masks; bits from 63 on stand for all that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Bit `i` is set if it reads the data of input `i`.
    pub inputs: u64,
    /// Bit `o` is set if it reads the data of output `o`.
    pub outputs: u64,
}

impl Reads {
    /// Neither input nor output data.
    pub const NOTHING: Self = Self { inputs: 0, outputs: 0 };
    /// Every input.
    pub const INPUTS: Self = Self { inputs: u64::MAX, outputs: 0 };
    /// Every output.
    pub const OUTPUTS: Self = Self { inputs: 0, outputs: u64::MAX };
    /// Every input and output.
    pub const ALL: Self = Self { inputs: u64::MAX, outputs: u64::MAX };

    /// These inputs and no outputs.
    pub const fn inputs(mask: u64) -> Self {
        Self { inputs: mask, outputs: 0 }
    }

    /// Whether input `i` is read.
    pub fn input(self, i: usize) -> bool {
        self.inputs >> i.min(63) & 1 == 1
    }

    /// Whether output `o` is read.
    pub fn output(self, o: usize) -> bool {
        self.outputs >> o.min(63) & 1 == 1
    }

    /// What either reads.
    pub fn or(self, other: Self) -> Self {
        Self { inputs: self.inputs | other.inputs, outputs: self.outputs | other.outputs }
    }
}

/// How an output shares the memory of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The output.
    pub output: usize,
    /// Whether the input's values change.
    pub modifies: bool,
}

/// An operation with its constant arguments, as its author writes it; [`Operation`] is how the engine sees it.
///
/// Inputs are numbered as declared, also when optional ones are missing.
pub trait Compute: Declared {
    /// Shapes of the outputs: the only part that can refuse its inputs.
    ///
    /// # Errors
    /// When shapes or arguments do not fit.
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes>;

    /// Writes every element of each output.
    ///
    /// # Errors
    /// Only for what could not be known before: an index out of range, no memory.
    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()>;

    /// Writes or adds the gradient of each input that is wanted. Left out (see [`Compute::HAS_BACKWARD`]), the
    /// engine runs [`Compute::gradient`] instead.
    ///
    /// # Errors
    /// As for [`Compute::forward`].
    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        let _ = run;
        Err(Error::NotImplemented(format!("{}: has no backward kernel", Self::SPEC.name)))
    }

    /// Whether [`Compute::backward`] is written out.
    const HAS_BACKWARD: bool = true;

    /// The gradients of the inputs, as a formula on symbols; `None` where there is none (it counts as zero).
    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>>;

    /// What the backward kernel reads for the gradient of input `gx`.
    fn reads(&self, gx: usize) -> Reads {
        let _ = gx;
        Reads::ALL
    }

    /// What [`Compute::gradient`] reads for input `gx`, where it differs.
    fn symbol_reads(&self, gx: usize) -> Reads {
        self.reads(gx)
    }

    /// Type of the elements of output `o`: `None` is the type that the function computes in.
    fn output(&self, o: usize) -> Option<DType> {
        let _ = o;
        None
    }

    /// The output that shares memory with input `i`, if one does.
    fn alias(&self, i: usize) -> Option<Alias> {
        let _ = i;
        None
    }

    /// Whether `forward` writes into input `i` (running statistics).
    fn overwrites(&self, i: usize) -> bool {
        let _ = i;
        false
    }

    /// Whether `forward` draws random numbers.
    const IS_RANDOM: bool = false;

    /// The input whose values decide on the shapes of the outputs, if one does.
    const SHAPED_BY: Option<usize> = None;

    /// Whether the gradients of the inputs stay what the user made them: no backward kernel is run.
    fn keeps_gradients(&self) -> bool {
        false
    }

    /// How many products `forward` adds up, where that is many for each element that it touches: an estimate by which
    /// the engine tells what is worth keeping.
    fn products(&self, x: &InputShapes<'_>, y: &Shape) -> usize {
        let _ = (x, y);
        0
    }

    /// Whether the engine may clear what this function read (`Sink` forbids it).
    const MAY_CLEAR_INPUTS: bool = true;

    /// What an argument stands for that was left open, by its name in `info.args`: unless an operation says otherwise,
    /// `axis` for the last axis of the first input, `axes` for all of them, and `p` for the Euclidean norm.
    fn open(&self, arg: &str, x: &InputShapes<'_>) -> Value {
        match (arg, x.find(0)) {
            ("axis", Some(x)) => Value::Int(x.ndim() as i64 - 1),
            ("axes", Some(x)) => Value::Ints((0..x.ndim() as i64).collect()),
            ("p", _) => Value::Float(2.0),
            _ => Value::None,
        }
    }

    /// Arguments as `info.args` shows them for inputs of these shapes.
    fn info(&self, x: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        let shown = |(arg, value): (&Arg, Value)| match value {
            Value::None => (arg.info, self.open(arg.info, x)),
            given => (arg.info, given),
        };
        Self::SPEC.args.iter().zip(self.values()).map(shown).collect()
    }
}

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
    /// Values that were dropped are computed again.
    pub recompute: bool,
}

/// An array as an operation on arrays sees it.
#[derive(Clone)]
pub struct Array {
    /// Its shape.
    pub shape: Shape,
    /// Its values.
    pub data: Arc<Storage>,
    /// Its gradient.
    pub grad: Arc<Storage>,
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
#[allow(missing_docs, clippy::missing_errors_doc)] // each is the method of `Compute` of the same name, with inputs numbered as given
pub trait Operation: Send + Sync + 'static {
    /// `LeakyReLU`
    fn type_name(&self) -> &str;
    /// `leaky_relu`
    fn name(&self) -> &str;
    fn info(&self, x: &[&Shape]) -> Vec<(&'static str, Value)>;
    fn kind(&self, i: usize) -> Kind;
    fn shapes(&self, x: &[&Shape]) -> Result<Shapes>;
    /// The input whose values `shapes_by` takes: shapes of outputs follow from them.
    fn shaped_by(&self) -> Option<usize> {
        None
    }
    /// As `shapes`, given the values of the input that `shaped_by` names.
    ///
    /// # Errors
    /// As for `shapes`.
    fn shapes_by(&self, x: &[&Shape], values: &[f64]) -> Result<Shapes> {
        let _ = values;
        self.shapes(x)
    }
    fn keeps_gradients(&self) -> bool {
        false
    }
    fn output(&self, o: usize) -> Option<DType>;
    fn forward(&self, call: Call<'_>) -> Result<()>;
    fn backward(&self, call: Call<'_>) -> Result<()>;
    fn has_backward(&self) -> bool;
    fn gradient(&self, s: Symbols) -> Result<Vec<Option<Sym>>>;
    fn reads(&self, gx: usize) -> Reads;
    fn symbol_reads(&self, gx: usize) -> Reads;
    /// What a backward run reads for the gradient of input `gx`: the kernel, or the formula where there is none.
    fn backward_reads(&self, gx: usize) -> Reads {
        if self.has_backward() { self.reads(gx) } else { self.symbol_reads(gx) }
    }
    fn alias(&self, i: usize) -> Option<Alias>;
    fn overwrites(&self, i: usize) -> bool;
    fn is_random(&self) -> bool;
    /// Whether it does nothing but compute outputs from inputs, which it reads in the type that the context computes in.
    fn is_plain(&self) -> bool {
        false
    }
    fn may_clear_inputs(&self) -> bool;
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

/// A [`Compute`] with the mask of the inputs that were given.
struct Bound<C> {
    op: C,
    present: u64,
}

impl<C: Compute> Bound<C> {
    /// The declared number of the `i`-th input that was given.
    #[inline(always)]
    fn declared(&self, i: usize) -> usize {
        if self.present == u64::MAX { i } else { self.declared_among_missing(i) }
    }

    fn declared_among_missing(&self, i: usize) -> usize {
        let mut left = i;
        for at in 0..C::SPEC.inputs.len() {
            if self.present >> at & 1 == 1 {
                if left == 0 {
                    return at;
                }
                left -= 1;
            }
        }
        i
    }

    /// Refuses a number of inputs that does not go with the declaration.
    fn check_count(&self, n: usize) -> Result<()> {
        if self.present == u64::MAX && n == C::SPEC.inputs.len() {
            return Ok(());
        }
        let given = || C::SPEC.inputs.iter().enumerate().filter(|(at, _)| self.present >> at & 1 == 1);
        let least = given().filter(|(_, input)| input.kind != Kind::optional).count();
        let most =
            if given().any(|(_, input)| input.kind == Kind::list) { usize::MAX } else { given().count() };
        if (least..=most).contains(&n) {
            return Ok(());
        }
        let bound = if n < least { least } else { most };
        Err(Error::Type(format!("{}: expected {bound} inputs, got {n}", C::SPEC.name)))
    }

    /// A mask of declared inputs as one of given inputs.
    fn given(&self, reads: Reads) -> Reads {
        if self.present == u64::MAX {
            return reads;
        }
        let inputs = (0..63).filter(|i| reads.input(self.declared(*i))).fold(0, |m, i| m | 1 << i);
        Reads { inputs, outputs: reads.outputs }
    }
}

impl<C: Compute> Operation for Bound<C> {
    fn type_name(&self) -> &str {
        C::SPEC.type_name
    }
    fn name(&self) -> &str {
        C::SPEC.name
    }
    fn info(&self, x: &[&Shape]) -> Vec<(&'static str, Value)> {
        self.op.info(&InputShapes { x, present: self.present, values: None })
    }
    fn kind(&self, i: usize) -> Kind {
        let at = self.declared(i);
        C::SPEC.inputs.get(at).or(C::SPEC.inputs.last()).map_or(Kind::float, |input| input.kind)
    }
    fn shapes(&self, x: &[&Shape]) -> Result<Shapes> {
        self.check_count(x.len())?;
        self.op.shapes(&InputShapes { x, present: self.present, values: None })
    }
    fn shaped_by(&self) -> Option<usize> {
        C::SHAPED_BY
    }
    fn shapes_by(&self, x: &[&Shape], values: &[f64]) -> Result<Shapes> {
        self.check_count(x.len())?;
        self.op.shapes(&InputShapes { x, present: self.present, values: Some(values) })
    }
    fn keeps_gradients(&self) -> bool {
        self.op.keeps_gradients()
    }
    fn output(&self, o: usize) -> Option<DType> {
        self.op.output(o)
    }
    fn forward(&self, call: Call<'_>) -> Result<()> {
        if call.double {
            self.op.forward(&mut Run::<f64>::new(call.x, call.y, self.present, call.state, call.recompute))
        } else {
            self.op.forward(&mut Run::<f32>::new(call.x, call.y, self.present, call.state, call.recompute))
        }
    }
    fn backward(&self, call: Call<'_>) -> Result<()> {
        let Call { x, y, gy, gx, state, double, .. } = call;
        if double {
            self.op.backward(&mut Backward::<f64>::new(x, y, gy, gx, self.present, state))
        } else {
            self.op.backward(&mut Backward::<f32>::new(x, y, gy, gx, self.present, state))
        }
    }
    fn has_backward(&self) -> bool {
        C::HAS_BACKWARD
    }
    fn gradient(&self, mut s: Symbols) -> Result<Vec<Option<Sym>>> {
        s.present = self.present;
        let declared = self.op.gradient(&s);
        let n = s.n_inputs();
        Ok((0..n).map(|i| declared.get(self.declared(i)).copied().flatten()).collect())
    }
    fn reads(&self, gx: usize) -> Reads {
        self.given(self.op.reads(self.declared(gx)))
    }
    fn symbol_reads(&self, gx: usize) -> Reads {
        self.given(self.op.symbol_reads(self.declared(gx)))
    }
    fn alias(&self, i: usize) -> Option<Alias> {
        self.op.alias(self.declared(i))
    }
    fn overwrites(&self, i: usize) -> bool {
        self.op.overwrites(self.declared(i))
    }
    fn is_random(&self) -> bool {
        C::IS_RANDOM
    }
    fn is_plain(&self) -> bool {
        let alone = |i| self.op.alias(i).is_none() && !self.op.overwrites(i);
        let inputs = C::SPEC.inputs;
        !C::IS_RANDOM
            && C::SHAPED_BY.is_none()
            && inputs.iter().all(|input| input.kind == Kind::float)
            && (0..inputs.len()).all(alone)
    }
    fn may_clear_inputs(&self) -> bool {
        C::MAY_CLEAR_INPUTS
    }
    fn products(&self, x: &[&Shape], y: &Shape) -> usize {
        self.op.products(&InputShapes { x, present: self.present, values: None }, y)
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
    pub fn new<C: Compute>(op: C) -> Self {
        Self::with_inputs(op, u64::MAX)
    }

    /// As [`Op::new`] where only the inputs in the mask are given.
    pub fn with_inputs<C: Compute>(op: C, present: u64) -> Self {
        Self::Shared(Arc::new(Bound { op, present }))
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

/// One row of the registry: how to make a node's operation from constant arguments.
pub struct Entry {
    /// The declaration.
    pub spec: &'static Spec,
    make: fn(&[Value], u64) -> Result<Op>,
}

impl Entry {
    /// Row for an operation that implements [`Compute`].
    pub const fn of<C: Compute>() -> Self {
        Self {
            spec: const { &C::SPEC },
            make: |values, present| Ok(Op::with_inputs(C::bind(values)?, present)),
        }
    }

    /// The operation with these arguments, in order, and the inputs in the mask `present` (all ones for all).
    ///
    /// # Errors
    /// [`Error::Argument`] when an argument has the wrong type.
    pub fn bind(&self, values: &[Value], present: u64) -> Result<Op> {
        (self.make)(values, present)
    }

    /// The one operation of an entry without arguments, shared by all its nodes; `None` where there are arguments.
    pub fn lone(&self) -> Option<Op> {
        if !self.spec.args.is_empty() {
            return None;
        }
        let Ok(Op::Shared(op)) = self.bind(&[], u64::MAX) else { return None };
        let op: &'static Arc<dyn Operation> = Box::leak(Box::new(op));
        Some(Op::Static(&**op))
    }
}

/// Every operation, family by family: the single source for Python, stubs, docs and tests.
pub fn registry() -> impl Iterator<Item = &'static Entry> {
    [
        activation::OPS,
        affine::OPS,
        arithmetic::OPS,
        array::OPS,
        batch_matmul::OPS,
        batch_normalization::OPS,
        convolution::OPS,
        deconvolution::OPS,
        depthwise::OPS,
        embed::OPS,
        erase::OPS,
        doubled::OPS,
        group_normalization::OPS,
        cumulative::OPS,
        diagonal::OPS,
        extreme::OPS,
        indexing::OPS,
        interpolate::OPS,
        join::OPS,
        label::OPS,
        logical::OPS,
        loss::OPS,
        masking::OPS,
        math::OPS,
        max_pooling::OPS,
        nary::OPS,
        nd::OPS,
        order::OPS,
        pooling::OPS,
        random::OPS,
        rectifier::OPS,
        reduction::OPS,
        repeat::OPS,
        sequence::OPS,
        slicing::OPS,
        softmax::OPS,
        special::OPS,
        weight_normalization::OPS,
        whole::OPS,
    ]
    .into_iter()
    .flatten()
}

/// The operation that Python calls `name`.
pub fn find(name: &str) -> Option<&'static Entry> {
    registry().find(|e| e.spec.name == name)
}

/// The shape of one output that is like input 0.
#[allow(clippy::unnecessary_wraps)] // it is what `shapes` returns
pub(crate) fn like(x: &InputShapes<'_>) -> Result<Shapes> {
    one(x.get(0).clone())
}

/// One output of this shape.
#[allow(clippy::unnecessary_wraps)] // it is what `shapes` returns
pub(crate) fn one(shape: impl Into<Shape>) -> Result<Shapes> {
    let mut shapes = Shapes::new();
    shapes.push(shape.into());
    Ok(shapes)
}

#[cfg(test)]
mod tests {
    use super::testing::{Tensor, check_gradient};
    use super::{Op, Value, find};

    fn op(name: &str, values: &[Value]) -> Op {
        find(name).expect("is registered").bind(values, u64::MAX).expect("binds")
    }

    #[test]
    fn smooth_functions_have_true_gradients() {
        for name in ["exp", "sin", "cos", "tanh", "sigmoid", "relu", "asinh", "erf", "identity"] {
            let values: &[Value] = if name == "relu" { &[Value::Bool(false)] } else { &[] };
            check_gradient(&op(name, values), &[Tensor::sample([3, 4], 1)], &[true]);
        }
    }

    #[test]
    fn products_and_sums_broadcast_both_ways() {
        for name in ["add2", "sub2", "mul2", "div2"] {
            let x = [Tensor::sample([3, 1, 2], 1), Tensor::sample([4, 2], 2)];
            check_gradient(&op(name, &[Value::Bool(false)]), &x, &[true, true]);
        }
    }

    #[test]
    fn arrays_are_rearranged_and_back() {
        check_gradient(
            &op("transpose", &[Value::Ints(vec![2, 0, 1])]),
            &[Tensor::sample([2, 3, 4], 1)],
            &[true],
        );
        check_gradient(
            &op("broadcast", &[Value::Ints(vec![2, 3, 4])]),
            &[Tensor::sample([2, 1, 4], 1)],
            &[true],
        );
        check_gradient(
            &op("sum", &[Value::Ints(vec![1]), Value::Bool(false)]),
            &[Tensor::sample([2, 3, 4], 1)],
            &[true],
        );
        check_gradient(
            &op("where", &[]),
            &[Tensor::new([2], &[1.0, 0.0]), Tensor::sample([2, 2], 1), Tensor::sample([2, 2], 2)],
            &[false, true, true],
        );
    }
}
