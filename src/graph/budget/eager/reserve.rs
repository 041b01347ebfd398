//! Keeps eager functions, and the backward runs through them, within a memory budget. Values are evicted before each
//! function if memory is short, and recomputed on demand.
//!
//! A value is restored by the shortest list of functions, run in order. A value computed on the way is kept only as
//! long as the list still reads it. The others may be evicted again, so a long recomputation leaves values spread
//! over the graph, not all of them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{DType, Paying, Shape, Storage};
use crate::graph::arena::{self, Arena, Ix, NONE, order};
use crate::graph::budget::eager::evictor::{Evictor, StepGuard};
use crate::graph::budget::eager::pool::{EvictionPool, Pins};
use crate::graph::budget::eager::score;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::lifetime::clear_record;
use crate::graph::lifetime::liveness::{is_cleared, to_restore};
use crate::graph::settings::context::{self, Precision};
use crate::graph::settings::modes::{self, Scope};
use crate::graph::step::backward::{BackwardStep, DataOperand};
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::{Operand, read_as};
use crate::graph::step::{formula, prepare};
use crate::ops::{Op, Shapes};
use crate::{Error, Result};

/// The error if a budget is too small for an operation.
fn too_much(op: &Op, got: usize, needed: usize, what: &str) -> Error {
    Error::BudgetFor { needed, got, by: format!("{what}{}", op.name()) }
}

/// The bytes of a new copy of `storage` in the type in which it is read. Zero if no copy is needed.
fn cast_bytes(storage: &Storage, read: DType) -> usize {
    let other = storage.dtype().is_some_and(|own| own != read);
    if other { storage.len() * read.size() } else { 0 }
}

/// The bytes of a value that a function stores. If its kernel computes in another type, the bytes of a copy in that
/// type are added.
fn stored_bytes(size: usize, compute: Precision, own: Option<DType>) -> usize {
    let (kept, kernel) = (own.unwrap_or(compute.stored()), own.unwrap_or(compute.dtype()));
    size * kept.size() + if kept == kernel { 0 } else { size * kernel.size() }
}

/// Memory reserved for a function that is about to be built and run.
pub(crate) struct Reservation(Arc<EvictionPool>);

impl Reservation {
    /// Reserves the memory under a budget of `bytes`. Restores all inputs first. Outputs that go to an array of
    /// `into` need no memory.
    ///
    /// # Errors
    /// [`Error::BudgetFor`] if the function does not fit, or if its backward run certainly will not. Errors of the
    /// operation.
    pub(crate) fn make(
        bytes: usize,
        op: &Op,
        inputs: &[&Variable],
        into: &[Option<NdArray>],
        shapes: Option<&Shapes>,
    ) -> Result<Self> {
        let pool = EvictionPool::of_thread(bytes);
        let compute = context::precision(modes::current_context());
        arena::with(|a| {
            let inputs: SmallVec<[Ix; 4]> = inputs.iter().map(|v| v.ix()).collect();
            let mut x: SmallVec<[&Shape; 4]> = SmallVec::new();
            x.extend(inputs.iter().map(|v| a.shape(a.tensor(*v))));
            let shapes = shapes.map_or_else(|| op.shapes(&x), |shapes| Ok(shapes.clone()))?;
            drop(x);
            let mut pins = Pins::default();
            let mut need = 0;
            for (i, v) in inputs.iter().enumerate() {
                let data = a.data(a.tensor(*v));
                pins.add(data);
                need += cast_bytes(data, read_as(op, i, compute));
            }
            for (o, shape) in shapes.iter().enumerate() {
                let there =
                    into.get(o).is_some_and(Option::is_some) || op.facts().shares_output(o, inputs.len());
                need += if there { 0 } else { stored_bytes(shape.size(), compute, op.output(o)) };
            }
            let backward =
                if modes::grad_enabled() { backward_bytes(a, op, &inputs, &shapes, compute) } else { 0 };
            let mut state = pool.state();
            let least = match backward {
                0 => 0,
                backward => state.backward_least(a, &inputs, compute.stored(), backward),
            };
            if least > bytes {
                return Err(too_much(op, bytes, least, "the backward run of "));
            }
            let made = state.evict_for(a, need, &pins, a.births());
            made.map_err(|needed| too_much(op, bytes, needed, ""))
        })?;
        Ok(Self(pool))
    }

    /// Adds the function to the pool after it has run.
    pub(crate) fn take(self, step: &mut ForwardStep, outputs: &[Variable]) {
        // The step holds values that may have to be evicted.
        (step.x, step.y) = (SmallVec::new(), SmallVec::new());
        let Some(first) = outputs.first() else { return };
        arena::with(|a| {
            let f = a.parent(first.ix());
            self.0.state().add(a, f);
            a.set_evictor(f, self.0);
        });
    }
}

/// Recomputes evicted values that are about to be read.
pub(crate) fn rematerialize_inputs(inputs: &[&Variable]) -> Result<()> {
    let gone = arena::with(|a| inputs.iter().any(|v| is_evicted(a, v.ix())));
    if gone { inputs.iter().try_for_each(|v| v.bring_back().map(drop)) } else { Ok(()) }
}

/// The bytes that the backward run of a function needs, excluding leaves and their gradients.
fn backward_bytes(a: &Arena, op: &Op, inputs: &[Ix], shapes: &Shapes, compute: Precision) -> usize {
    let wanted: SmallVec<[usize; 4]> = (0..inputs.len()).filter(|i| a.need_grad(inputs[*i])).collect();
    if wanted.is_empty() {
        return 0;
    }
    let bytes = |size: usize| stored_bytes(size, compute, None);
    let mut seen: SmallVec<[Ix; 4]> = SmallVec::new();
    let mut total = 0;
    for (i, v) in inputs.iter().enumerate() {
        let tensor = a.tensor(*v);
        if seen.contains(&tensor) {
            continue;
        }
        seen.push(tensor);
        if a.parent(*v) == NONE {
            continue;
        }
        let times = usize::from(wanted.iter().any(|j| op.facts().backward_reads(*j).input(i)));
        total += bytes(a.shape(tensor).size()) * (times + usize::from(wanted.contains(&i)));
    }
    for (o, shape) in shapes.iter().enumerate() {
        let read = wanted.iter().any(|j| op.facts().backward_reads(*j).output(o))
            && !op.facts().shares_output(o, inputs.len());
        total += bytes(shape.size()) * (1 + usize::from(read));
    }
    total
}

/// True if the data of `v` was evicted and can be recomputed.
fn is_evicted(a: &Arena, v: Ix) -> bool {
    a.is_restorable(v) && is_cleared(a, a.tensor(v))
}

/// Functions that run again, locked for that.
struct Rerun {
    /// The functions, in execution order.
    functions: Vec<Ix>,
    /// The functions that no other run holds.
    taken: Vec<Ix>,
}

impl Rerun {
    /// Locks the functions that recompute these values, and pins what they read.
    fn make(a: &mut Arena, wanted: &[Ix], pins: &mut Pins) -> Result<Self> {
        let functions = to_restore(a, wanted);
        let taken = a.idle(&functions);
        for f in &functions {
            for i in 0..a.inputs(*f).len() {
                let tensor = a.tensor(a.inputs(*f)[i]);
                pins.add(a.data(tensor));
            }
        }
        // Must be last, since the destructor that undoes it locks the arena.
        a.begin_run(&taken)?;
        Ok(Self { functions, taken })
    }
}

impl Drop for Rerun {
    fn drop(&mut self) {
        arena::with(|a| a.end_run(&self.taken));
    }
}

/// Recomputes the missing data of `wanted`, for a function created at time `now`. Keeps pinned storages.
///
/// # Errors
/// [`Error::BudgetFor`] if the budget is too small.
fn restore(pool: &Arc<EvictionPool>, wanted: &[Ix], pins: &mut Pins, now: u64) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let rerun = arena::with(|a| Rerun::make(a, wanted, pins))?;
    let _recomputing = Scope::recomputing(true);
    rerun.functions.iter().try_for_each(|f| run_again(pool, *f, pins, now))
}

/// Runs a function again after making space for its outputs within the budget.
fn run_again(pool: &Arc<EvictionPool>, f: Ix, pins: &mut Pins, now: u64) -> Result<()> {
    let mut step = arena::with(|a| -> Result<ForwardStep> {
        order::check_shapes(a, f, "recomputation")?;
        let step = prepare::step(a, f);
        step.y.iter().for_each(|y| pins.add(&y.storage));
        let need = step.x.iter().map(|x| cast_bytes(&x.storage, x.dtype)).sum::<usize>();
        let need = need + if step.idle { 0 } else { step.y.iter().map(missing).sum::<usize>() };
        let mut state = pool.state();
        let made = state.evict_for(a, need, pins, now);
        made.map_err(|needed| too_much(a.op(f), state.limit, needed, "computing again "))?;
        Ok(step)
    })?;
    step.count(true);
    step.forward(true)?;
    let (x, y): (Vec<_>, Vec<_>) =
        (step.x.drain(..).map(|x| x.storage).collect(), step.y.drain(..).map(|y| y.storage).collect());
    arena::with(|a| {
        if clear_record::is_recording() {
            clear_record::record(a, f);
        }
        let mut state = pool.state();
        state.add(a, f);
        let mut idle: SmallVec<[(Ix, usize); 4]> = SmallVec::new();
        for (o, storage) in y.iter().enumerate() {
            if pins.take(storage) {
                idle.push((f, o));
            }
        }
        for (i, storage) in x.iter().enumerate() {
            let v = a.inputs(f)[i];
            let parent = a.parent(v);
            if pins.take(storage) && parent != NONE {
                idle.extend(a.outputs_that_are(parent, v).map(|o| (parent, o)));
            }
        }
        drop((x, y));
        idle.into_iter().for_each(|(f, o)| state.drop_idle(a, f, o));
    });
    Ok(())
}

/// The bytes to allocate for an array that is about to be written.
fn missing(slot: &Operand) -> usize {
    let size = slot.storage.len();
    let kept = if slot.storage.holds_memory() { 0 } else { size * slot.stored.size() };
    kept + if slot.stored == slot.dtype { 0 } else { size * slot.dtype.size() }
}

/// A backward run within the budget under which its graph was built.
struct BudgetedBackward {
    /// The pool of the graph.
    pool: Arc<EvictionPool>,
    /// Storages that the next functions read, and that must not be evicted.
    pins: Pins,
    /// Charges allocations of the run to the budget of the graph, on any thread.
    _paying: Paying,
}

impl Evictor for EvictionPool {
    fn restore(self: Arc<Self>, v: Ix) -> Result<()> {
        restore_one(&self, v)
    }

    fn guard(self: Arc<Self>, a: &mut Arena) -> Box<dyn StepGuard> {
        let mut state = self.state();
        if state.runs == 0 {
            state.note_holders(a);
        }
        state.runs += 1;
        state.renew_limit();
        drop(state);
        let paying = self.pay();
        Box::new(BudgetedBackward { pool: self, pins: Pins::default(), _paying: paying })
    }
}

impl StepGuard for BudgetedBackward {
    fn before(&mut self, f: Ix, step: &BackwardStep) -> Result<()> {
        let Self { pool, pins, .. } = self;
        pins.clear();
        let data = || step.x.iter().chain(&step.y).filter_map(DataOperand::read);
        data().for_each(|slot| pins.add(&slot.storage));
        let (gone, now) = arena::with(|a| {
            let mut gone: SmallVec<[Ix; 4]> = SmallVec::new();
            let inputs = a.inputs(f).iter().zip(&step.x);
            let inputs = inputs.filter(|(_, x)| x.read().is_some()).map(|(v, _)| *v);
            let outputs = step.y.iter().enumerate().filter(|(_, y)| y.read().is_some());
            let outputs = outputs.filter_map(|(o, _)| a.live_output(f, o));
            gone.extend(inputs.chain(outputs).filter(|v| is_evicted(a, *v)));
            (gone, a.birth(f))
        });
        restore(pool, &gone, pins, now)?;
        let formula = formula::temporary_bytes(step);
        arena::with(|a| {
            let mut need: usize = data().map(|slot| cast_bytes(&slot.storage, slot.dtype)).sum();
            need += step.gy.iter().map(missing).sum::<usize>() + formula;
            for sink in step.gx.iter().flatten() {
                need += missing(&sink.slot);
                let kept_as_other = sink.slot.stored != sink.slot.dtype && !sink.first;
                need += if kept_as_other { sink.slot.storage.len() * sink.slot.dtype.size() } else { 0 };
                need += if sink.again { sink.slot.storage.len() * sink.slot.dtype.size() } else { 0 };
            }
            let mut state = pool.state();
            let made = state.evict_for(a, need, pins, now);
            made.map_err(|needed| too_much(a.op(f), state.limit, needed, "the backward run of "))
        })
    }

    fn after(&self, f: Ix) {
        arena::with(|a| self.pool.state().finish(a, f));
    }
}

impl Drop for BudgetedBackward {
    fn drop(&mut self) {
        self.pool.state().runs -= 1;
    }
}

/// Restores one value within the budget of its pool.
fn restore_one(pool: &Arc<EvictionPool>, v: Ix) -> Result<()> {
    let mut pins = Pins::default();
    let _paying = pool.pay();
    let (gone, now) = arena::with(|a| {
        pool.state().renew_limit();
        pins.add(a.data(a.tensor(v)));
        (is_evicted(a, v), a.births())
    });
    if gone { restore(pool, &[v], &mut pins, now) } else { Ok(()) }
}

impl Variable {
    /// Recomputes its data if it was evicted under a budget. Returns true if it was.
    ///
    /// # Errors
    /// [`Error::Modified`] if the result would differ from the evicted value, [`Error::BudgetFor`] if the budget is
    /// too small.
    pub fn bring_back(&self) -> Result<bool> {
        let v = self.ix();
        let pool = arena::with(|a| -> Result<_> {
            let f = a.parent(v);
            let pool = if is_evicted(a, v) { EvictionPool::of(a, f) } else { None };
            if pool.is_some() {
                for f in to_restore(a, &[v]) {
                    if score::change_since_run(a, f).is_some() {
                        return Ok(Err(f));
                    }
                }
            }
            Ok(Ok(pool))
        })?;
        let pool = pool.map_err(|f| Error::Modified(self.describe_change(f)))?;
        pool.map_or(Ok(false), |pool| restore_one(&pool, v).map(|()| true))
    }

    /// Describes which input or state changed since the function ran, or else the function.
    fn describe_change(&self, f: Ix) -> String {
        let changed = arena::with(|a| score::change_since_run(a, f));
        changed.map_or_else(|| self.describe(), |which| which.describe(f))
    }
}
