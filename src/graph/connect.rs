//! Building: a function is connected to its inputs, checked, and in dynamic mode run at once.

use crate::Error;
use crate::Result;
use crate::array::Access;
use crate::array::Lasting;
use crate::array::RunGuard;
use crate::array::Shape;
use crate::array::Storage;
use crate::graph::arena;
use crate::graph::arena::Arena;
use crate::graph::arena::Ix;
use crate::graph::arena::Output;
use crate::graph::arena::Saved;
use crate::graph::arena::aliasing;
use crate::graph::arena::flag;
use crate::graph::handles::callbacks;
use crate::graph::handles::callbacks::Detach;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::memory::eviction::reserve;
use crate::graph::memory::eviction::reserve::Reservation;
use crate::graph::settings::context;
use crate::graph::settings::context::Precision;
use crate::graph::settings::modes;
use crate::graph::settings::modes::Modes;
use crate::graph::step::anomaly;
use crate::graph::step::anomaly::BUILT_AT;
use crate::graph::step::cost;
use crate::graph::step::forward::evaluate_into;
use crate::graph::step::operand::MemoPtr;
use crate::graph::step::prepare::step;
use crate::graph::step::shapes;
use crate::kernels::stop;
use crate::ops;
use crate::ops::Call;
use crate::ops::Memory;
use crate::ops::Op;
use crate::ops::Shapes;
use crate::ops::Then;
use crate::ops::Value;
use smallvec::SmallVec;
use std::sync::Arc;

/// Outputs of a function that was just built.
pub type Outputs = SmallVec<[Variable; 1]>;

/// Connects the operation that Python calls `name` to its inputs.
///
/// `arguments` are those of the declaration, in order; all of them must be given.
///
/// # Errors
/// [`Error::Key`] when there is no such operation; otherwise as [`connect`].
pub fn apply(name: &str, inputs: &[&Variable], arguments: &[Value]) -> Result<Outputs> {
    let entry =
        ops::find(name).ok_or_else(|| Error::Key(format!("apply: there is no operation '{name}'")))?;
    let mut values = arguments.to_vec();
    values.extend(
        entry.spec.args[values.len().min(entry.spec.args.len())..].iter().filter_map(|a| Some(a.default?())),
    );
    connect(entry.bind(&values, u64::MAX)?, inputs, &[])
}

/// Connects an operation to its inputs and returns the outputs. In dynamic mode they are computed at once.
///
/// Output `o` is written to the array `into[o]` where one is given.
///
/// # Errors
/// When the operation refuses the inputs, when it would change in place what must not change, and in dynamic mode when
/// it fails. A refused call changes nothing.
pub fn connect(op: Op, inputs: &[&Variable], into: &[Option<NdArray>]) -> Result<Outputs> {
    connect_detached(op, inputs, into, None)
}

/// As [`connect`]; in dynamic mode `detach` wraps the run where it is worth releasing a lock for.
///
/// # Errors
/// As [`connect`].
pub fn connect_detached(
    op: Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    detach: Option<Detach<'_>>,
) -> Result<Outputs> {
    let modes = modes::now();
    if !modes.grad && modes.auto_forward {
        return connect_without_graph(&op, inputs, into, modes.anomaly);
    }
    // Neither a user's function nor a look at values may run under the lock.
    let shapes = match shapes::sets_up_outside(&op) {
        true => {
            reserve::rematerialize_inputs(inputs)?;
            let x: SmallVec<[NdArray; 4]> = inputs.iter().map(|v| v.data()).collect();
            Some(shapes::shapes_of(&op, &x)?)
        }
        false => None,
    };
    let line = if modes.anomaly { anomaly::source_line() } else { None };
    if !modes.auto_forward {
        return arena::with(|a| {
            let outputs = build(a, modes, op, inputs, into, shapes)?;
            note_line(a, &outputs, line);
            Ok(outputs)
        });
    }
    if into.is_empty() && op.is_plain() && !modes.anomaly && modes.memory_budget.is_none() {
        let _guard = RunGuard::new();
        let mut run = EagerRun::default();
        let outputs = arena::with(|a| run.build(a, modes, &op, inputs))?;
        if !outputs.is_empty() {
            callbacks::detached(detach, cost::work(&op, run.touched), false, || run.forward(&op))?;
            return Ok(outputs);
        }
    }
    reserve::rematerialize_inputs(inputs)?;
    let room = modes
        .memory_budget
        .map(|bytes| Reservation::make(bytes, &op, inputs, into, shapes.as_ref()))
        .transpose()?;
    let (outputs, mut step) = arena::with(|a| -> Result<_> {
        let outputs = build(a, modes, op, inputs, into, shapes)?;
        note_line(a, &outputs, line);
        let step = outputs.first().map(|first| {
            let f = a.variables[first.ix()].parent;
            let slot = &mut a.functions[f];
            (slot.pending, slot.life, slot.at_once) = (true, Saved::Ready, true);
            step(a, f)
        });
        Ok((outputs, step))
    })?;
    if let Some(step) = &mut step {
        let detach = detach.filter(|_| step.op.on_arrays().is_none());
        callbacks::detached(detach, step.work(), false, || {
            step.count(room.is_some());
            // Not longer: to get the caller's lock back takes its time, and what others free would wait for it.
            let _guard = room.is_none().then(RunGuard::new);
            step.forward(modes::in_recomputing())
        })?;
        if modes.anomaly {
            let f = arena::with(|a| a.variables[outputs[0].ix()].parent);
            anomaly::after_forward(f, step)?;
        }
        if let Some(room) = room {
            room.take(step, &outputs);
        }
    }
    Ok(outputs)
}

/// Notes where a function was built.
fn note_line(a: &mut Arena, outputs: &[Variable], line: Option<String>) {
    if let (Some(first), Some(line)) = (outputs.first(), line) {
        let f = a.variables[first.ix()].parent;
        a.functions[f].tags.push((BUILT_AT.into(), line));
    }
}

/// A function of dynamic code with all that its kernel needs, where that is only to compute outputs from inputs whose
/// elements are in memory as it reads them. (Everything else becomes a [`Step`].)
#[derive(Default)]
struct EagerRun {
    x: SmallVec<[(*mut u8, Shape); 3]>,
    y: SmallVec<[(*mut u8, Shape); 1]>,
    memo: Option<MemoPtr>,
    /// The input of which the operation keeps something.
    keeps: Option<(usize, Arc<Storage>)>,
    double: bool,
    /// Elements that it reads and writes.
    touched: usize,
}

// SAFETY: the run guard keeps the elements, and the handles on the outputs the function, until it has run.
unsafe impl Send for EagerRun {}

impl EagerRun {
    /// Builds the function with memory for its outputs; none, and nothing built, where it has to become a [`Step`].
    fn build(&mut self, a: &mut Arena, modes: Modes, op: &Op, inputs: &[&Variable]) -> Result<Outputs> {
        let compute = context::precision(modes.context);
        let dtype = compute.dtype();
        if dtype != compute.stored() {
            return Ok(Outputs::new());
        }
        let (keeps_of, mut saved): (_, SmallVec<[u64; 3]>) = (op.keeps_of(), SmallVec::new());
        let mut given: SmallVec<[&Shape; 4]> = SmallVec::new();
        for (i, v) in inputs.iter().enumerate() {
            let core = &a.cores[a.variables[v.ix()].core];
            let Some(data) = &core.data else { return Ok(Outputs::new()) };
            let Some(ptr) = data.at(dtype, Access::Read) else { return Ok(Outputs::new()) };
            self.touched += data.len();
            if keeps_of == Some(i) {
                self.keeps = Some((i, data.clone()));
            }
            self.x.push((ptr, core.shape.clone()));
            saved.push(data.saved());
            given.push(&core.shape);
        }
        let shapes = op.shapes(&given)?;
        drop(given);
        let mut data: SmallVec<[Arc<Storage>; 1]> = SmallVec::new();
        for (o, shape) in shapes.iter().enumerate() {
            let dtype = op.output(o).unwrap_or(dtype);
            let (storage, ptr) = Storage::to_write(shape.checked_size()?, dtype)?;
            self.touched += storage.len();
            self.y.push((ptr, shape.clone()));
            data.push(storage);
        }
        let outputs = build_shaped(a, modes, op.clone(), inputs, &[], &shapes)?;
        let Some(first) = outputs.first() else { return Ok(outputs) };
        let f = a.variables[first.ix()].parent;
        let slot = &mut a.functions[f];
        (slot.pending, slot.life, slot.at_once) = (true, Saved::Ready, true);
        let noted = slot.memo.note(saved.into_iter(), false);
        slot.memo.settle(noted, 0, data.iter().map(|y| &**y));
        self.memo = Some(MemoPtr(&raw mut slot.memo));
        self.double = compute == Precision::Double;
        for (output, data) in outputs.iter().zip(data) {
            let core = &mut a.cores[a.variables[output.ix()].core];
            data.add_users(i64::from(core.handles));
            core.data = Some(data);
        }
        Ok(outputs)
    }

    fn forward(&mut self, op: &Op) -> Result<()> {
        let (mut x, mut y): (SmallVec<[Memory<'_>; 5]>, SmallVec<[Memory<'_>; 2]>) = Default::default();
        self.x.iter().for_each(|(ptr, shape)| x.push(Memory { ptr: *ptr, shape }));
        self.y.iter().for_each(|(ptr, shape)| y.push(Memory { ptr: *ptr, shape }));
        let Some(memo) = self.memo else { return Ok(()) };
        // SAFETY: see `MemoPtr`.
        let state = unsafe { &mut (*memo.0).state };
        let call = Call {
            x: &x,
            y: &y,
            gy: &[],
            gx: &[],
            state,
            double: self.double,
            recompute: false,
            then: Then::NOTHING,
            lasting: self.keeps.as_ref().map(|(i, x)| Lasting::new(x, self.x[*i].0)),
        };
        // SAFETY: the arrays were made for this operation, of the shapes that it names.
        stop::guarded(|| unsafe { op.forward(call) })
    }
}

/// Results that nothing will be differentiated through: no function is kept.
fn connect_without_graph(
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    anomaly: bool,
) -> Result<Outputs> {
    let x: SmallVec<[NdArray; 4]> = inputs.iter().map(|v| v.data()).collect();
    if x.iter().any(|x| x.storage.is_cleared()) {
        reserve::rematerialize_inputs(inputs)?;
    }
    let y = evaluate_into(op, &x, context::precision(modes::current_context()), into)?;
    if anomaly {
        anomaly::after_evaluation(op.name(), &y)?;
    }
    y.into_iter()
        .map(|y| {
            let v = Variable::new(y.shape.clone())?.with_need_grad(false);
            v.set_data(&y)?;
            Ok(v)
        })
        .collect()
}

fn build(
    a: &mut Arena,
    modes: Modes,
    op: Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: Option<Shapes>,
) -> Result<Outputs> {
    if let Some(shapes) = shapes {
        return build_shaped(a, modes, op, inputs, into, &shapes);
    }
    let mut x: SmallVec<[&Shape; 4]> = SmallVec::new();
    for v in inputs {
        x.push(&a.cores[a.variables[v.ix()].core].shape);
    }
    let shapes = op.shapes(&x)?;
    drop(x);
    build_shaped(a, modes, op, inputs, into, &shapes)
}

/// As `build`, the shapes of the outputs being known.
#[inline(always)]
fn build_shaped(
    a: &mut Arena,
    modes: Modes,
    op: Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: &Shapes,
) -> Result<Outputs> {
    for (o, shape) in shapes.iter().enumerate() {
        shape.checked_size()?;
        if let Some(Some(given)) = into.get(o)
            && given.shape.size() != shape.size()
        {
            let expected = format!("an array of {} elements to write to", shape.size());
            return Err(Error::shape(op.name(), expected, [&given.shape]));
        }
    }
    let grad = modes.grad;
    let mut need_grad = false;
    let (mut rank, mut rooted, mut inplace) = (0, false, false);
    for (i, v) in inputs.iter().enumerate() {
        let v = v.ix();
        need_grad |= a.need_grad(v);
        let slot = &a.variables[v];
        rank = rank.max(slot.rank);
        rooted |= slot.rank == 0 || slot.flags & (flag::PERSISTENT | flag::PROHIBIT_CLEAR) != 0;
        let Some(alias) = op.alias(i) else { continue };
        inplace = true;
        if alias.modifies && grad && a.need_grad(v) && a.is_end(v) && !modes::leaves_in_place() {
            return Err(Error::Graph(format!(
                "{}: expected to change input {i} in place, got a leaf that requires grad; use no_grad()",
                op.name()
            )));
        }
    }
    need_grad &= grad;
    let f = a.new_function(op);
    for v in inputs {
        a.variables[v.ix()].count += 1;
        a.add_consumer(v.ix(), f);
    }
    let slot = &mut a.functions[f];
    for v in inputs {
        slot.inputs.push(v.ix());
    }
    (slot.rank, slot.need_grad, slot.no_grad, slot.context) = (rank, need_grad, !grad, modes.context);
    let mut flags = if modes.recompute { flag::RECOMPUTE } else { 0 };
    if rooted && inplace {
        flags |= flag::PROHIBIT_CLEAR;
    }
    flags |= match (grad, need_grad) {
        (false, _) => flag::NEED_GRAD_SET,
        (true, true) => flag::NEED_GRAD_STATE,
        (true, false) => 0,
    };
    let mut outputs = Outputs::new();
    for (o, shape) in shapes.iter().enumerate() {
        let core = a.new_core(shape);
        a.cores[core].count += 1; // the variable's and the function's
        let v = a.new_variable(core, flags, f, rank + 1);
        a.functions[f].count += 1;
        let generation = a.variables[v].generation;
        a.functions[f].outputs.push(Output { variable: v, generation, core });
        outputs.push(Variable::adopt(a, v));
        if let Some(Some(given)) = into.get(o) {
            a.set_data(core, Arc::clone(&given.storage));
        }
    }
    if !inplace {
        return Ok(outputs);
    }
    aliasing::share_memory(a, f);
    if let Err(error) = aliasing::verify(a, f) {
        let ixs: SmallVec<[Ix; 2]> = outputs.iter().map(Variable::ix).collect();
        std::mem::forget(outputs);
        ixs.into_iter().for_each(|v| a.drop_handle(v));
        return Err(error);
    }
    Ok(outputs)
}
