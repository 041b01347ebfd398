//! The plan of a backward run: which functions run in which order, who writes a gradient first and who adds to it, and what
//! is cleared after which step.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::Storage;
use crate::graph::arena::order::{self, backward_order};
use crate::graph::arena::provenance::Side;
use crate::graph::arena::run_lock::PlanLock;
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::memory::release::{AwaitedRun, BackwardClearing, BackwardKey, Cleared};
use crate::graph::plan::fusion;
use crate::graph::plan::fusion::backward::FusedBackward;
use crate::graph::plan::instructions::Instruction;
use crate::graph::plan::leaf_hooks::LeafHooks;
use crate::graph::plan::releases::{Release, ReleasedStorage, Spares, held_by_leaves};
use crate::graph::settings::modes;
use crate::graph::step::backward::{BackwardStep, BothSides, DataOperand};

/// Where the gradients of a run live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradientHomes {
    /// They are those of the tensors.
    Tensors,
    /// They are the run's own, and whoever made the plan moves them.
    Private,
}

/// A backward run made ready.
pub(crate) struct BackwardPlan {
    pub(crate) functions: PlanLock,
    pub(crate) steps: Vec<BackwardStep>,
    /// Gradients that nobody contributes to, set to zero before a step reads them.
    pub(crate) zeroed: Vec<(u32, u32)>,
    pub(crate) clears: Vec<Release>,
    /// Data that may have been dropped, and is computed again before a step reads it.
    pub(crate) restored: Vec<(u32, Ix, Arc<Storage>)>,
    /// Which steps run as one pass: found when the plan is used again.
    pub(crate) passes: Option<Vec<FusedBackward>>,
    /// What a run does; empty when that has to be listed.
    pub(crate) instructions: Vec<Instruction>,
    /// Where a number to start from is spread out, and the version and number that it had then.
    pub(crate) seed: Arc<Storage>,
    pub(crate) seeded: Option<(f64, u64)>,
    pub(crate) hooked: LeafHooks,
    pub(crate) homes: GradientHomes,
    /// Steps, in order, that read or write a gradient which is another in each run: that which the run starts from.
    pub(crate) varying: SmallVec<[u32; 2]>,
    /// How many functions have run, in the run under way or the last one.
    pub(crate) done: usize,
    pub(crate) work: usize,
    /// Steps count what they use and let nobody wait: there is a budget.
    pub(crate) counted: bool,
}

impl AsMut<PlanLock> for BackwardPlan {
    fn as_mut(&mut self) -> &mut PlanLock {
        &mut self.functions
    }
}

impl BackwardPlan {
    /// The run from `root`; backward runs from `partners` are to come, and find what is not computed again.
    ///
    /// # Errors
    /// [`crate::Error::Graph`] where shapes are not those of the forward run.
    pub(crate) fn make(a: &mut Arena, root: Ix, key: BackwardKey, partners: &[(Ix, u32)]) -> Result<Self> {
        let awaited = AwaitedRun::of(a, partners);
        let functions = backward_order(a, root);
        let len = a.tensors[a.variables[root].tensor].shape.size();
        let mut plan = Self::empty(functions, len, GradientHomes::Tensors);
        plan.varying.push(0);
        if key.clear_grad {
            plan.clears.reserve(2 * plan.functions.len());
        }
        let clearing = BackwardClearing::new(a, key, &plan.functions, awaited);
        for n in 0..plan.functions.len() {
            order::check_shapes(a, plan.functions[n], "backward")?;
            plan.add_step(a, n, &clearing);
        }
        plan.hooked = LeafHooks::of(a, root, &plan.functions, &plan.zeroed);
        plan.spare_what_leaves_hold(a);
        Ok(plan)
    }

    /// Spares the values whose memory a leaf has too.
    fn spare_what_leaves_hold(&mut self, a: &mut Arena) {
        let is_value = |clear: &&mut Release| {
            !clear.place.is_grad && matches!(clear.spares, Spares::Nothing | Spares::Held)
        };
        let mut held = None;
        for clear in self.clears.iter_mut().filter(is_value) {
            let storage = &clear.place.storage;
            let is_held = storage.may_be_of_leaf() && {
                let held = held.get_or_insert_with(|| {
                    let above = order::up_to(a, &self.functions[..1], |_, _| true);
                    held_by_leaves(a, &above)
                });
                held.contains(&Arc::as_ptr(storage))
            };
            clear.spares = if is_held { Spares::Held } else { Spares::Nothing };
        }
    }

    /// A plan without steps yet, which starts from gradients of `len` elements.
    pub(crate) fn empty(functions: Vec<Ix>, len: usize, homes: GradientHomes) -> Self {
        Self {
            steps: Vec::with_capacity(functions.len()),
            zeroed: Vec::new(),
            clears: Vec::new(),
            restored: Vec::new(),
            passes: None,
            instructions: Vec::new(),
            seed: Storage::new(len),
            seeded: None,
            hooked: LeafHooks::default(),
            homes,
            varying: SmallVec::new(),
            done: 0,
            work: 0,
            counted: false,
            functions: functions.into(),
        }
    }

    /// Adds a step that was made ready.
    #[inline]
    pub(crate) fn push(&mut self, step: BackwardStep) {
        self.work += 2 * step.x.iter().map(|x| x.shape().size()).sum::<usize>();
        self.work += step.gy.iter().map(|s| s.shape.size()).sum::<usize>();
        self.steps.push(step);
    }

    /// The storage to start from, if it is filled with a number.
    pub(crate) fn filled(&mut self, value: f64) -> Arc<Storage> {
        if self.seeded != Some((value, self.seed.version())) || self.seed.is_shown() {
            drop(self.seed.fill(value)); // which is whole: it cannot fail
            self.seeded = Some((value, self.seed.version()));
        }
        Arc::clone(&self.seed)
    }

    /// How long such a plan holds: it is made from what is above `root` and, as far as these are to come, above `partners`.
    pub(crate) fn validity(a: &mut Arena, root: Ix, partners: &[(Ix, u32)]) -> Validity {
        let alive = partners.iter().filter(|(v, generation)| a.variables[*v].generation == *generation);
        let ends: Vec<Ix> = alive.map(|(v, _)| *v).chain([root]).collect();
        let above = order::depth_first(a, &ends, |_, _| true);
        a.plan_made_from(&above)
    }

    /// Adds step `n`.
    fn add_step(&mut self, a: &mut Arena, n: usize, clearing: &BackwardClearing) {
        let (f, at) = (self.functions[n], n as u32);
        let first = clearing.enter(a, f);
        for o in 0..a.functions[f].outputs.len() {
            if n > 0 && !clearing.was_seen(a, f, o) {
                self.zeroed.push((at, o as u32));
            }
            let Cleared { data, grad, restored } = clearing.after(a, f, o, n == 0);
            let tensor = a.functions[f].outputs[o].tensor;
            for is_grad in [data.then_some(false), grad.then_some(true)].into_iter().flatten() {
                let waiting = if is_grad { None } else { clearing.waiting(a, f, o) };
                let place = ReleasedStorage::new(a, tensor, is_grad);
                let spares = Spares::Nothing;
                self.clears.push(Release { step: at, place, waiting, restored, spares });
            }
        }
        let step = back_step(a, f, &first);
        for (o, output) in step.y.iter().enumerate() {
            let flags = a.live_output(f, o).map_or(0, |v| a.variables[v].flags);
            if let (true, Some(slot)) = (flags & flag::RESTORED != 0, output.read()) {
                self.restored.push((at, a.functions[f].outputs[o].variable, Arc::clone(&slot.storage)));
            }
        }
        for (v, input) in a.functions[f].inputs.iter().zip(&step.x) {
            let computed = a.variables[*v].parent != NONE && a.variables[*v].flags & flag::RESTORED != 0;
            if let (true, Some(slot)) = (computed, input.read()) {
                self.restored.push((at, *v, Arc::clone(&slot.storage)));
            }
        }
        self.push(step);
    }

    /// Looks at the storages that the tensors have now.
    pub(crate) fn relocate(&mut self, a: &mut Arena) {
        let mut any = false;
        let arena = self.homes == GradientHomes::Tensors;
        for (n, step) in self.steps.iter_mut().enumerate() {
            let mut moved = false;
            for slot in step.x.iter_mut().chain(&mut step.y).filter_map(DataOperand::read_mut) {
                moved |= slot.move_to(a.data(slot.tensor));
            }
            for slot in step.gx.iter_mut().flatten().map(|s| &mut s.slot).filter(|_| arena) {
                moved |= slot.move_to(a.grad(slot.tensor));
            }
            for slot in step.gy.iter_mut().filter(|_| arena) {
                moved |= slot.move_to(a.grad(slot.tensor)) && n > 0; // the first one is another in each run
            }
            if moved {
                step.look();
            }
            any |= moved;
            if let Some(BothSides { x, y, tensors }) = step.arrays.as_deref_mut() {
                for (array, tensor) in x.iter_mut().chain(y).zip(tensors) {
                    (array.data, array.grad) = (Arc::clone(a.data(*tensor)), Arc::clone(a.grad(*tensor)));
                }
            }
        }
        if any {
            self.unfuse();
            self.instructions.clear();
        }
        self.clears.iter_mut().for_each(|clear| clear.place.move_to_current(a));
        self.spare_what_leaves_hold(a);
        self.passes.iter_mut().flatten().for_each(FusedBackward::look_again);
        for (_, v, storage) in &mut self.restored {
            *storage = Arc::clone(a.data(a.variables[*v].tensor));
        }
    }

    /// Finds the steps that may run as one pass, and those that may write where they read.
    pub(crate) fn fuse(&mut self) {
        if self.passes.is_none() && !modes::plan_is_plain() {
            self.instructions.clear();
            let zeroed = self.zeroed.iter().map(|(step, _)| *step);
            let apart = zeroed.chain(self.restored.iter().map(|(step, ..)| *step)).collect();
            self.passes = Some(FusedBackward::all(&self.steps, &self.clears, &apart, &self.varying));
            let fixed = |step: u32| self.varying.binary_search(&step).is_err();
            for clear in self.clears.iter().filter(|clear| clear.place.is_grad && fixed(clear.step)) {
                let step = &mut self.steps[clear.step as usize];
                let as_large = |len: usize| step.x.iter().all(|x| x.shape().size() == len);
                if fusion::backward::backward_len(step)
                    .is_some_and(|len| len > Storage::SMALL && as_large(len))
                {
                    // The last one that is computed: none that follows reads what it overwrites.
                    let last = step.gx.iter().rposition(Option::is_some);
                    step.over = last.filter(|i| step.gx[*i].as_ref().is_some_and(|s| s.first && !s.again));
                }
            }
        }
    }

    /// Has every step run alone and leave what it reads to whoever looks at it after the step.
    pub(crate) fn unfuse(&mut self) {
        if self.passes.take().is_some() {
            self.instructions.clear();
            self.steps.iter_mut().for_each(|step| step.over = None);
        }
    }
}

/// A function made ready to run backward; `first` says which inputs get their first contribution.
fn back_step(a: &mut Arena, f: Ix, first: &[bool]) -> BackwardStep {
    let mut wanted: SmallVec<[bool; 4]> = SmallVec::new();
    for (i, v) in a.functions[f].inputs.iter().enumerate() {
        wanted.push(a.need_grad(*v) && !a.op(f).kind(i).is_whole());
    }
    BackwardStep::of(a, f, &wanted, |a, tensor, side| {
        let storage = Arc::clone(a.grad(tensor));
        let is_computed = |i: usize| a.variables[a.functions[f].inputs[i]].parent != NONE;
        let first = matches!(side, Side::Input(i) if first[i] && is_computed(i));
        (storage, first)
    })
}
