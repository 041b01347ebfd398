//! One function prepared to run forward: from storages to kernels. Never locks the arena.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{
    Access, DType, Fingerprint, InputCache, RunGuard, StepPins, Storage, VersionedFingerprint, exact_below,
};
use crate::graph::arena::provenance::{InputsFingerprint, Provenance};
use crate::graph::arena::{self, NONE};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context::Precision;
use crate::graph::settings::modes;
use crate::graph::step::cost::work;
use crate::graph::step::operand::{self, Operand, ProvenancePtr, RunBuffers, Temporaries, store};
use crate::graph::step::shapes::shapes_of;
use crate::graph::step::tiles::{TiledArray, TiledFunction};
use crate::kernels::sixteen_bits::has_registers;
use crate::kernels::stop;
use crate::ops::contract::facts::ALL_INTEGERS;
use crate::ops::{Array, Call, Compares, InBFloat16, Loops, Memory, Op, Tail, Value};
use crate::{Error, Result};

/// True if two arrays, given by their byte addresses, overlap.
pub(crate) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// True if the kernels of an operation move elements of this type of 16 bits, or compute on them as they are stored.
pub(crate) fn keeps_bits(op: &Op, stored: DType) -> bool {
    let facts = op.facts();
    let is_stored = if stored == DType::BF16 { facts.is_stored } else { facts.is_stored_half };
    facts.moves_only || is_stored && has_registers(stored)
}

/// The largest number of half precision.
const LARGEST_HALF: u64 = 65504;

/// True if an operand holds integers.
fn holds_integers(operand: &Operand) -> bool {
    operand.storage.dtype().is_some_and(DType::is_integer)
}

/// One function prepared to run forward.
#[allow(clippy::struct_excessive_bools)] // independent flags
pub(crate) struct ForwardStep {
    /// The operation.
    pub(crate) op: Op,
    /// The precision in which it computes.
    pub(crate) compute: Precision,
    /// The given inputs.
    pub(crate) x: SmallVec<[Operand; 3]>,
    /// The outputs.
    pub(crate) y: SmallVec<[Operand; 1]>,
    /// Where the operation saves what its gradient reads.
    pub(crate) provenance: ProvenancePtr,
    /// The input whose memory the output may reuse, since the plan clears that input after the step.
    pub(crate) over: Option<usize>,
    /// Every output is an unmodified input with another shape: nothing to compute.
    pub(crate) idle: bool,
    /// Elements are stored in the kernel's type, and no array overlaps, aliases or is overwritten.
    plain: bool,
    /// As `plain`, but outputs are stored in a type of 16 bits, to which nothing else is rounded.
    tiled: bool,
    /// An output may overlap an input that it is not declared to alias.
    meets: bool,
    /// The input from which the operation caches derived data.
    cached_input: Option<usize>,
    /// The operation moves or compares elements of an input, and integers in that input keep their values.
    reads_integers: bool,
    /// The integer type of its outputs, if the inputs that it moves hold integers. `i64` if it compares integers.
    integers: Option<DType>,
}

/// The input from which the operation caches derived data. None in a recompute run, whose values are soon dropped:
/// the cache serves later runs.
fn input_cache<'a>(
    (op, cached_input): (&Op, Option<usize>),
    x: &'a [Operand],
    at: &[Memory<'_>],
    recompute: bool,
) -> Option<InputCache<'a>> {
    let i = cached_input.filter(|_| !recompute)?;
    let own = InputCache::new(&x[i].storage, at[i].ptr);
    let n = op.facts().cached_parameters;
    if n == 0 {
        return Some(own);
    }
    let parameters = x.iter().zip(at).skip(i + 1).take(n).map(|(x, at)| (&*x.storage, at.ptr.cast_const()));
    Some(own.with_parameters(InputCache::parameters(parameters)))
}

impl ForwardStep {
    /// A step on arrays outside a graph.
    pub(crate) fn on_arrays(
        op: Op,
        compute: Precision,
        x: impl IntoIterator<Item = NdArray>,
        y: impl IntoIterator<Item = NdArray>,
        provenance: ProvenancePtr,
    ) -> Self {
        let x = x.into_iter().enumerate().map(|(i, x)| Operand::input(&op, i, compute, NONE, x)).collect();
        let y = y.into_iter().enumerate().map(|(o, y)| Operand::output(&op, o, compute, NONE, y)).collect();
        Self::new(op, compute, x, y, provenance)
    }

    /// A step with these operands, and the facts that its runs need.
    pub(crate) fn new(
        op: Op,
        compute: Precision,
        x: SmallVec<[Operand; 3]>,
        y: SmallVec<[Operand; 1]>,
        provenance: ProvenancePtr,
    ) -> Self {
        let cached_input = op.facts().cached_input;
        let reads_integers = op.facts().reads_integers(x.len());
        let (idle, plain, tiled, meets) = (false, false, false, false);
        let (over, integers) = (None, None);
        let mut step = Self {
            op,
            compute,
            x,
            y,
            provenance,
            over,
            idle,
            plain,
            tiled,
            meets,
            cached_input,
            reads_integers,
            integers,
        };
        step.look();
        step
    }

    /// Determines the properties that depend on the memory of its arrays.
    pub(crate) fn look(&mut self) {
        let Self { op, compute, x, y, .. } = self;
        let facts = op.facts();
        let shares = |i: usize| {
            let alias = facts.alias(i).filter(|alias| !alias.modifies)?;
            Some(Arc::ptr_eq(&x[i].storage, &y[alias.output].storage))
        };
        self.idle = !y.is_empty() && (0..x.len()).filter_map(shares).any(|same| same);
        let meets = |o: usize, y: &Operand| {
            let given = |i: usize| facts.alias(i).is_some_and(|alias| alias.output == o);
            let own = |(i, x): (usize, &Operand)| given(i) && Arc::ptr_eq(&x.storage, &y.storage);
            x.iter().enumerate().any(|(i, x)| x.storage.may_meet(&y.storage) && !own((i, x)))
        };
        self.meets = y.iter().enumerate().any(|(o, y)| meets(o, y));
        let special = self.meets || (0..x.len()).any(|i| facts.alias(i).is_some() || facts.overwrites(i));
        let is_narrow = compute.dtype() != compute.stored();
        self.plain = !special && !is_narrow && op.on_arrays().is_none();
        self.tiled = !special && is_narrow && compute.rounds().is_none() && op.on_arrays().is_none();
    }

    /// True if output `o` at address `at` needs temporary memory during the kernel, which reads inputs at `x`: they
    /// overlap, and the kernel cannot overwrite elements that it has read.
    fn collides(&self, o: usize, at: *mut u8, x: &[*mut u8]) -> bool {
        let (y, facts) = (&self.y[o], self.op.facts());
        let meets = |i: usize| {
            let slot = &self.x[i];
            let may_be_same = facts.in_place || facts.alias(i).is_some_and(|alias| alias.output == o);
            let same = x[i] == at && slot.shape.size() == y.shape.size() && slot.dtype == y.dtype;
            overlap(&slot.span(x[i]), &y.span(at)) && !(same && may_be_same)
        };
        self.meets && (0..x.len()).any(meets)
    }

    /// Sets whether the step counts the buffers it uses, so that it needs no [`RunGuard`].
    pub(crate) fn count(&mut self, on: bool) {
        self.x.iter_mut().chain(&mut self.y).for_each(|slot| slot.counted = on);
    }

    /// True if the step only runs a kernel, on arrays stored in the kernel's type.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain && !self.idle
    }

    /// True if the step only runs a kernel, whose results are stored in a type of 16 bits.
    pub(crate) fn is_tiled(&self) -> bool {
        self.tiled && !self.idle
    }

    /// True if the operation compares or selects elements, and an input holds integers now or held them in the last
    /// run.
    pub(crate) fn compares_integers(&self) -> bool {
        self.op.facts().compares != Compares::Nothing
            && (self.integers.is_some() || self.x.iter().any(holds_integers))
    }

    /// True if the operation may move integers or [compares integers](Self::compares_integers).
    pub(crate) fn keeps_integers(&self) -> bool {
        let compares = self.op.facts().compares != Compares::Nothing;
        self.reads_integers && (!compares || self.compares_integers())
    }

    /// The integer type of the outputs: the type of all moved inputs that are not overwritten, or `i64` if their
    /// integer types differ. Truth values beside integers count as integers. None if the outputs are real numbers. For
    /// other functions that compare: `i64` if they compare integers.
    ///
    /// # Errors
    /// [`Error::Index`] if the outputs are real numbers, and their type does not hold an integer that is moved.
    fn integers_of_inputs(&self) -> Result<Option<DType>> {
        let facts = self.op.facts();
        match facts.compares {
            Compares::All => return Ok(self.x.iter().any(holds_integers).then_some(DType::I64)),
            Compares::One(i) => return Ok(holds_integers(&self.x[i]).then_some(DType::I64)),
            Compares::Nothing | Compares::Moved => {}
        }
        let (mut common, mut are_real) = (None, facts.makes_reals.is_some());
        for (_, x) in self.moved() {
            match x.storage.dtype().filter(|dtype| !dtype.is_float()) {
                Some(DType::Bool) => {}
                Some(dtype) if common.is_none_or(|common| common == dtype) => common = Some(dtype),
                Some(_) => common = Some(DType::I64),
                None => are_real = true,
            }
        }
        if are_real && common.is_some() {
            self.check_integers_among_reals()?;
        }
        let fitting = |dtype: DType| if dtype.holds(facts.constants) { dtype } else { DType::I64 };
        Ok(common.filter(|_| !are_real).map(fitting))
    }

    /// The inputs whose elements the operation moves to its outputs, with their numbers.
    fn moved(&self) -> impl Iterator<Item = (usize, &Operand)> {
        let facts = self.op.facts();
        self.x.iter().enumerate().filter(|(i, _)| facts.moves(*i) && !facts.overwrites(*i))
    }

    /// Returns an error if the type of the outputs, of real numbers, does not hold an integer that is moved.
    #[cold]
    fn check_integers_among_reals(&self) -> Result<()> {
        let dtype = self.compute.stored();
        let [least, most] = self.op.facts().makes_reals.unwrap_or(ALL_INTEGERS);
        let is_held = |v: i64| {
            let size = v.unsigned_abs();
            let odd = size >> size.trailing_zeros().min(63);
            v < least
                || v > most
                || odd < exact_below(dtype) as u64 && (dtype != DType::F16 || size <= LARGEST_HALF)
        };
        for (i, slot) in self.moved().filter(|(_, x)| holds_integers(x)) {
            let array = NdArray { storage: Arc::clone(&slot.storage), shape: slot.shape.clone() };
            if let Some(found) = array.view::<i64>()?.iter().find(|v| !is_held(**v)) {
                let (name, input) = (self.op.name(), self.op.input_name(i));
                return Err(Error::Index(format!(
                    "{name}: expected integers that {dtype} holds in {input}, as the result has real numbers too, \
                     got {found}"
                )));
            }
        }
        Ok(())
    }

    /// Sets the type in which the operands of a function that moves or compares elements are read and written:
    /// `integers`, or real numbers if None.
    #[cold]
    fn read_as(&mut self, integers: Option<DType>) {
        let Self { op, compute: context, x, y, .. } = self;
        let compute = if integers.is_some() { Precision::Double } else { *context };
        let compares = op.facts().compares;
        // The type of moved integers in the kernel.
        let moved = if compares == Compares::Nothing { DType::I64 } else { DType::F64 };
        for (i, slot) in x.iter_mut().enumerate() {
            let dtype = operand::read_as(op, i, compute);
            slot.dtype = if integers.is_some() && op.facts().moves(i) { moved } else { dtype };
            slot.stored = slot.dtype;
        }
        for (o, slot) in y.iter_mut().enumerate() {
            let (dtype, stored) = match integers {
                Some(integers) if matches!(compares, Compares::Nothing | Compares::Moved) => {
                    (moved, integers)
                }
                _ => (compute.dtype(), context.stored()),
            };
            (slot.dtype, slot.stored) = op.output(o).map_or((dtype, stored), |own| (own, own));
        }
        self.integers = integers;
    }

    /// Returns an error if an input holds an integer that `f64` may round, for a function that compares integers. One
    /// rounded side does not change a truth value, so that functions of these fail only if both sides may be rounded.
    fn check_exact_integers(&self) -> Result<()> {
        /// The magnitude from which `f64` may round integers.
        const LIMIT: u64 = 1 << f64::MANTISSA_DIGITS;
        let facts = self.op.facts();
        let compared = |(i, x): &(usize, &Operand)| match facts.compares {
            Compares::Nothing => false,
            Compares::Moved => facts.moves(*i),
            Compares::All => true,
            Compares::One(one) => *i == one,
        } && x.storage.dtype().is_some_and(|dtype| dtype.is_integer() && dtype.size() == 8);
        let is_large = |(_, value): &(_, Value)| matches!(value, Value::Float(v) if v.abs() >= LIMIT as f64);
        let mut allowed = usize::from(facts.compares == Compares::All);
        for (i, slot) in self.x.iter().enumerate().filter(|x| self.integers.is_some() && compared(x)) {
            let array = NdArray { storage: Arc::clone(&slot.storage), shape: slot.shape.clone() };
            if let Some(found) = array.view::<i64>()?.iter().find(|v| v.unsigned_abs() > LIMIT) {
                if allowed > 0 && !self.op.info(&[]).iter().any(is_large) {
                    allowed -= 1;
                    continue;
                }
                let (name, input) = (self.op.name(), self.op.input_name(i));
                return Err(Error::Index(format!(
                    "{name}: expected integers from -2^53 to 2^53 in {input}, which it compares in double precision, \
                     got {found}"
                )));
            }
        }
        Ok(())
    }

    /// Runs the function. A `recompute` run reproduces the values of the last run and does not repeat side effects.
    pub(crate) fn forward(&mut self, recompute: bool) -> Result<()> {
        debug_assert!(!arena::is_locked_here(), "no kernel runs under the arena's lock");
        if self.idle {
            return Ok(());
        }
        let _holds = self.y.first().is_some_and(|y| y.counted).then(StepPins::new);
        self.run(recompute, None).map(drop)
    }

    /// Runs the function. If `along` is given, passes the first output through its tail and writes it to its
    /// address. Returns the fingerprint of the first output.
    pub(crate) fn run(&mut self, recompute: bool, along: Option<(*mut u8, Tail<'_>)>) -> Result<Fingerprint> {
        if self.reads_integers {
            let integers = self.integers_of_inputs()?.filter(|_| along.is_none());
            if integers != self.integers {
                self.read_as(integers);
            }
        }
        if !self.plain || self.integers.is_some() {
            return self.run_special(recompute, along);
        }
        let Self { op, compute, x, y, provenance, over, cached_input, .. } = self;
        let inputs = provenance.save_inputs(x.iter().map(|x| x.storage.versioned_fingerprint()), recompute);
        let mut xm: SmallVec<[Memory<'_>; 5]> = SmallVec::new();
        for (i, slot) in x.iter().enumerate() {
            let ptr = slot.read(op, i)?;
            xm.push(Memory { ptr, shape: &slot.shape });
        }
        if let (Some(i), false) = (*over, recompute) {
            // The data stays at its address. Only the owner of the memory changes.
            x[i].storage.hand_over(&y[0].storage, y[0].dtype);
        }
        let (state, double) = (&mut provenance.state, *compute == Precision::Double);
        let run = || {
            let mut ym: SmallVec<[Memory<'_>; 2]> = SmallVec::new();
            for (o, slot) in y.iter().enumerate() {
                let ptr = match along {
                    Some((place, _)) if o == 0 => place,
                    _ => slot.resolve(Access::Write)?,
                };
                ym.push(Memory { ptr, shape: &slot.shape });
            }
            let tail = along.map_or(Tail::NOTHING, |(_, tail)| tail);
            let input_cache = input_cache((&*op, *cached_input), x, &xm, recompute);
            let call = Call { recompute, tail, input_cache, ..Call::new(&xm, &ym, state, double) };
            run_kernel(op, call)
        };
        stop::guarded(run).inspect_err(|_| forget(y, x))?;
        provenance.stamp_outputs(inputs, along.is_some().into(), y.iter().map(|y| &*y.storage));
        Ok(provenance.of_output(inputs, 0))
    }

    /// True if the kernel can pass its first output through a tail, and writes it directly to its memory.
    pub(crate) fn may_take_along(&self) -> bool {
        let keeps = |slot: &Operand| slot.dtype == slot.stored && slot.shape.size() > 0;
        !self.idle && self.op.facts().hosts_epilogue && self.y.iter().all(keeps)
    }

    /// Runs an operation that the fast path does not serve: user code, casts, overwritten inputs.
    fn run_special(&mut self, recompute: bool, along: Option<(*mut u8, Tail<'_>)>) -> Result<Fingerprint> {
        let mut provenance = self.provenance;
        let facts = self.op.facts();
        let of = |(i, x): (usize, &Operand)| match facts.overwrites(i) {
            true => VersionedFingerprint::NONE,
            false => x.storage.versioned_fingerprint(),
        };
        let inputs = provenance.save_inputs(self.x.iter().enumerate().map(of), recompute);
        if let Some(user) = self.op.on_arrays() {
            // User code may write an output element by element.
            self.y.iter().filter(|y| y.storage.is_cleared()).try_for_each(|y| y.storage.zero())?;
            let (x, mut y) = (arrays(&self.x), arrays(&self.y));
            // User code may keep its outputs and write to them.
            y.iter().filter(|y| y.data.is_cleared()).try_for_each(|y| y.data.zero())?;
            self.y.iter().try_for_each(Operand::make_double)?;
            if self.meets {
                for y in &mut y {
                    y.data = Storage::new(y.data.len());
                }
            }
            if recompute { user.recompute(&x, &y) } else { user.forward(&x, &y) }?;
            self.y.iter().zip(&y).filter(|_| self.meets).try_for_each(|(slot, y)| slot.take(&y.data))?;
            provenance.stamp_outputs(inputs, 0, self.y.iter().map(|y| &*y.storage));
            return Ok(provenance.of_output(inputs, 0));
        }
        if let Some(done) = self.run_narrow(inputs, recompute, along)? {
            return Ok(done);
        }
        self.check_exact_integers()?;
        let mut temporaries = Temporaries::new();
        // Integers are moved unchanged.
        let rounds = self.compute.rounds().filter(|_| self.integers.is_none());
        let (mut rounded, mut widened) = (RunBuffers::new(), RunBuffers::new());
        let mut in_bfloat16 =
            InBFloat16 { products: self.compute == Precision::BFloat16, ..InBFloat16::NONE };
        let mut x: SmallVec<[*mut u8; 5]> = SmallVec::new();
        for (i, slot) in self.x.iter().enumerate() {
            let write = facts.overwrites(i) && !recompute;
            if facts.in_bfloat16 >> i.min(63) & 1 == 1
                && in_bfloat16.products
                && let Some(at) = slot.in_bfloat16(Access::Read)?
            {
                in_bfloat16.x |= 1 << i;
                x.push(at);
                continue;
            }
            x.push(match write {
                true => slot.resolve(Access::ReadWrite)?,
                false => slot.rounded(slot.read_widened(&self.op, i, &mut widened)?, rounds, &mut rounded)?,
            });
        }
        let xm: SmallVec<[Memory<'_>; 5]> =
            x.iter().copied().zip(&self.x).map(|(ptr, slot)| Memory { ptr, shape: &slot.shape }).collect();
        let integers = self.integers.is_some();
        let (state, double) = (&mut provenance.state, integers || self.compute == Precision::Double);
        let meets = self.meets;
        let run = || {
            let mut ym: SmallVec<[Memory<'_>; 2]> = SmallVec::new();
            for (o, slot) in self.y.iter().enumerate() {
                let shared = self.x.iter().any(|x| Arc::ptr_eq(&x.storage, &slot.storage));
                let access = if shared { Access::ReadWrite } else { Access::Write };
                if o == 0
                    && facts.in_bfloat16 != 0
                    && in_bfloat16.products
                    && !(shared || meets || along.is_some())
                    && let Some(ptr) = slot.in_bfloat16(Access::Write)?
                {
                    in_bfloat16.y = true;
                    ym.push(Memory { ptr, shape: &slot.shape });
                    continue;
                }
                let ptr = match along {
                    Some((place, _)) if o == 0 => place,
                    _ => match slot.place(access, &mut temporaries)? {
                        at if self.collides(o, at, &x) => slot.beside(access, &mut temporaries)?,
                        at => at,
                    },
                };
                ym.push(Memory { ptr, shape: &slot.shape });
            }
            let tail = along.map_or(Tail::NOTHING, |(_, tail)| tail);
            // Data cached from a rounded input would be found by functions that do not round.
            let cached_input = self.cached_input.filter(|_| rounded.is_empty());
            let input_cache = input_cache((&self.op, cached_input), &self.x, &xm, recompute);
            let narrow =
                (!integers && self.compute.dtype() != self.compute.stored()).then(|| self.compute.stored());
            let call = Call {
                integers: integers && facts.compares == Compares::Nothing,
                narrow,
                recompute,
                tail,
                input_cache,
                rounds,
                in_bfloat16,
                ..Call::new(&xm, &ym, state, double)
            };
            run_kernel(&self.op, call)?;
            store(temporaries)
        };
        let ran = stop::guarded(run);
        let changed = self.x.iter().enumerate().filter(|(i, _)| facts.overwrites(*i) && !recompute);
        changed.for_each(|(_, x)| x.storage.wrote());
        ran.inspect_err(|_| forget(&self.y, &self.x))?;
        provenance.stamp_outputs(inputs, along.is_some().into(), self.y.iter().map(|y| &*y.storage));
        Ok(provenance.of_output(inputs, 0))
    }

    /// Runs a function of arrays of 16 bits without widening whole arrays. None if the function needs widened arrays or
    /// writes to the address of `along`.
    fn run_narrow(
        &self,
        inputs: InputsFingerprint,
        recompute: bool,
        along: Option<(*mut u8, Tail<'_>)>,
    ) -> Result<Option<Fingerprint>> {
        if along.is_some() {
            return Ok(None);
        }
        if self.moves_bits() {
            return self.move_bits(inputs, recompute).map(Some);
        }
        self.tiled_loops().map(|loops| self.run_in_tiles(inputs, loops)).transpose()
    }

    /// True if the function keeps elements that all are stored in the 16 bits of its outputs as they are.
    fn moves_bits(&self) -> bool {
        keeps_bits(&self.op, self.compute.stored()) && self.is_in_bits()
    }

    /// True if all real numbers that the function reads are stored in the type of its outputs, one of 16 bits.
    fn is_in_bits(&self) -> bool {
        let Self { op, compute, x, y, integers, .. } = self;
        let (facts, stored) = (op.facts(), compute.stored());
        let fits = |(i, x): (usize, &Operand)| {
            let has_bits = || !facts.overwrites(i) && x.has_bits(stored, Access::Read);
            facts.alias(i).is_none() && (facts.widens(i) || has_bits())
        };
        stored != compute.dtype()
            && integers.is_none()
            && !self.meets
            && x.iter().enumerate().all(fits)
            && y.iter().all(|y| y.has_bits(stored, Access::Write))
    }

    /// Runs the kernel on elements of 16 bits as they are.
    fn move_bits(&self, inputs: InputsFingerprint, recompute: bool) -> Result<Fingerprint> {
        let Self { op, compute, x, y, .. } = self;
        let mut provenance = self.provenance;
        let (stored, mut xm) = (compute.stored(), SmallVec::<[Memory<'_>; 5]>::new());
        let (facts, mut widened, mut rounded) = (op.facts(), RunBuffers::new(), RunBuffers::new());
        let is_written = |i: usize| facts.overwrites(i) && !recompute;
        for (i, slot) in x.iter().enumerate() {
            let ptr = if facts.widens(i) {
                match is_written(i) {
                    true => slot.resolve(Access::ReadWrite)?,
                    false => {
                        let at = slot.read_widened(op, i, &mut widened)?;
                        slot.rounded(at, compute.rounds(), &mut rounded)?
                    }
                }
            } else if slot.dtype.is_float() {
                slot.resolve_bits(stored, Access::Read)?
            } else {
                slot.read(op, i)?
            };
            xm.push(Memory { ptr, shape: &slot.shape });
        }
        let state = &mut provenance.state;
        let run = || {
            let mut ym: SmallVec<[Memory<'_>; 2]> = SmallVec::new();
            for slot in &*y {
                ym.push(Memory { ptr: slot.resolve_bits(stored, Access::Write)?, shape: &slot.shape });
            }
            run_kernel(op, Call { bits: Some(stored), recompute, ..Call::new(&xm, &ym, state, false) })?;
            y.iter().for_each(|y| y.storage.wrote());
            Ok(())
        };
        let ran = stop::guarded(run);
        x.iter().enumerate().filter(|(i, _)| is_written(*i)).for_each(|(_, x)| x.storage.wrote());
        ran.inspect_err(|_: &Error| forget(y, x))?;
        provenance.stamp_outputs(inputs, 0, y.iter().map(|y| &*y.storage));
        Ok(provenance.of_output(inputs, 0))
    }

    /// The loops of an elementwise function of arrays of one shape that stores elements of 16 bits.
    fn tiled_loops(&self) -> Option<Loops> {
        let Self { op, compute, x, y, integers, meets, .. } = self;
        let is_narrow = compute.dtype() != compute.stored() && compute.rounds().is_none();
        let fits = |slot: &Operand| slot.shape.size() == y[0].shape.size() && slot.dtype == DType::F32;
        let is_pure = |i: usize| op.facts().alias(i).is_none() && !op.facts().overwrites(i);
        let fits = is_narrow
            && y.len() == 1
            && (1..=2).contains(&x.len())
            && integers.is_none()
            && !*meets
            && x.iter().chain(y).all(fits)
            && (0..x.len()).all(is_pure);
        if fits { op.loops(false) } else { None }
    }

    /// Runs an elementwise function tile by tile.
    fn run_in_tiles(&self, inputs: InputsFingerprint, loops: Loops) -> Result<Fingerprint> {
        let Self { x, y, .. } = self;
        let provenance = self.provenance;
        let mut arrays = [TiledArray::MISSING; 6];
        for (slot, array) in x.iter().zip(&mut arrays) {
            *array = slot.tiled(Access::Read)?;
        }
        let n = y[0].shape.size();
        let run = || {
            arrays[2] = y[0].tiled(Access::Write)?;
            TiledFunction { loops, arrays, adds: [false; 2], n }.run(true);
            y[0].storage.wrote();
            Ok(())
        };
        stop::guarded(run).inspect_err(|_: &Error| forget(y, x))?;
        provenance.stamp_outputs(inputs, 0, y.iter().map(|y| &*y.storage));
        Ok(provenance.of_output(inputs, 0))
    }

    /// The estimated work, see [`work`].
    pub(crate) fn work(&self) -> usize {
        work(&self.op, self.x.iter().chain(&self.y).map(|s| s.shape.size()).sum())
    }
}

/// Runs a kernel on the arrays of a step.
#[inline(always)]
fn run_kernel(op: &Op, call: Call<'_>) -> Result<()> {
    // SAFETY: the arrays were made for this operation, with the shapes it requires.
    unsafe { op.forward(call) }
}

/// Clears the outputs of a failed kernel, which may be half written. Keeps outputs that are also inputs.
#[cold]
fn forget(y: &[Operand], x: &[Operand]) {
    let own = |y: &&Operand| !x.iter().any(|x| Arc::ptr_eq(&x.storage, &y.storage));
    y.iter().filter(own).for_each(|y| y.storage.give_up());
}

/// Arrays of the operands, each with an empty gradient.
fn arrays<'a>(slots: impl IntoIterator<Item = &'a Operand>) -> Vec<Array> {
    let array = |s: &Operand| Array {
        shape: s.shape.clone(),
        data: Arc::clone(&s.storage),
        grad: Storage::new(s.shape.size()),
    };
    slots.into_iter().map(array).collect()
}

/// Runs an operation eagerly on arrays, without a graph, and returns its outputs.
///
/// # Errors
/// If the operation refuses its inputs or fails.
pub fn evaluate(op: &Op, x: &[NdArray], compute: Precision) -> Result<SmallVec<[NdArray; 1]>> {
    evaluate_into(op, x, compute, &[])
}

/// As [`evaluate`], but writes output `o` to `into[o]` if given.
///
/// # Errors
/// As [`evaluate`], and if an array to write to has another number of elements.
pub fn evaluate_into(
    op: &Op,
    x: &[NdArray],
    compute: Precision,
    into: &[Option<NdArray>],
) -> Result<SmallVec<[NdArray; 1]>> {
    let mut y: SmallVec<[NdArray; 1]> = SmallVec::new();
    for (o, shape) in shapes_of(op, x, compute)?.into_iter().enumerate() {
        shape.checked_size()?;
        let given = into.get(o).cloned().flatten();
        let aliased = op.facts().aliased_by(o, x.len());
        let storage = match (given, aliased) {
            (Some(given), _) if given.shape.size() == shape.size() => given.storage,
            (Some(given), _) => {
                let expected = format!("an array of {} elements to write to", shape.size());
                return Err(Error::shape(op.name(), expected, [&given.shape]));
            }
            (None, Some(i)) => Arc::clone(&x[i].storage),
            (None, None) => Storage::new(shape.size()),
        };
        y.push(NdArray { shape, storage });
    }
    let mut provenance = Provenance::default();
    let mut step = ForwardStep::on_arrays(
        op.clone(),
        compute,
        x.iter().cloned(),
        y.iter().cloned(),
        ProvenancePtr::to(&mut provenance),
    );
    let counts = modes::memory_budget().is_some();
    step.count(counts);
    let _guard = (!counts).then(RunGuard::new);
    step.forward(modes::in_recomputing())?;
    Ok(y)
}
