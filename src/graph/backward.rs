//! The backward run: functions by descending rank, each handed the gradient of its outputs. Gradients of leaves add up
//! over runs; those of intermediate variables are overwritten by their first contribution and kept.

use std::sync::Arc;

use smallvec::SmallVec;

use super::arena::{self, Arena, Ix, NONE, flag};
use super::back_step::{BackStep, Side};
use super::clear::{self, Clearing, Policy};
use super::forward::{Detach, Hook, explain};
use super::fusion::{self, FusedBackward};
use super::hooked::Hooked;
use super::plan::{Kept, Pace, Seen, detached};
use super::{Function, NdArray, Variable, anomaly, course, mode, order, recompute};
use crate::array::{RunGuard, Storage};
use crate::ops::Kind;
use crate::{Error, Result};

/// The gradient that a backward run starts from.
#[derive(Clone)]
pub enum Seed {
    /// The same number everywhere.
    Fill(f64),
    /// These elements; the run may clear them.
    Temporary(NdArray),
    /// These elements by reference; the run leaves them as they are.
    Shared(NdArray),
    /// What the variable has as its gradient already.
    Own,
}

/// What a program that trains together with others wants to know of a backward run.
pub trait CommunicatorCallback {
    /// Called after each function.
    ///
    /// # Errors
    /// Ends the run with that error.
    fn on_finish_function_backward(&self, f: &Function) -> Result<()>;
    /// Called once at the end.
    ///
    /// # Errors
    /// Becomes the error of the run.
    fn on_finish_backward(&self) -> Result<()>;
}

/// How to run backward.
#[derive(Clone, Default)]
pub struct BackwardOptions<'a> {
    /// The gradient to start from, all ones by default.
    pub seed: Seed,
    /// Give memory of intermediate variables back once it is not needed any more.
    pub clear_buffer: bool,
    /// Told of the progress.
    pub callbacks: Vec<&'a dyn CommunicatorCallback>,
    /// Called before each function.
    pub pre_hook: Option<Hook<'a>>,
    /// Called after each function.
    pub post_hook: Option<Hook<'a>>,
    /// Told, once a run, of a value that a gradient reads and that changed since the forward run. An error ends the run;
    /// otherwise the new value is used. Nothing is looked at where this is absent.
    pub modified: Option<&'a (dyn Fn(String) -> Result<()> + Sync)>,
    /// Wraps the run where it is worth releasing a lock for.
    pub detach: Option<Detach<'a>>,
}

impl Default for Seed {
    fn default() -> Self {
        Self::Fill(1.0)
    }
}

/// What tells the backward plans of one variable apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    clear_buffer: bool,
    clear_seed: bool,
}

impl Key {
    /// Of a run that gives back all it can, as one under a memory budget does.
    pub(super) const CLEARING: Self = Self { clear_buffer: true, clear_seed: true };
    /// Of a run that gives nothing back but what it starts from.
    pub(super) const KEEPING: Self = Self { clear_buffer: false, clear_seed: true };
}

/// A storage of the arena that is cleared.
pub(super) struct Place {
    pub(super) core: Ix,
    pub(super) is_grad: bool,
    pub(super) storage: Arc<Storage>,
}

impl Place {
    /// Where the gradient or the data of a pair is.
    pub(super) fn new(a: &mut Arena, core: Ix, is_grad: bool) -> Self {
        Self { core, is_grad, storage: Arc::clone(if is_grad { a.grad(core) } else { a.data(core) }) }
    }

    /// Looks at the storage that the pair has now.
    pub(super) fn move_to_current(&mut self, a: &mut Arena) {
        *self = Self::new(a, self.core, self.is_grad);
    }
}

/// What is cleared after a step.
pub(super) struct Clear {
    pub(super) step: u32,
    pub(super) place: Place,
    /// Functions outside of the run that may still have to run backward, and would read it.
    pub(super) guards: Vec<(Ix, u32)>,
}

impl Clear {
    /// Clears it, unless a function waits for it.
    fn now(&self) -> Result<()> {
        let storage = &self.place.storage;
        if storage.is_given_back() || (!self.guards.is_empty() && awaited(&self.guards)) {
            return Ok(());
        }
        storage.clear(true)
    }
}

/// A backward run made ready.
pub(super) struct BackwardPlan {
    pub(super) functions: Vec<Ix>,
    pub(super) steps: Vec<BackStep>,
    /// Gradients that nobody contributes to, set to zero before a step reads them.
    zeroed: Vec<(u32, u32)>,
    pub(super) clears: Vec<Clear>,
    /// Data that may have been dropped, and is computed again before a step reads it.
    restored: Vec<(u32, Ix, Arc<Storage>)>,
    /// Which steps run as one pass: found when the plan is used again.
    pub(super) passes: Option<Vec<FusedBackward>>,
    /// Where a number to start from is spread out, and the version and number that it had then.
    seed: Arc<Storage>,
    seeded: Option<(f64, u64)>,
    hooked: Hooked,
    work: usize,
}

/// In which order functions run backward from `root`: higher ranks first, earlier found ones first among equals.
pub(super) fn descending(a: &mut Arena, root: Ix) -> Vec<Ix> {
    let above = order::depth_first(a, &[root], |_, _| true);
    order::rank(a, &above);
    order::descending(a, &[a.variables[root].parent], |a, f| a.functions[f].need_grad)
}

impl BackwardPlan {
    pub(super) fn make(a: &mut Arena, root: Ix, key: Key) -> Self {
        let functions = descending(a, root);
        let mut plan = Self {
            steps: Vec::with_capacity(functions.len()),
            zeroed: Vec::new(),
            clears: Vec::new(),
            restored: Vec::new(),
            passes: None,
            seed: Storage::new(a.cores[a.variables[root].core].shape.size()),
            seeded: None,
            hooked: Hooked::default(),
            work: 0,
            functions,
        };
        for f in &plan.functions {
            a.functions[*f].planned = true;
            let inputs = a.functions[*f].inputs.clone();
            inputs.iter().for_each(|v| a.variables[*v].flags |= flag::PLANNED);
        }
        let seen = a.new_mark();
        let run = a.new_mark();
        plan.functions.iter().for_each(|f| a.functions[*f].mark = run);
        for n in 0..plan.functions.len() {
            plan.add_step(a, n, seen, run, key);
        }
        plan.hooked = Hooked::of(a, root, &plan.functions, &plan.zeroed);
        plan
    }

    /// Adds step `n`, following NNabla's rules of who is seen first, what accumulates and what may be cleared.
    fn add_step(&mut self, a: &mut Arena, n: usize, seen: u32, run: u32, key: Key) {
        /// Scratch bits of a variable that was seen: its data or its gradient must stay.
        const KEEP_DATA: u16 = flag::SCRATCH_NEED;
        const KEEP_GRAD: u16 = flag::SCRATCH_OVERWRITE;
        let f = self.functions[n];
        let at = n as u32;
        let inputs: SmallVec<[Ix; 4]> = a.functions[f].inputs.iter().copied().collect();
        let may_clear = a.op(f).may_clear_inputs();
        let mut first: SmallVec<[bool; 4]> = SmallVec::new();
        for (i, v) in inputs.iter().copied().enumerate() {
            let slot = &mut a.variables[v];
            first.push(slot.mark != seen);
            if slot.mark != seen {
                slot.mark = seen;
                slot.flags &= !flag::SCRATCH;
            }
            if !may_clear {
                slot.flags |= KEEP_DATA | KEEP_GRAD;
            }
            if let Some(alias) = a.op(f).alias(i) {
                let output = a.live_output(f, alias.output).map(|o| &a.variables[o]);
                let keeps =
                    output.is_none_or(|o| o.mark != seen || o.flags & (KEEP_DATA | flag::PERSISTENT) != 0);
                a.variables[v].flags |= if keeps { KEEP_DATA } else { 0 };
            }
        }
        let n_outputs = a.functions[f].outputs.len();
        for o in 0..n_outputs {
            let live = a.live_output(f, o);
            let core = a.functions[f].outputs[o].core;
            let was_seen = live.is_some_and(|v| a.variables[v].mark == seen);
            if !was_seen && n > 0 {
                self.zeroed.push((at, o as u32));
            }
            if !key.clear_buffer {
                continue;
            }
            let (mut data, mut grad) = match live.map(|v| a.variables[v].flags) {
                Some(flags) if flags & flag::PERSISTENT != 0 => (false, false),
                Some(flags) if was_seen => (flags & KEEP_DATA == 0, flags & KEEP_GRAD == 0),
                _ => (false, key.clear_seed || n > 0),
            };
            grad &= (was_seen || n > 0 || key.clear_seed) && !a.is_retained(core);
            data &= !(0..inputs.len()).any(|i| a.op(f).alias(i).is_some_and(|alias| alias.output == o));
            let guards: Vec<(Ix, u32)> = live.map_or(Vec::new(), |v| {
                let outside = a.consumers(v).filter(|c| a.functions[c.function].mark != run);
                outside.map(|c| (c.function, c.generation)).collect()
            });
            for (wanted, is_grad) in [(data, false), (grad, true)] {
                if wanted {
                    let place = Place::new(a, core, is_grad);
                    let guards = if is_grad { Vec::new() } else { guards.clone() };
                    self.clears.push(Clear { step: at, place, guards });
                }
            }
        }
        let step = back_step(a, f, &first);
        self.work += 2 * step.x.iter().map(|(s, _)| s.size()).sum::<usize>();
        self.work += step.gy.iter().map(|s| s.shape.size()).sum::<usize>();
        for (o, output) in step.y.iter().enumerate() {
            let flags = a.live_output(f, o).map_or(0, |v| a.variables[v].flags);
            if let (true, (_, Some(slot))) = (flags & flag::RESTORED != 0, output) {
                self.restored.push((at, a.functions[f].outputs[o].variable, Arc::clone(&slot.storage)));
            }
        }
        for (v, (_, slot)) in inputs.iter().zip(&step.x) {
            let computed = a.variables[*v].parent != NONE && a.variables[*v].flags & flag::RESTORED != 0;
            if let (true, Some(slot)) = (computed, slot) {
                self.restored.push((at, *v, Arc::clone(&slot.storage)));
            }
        }
        self.steps.push(step);
    }

    /// Looks at the storages that the pairs have now.
    pub(super) fn relocate(&mut self, a: &mut Arena) {
        let mut moved = false;
        for (n, step) in self.steps.iter_mut().enumerate() {
            for slot in step.x.iter_mut().chain(&mut step.y).filter_map(|(_, slot)| slot.as_mut()) {
                moved |= slot.move_to(a.data(slot.core));
            }
            for slot in step.gx.iter_mut().flatten().map(|s| &mut s.slot) {
                moved |= slot.move_to(a.grad(slot.core));
            }
            for slot in &mut step.gy {
                moved |= slot.move_to(a.grad(slot.core)) && n > 0; // the first one is another in each run
            }
            if let Some((x, y)) = &mut step.arrays {
                let slots = step.cores.iter();
                for (array, core) in x.iter_mut().chain(y).zip(slots) {
                    (array.data, array.grad) = (Arc::clone(a.data(*core)), Arc::clone(a.grad(*core)));
                }
            }
        }
        if moved {
            self.unfuse();
        }
        self.clears.iter_mut().for_each(|clear| clear.place.move_to_current(a));
        for (_, v, storage) in &mut self.restored {
            *storage = Arc::clone(a.data(a.variables[*v].core));
        }
    }

    /// Finds the steps that may run as one pass, and those that may write where they read.
    pub(super) fn fuse(&mut self) {
        if self.passes.is_none() && !mode::plan_is_plain() {
            let zeroed = self.zeroed.iter().map(|(step, _)| *step);
            let apart = zeroed.chain(self.restored.iter().map(|(step, ..)| *step)).collect();
            self.passes = Some(FusedBackward::all(&self.steps, &self.clears, &apart));
            for clear in self.clears.iter().filter(|clear| clear.place.is_grad && clear.step > 0) {
                let step = &mut self.steps[clear.step as usize];
                if fusion::backward_len(step).is_some_and(|len| len > Storage::SMALL) {
                    // The last one that is computed: none that follows reads what it overwrites.
                    let last = step.gx.iter().rposition(Option::is_some);
                    step.over = last.filter(|i| step.gx[*i].as_ref().is_some_and(|s| s.first && !s.again));
                }
            }
        }
    }

    /// Has every step run alone and leave what it reads to whoever looks at it after the step.
    fn unfuse(&mut self) {
        if self.passes.take().is_some() {
            self.steps.iter_mut().for_each(|step| step.over = None);
        }
    }

    /// The storage to start from.
    fn seed(&mut self, seed: &Seed) -> Option<Arc<Storage>> {
        match seed {
            Seed::Own => None,
            Seed::Shared(array) | Seed::Temporary(array) => Some(Arc::clone(&array.storage)),
            Seed::Fill(value) => {
                if self.seeded != Some((*value, self.seed.version())) || self.seed.is_shown() {
                    self.seed.fill(*value);
                    self.seeded = Some((*value, self.seed.version()));
                }
                Some(Arc::clone(&self.seed))
            }
        }
    }

    /// `optimise` says that the plan has run before, and that it has memory to hold more at once than single steps do.
    fn run(&mut self, options: &BackwardOptions<'_>, clearing: &Clearing, optimise: bool) -> Result<()> {
        let recording = clear::is_recording();
        let anomaly = mode::detect_anomaly();
        let hooked =
            options.pre_hook.is_some() || options.post_hook.is_some() || !options.callbacks.is_empty();
        if optimise && !(hooked || recording || anomaly) && self.hooked.is_empty() {
            self.fuse();
        } else {
            self.unfuse();
        }
        let mut zeroed = self.zeroed.iter().peekable();
        let mut clears = self.clears.iter().peekable();
        let mut restored = self.restored.iter().peekable();
        let mut told = self.hooked.outputs.iter().peekable();
        let mut pace = Pace::default();
        let mut modified = options.modified;
        let mut passes = self.passes.iter_mut().flatten().peekable();
        let mut next = 0;
        while let Some(f) = self.functions.get(next) {
            let n = next;
            let at = n as u32;
            while let Some((_, o)) = zeroed.next_if(|(step, _)| *step == at) {
                self.steps[n].gy[*o as usize].storage.zero();
            }
            while let Some(output) = told.next_if(|output| output.step == at) {
                output.tell(&mut self.steps[n])?;
            }
            while let Some((_, v, storage)) = restored.next_if(|(step, ..)| *step == at) {
                if storage.is_cleared() {
                    recompute::restore(*v, clearing)?;
                }
            }
            if let Some(pass) = passes.next_if(|pass| pass.steps.start == n)
                && !(modified.is_some() && pass.readers.iter().any(|n| self.steps[*n].modified().is_some()))
                && pass.run()
            {
                next = pass.steps.end;
                pass.cleared.iter().try_for_each(|n| self.clears[*n].now())?;
                clears = self.clears[pass.clears.end..].iter().peekable();
                pace.step()?;
                continue;
            }
            next += 1;
            let step = &mut self.steps[n];
            let handle = hooked.then(|| arena::with(|a| Function::counted(a, *f)));
            if let (Some(hook), Some(f)) = (options.pre_hook, &handle) {
                hook(f)?;
            }
            if let (Some(tell), Some(which)) = (modified, modified.and_then(|_| step.modified())) {
                tell(which.describe(*f))?;
                modified = None;
            }
            step.backward().map_err(|e| explain(e, *f, "backward"))?;
            if anomaly {
                anomaly::after_backward(*f, step)?;
            }
            if let (Some(hook), Some(f)) = (options.post_hook, &handle) {
                hook(f)?;
            }
            while let Some(clear) = clears.next_if(|c| c.step == at) {
                clear.now()?;
            }
            if recording {
                arena::with(|a| clear::record(a, *f));
            }
            for callback in &options.callbacks {
                handle.as_ref().map_or(Ok(()), |f| callback.on_finish_function_backward(f))?;
            }
            pace.step()?;
        }
        Ok(())
    }
}

/// Whether a function outside of the run ran forward and still has to run backward.
fn awaited(guards: &[(Ix, u32)]) -> bool {
    arena::with(|a| {
        guards.iter().any(|(f, generation)| {
            let slot = &a.functions[*f];
            slot.generation == *generation && slot.pending && slot.need_grad
        })
    })
}

/// A function made ready to run backward; `first` says which inputs get their first contribution.
fn back_step(a: &mut Arena, f: Ix, first: &[bool]) -> BackStep {
    let inputs: SmallVec<[Ix; 4]> = a.functions[f].inputs.iter().copied().collect();
    let is_wanted = |a: &Arena, i: usize| a.need_grad(inputs[i]) && a.op(f).kind(i) != Kind::index;
    let wanted: SmallVec<[bool; 4]> = (0..inputs.len()).map(|i| is_wanted(a, i)).collect();
    BackStep::of(a, f, &wanted, |a, core, side| {
        let storage = Arc::clone(a.grad(core));
        let first = matches!(side, Side::Input(i) if first[i] && a.variables[inputs[i]].parent != NONE);
        (storage, first)
    })
}

impl Variable {
    /// Propagates gradients from this variable to all that it was computed from. The graph must have run forward.
    ///
    /// Its own gradient is what it was before, afterwards.
    ///
    /// # Errors
    /// [`Error::Graph`] when no function computes it or the graph is being run already, [`Error::Cleared`] when a value
    /// that is needed was cleared, [`Error::Shape`] when the seed has another shape; whatever an operation, a hook or a
    /// user's function fails with: gradients that were written until then stay written.
    pub fn backward(&self, options: &BackwardOptions<'_>) -> Result<()> {
        let root = self.ix();
        if arena::with(|a| a.variables[root].parent == NONE) {
            return Err(Error::Graph(format!(
                "backward: expected a variable that a function computes, got {}, which has no parent",
                self.describe()
            )));
        }
        if let Seed::Shared(seed) | Seed::Temporary(seed) = &options.seed {
            let own = self.shape();
            if seed.shape != own {
                return Err(Error::shape("backward", format!("grad of shape {own}"), [&seed.shape]));
            }
        }
        let clear_seed = matches!(options.seed, Seed::Fill(_) | Seed::Temporary(_));
        let guard = RunGuard::new();
        let (mut plan, key, seen, outer, apart, clearing, optimise) = arena::with(|a| -> Result<_> {
            let budgeted = a.functions[a.variables[root].parent].budgeted;
            let key = Key { clear_buffer: options.clear_buffer || budgeted, clear_seed };
            let kept = Kept::take_backward(a, root, key);
            let optimise = kept.is_some() && !budgeted;
            let mut plan = kept.unwrap_or_else(|| BackwardPlan::make(a, root, key));
            if let Some(f) = a.begin_run(&plan.functions)? {
                let error = course::freed(a.op(f).name());
                a.end_run(&plan.functions, |_| ());
                return Err(error);
            }
            let seen = Seen::now(a);
            let apart = plan.hooked.set_apart(a);
            if !apart.is_empty() {
                plan.relocate(a);
            }
            let outer = swap_in(a, root, &mut plan, &options.seed);
            let policy = Policy { clear_buffer: false, clear_no_need_grad: true, recomputation: true };
            Ok((plan, key, seen, outer, apart, Clearing::new(a, policy), optimise))
        })?;
        let hooked = options.pre_hook.is_some()
            || options.post_hook.is_some()
            || !options.callbacks.is_empty()
            || !plan.hooked.is_empty();
        let done = detached(options.detach, plan.work, hooked, || plan.run(options, &clearing, optimise));
        let apart = arena::with(|a| {
            let places = a.places;
            for (core, grad) in outer {
                a.set_grad(core, grad);
            }
            a.places = places; // as it was before: no plan need look again
            let apart = apart.swapped(a);
            let finished = done.is_ok();
            a.end_run(&plan.functions, |f| f.pending &= !finished);
            Kept::put_backward(a, root, key, seen, plan);
            apart
        });
        drop(guard);
        done?;
        apart.finish()?;
        options.callbacks.iter().try_for_each(|callback| callback.on_finish_backward())
    }
}

/// Gradients of pairs, to be put back.
type Swapped = SmallVec<[(Ix, Option<Arc<Storage>>); 1]>;

/// Gives the variable the gradient to start from, and the other outputs of its parent zeros, for the time of a run.
/// Returns what they had.
fn swap_in(a: &mut Arena, root: Ix, plan: &mut BackwardPlan, seed: &Seed) -> Swapped {
    let (own, parent) = (a.variables[root].core, a.variables[root].parent);
    let outputs: SmallVec<[Ix; 2]> = a.functions[parent].outputs.iter().map(|o| o.core).collect();
    let places = a.places;
    let mut outer = Swapped::new();
    let seed = plan.seed(seed);
    for (o, core) in outputs.into_iter().enumerate() {
        let inner = if core == own { seed.clone() } else { Some(Storage::new(a.cores[core].shape.size())) };
        if let Some(inner) = inner {
            let old = a.cores[core].grad.clone();
            if let Some(step) = plan.steps.first_mut() {
                step.start_from(o, &inner);
            }
            a.set_grad(core, Some(inner));
            outer.push((core, old));
        } else if let Some(step) = plan.steps.first_mut() {
            step.start_from(o, a.grad(core));
        }
        for clear in plan.clears.iter_mut().take_while(|c| c.step == 0).filter(|c| c.place.core == core) {
            if clear.place.is_grad {
                clear.place.storage = Arc::clone(a.grad(core));
            }
        }
    }
    a.places = places;
    outer
}
