//! Connects a function to its inputs, checks it, and runs it in dynamic mode.

use smallvec::SmallVec;

use crate::array::{RunGuard, headroom};
use crate::graph::arena::{self, aliasing};
use crate::graph::budget::eager::reserve::{self, Reservation};
use crate::graph::construct::eager::{EagerRun, run_loop};
use crate::graph::construct::node::{Outputs, build, note_line};
use crate::graph::handles::callbacks::{self, Detach};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::segment;
use crate::graph::handles::variable::Variable;
use crate::graph::settings::context;
use crate::graph::settings::modes::{self, Modes};
use crate::graph::step::forward::evaluate_into;
use crate::graph::step::prepare::step;
use crate::graph::step::{anomaly, cost, shapes};
use crate::ops::{self, Op, Value};
use crate::{Error, Result};

/// Connects the operation with the Python name `name` to its inputs.
///
/// `arguments` follow the declaration, in order. Those left out at the end take their defaults.
///
/// # Errors
/// [`Error::Key`] if there is no such operation. Otherwise as [`connect`].
pub fn apply(name: &str, inputs: &[&Variable], arguments: &[Value]) -> Result<Outputs> {
    let entry =
        ops::find(name).ok_or_else(|| Error::Key(format!("apply: there is no operation '{name}'")))?;
    let mut values = arguments.to_vec();
    values.extend(
        entry.spec.args[values.len().min(entry.spec.args.len())..].iter().filter_map(|a| Some(a.default?())),
    );
    connect(entry.bind(&values, u64::MAX)?, inputs, &[])
}

/// Connects an operation to its inputs and returns the outputs. Computes them immediately in dynamic mode.
///
/// Writes output `o` to the array `into[o]` if given.
///
/// # Errors
/// If the operation refuses the inputs, or would change in place a value that must not change. In dynamic mode also
/// if it fails. A refused call changes nothing.
#[allow(clippy::needless_pass_by_value)] // most callers make the operation for this call
pub fn connect(op: Op, inputs: &[&Variable], into: &[Option<NdArray>]) -> Result<Outputs> {
    let mut outputs = Outputs::new();
    connect_detached(&mut outputs, &op, inputs, into, None)?;
    Ok(outputs)
}

/// Connects an operation to its inputs, see [`connect`], and adds the outputs to an empty list. In dynamic mode
/// `detach` wraps the run if releasing a lock pays.
///
/// # Errors
/// As [`connect`].
pub fn connect_detached(
    outputs: &mut Outputs,
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    detach: Option<Detach<'_>>,
) -> Result<()> {
    headroom::check()?;
    let modes = modes::now();
    if into.is_empty() && op.facts().is_plain && !modes.anomaly && modes.memory_budget.is_none() {
        if !modes.auto_forward {
            return arena::with(|a| build(outputs, a, &modes, op, inputs, &[], None));
        }
        if modes.grad
            && (run_loop(outputs, op, inputs, &modes)? || run_plain(outputs, op, inputs, &modes, detach)?)
        {
            return Ok(());
        }
    }
    *outputs = connect_any(op, inputs, into, &modes, detach)?;
    Ok(())
}

/// Builds and runs a plain function, whose inputs are in memory. Returns false, and builds nothing, if they are not.
#[inline(never)]
fn run_plain(
    outputs: &mut Outputs,
    op: &Op,
    inputs: &[&Variable],
    modes: &Modes,
    detach: Option<Detach<'_>>,
) -> Result<bool> {
    let _guard = RunGuard::new();
    let mut run = EagerRun::default();
    if !arena::with(|a| run.build(outputs, a, modes, op, inputs))? {
        return Ok(false);
    }
    callbacks::detached(detach, cost::work(op, run.touched), false, || run.forward(op))?;
    Ok(true)
}

/// Connects any operation to its inputs, in any modes.
#[inline(never)]
fn connect_any(
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    modes: &Modes,
    detach: Option<Detach<'_>>,
) -> Result<Outputs> {
    if !modes.grad && modes.auto_forward {
        if modes.noting {
            // A function without a graph would be built again, with a graph.
            let changed = |i: &usize| op.facts().modifies(*i);
            let check = |a: &arena::Arena, i: usize| aliasing::check_kept(a, op, i, inputs[i].ix());
            arena::with(|a| (0..inputs.len()).filter(changed).try_for_each(|i| check(a, i)))?;
        }
        let outputs = connect_without_graph(op, inputs, into, modes.anomaly)?;
        if modes.noting {
            segment::note_read(inputs.iter().copied());
            segment::note_made(&outputs);
        }
        return Ok(outputs);
    }
    // Neither user functions nor reads of values may run under the lock.
    let shapes = match op.facts().sets_up_outside {
        true => {
            reserve::rematerialize_inputs(inputs)?;
            let x: SmallVec<[NdArray; 4]> = inputs.iter().map(|v| v.data()).collect();
            Some(shapes::shapes_of(op, &x, context::precision(modes::current_context()))?)
        }
        false => None,
    };
    let line = if modes.anomaly { anomaly::source_line() } else { None };
    if !modes.auto_forward {
        return arena::with(|a| {
            let mut outputs = Outputs::new();
            build(&mut outputs, a, modes, op, inputs, into, shapes)?;
            note_line(a, &outputs, line);
            Ok(outputs)
        });
    }
    Variable::check_all_computed(op.name(), inputs)?;
    reserve::rematerialize_inputs(inputs)?;
    let reservation = modes
        .memory_budget
        .map(|bytes| Reservation::make(bytes, op, inputs, into, shapes.as_ref()))
        .transpose()?;
    let (outputs, mut step) = arena::with(|a| -> Result<_> {
        let mut outputs = Outputs::new();
        build(&mut outputs, a, modes, op, inputs, into, shapes)?;
        note_line(a, &outputs, line);
        let step = outputs.first().map(|first| {
            let f = a.parent(first.ix());
            a.begin_eager(f);
            step(a, f)
        });
        Ok((outputs, step))
    })?;
    if let Some(step) = &mut step {
        let detach = detach.filter(|_| step.op.on_arrays().is_none());
        callbacks::detached(detach, step.work(), false, || {
            step.count(reservation.is_some());
            // The guard ends here, because reacquiring the caller's lock takes time, and memory freed by other
            // threads would wait.
            let _guard = reservation.is_none().then(RunGuard::new);
            step.forward(modes::in_recomputing())
        })?;
        if modes.anomaly {
            let f = arena::with(|a| a.parent(outputs[0].ix()));
            anomaly::after_forward(f, step)?;
        }
        if let Some(reservation) = reservation {
            reservation.take(step, &outputs);
        }
    }
    Ok(outputs)
}

/// Results that are never differentiated. No function is kept.
fn connect_without_graph(
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    anomaly: bool,
) -> Result<Outputs> {
    let x: SmallVec<[NdArray; 4]> = inputs.iter().map(|v| v.data()).collect();
    if x.iter().any(|x| x.storage.is_unwritten()) {
        Variable::check_all_computed(op.name(), inputs)?;
    }
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
