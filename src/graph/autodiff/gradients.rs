//! The plan of a differentiation, and its gradients, which are private to the run until it has succeeded.
//!
//! The gradient of an intermediate variable is alive from its first contribution until the function that computes the
//! variable has run backward. So a long chain needs two at a time. If the gradient of a leaf is zero, it is written in
//! place, and zeroed again if the run fails. Other leaves get a private gradient, which is added to theirs once all
//! are complete.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Storage;
use crate::graph::arena::describe::explain;
use crate::graph::arena::provenance::Side;
use crate::graph::arena::{Arena, Ix, NONE};
use crate::graph::autodiff::route::{GradientRoute, GradientSlotIx};
use crate::graph::lifetime::backward::{self, Waiting};
use crate::graph::lifetime::release::{Release, ReleasedStorage, Spares};
use crate::graph::plan::backward::{BackwardPlan, GradientHomes};
use crate::graph::step::backward::{BackwardStep, DataOperand};
use crate::{Error, Result};

/// Seeds, one for each root. Ones if None.
pub(crate) type Seeds = [Option<Arc<Storage>>];

/// The use of a plan, and the treatment of the values its functions saved.
#[derive(Clone, Copy)]
pub(crate) struct PlanUse {
    /// It runs once: its steps release their arrays, and the caller of the run unlocks functions.
    pub(crate) once: bool,
    /// It clears the values that its functions need to be differentiated again.
    pub(crate) frees: bool,
    /// True if the run adds to leaves, and may write to their gradients.
    pub(crate) adds: bool,
}

/// A leaf of a cached plan.
struct Leaf {
    /// The slot of its gradient.
    slot: GradientSlotIx,
    /// The tensor of the leaf.
    tensor: Ix,
    /// The contributions to its gradient, as numbers of the step and its input.
    sinks: SmallVec<[(u32, u32); 1]>,
    /// Its own gradient is written, provided that it is zero when the run starts.
    in_place: bool,
    /// The storage for its gradient in runs that do not write in place. Made on first use.
    private: Option<Arc<Storage>>,
}

/// The gradients of a differentiation.
pub(crate) struct RunGradients {
    /// For each slot, the gradient that exists at the end of the run, if any.
    pub(crate) by_slot: Vec<Option<Arc<Storage>>>,
    /// The leaves of the plan.
    leaves: Vec<Leaf>,
    /// Slots of other gradients that exist at the end of the run, except of roots.
    others: Vec<GradientSlotIx>,
    /// The uses of the roots' gradients: slot, step, array.
    roots: Vec<(GradientSlotIx, u32, Side)>,
    /// The tensors of leaves that are written in place.
    pub(crate) in_place: Arc<[Ix]>,
    /// True if the gradients of leaves are known not to share memory with other arrays of the plan.
    apart: bool,
}

/// Gradients whose memory can be reused.
#[derive(Default)]
struct SpareStorages(Vec<Arc<Storage>>);

impl SpareStorages {
    /// Takes a spare storage of this length, or makes one.
    fn take(&mut self, len: usize) -> Arc<Storage> {
        // The most recent ones are most likely in the cache.
        let at = self.0.iter().rposition(|s| s.len() == len);
        at.map_or_else(|| Storage::new(len), |at| self.0.swap_remove(at))
    }
}

impl Leaf {
    /// The destination of its gradient in the next run.
    fn home<'a>(&'a mut self, a: &'a mut Arena) -> &'a Arc<Storage> {
        if self.in_place {
            let is_graph = a.has_gradient_variable(self.tensor);
            let own = a.grad(self.tensor);
            self.in_place = !is_graph && own.is_zero() && !own.is_shown();
        }
        if self.in_place {
            return a.grad(self.tensor);
        }
        let len = a.shape(self.tensor).size();
        let private = self.private.get_or_insert_with(|| Storage::new(len));
        drop(private.zero()); // a whole storage, so this cannot fail
        private
    }
}

impl RunGradients {
    /// Makes the plan of a route. Roots that share a slot start from the seed of the first one.
    pub(crate) fn make(
        a: &mut Arena,
        route: &GradientRoute,
        seeds: &Seeds,
        plan_use: PlanUse,
    ) -> (BackwardPlan, Self) {
        let len = a.shape(route.slots[route.roots[0] as usize].tensor).size();
        let mut plan = BackwardPlan::empty(route.order.clone(), len, GradientHomes::Private);
        let by_slot = vec![None; route.slots.len()];
        let (leaves, others, roots) = (Vec::new(), Vec::new(), Vec::new());
        let in_place = Arc::new([]);
        let mut own = Self { by_slot, leaves, others, roots, in_place, apart: false };
        own.start_from(route, &mut plan, seeds);
        let run = a.new_mark();
        route.order.iter().for_each(|f| a.mark_function(*f, run));
        // A user function may keep the arrays it receives.
        let reuse = route.order.iter().all(|f| a.op(*f).on_arrays().is_none());
        let mut spares = SpareStorages::default();
        for n in 0..route.order.len() {
            own.add_step(a, route, &mut plan, n, plan_use, &mut spares);
            if plan_use.frees && !plan_use.once {
                release_outputs(a, route, &mut plan, n, run);
            }
            for slot in route.outputs(n).iter().filter(|slot| !route.keeps(a, **slot)) {
                // The steps that write and read it hold it.
                let Some(storage) = own.by_slot[*slot as usize].take() else { continue };
                if !plan_use.once {
                    plan.clears.push(Release::of_private(n as u32, storage));
                } else if reuse {
                    spares.0.push(storage);
                }
            }
        }
        let left = (0..).zip(&own.by_slot).filter_map(|(slot, found)| found.as_ref().map(|_| slot));
        let is_leaf = |slot: &GradientSlotIx| own.leaves.iter().any(|leaf| leaf.slot == *slot);
        if !plan_use.once {
            own.others = left.filter(|slot| !route.roots.contains(slot) && !is_leaf(slot)).collect();
        }
        (plan, own)
    }

    /// Adds the backward step of the n-th function of the route to the plan, with storages for its gradients.
    fn add_step(
        &mut self,
        a: &mut Arena,
        route: &GradientRoute,
        plan: &mut BackwardPlan,
        n: usize,
        plan_use: PlanUse,
        spares: &mut SpareStorages,
    ) {
        let f = route.order[n];
        let (outputs, inputs) = (route.outputs(n), route.inputs(n));
        let wanted: SmallVec<[bool; 4]> = inputs.iter().map(|slot| *slot != NONE).collect();
        let at = n as u32;
        let Self { by_slot, leaves, .. } = self;
        let mut unreached: SmallVec<[(u32, Arc<Storage>); 1]> = SmallVec::new();
        let step = BackwardStep::of(a, f, &wanted, |a, tensor, side| {
            let len = a.shape(tensor).size();
            let (slot, i) = match side {
                Side::Output(o) => {
                    let found = by_slot[outputs[o] as usize].clone();
                    // A gradient without contributions reads as zeros.
                    return (
                        found.unwrap_or_else(|| {
                            let zeros = Storage::new(len);
                            unreached.push((o as u32, Arc::clone(&zeros)));
                            zeros
                        }),
                        false,
                    );
                }
                Side::Input(i) => (inputs[i] as usize, i as u32),
            };
            let is_leaf = route.slots[slot].leaf;
            let kept_leaf = is_leaf && !plan_use.once;
            if let Some(found) = &by_slot[slot] {
                let leaf = leaves.iter_mut().find(|leaf| kept_leaf && leaf.slot as usize == slot);
                if let Some(leaf) = leaf {
                    leaf.sinks.push((at, i));
                }
                return (Arc::clone(found), false);
            }
            let storage = match a.existing_grad(tensor) {
                _ if kept_leaf => {
                    let sinks = SmallVec::from_slice(&[(at, i)]);
                    let (slot, in_place) = (slot as GradientSlotIx, plan_use.adds);
                    leaves.push(Leaf { slot, tensor, sinks, in_place, private: None });
                    Storage::new(len)
                }
                Some(own) if is_leaf => own.zeros_with_spare(),
                None if is_leaf => Storage::new(len), // it leaves the run
                _ if plan_use.once => spares.take(len),
                _ => Storage::new(len),
            };
            by_slot[slot] = Some(Arc::clone(&storage));
            // The gradient of a leaf starts at zero, and each contribution is added.
            (storage, !kept_leaf)
        });
        if !plan_use.once {
            for (o, zeros) in unreached {
                plan.zeroed.push((at, o));
                plan.clears.push(Release::of_private(at, zeros));
            }
            let sides = (0..).map(Side::Output).zip(outputs).chain((0..).map(Side::Input).zip(inputs));
            let before = self.roots.len();
            let starts = sides.filter(|(_, slot)| route.roots.contains(slot));
            self.roots.extend(starts.map(|(side, slot)| (*slot, at, side)));
            plan.varying.extend((self.roots.len() > before).then_some(at));
        }
        let recomputed = |v: Ix| a.is_restorable(v);
        for (o, data) in step.y.iter().enumerate() {
            if let (Some(y), Some(v)) = (data.read(), a.live_output(f, o).filter(|v| recomputed(*v))) {
                plan.restored.push((at, v, Arc::clone(&y.storage)));
            }
        }
        for (v, data) in a.inputs(f).iter().zip(&step.x) {
            if let (Some(x), true) = (data.read(), recomputed(*v)) {
                plan.restored.push((at, *v, Arc::clone(&x.storage)));
            }
        }
        plan.push(step);
    }

    /// Puts the seeds in the slots of roots. If several roots share a slot, the first seed is used.
    fn start_from(&mut self, route: &GradientRoute, plan: &mut BackwardPlan, seeds: &Seeds) {
        for (slot, seed) in route.roots.iter().zip(seeds).rev() {
            let seed = seed.clone().unwrap_or_else(|| plan.filled(1.0));
            self.by_slot[*slot as usize] = Some(seed);
        }
    }

    /// Prepares a cached plan to run from these seeds.
    pub(crate) fn start(
        &mut self,
        a: &mut Arena,
        route: &GradientRoute,
        plan: &mut BackwardPlan,
        seeds: &Seeds,
    ) {
        self.start_from(route, plan, seeds);
        for (slot, step, side) in &self.roots {
            let Some(seed) = &self.by_slot[*slot as usize] else { continue };
            let step = &mut plan.steps[*step as usize];
            match side {
                Side::Output(o) => step.start_from(*o, seed),
                Side::Input(i) => {
                    step.gx[*i].iter_mut().for_each(|sink| _ = sink.slot.move_to(seed));
                }
            }
        }
        let moved = self.move_leaves(a, plan);
        if (moved || !self.apart) && !self.are_leaves_apart(plan) {
            self.leaves.iter_mut().for_each(|leaf| leaf.in_place = false);
            self.move_leaves(a, plan);
        }
        self.apart = true;
    }

    /// Updates the destinations of leaf gradients. Returns false if they are unchanged.
    fn move_leaves(&mut self, a: &mut Arena, plan: &mut BackwardPlan) -> bool {
        let mut any = false;
        for leaf in &mut self.leaves {
            let found = &mut self.by_slot[leaf.slot as usize];
            let home = leaf.home(a);
            if found.as_ref().is_some_and(|before| Arc::ptr_eq(before, home)) {
                continue;
            }
            let home = Arc::clone(home);
            any = true;
            for (step, i) in &leaf.sinks {
                let step = &mut plan.steps[*step as usize];
                step.gx[*i as usize].iter_mut().for_each(|sink| _ = sink.slot.move_to(&home));
                step.look();
            }
            *found = Some(home);
        }
        if any {
            plan.unfuse();
            self.in_place = self.leaves.iter().filter(|leaf| leaf.in_place).map(|leaf| leaf.tensor).collect();
        }
        any
    }

    /// True if no leaf gradient that is written in place may share the memory of a value that the plan reads.
    fn are_leaves_apart(&self, plan: &BackwardPlan) -> bool {
        let read = plan.steps.iter().flat_map(|step| step.x.iter().chain(&step.y));
        let read = read.filter_map(DataOperand::read).map(|operand| (&*operand.storage, false));
        let in_place = self.leaves.iter().filter(|leaf| leaf.in_place);
        let written = in_place.filter_map(|leaf| Some((&**self.by_slot[leaf.slot as usize].as_ref()?, true)));
        let mut all: Vec<(&Storage, bool)> = read.chain(written).collect();
        !Storage::any_may_meet(&mut all)
    }

    /// Looks up the current storages of the values.
    pub(crate) fn relocate(&mut self, a: &mut Arena, plan: &mut BackwardPlan) {
        plan.relocate(a);
        self.apart = false;
    }

    /// Zeroes gradients of leaves that a failed run may have written.
    pub(crate) fn undo(&self) {
        let in_place = self.leaves.iter().filter(|leaf| leaf.in_place);
        let written = in_place.filter_map(|leaf| self.by_slot[leaf.slot as usize].as_ref());
        written.for_each(|own| drop(own.zero()));
    }

    /// Frees the memory of results that were not taken.
    pub(crate) fn give_back(&self) -> Result<()> {
        let private = self.leaves.iter().filter(|leaf| !leaf.in_place).map(|leaf| leaf.slot);
        let left = private.chain(self.others.iter().copied());
        let mut left = left.filter_map(|slot| self.by_slot[slot as usize].as_ref());
        left.try_for_each(|storage| storage.clear(true))
    }
}

/// Makes a plan clear the output data of function `n` of a static graph, as far as allowed.
fn release_outputs(a: &mut Arena, route: &GradientRoute, plan: &mut BackwardPlan, n: usize, run: u32) {
    let f = route.order[n];
    for o in 0..a.n_outputs(f) {
        let tensor = a.output_tensor(f, o);
        let readers = backward::after_last_gradient(a, f, o);
        let Some(readers) = readers.filter(|readers| !readers.any_tensor(|t| route.is_root(t))) else {
            continue;
        };
        let outside = readers.functions.into_iter().filter(|(f, _)| !a.is_marked(*f, run));
        let waiting = Waiting { guards: outside.collect(), partners: Vec::new() };
        plan.clears.push(Release {
            step: n as u32,
            place: ReleasedStorage::new(a, tensor, false),
            waiting: waiting.if_anybody(),
            restored: false,
            spares: if readers.is_shared { Spares::Seen } else { Spares::Parts },
        });
    }
}

/// Returns an error if a value changed since the forward run. Must be called before anything is freed.
pub(crate) fn check(plan: &BackwardPlan) -> Result<()> {
    for (f, step) in plan.order.iter().zip(&plan.steps) {
        if step.changed(|_| true).is_none() {
            continue;
        }
        if let Some(which) = step.modified() {
            return Err(Error::Modified(which.describe(*f)));
        }
        // Values that were dropped on purpose are recomputed.
        let gone =
            |storage: &Storage| !plan.restored.iter().any(|(.., r)| std::ptr::eq(&raw const **r, storage));
        if step.changed(gone).is_some() {
            return Err(explain(Error::Cleared(String::new()), *f, "backward"));
        }
    }
    Ok(())
}
