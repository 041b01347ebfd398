//! Binding: turns an author's operation, with bound arguments and given inputs, into an operation of the engine.

use std::sync::Arc;

use half::{bf16, f16};
use smallvec::SmallVec;

use crate::array::{DType, Shape};
use crate::ops::{
    Backward, Call, ChunkedForward, Compute, Facts, Input, InputFacts, InputShapes, Kind, Loops, Op,
    Operation, Reads, Run, Shapes, Spec, State, Sym, Symbols, Value,
};
use crate::{Error, Result};

/// The subset of the declared inputs that were given.
struct GivenInputs {
    /// The declaration of the operation.
    spec: &'static Spec,
    /// One bit for each declared input.
    present: u64,
}

impl GivenInputs {
    /// The declared number of the `i`-th given input.
    #[inline(always)]
    fn declared(&self, i: usize) -> usize {
        if self.present == u64::MAX { i } else { self.declared_among_missing(i) }
    }

    /// The declared number of the `i`-th given input if some optional inputs were not given. `i` itself if fewer than
    /// `i + 1` were given.
    fn declared_among_missing(&self, i: usize) -> usize {
        let mut left = i;
        for at in 0..self.spec.inputs.len() {
            if self.present >> at & 1 == 1 {
                if left == 0 {
                    return at;
                }
                left -= 1;
            }
        }
        i
    }

    /// The declaration of the `i`-th given input. Compiled once for all operations.
    #[inline(never)]
    fn input(&self, i: usize) -> Option<&'static Input> {
        let inputs = self.spec.inputs;
        inputs.get(self.declared(i)).or(inputs.last())
    }

    /// Returns an error if the number of inputs contradicts the declaration.
    #[inline]
    fn check_count(&self, n: usize) -> Result<()> {
        if self.present == u64::MAX && n == self.spec.inputs.len() { Ok(()) } else { self.check_missing(n) }
    }

    /// [`GivenInputs::check_count`] if inputs are missing or have any number.
    fn check_missing(&self, n: usize) -> Result<()> {
        let given = || self.spec.inputs.iter().enumerate().filter(|(at, _)| self.present >> at & 1 == 1);
        let least = given().filter(|(_, input)| input.kind != Kind::optional).count();
        let most =
            if given().any(|(_, input)| input.kind == Kind::list) { usize::MAX } else { given().count() };
        if (least..=most).contains(&n) {
            return Ok(());
        }
        let bound = if n < least { least } else { most };
        Err(Error::Type(format!("{}: expected {bound} inputs, got {n}", self.spec.name)))
    }

    /// Converts a mask of declared inputs to one of given inputs.
    fn given(&self, reads: Reads) -> Reads {
        if self.present == u64::MAX {
            return reads;
        }
        // Later inputs are numbered as declared.
        let n = self.spec.inputs.len().min(63);
        let own = (0..n).filter(|i| reads.input(self.declared(*i))).fold(0, |m, i| m | 1 << i);
        let inputs = own | (reads.inputs & (u64::MAX << n));
        Reads { inputs, outputs: reads.outputs }
    }

    /// The kind of the `i`-th given input.
    #[inline(never)]
    fn kind(&self, i: usize) -> Kind {
        self.input(i).map_or(Kind::float, |input| input.kind)
    }

    /// The name of the `i`-th given input.
    #[inline(never)]
    fn name(&self, i: usize) -> &'static str {
        self.input(i).map_or("x", |input| input.name)
    }

    /// The facts of an operation with these inputs, from the facts that all operations of its type share. `of` returns
    /// the facts of a declared input.
    #[inline(never)]
    fn bound_facts(&self, shared: &Facts, of: &dyn Fn(usize) -> InputFacts) -> Facts {
        let given = |mask| if mask == 0 { 0 } else { self.given(Reads::inputs(mask)).inputs };
        Facts {
            inputs: self.facts(of),
            in_bfloat16: given(shared.in_bfloat16),
            widened: given(shared.widened),
            is_plain: shared.is_plain && self.are_plain(of),
            ..shared.clone()
        }
    }

    /// The facts of the given inputs. `of` returns the facts of a declared input.
    fn facts(&self, of: &dyn Fn(usize) -> InputFacts) -> SmallVec<[InputFacts; 4]> {
        let inputs = self.spec.inputs;
        // A list has any number of inputs. One entry holds for all inputs that share the last mask bit.
        let is_list = inputs.iter().any(|input| input.kind == Kind::list);
        let last = if is_list { 63 } else { inputs.len() };
        Facts::by_input(last, &|i| {
            let declared = of(self.declared(i));
            let (reads, symbol_reads) = (self.given(declared.reads), self.given(declared.symbol_reads));
            InputFacts { reads, symbol_reads, ..declared }
        })
    }

    /// True if all inputs are read in the type of the context, and none is an output.
    fn are_plain(&self, of: &dyn Fn(usize) -> InputFacts) -> bool {
        self.spec.inputs.iter().enumerate().all(|(i, input)| {
            let facts = of(i);
            matches!(input.kind, Kind::float | Kind::optional) && facts.alias.is_none() && !facts.overwrites
        })
    }

    /// The gradients of the `n` given inputs, selected from the gradients of all declared inputs.
    fn gradients(&self, declared: &[Option<Sym>], n: usize) -> Vec<Option<Sym>> {
        (0..n).map(|i| declared.get(self.declared(i)).copied().flatten()).collect()
    }
}

/// Facts of all operations of a type, or of one.
enum BoundFacts {
    /// The same for all operations of the type.
    OfType(&'static Facts),
    /// Depend on arguments or on the given inputs.
    Own(Box<Facts>),
}

/// A [`Compute`] with its given inputs.
pub(crate) struct Bound<C> {
    /// The operation with its arguments.
    op: C,
    /// The inputs that were given.
    inputs: GivenInputs,
    /// The facts for these inputs.
    facts: BoundFacts,
}

impl<C: Compute> Bound<C> {
    /// Binds an operation to given inputs: one bit of `present` for each, or all bits if all inputs are given.
    pub(crate) fn new(op: C, present: u64) -> Self {
        let inputs = GivenInputs { spec: const { &C::SPEC }, present };
        let facts = match const { &C::FACTS } {
            Some(facts) if present == u64::MAX => {
                debug_assert!(facts.agree(&Self::facts_of(&op, &inputs), inputs.spec.inputs.len()));
                BoundFacts::OfType(facts)
            }
            _ => BoundFacts::Own(Box::new(Self::facts_of(&op, &inputs))),
        };
        Self { op, inputs, facts }
    }

    /// The facts of an operation with given inputs.
    fn facts_of(op: &C, inputs: &GivenInputs) -> Facts {
        let of = |declared| InputFacts {
            reads: op.reads(declared),
            symbol_reads: op.symbol_reads(declared),
            alias: op.alias(declared),
            overwrites: op.overwrites(declared),
            moves: op.moves(declared),
        };
        let mut facts = inputs.bound_facts(const { &Self::SHARED }, &of);
        (facts.keeps_gradients, facts.is_random) = (op.keeps_gradients(), op.is_random());
        (facts.constants, facts.makes_reals) = (op.constants(), op.makes_reals());
        facts.in_place |= op.loops(false).is_some();
        facts
    }

    /// The facts that all operations of the type share, if all inputs are given.
    const SHARED: Facts = Facts {
        inputs: SmallVec::new_const(),
        shaped_by: C::SHAPED_BY,
        sets_up_outside: C::SHAPED_BY.is_some(),
        keeps_gradients: false,
        cached_input: C::CACHED_INPUT,
        cached_parameters: C::CACHED_PARAMETERS,
        in_bfloat16: C::IN_BFLOAT16,
        hosts_epilogue: C::HOSTS_EPILOGUE,
        compares: C::COMPARES,
        moves_only: C::MOVES_ONLY,
        moves_back: C::MOVES_BACK,
        is_stored: C::IS_STORED,
        is_stored_half: C::IS_STORED_HALF,
        widened: C::WIDENED,
        constants: [0, 0],
        makes_reals: None,
        activation: C::ACTIVATION,
        has_backward: C::HAS_BACKWARD,
        is_random: C::IS_RANDOM,
        is_plain: !C::IS_RANDOM && C::SHAPED_BY.is_none(),
        keeps_shape_of: C::KEEPS_SHAPE_OF,
        in_place: C::IN_PLACE,
        may_clear_inputs: C::MAY_CLEAR_INPUTS,
    };

    /// The shapes of the inputs, numbered as declared.
    fn input_shapes<'a>(&self, x: &'a [&'a Shape], values: Option<&'a [f64]>) -> InputShapes<'a> {
        InputShapes { x, present: self.inputs.present, values }
    }
}

// SAFETY: operations of this crate access their arrays as slices of the declared types and lengths. Tests over all
// operations check that.
unsafe impl<C: Compute> Operation for Bound<C> {
    fn type_name(&self) -> &str {
        C::SPEC.type_name
    }
    fn name(&self) -> &str {
        C::SPEC.name
    }
    fn facts(&self) -> &Facts {
        match &self.facts {
            BoundFacts::OfType(facts) => facts,
            BoundFacts::Own(facts) => facts,
        }
    }
    fn info(&self, x: &[&Shape]) -> Vec<(&'static str, Value)> {
        self.op.info(&self.input_shapes(x, None))
    }
    fn kind(&self, i: usize) -> Kind {
        self.inputs.kind(i)
    }
    fn input_name(&self, i: usize) -> &'static str {
        self.inputs.name(i)
    }
    fn shapes_by(&self, x: &[&Shape], values: Option<&[f64]>) -> Result<Shapes> {
        self.inputs.check_count(x.len())?;
        self.op.shapes(&self.input_shapes(x, values))
    }
    fn output(&self, o: usize) -> Option<DType> {
        self.op.output(o)
    }
    fn moves_back(&self, x: &[&Shape]) -> bool {
        let x = self.input_shapes(x, None);
        if C::MOVES_BACK { self.op.moves_back(&x) } else { C::IS_STORED && self.op.is_stored_back(&x) }
    }
    unsafe fn forward(&self, call: Call<'_>) -> Result<()> {
        let present = self.inputs.present;
        match call.bits {
            Some(DType::BF16) if C::IS_STORED => {
                return self.op.stored_forward(&mut Run::<bf16>::new(call, present));
            }
            Some(_) if C::IS_STORED_HALF => {
                return self.op.stored_forward(&mut Run::<f16>::new(call, present));
            }
            Some(_) if C::MOVES_ONLY => return self.op.move_forward(&mut Run::<u16>::new(call, present)),
            _ => {}
        }
        if call.double {
            self.op.forward(&mut Run::<f64>::new(call, self.inputs.present))
        } else {
            self.op.forward(&mut Run::<f32>::new(call, self.inputs.present))
        }
    }
    unsafe fn backward(&self, call: Call<'_>) -> Result<()> {
        let present = self.inputs.present;
        match call.bits {
            Some(_) if C::MOVES_BACK => {
                return self.op.move_backward(&mut Backward::<u16>::new(call, present));
            }
            Some(DType::BF16) if C::IS_STORED => {
                return self.op.stored_backward(&mut Backward::<bf16>::new(call, present));
            }
            Some(_) if C::IS_STORED_HALF => {
                return self.op.stored_backward(&mut Backward::<f16>::new(call, present));
            }
            _ => {}
        }
        if call.double {
            self.op.backward(&mut Backward::<f64>::new(call, self.inputs.present))
        } else {
            self.op.backward(&mut Backward::<f32>::new(call, self.inputs.present))
        }
    }
    fn fits_epilogue(&self, x: &[&Shape]) -> bool {
        self.op.fits_epilogue(&self.input_shapes(x, None))
    }
    unsafe fn chunked_forward<'a>(&self, call: Call<'a>) -> Option<&'a (dyn ChunkedForward + 'static)> {
        if call.double {
            self.op.chunked_forward(Run::<f64>::new(call, self.inputs.present))
        } else {
            self.op.chunked_forward(Run::<f32>::new(call, self.inputs.present))
        }
    }
    fn gradient(&self, mut s: Symbols) -> Result<Vec<Option<Sym>>> {
        s.present = self.inputs.present;
        Ok(self.inputs.gradients(&self.op.gradient(&s), s.n_inputs()))
    }
    fn loops(&self, double: bool) -> Option<Loops> {
        self.op.loops(double)
    }
    fn multiplications(&self, x: &[&Shape], y: &Shape) -> usize {
        self.op.multiplications(&self.input_shapes(x, None), y)
    }
    fn progress(&self, state: &State) -> Option<Vec<u8>> {
        self.op.progress(state)
    }
    fn resume(&self, state: &mut State, progress: &[u8]) -> bool {
        self.op.resume(state, progress)
    }
}

impl Op {
    /// A node's operation from an author's operation with all inputs.
    pub(crate) fn new<C: Compute>(op: C) -> Self {
        Self::with_inputs(op, u64::MAX)
    }

    /// A node's operation from an author's operation, with only the inputs in the mask `present`.
    pub(crate) fn with_inputs<C: Compute>(op: C, present: u64) -> Self {
        Self::Shared(Arc::new(Bound::new(op, present)))
    }
}

/// One row of the registry: creates the operation of a node from constant arguments.
pub struct Entry {
    /// The declaration.
    pub spec: &'static Spec,
    /// Makes the operation from its arguments and one bit for each given input.
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
    /// [`Error::Argument`] if an argument has the wrong type.
    pub fn bind(&self, values: &[Value], present: u64) -> Result<Op> {
        (self.make)(values, present)
    }

    /// The single operation of an entry without arguments, shared by all its nodes. `None` if there are arguments.
    pub fn lone(&self) -> Option<Op> {
        if !self.spec.args.is_empty() {
            return None;
        }
        let Ok(Op::Shared(op)) = self.bind(&[], u64::MAX) else { return None };
        let op: &'static Arc<dyn Operation> = Box::leak(Box::new(op));
        Some(Op::Static(&**op))
    }
}
