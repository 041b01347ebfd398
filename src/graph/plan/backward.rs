//! The plan of a backward run: the order of functions, which of them overwrites a gradient and which adds to it, and
//! what is cleared after each step.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::Storage;
use crate::graph::arena::order::{self, backward_order};
use crate::graph::arena::provenance::Side;
use crate::graph::arena::run_lock::PlanLock;
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::lifetime::backward::{AwaitedRun, BackwardClearing, BackwardKey, Cleared};
use crate::graph::lifetime::release::{Release, ReleasedStorage, Spares, held_by_leaves};
use crate::graph::plan::fusion;
use crate::graph::plan::fusion::backward::FusedBackward;
use crate::graph::plan::instructions::Instruction;
use crate::graph::plan::leaf_hooks::LeafHooks;
use crate::graph::settings::modes;
use crate::graph::step::backward::{BackwardStep, BothSides, DataOperand};

/// The location of a run's gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GradientHomes {
    /// In the tensors.
    Tensors,
    /// In storages of the run, which the creator of the plan assigns.
    Private,
}

/// A prepared backward run.
pub(crate) struct BackwardPlan {
    /// The functions, in execution order.
    pub(crate) order: PlanLock,
    /// One step for each function, in execution order.
    pub(crate) steps: Vec<BackwardStep>,
    /// Gradients without contributions, which are zeroed before a step reads them.
    pub(crate) zeroed: Vec<(u32, u32)>,
    /// Storages to clear after steps, in the order of the steps.
    pub(crate) clears: Vec<Release>,
    /// Data that may have been dropped, and is recomputed before a step reads it.
    pub(crate) restored: Vec<(u32, Ix, Arc<Storage>)>,
    /// Fused passes. Determined when the plan is used for the second time.
    pub(crate) passes: Option<Vec<FusedBackward>>,
    /// The instructions of a run. Empty if they must be listed again.
    pub(crate) instructions: Vec<Instruction>,
    /// The storage for a seed that is a single number.
    pub(crate) seed: Arc<Storage>,
    /// The number in the seed storage, and the version of the storage after it was written.
    pub(crate) seeded: Option<(f64, u64)>,
    /// The outputs and leaves that have hooks.
    pub(crate) hooked: LeafHooks,
    /// Where gradients are stored.
    pub(crate) homes: GradientHomes,
    /// Steps, in order, that read or write the seed gradient, whose storage differs in each run.
    pub(crate) varying: SmallVec<[u32; 2]>,
    /// The number of functions that have run, in the active or last run.
    pub(crate) done: usize,
    /// Estimated work of all steps. A run with much work releases its caller's lock.
    pub(crate) work: usize,
    /// Steps count the buffers they use and the run has no run guard: there is a budget.
    pub(crate) counted: bool,
}

impl AsMut<PlanLock> for BackwardPlan {
    fn as_mut(&mut self) -> &mut PlanLock {
        &mut self.order
    }
}

impl BackwardPlan {
    /// The plan of the run from `root`. It keeps values that the expected backward runs from `partners` read, unless
    /// they are recomputed.
    ///
    /// # Errors
    /// [`crate::Error::Graph`] if shapes changed since the forward run.
    pub(crate) fn make(a: &mut Arena, root: Ix, key: BackwardKey, partners: &[(Ix, u32)]) -> Result<Self> {
        let awaited = AwaitedRun::of(a, partners);
        let functions = backward_order(a, root);
        let len = a.shape(a.tensor(root)).size();
        let mut plan = Self::empty(functions, len, GradientHomes::Tensors);
        plan.varying.push(0);
        if key.clear_grad {
            plan.clears.reserve(2 * plan.order.len());
        }
        let clearing = BackwardClearing::new(a, key, &plan.order, awaited);
        for n in 0..plan.order.len() {
            order::check_shapes(a, plan.order[n], "backward")?;
            plan.add_step(a, n, &clearing);
        }
        plan.hooked = LeafHooks::of(a, root, &plan.order, &plan.zeroed);
        plan.spare_what_leaves_hold(a);
        Ok(plan)
    }

    /// Excludes values from clearing whose memory a leaf shares.
    fn spare_what_leaves_hold(&mut self, a: &mut Arena) {
        let is_value = |clear: &&mut Release| {
            !clear.place.is_grad && matches!(clear.spares, Spares::Nothing | Spares::Held)
        };
        let mut held = None;
        for clear in self.clears.iter_mut().filter(is_value) {
            let storage = &clear.place.storage;
            let is_held = storage.may_be_of_leaf() && {
                let held = held.get_or_insert_with(|| {
                    let above = order::up_to(a, &self.order[..1], |_, _| true);
                    held_by_leaves(a, &above)
                });
                held.contains(&Arc::as_ptr(storage))
            };
            clear.spares = if is_held { Spares::Held } else { Spares::Nothing };
        }
    }

    /// A plan without steps, whose seed has `len` elements.
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
            order: functions.into(),
        }
    }

    /// Appends a prepared step.
    #[inline]
    pub(crate) fn push(&mut self, step: BackwardStep) {
        self.work += 2 * step.x.iter().map(|x| x.shape().size()).sum::<usize>();
        self.work += step.gy.iter().map(|s| s.shape.size()).sum::<usize>();
        self.steps.push(step);
    }

    /// The seed storage, filled with a number.
    pub(crate) fn filled(&mut self, value: f64) -> Arc<Storage> {
        if self.seeded != Some((value, self.seed.version())) || self.seed.is_shown() {
            drop(self.seed.fill(value)); // a whole storage, so this cannot fail
            self.seeded = Some((value, self.seed.version()));
        }
        Arc::clone(&self.seed)
    }

    /// The validity of such a plan. It depends on the graph above `root` and above the live variables of `partners`.
    pub(crate) fn validity(a: &mut Arena, root: Ix, partners: &[(Ix, u32)]) -> Validity {
        let alive = partners.iter().filter(|partner| a.is_alive(**partner));
        let ends: Vec<Ix> = alive.map(|(v, _)| *v).chain([root]).collect();
        let above = order::depth_first(a, &ends, |_, _| true);
        a.plan_made_from(&above)
    }

    /// Appends step `n`.
    fn add_step(&mut self, a: &mut Arena, n: usize, clearing: &BackwardClearing) {
        let (f, at) = (self.order[n], n as u32);
        let first = clearing.enter(a, f);
        for o in 0..a.n_outputs(f) {
            if n > 0 && !clearing.was_seen(a, f, o) {
                self.zeroed.push((at, o as u32));
            }
            let Cleared { data, grad, restored } = clearing.after(a, f, o, n == 0);
            let tensor = a.output_tensor(f, o);
            for is_grad in [data.then_some(false), grad.then_some(true)].into_iter().flatten() {
                let waiting = if is_grad { None } else { clearing.waiting(a, f, o) };
                let place = ReleasedStorage::new(a, tensor, is_grad);
                let spares = Spares::Nothing;
                self.clears.push(Release { step: at, place, waiting, restored, spares });
            }
        }
        let step = back_step(a, f, &first);
        for (o, output) in step.y.iter().enumerate() {
            let v = a.live_output(f, o).filter(|v| a.has_flag(*v, flag::RESTORED));
            if let (Some(v), Some(slot)) = (v, output.read()) {
                self.restored.push((at, v, Arc::clone(&slot.storage)));
            }
        }
        for (v, input) in a.inputs(f).iter().zip(&step.x) {
            if let (true, Some(slot)) = (a.is_restorable(*v), input.read()) {
                self.restored.push((at, *v, Arc::clone(&slot.storage)));
            }
        }
        self.push(step);
    }

    /// Looks up the current storages of the tensors.
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
                moved |= slot.move_to(a.grad(slot.tensor)) && n > 0; // the first one differs in each run
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
            *storage = Arc::clone(a.data(a.tensor(*v)));
        }
    }

    /// Finds the steps to fuse into passes, and the steps that may write their result over an input.
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
                    // The last computed gradient, so no later one reads what it overwrites.
                    let last = step.gx.iter().rposition(Option::is_some);
                    step.over = last.filter(|i| step.gx[*i].as_ref().is_some_and(|s| s.first && !s.again));
                }
            }
        }
    }

    /// Runs every step separately and in separate memory, so that hooks can inspect its inputs after it.
    pub(crate) fn unfuse(&mut self) {
        if self.passes.take().is_some() {
            self.instructions.clear();
            self.steps.iter_mut().for_each(|step| step.over = None);
        }
    }
}

/// A function prepared to run backward. `first` is true for inputs that get their first contribution.
fn back_step(a: &mut Arena, f: Ix, first: &[bool]) -> BackwardStep {
    let mut wanted: SmallVec<[bool; 4]> = SmallVec::new();
    for (i, v) in a.inputs(f).iter().enumerate() {
        wanted.push(a.need_grad(*v) && !a.op(f).kind(i).is_whole());
    }
    BackwardStep::of(a, f, &wanted, |a, tensor, side| {
        let storage = Arc::clone(a.grad(tensor));
        let is_computed = |i: usize| a.parent(a.inputs(f)[i]) != NONE;
        let first = matches!(side, Side::Input(i) if first[i] && is_computed(i));
        (storage, first)
    })
}
