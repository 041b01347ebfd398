//! Differentiation by the backward kernels: gradients in memory of the run's own, which nobody sees before it has
//! succeeded.
//!
//! The gradient of an intermediate variable lives from the first function that contributes to it to the one that
//! computes the variable; its memory then serves the next one of the same size. A long chain needs two.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{RunGuard, Storage};
use crate::graph::arena::describe::explain;
use crate::graph::arena::provenance::Side;
use crate::graph::arena::{self, Arena, Ix, NONE, Saved, flag, liveness};
use crate::graph::autodiff::hooks::RunHooks;
use crate::graph::autodiff::options::DifferentiateOptions;
use crate::graph::autodiff::route::{GradientRoute, GradientSlotIx};
use crate::graph::handles::callbacks::Pace;
use crate::graph::handles::function::Function;
use crate::graph::memory::eviction::reserve::BudgetedBackward;
use crate::graph::memory::release::Clearing;
use crate::graph::memory::restore;
use crate::graph::settings::modes;
use crate::graph::step::anomaly;
use crate::graph::step::backward::BackwardStep;
use crate::{Error, Result};

/// A differentiation made ready.
pub(crate) struct KernelRun {
    steps: Vec<BackwardStep>,
    /// By place: the gradient, if there is any.
    pub(crate) gradients: Vec<Option<Arc<Storage>>>,
    /// Data that may have been dropped, and is computed again before a step reads it.
    restored: Vec<(u32, Ix, Arc<Storage>)>,
    /// After which step a gradient is of no use any more.
    spent: Vec<(u32, Arc<Storage>)>,
    pub(crate) work: usize,
    /// Steps count what they use and let nobody wait: there is a budget.
    counted: bool,
}

/// Gradients whose memory can be used again, and after which step.
#[derive(Default)]
struct Spares(Vec<(u32, Arc<Storage>)>);

impl Spares {
    fn take(&mut self, len: usize) -> Arc<Storage> {
        // The last ones are the likeliest to be in the cache.
        let at = self.0.iter().rposition(|(_, s)| s.len() == len);
        at.map_or_else(|| Storage::new(len), |at| self.0.swap_remove(at).1)
    }
}

impl KernelRun {
    /// Prepares every function, starting from one seed for each root. Roots that share a place are added up by
    /// [`KernelRun::run`].
    pub(crate) fn make(a: &mut Arena, course: &GradientRoute, seeds: &[Arc<Storage>]) -> Self {
        let mut gradients: Vec<Option<Arc<Storage>>> = vec![None; course.places.len()];
        for (place, seed) in course.roots.iter().zip(seeds) {
            gradients[*place as usize].get_or_insert_with(|| Arc::clone(seed));
        }
        let mut run = Self {
            steps: Vec::with_capacity(course.functions.len()),
            gradients,
            restored: Vec::new(),
            spent: Vec::new(),
            work: 0,
            counted: false,
        };
        // A user's function may keep the arrays that it is given.
        let reuse = course.functions.iter().all(|f| a.op(*f).on_arrays().is_none());
        let mut spares = Spares::default();
        for n in 0..course.functions.len() {
            run.add_step(a, course, n, &mut spares);
            for p in course.outputs(n) {
                if !course.keeps(a, *p) {
                    // The steps that write and read it have hold of it.
                    let spent = run.gradients[*p as usize].take().filter(|_| reuse);
                    spares.0.extend(spent.map(|storage| (n as u32, storage)));
                }
            }
        }
        run.spent = spares.0;
        run.spent.sort_by_key(|(step, _)| *step);
        run
    }

    /// Whether it can run again, from other seeds: no user's code may keep its arrays, and all values are where they were.
    pub(crate) fn is_plain(&self) -> bool {
        self.restored.is_empty() && self.steps.iter().all(|step| step.arrays.is_none())
    }

    /// Makes one that has run ready to run from other seeds. Leaves get new gradients, in their own memory.
    pub(crate) fn start_from(&mut self, a: &mut Arena, course: &GradientRoute, seeds: &[Arc<Storage>]) {
        let mut new: Vec<Option<Arc<Storage>>> = vec![None; course.places.len()];
        for (place, found) in course.places.iter().zip(&mut new).filter(|(place, _)| place.leaf) {
            *found = a.cores[place.core].grad.as_ref().map(|own| own.zeros_with_spare());
        }
        for (n, place) in course.roots.iter().enumerate().rev() {
            new[*place as usize] = Some(Arc::clone(&seeds[n])); // of several at one place the first
        }
        for (n, step) in self.steps.iter_mut().enumerate() {
            for (o, place) in course.outputs(n).iter().enumerate() {
                if let Some(storage) = &new[*place as usize] {
                    step.start_from(o, storage);
                }
            }
            for (sink, place) in step.gx.iter_mut().zip(course.inputs(n)) {
                if let (Some(sink), Some(storage)) = (sink, new.get(*place as usize).and_then(Option::as_ref))
                {
                    sink.slot.move_to(storage);
                }
            }
        }
        for (old, new) in self.gradients.iter_mut().zip(new).filter(|(_, new)| new.is_some()) {
            *old = new;
        }
    }

    /// Looks at the values where they are now.
    pub(crate) fn relocate(&mut self, a: &mut Arena) {
        for step in &mut self.steps {
            let mut moved = false;
            for slot in step.x.iter_mut().chain(&mut step.y).filter_map(|(_, slot)| slot.as_mut()) {
                moved |= slot.move_to(a.data(slot.core));
            }
            if moved {
                step.look();
            }
        }
    }

    /// Gives the memory back of what it found and nobody took.
    pub(crate) fn give_back(&self, course: &GradientRoute) -> Result<()> {
        let own = (0..).zip(&self.gradients).filter(|(place, _)| !course.roots.contains(place));
        own.filter_map(|(_, found)| found.as_ref()).try_for_each(|storage| storage.clear(true))
    }

    fn add_step(&mut self, a: &mut Arena, course: &GradientRoute, n: usize, spares: &mut Spares) {
        let f = course.functions[n];
        let (outputs, inputs) = (course.outputs(n), course.inputs(n));
        let wanted: SmallVec<[bool; 4]> = inputs.iter().map(|p| *p != NONE).collect();
        let gradients = &mut self.gradients;
        let step = BackwardStep::of(a, f, &wanted, |a, core, side| {
            let len = a.cores[core].shape.size();
            let place = match side {
                // One that nobody contributed to reads as zeros.
                Side::Output(o) => {
                    let found = gradients[outputs[o] as usize].clone();
                    return (found.unwrap_or_else(|| Storage::new(len)), false);
                }
                Side::Input(i) => inputs[i] as usize,
            };
            if let Some(found) = &gradients[place] {
                return (Arc::clone(found), false);
            }
            let storage = match (course.places[place].leaf, &a.cores[core].grad) {
                (true, Some(own)) => own.zeros_with_spare(),
                (true, None) => Storage::new(len), // it leaves the run
                (false, _) => spares.take(len),
            };
            gradients[place] = Some(Arc::clone(&storage));
            (storage, true)
        });
        self.work += 2 * step.x.iter().map(|(shape, _)| shape.size()).sum::<usize>();
        let recomputed = |v: Ix| a.variables[v].parent != NONE && a.variables[v].flags & flag::RESTORED != 0;
        for (o, (_, slot)) in step.y.iter().enumerate() {
            if let (Some(slot), Some(v)) = (slot, a.live_output(f, o).filter(|v| recomputed(*v))) {
                self.restored.push((n as u32, v, Arc::clone(&slot.storage)));
            }
        }
        for (v, (_, slot)) in a.functions[f].inputs.iter().zip(&step.x) {
            if let (Some(slot), true) = (slot, recomputed(*v)) {
                self.restored.push((n as u32, *v, Arc::clone(&slot.storage)));
            }
        }
        self.steps.push(step);
    }

    /// Refuses values that are not those of the forward run, before anything has been given back.
    pub(crate) fn check(&self, course: &GradientRoute) -> Result<()> {
        for (f, step) in course.functions.iter().zip(&self.steps) {
            if step.changed(|_| true).is_none() {
                continue;
            }
            if let Some(which) = step.modified() {
                return Err(Error::Modified(which.describe(*f)));
            }
            // What was dropped on purpose comes back.
            let gone = |storage: &Storage| {
                !self.restored.iter().any(|(.., r)| std::ptr::eq(&raw const **r, storage))
            };
            if step.changed(gone).is_some() {
                return Err(explain(Error::Cleared(String::new()), *f, "backward"));
            }
        }
        Ok(())
    }

    /// Runs every function; the gradients of the places that are kept are there then. What `runs_again` keeps its steps.
    pub(crate) fn run(
        &mut self,
        course: &GradientRoute,
        hooks: &mut RunHooks<'_>,
        options: &DifferentiateOptions<'_>,
        clearing: &Clearing,
        mut keeper: Option<BudgetedBackward>,
        runs_again: bool,
        guard: Option<&RunGuard>,
    ) -> Result<()> {
        if self.counted != guard.is_none() {
            self.counted = guard.is_none();
            self.steps.iter_mut().for_each(|step| step.count(guard.is_none()));
        }
        let Self { steps, gradients, restored, spent, .. } = self;
        let looks_again = !restored.is_empty() || hooks.any();
        let mut restored = restored.iter().peekable();
        if !runs_again {
            spent.clear();
        }
        let mut spent = spent.iter().peekable();
        let mut pace = Pace::new(guard);
        let anomaly = modes::detect_anomaly();
        let hooked = options.pre_hook.is_some() || options.post_hook.is_some();
        for (n, step) in steps.iter_mut().enumerate() {
            let f = course.functions[n];
            for (o, place) in course.outputs(n).iter().enumerate() {
                if let Some(changed) = hooks.on_array(*place, gradients)? {
                    step.start_from(o, &changed);
                }
            }
            if let Some(keeper) = &mut keeper {
                keeper.before(f, step)?;
            }
            while let Some((_, v, storage)) = restored.next_if(|(at, ..)| *at as usize == n) {
                if storage.is_cleared() {
                    restore::restore(*v, clearing)?;
                }
            }
            let handle = hooked.then(|| arena::with(|a| Function::counted(a, f)));
            if let (Some(hook), Some(f)) = (options.pre_hook, &handle) {
                hook(f)?;
            }
            if looks_again && let Some(which) = step.modified() {
                return Err(Error::Modified(which.describe(f)));
            }
            step.backward().map_err(|e| explain(e, f, "backward"))?;
            if anomaly {
                anomaly::after_backward(f, step)?;
            }
            if let (Some(hook), Some(f)) = (options.post_hook, &handle) {
                hook(f)?;
            }
            if !runs_again {
                step.release();
            }
            if let Some(keeper) = &keeper {
                keeper.after(f);
            }
            while let Some((_, storage)) = spent.next_if(|(at, _)| *at as usize == n) {
                storage.clear(true)?;
            }
            if !options.retain_graph {
                let_go(course, f)?;
            }
            pace.step()?;
        }
        for place in 0..course.places.len() as GradientSlotIx {
            hooks.on_array(place, gradients)?;
        }
        Ok(())
    }
}

/// Gives back what a function needed to run backward, so that it cannot again.
pub(crate) fn let_go(course: &GradientRoute, f: Ix) -> Result<()> {
    let cleared = arena::with(|a| {
        a.settle();
        a.lives_change();
        let slot = &mut a.functions[f];
        (slot.life, slot.pending) = (Saved::Freed, false);
        liveness::after_differentiation(a, f, |core| course.is_root(core))
    });
    cleared.into_iter().try_for_each(|storage| storage.clear(true))
}
