//! The plan of a forward run: the order of functions, and what is cleared after each.

use std::collections::HashSet;
use std::sync::Arc;

use crate::Result;
use crate::array::Storage;
use crate::graph::arena::run_lock::PlanLock;
use crate::graph::arena::{Arena, Ix, aliasing, flag, order};
use crate::graph::lifetime::forward::Clearing;
use crate::graph::lifetime::release::{ReleasedStorage, held_by_leaves};
use crate::graph::lifetime::rules::Policy;
use crate::graph::lifetime::{clear_record, in_place};
use crate::graph::plan::fusion;
use crate::graph::plan::fusion::epilogue::EpilogueChain;
use crate::graph::plan::fusion::forward::FusedForward;
use crate::graph::plan::instructions::Instruction;
use crate::graph::settings::modes;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::prepare;
use crate::graph::step::setup::{self, Stop};

/// A prepared forward run.
pub(crate) struct ForwardPlan {
    /// The functions, in execution order, with the lock on them that a run takes.
    pub(crate) order: PlanLock,
    /// One step for each function, in execution order.
    pub(crate) steps: Vec<ForwardStep>,
    /// The inputs to clear, as numbers of the step and its input, in order.
    pub(crate) clears: Vec<(u32, u32)>,
    /// Inputs that are not cleared because a leaf shares their memory, or because Python holds the value and
    /// `spares_held` is set.
    held: Vec<(u32, u32)>,
    /// True if values that Python holds and that need a gradient are not cleared, as in NNabla.
    spares_held: bool,
    /// Storages to free before the first step of a run under a memory budget, if they have memory.
    pub(crate) fresh: Vec<ReleasedStorage>,
    /// Fused passes. Determined when the plan is used for the second time.
    pub(crate) passes: Option<Vec<FusedForward>>,
    /// Steps that run as an epilogue of the one before them.
    pub(crate) chains: Vec<EpilogueChain>,
    /// The instructions of a run. Empty if they must be listed again.
    pub(crate) instructions: Vec<Instruction>,
    /// Functions whose outputs share the memory of their inputs.
    in_place: Vec<Ix>,
    /// Estimated work of all steps. A run with much work releases its caller's lock.
    pub(crate) work: usize,
    /// Shapes depend on values: each step is prepared just before it runs.
    pub(crate) late: bool,
    /// Steps count the buffers they use and the run has no run guard: there is a budget.
    pub(crate) counted: bool,
}

impl AsMut<PlanLock> for ForwardPlan {
    fn as_mut(&mut self) -> &mut PlanLock {
        &mut self.order
    }
}

impl ForwardPlan {
    /// Plans a forward run of these roots through the functions that `enter` accepts.
    pub(crate) fn make(
        a: &mut Arena,
        roots: &[Ix],
        policy: Policy,
        enter: impl Fn(&Arena, Ix) -> bool,
    ) -> Result<Self, Stop> {
        let functions = setup::forward(a, roots, enter)?;
        let clearing = Clearing::new(a, policy);
        let late = functions.iter().any(|f| a.facts(*f).shaped_by.is_some());
        let mut plan = Self {
            order: functions.into(),
            steps: Vec::new(),
            clears: Vec::new(),
            held: Vec::new(),
            spares_held: modes::is_nnabla()
                && policy.clear_no_need_grad
                && !policy.clear_buffer
                && !policy.recomputation
                && !clear_record::is_recording(), // A record shows what may be cleared, held or not.
            fresh: Vec::new(),
            passes: None,
            chains: Vec::new(),
            instructions: Vec::new(),
            in_place: Vec::new(),
            work: 0,
            late,
            counted: false,
        };
        plan.steps.reserve_exact(plan.order.len());
        for (n, f) in plan.order.iter().enumerate() {
            order::check_shapes(a, *f, "forward")?;
            let step = prepare::step(a, *f);
            plan.work += step.work();
            if (0..step.x.len()).any(|i| a.facts(*f).alias(i).is_some()) {
                plan.in_place.push(*f);
            }
            plan.steps.push(step);
            plan.clears.extend(clearing.after(a, *f).into_iter().map(|i| (n as u32, i as u32)));
        }
        if policy.clear_buffer {
            plan.clears.extend(in_place::last_uses(a, &plan.order, &plan.steps));
            plan.clears.sort_unstable();
        }
        plan.spare(a);
        Ok(plan)
    }

    /// Excludes values from clearing whose memory a leaf shares. If `spares_held` is set, also excludes values that
    /// Python holds.
    fn spare(&mut self, a: &Arena) {
        let storage = |(n, i): &(u32, u32)| &self.steps[*n as usize].x[*i as usize].storage;
        if self.held.is_empty()
            && !self.spares_held
            && !self.clears.iter().any(|clear| storage(clear).may_be_of_leaf())
        {
            return;
        }
        let mut all = std::mem::take(&mut self.clears);
        all.append(&mut self.held);
        let leaves = held_by_leaves(a, &self.order);
        let is_held =
            |clear: &(u32, u32)| leaves.contains(&Arc::as_ptr(storage(clear))) || self.is_held(a, *clear);
        let (held, mut clears): (Vec<_>, Vec<_>) = all.into_iter().partition(is_held);
        clears.sort_unstable();
        (self.held, self.clears) = (held, clears);
    }

    /// True if Python holds a value that needs a gradient, so the run must not clear it.
    fn is_held(&self, a: &Arena, (n, i): (u32, u32)) -> bool {
        if !self.spares_held {
            return false;
        }
        let v = a.inputs(self.order[n as usize])[i as usize];
        let users = || a.existing_data(a.tensor(v)).is_some_and(|data| data.users() > 0);
        !a.is_end(v) && !a.has_flag(v, flag::RECOMPUTE) && users()
    }

    /// Updates the excluded values if Python holds others than in the run before.
    pub(crate) fn spare_what_is_held_now(&mut self, a: &Arena) {
        if !self.spares_held {
            return;
        }
        let is_spared = |clear: &(u32, u32)| {
            let (n, i) = *clear;
            self.is_held(a, *clear) || self.steps[n as usize].x[i as usize].storage.may_be_of_leaf()
        };
        if self.clears.iter().any(|clear| self.is_held(a, *clear)) || !self.held.iter().all(is_spared) {
            self.unfuse();
            self.instructions.clear();
            self.spare(a);
        }
    }

    /// Looks up the current storages of the tensors, and makes in-place outputs share memory with their inputs.
    pub(crate) fn relocate(&mut self, a: &mut Arena) {
        self.in_place.iter().for_each(|f| aliasing::share_memory(a, *f));
        let mut any = false;
        for step in &mut self.steps {
            let mut moved = false;
            for slot in step.x.iter_mut().chain(&mut step.y) {
                moved |= slot.move_to(a.data(slot.tensor));
            }
            if moved {
                step.look();
            }
            any |= moved;
        }
        if any {
            self.unfuse();
            self.instructions.clear();
            self.spare(a);
        } else {
            self.spare_what_is_held_now(a);
        }
        self.fresh.iter_mut().for_each(|place| place.move_to_current(a));
    }

    /// Finds the functions that compare or move computed real numbers. These may be fused.
    fn expect_integers(&mut self) {
        let reads_integers = |step: &ForwardStep| step.op.facts().reads_integers(step.x.len());
        if !self.steps.iter().any(reads_integers) {
            return;
        }
        let mut reals: HashSet<*const Storage> = HashSet::new();
        for step in &mut self.steps {
            step.expect_integers(|storage| reals.contains(&std::ptr::from_ref(storage)));
            let computes = !step.reads_integers() && step.op.on_arrays().is_none();
            for (o, y) in step.y.iter().enumerate() {
                if computes && step.op.output(o).is_none() {
                    reals.insert(Arc::as_ptr(&y.storage));
                } else {
                    reals.remove(&Arc::as_ptr(&y.storage));
                }
            }
        }
    }

    /// Finds the steps to fuse into passes, and the steps that may write their result over an input.
    pub(crate) fn fuse(&mut self) {
        if self.passes.is_none() && !self.late && !modes::plan_is_plain() {
            self.instructions.clear();
            self.expect_integers();
            self.chains = EpilogueChain::all(&self.steps, &self.clears);
            self.passes = Some(FusedForward::all(&self.steps, &self.clears, &self.chains));
            for (n, i) in &self.clears {
                let (step, i) = (&mut self.steps[*n as usize], *i as usize);
                let as_large = |len: usize| step.x.iter().all(|x| x.shape.size() == len);
                if fusion::forward::forward_len(step).is_some_and(|len| len > Storage::SMALL && as_large(len))
                {
                    step.over = Some(i);
                }
            }
        }
    }

    /// Runs every step separately and in separate memory, so that hooks can inspect its inputs after it.
    pub(crate) fn unfuse(&mut self) {
        if self.passes.take().is_some() {
            self.instructions.clear();
            self.chains.clear();
            self.steps.iter_mut().for_each(|step| step.over = None);
        }
    }
}
