//! Plans that are kept: where, under which key, and how long they hold.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::graph::arena::{self, Arena, Attachment, Garbage, Ix};
use crate::graph::memory::release::Policy;
use crate::graph::plan::backward::{BackwardKey, BackwardPlan};
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::settings::modes;
use crate::ops::{Op, Operation};

/// What tells the plans of one destination apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardKey {
    roots: SmallVec<[Ix; 2]>,
    policy: Policy,
    budget: Option<usize>,
    depth_first: bool,
}

impl ForwardKey {
    pub(crate) fn forward(roots: &[Ix], policy: Policy, budget: Option<usize>) -> Self {
        let depth_first = modes::depth_first();
        Self { roots: SmallVec::from_slice(roots), policy, budget, depth_first }
    }
}

/// A plan at rest, and the state of the arena for which it was made.
pub(crate) struct CachedPlan {
    seen: EpochStamp,
    plan: Plan,
}

/// The state of the arena that a run found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochStamp {
    pub(crate) structure: u64,
    pub(crate) places: u64,
}

impl EpochStamp {
    pub(crate) fn now(a: &Arena) -> Self {
        Self { structure: a.structure, places: a.places }
    }
}

enum Plan {
    Forward(ForwardKey, ForwardPlan),
    Backward(BackwardKey, BackwardPlan),
}

impl Attachment for CachedPlan {
    fn operation_handles(&self, op: &Arc<dyn Operation>) -> usize {
        let is = |other: &Op| matches!(other, Op::Shared(other) if Arc::ptr_eq(op, other));
        match &self.plan {
            Plan::Forward(_, plan) => plan.steps.iter().filter(|step| is(&step.op)).count(),
            Plan::Backward(_, plan) => plan.steps.iter().filter(|step| is(&step.op)).count(),
        }
    }
}

/// The plans of runs that end at one variable.
#[derive(Default)]
struct Plans(Vec<CachedPlan>);

impl Attachment for Plans {
    fn operation_handles(&self, op: &Arc<dyn Operation>) -> usize {
        self.0.iter().map(|plan| plan.operation_handles(op)).sum()
    }
}

/// Plans that one destination keeps: to train, to evaluate, with and without clearing.
const PLANS_PER_VARIABLE: usize = 6;

impl CachedPlan {
    /// Takes the forward plan of `root` with this key out, if there is one that still holds.
    pub(crate) fn take_forward(a: &mut Arena, root: Ix, key: &ForwardKey) -> Option<ForwardPlan> {
        let kept = Self::take(a, root, |p| matches!(p, Plan::Forward(k, _) if k == key))?;
        let Plan::Forward(_, mut plan) = kept.plan else { return None };
        if kept.seen.places != a.places {
            plan.relocate(a);
        }
        Some(plan)
    }

    /// Takes the backward plan of `root` with this key out, if there is one that still holds.
    pub(crate) fn take_backward(a: &mut Arena, root: Ix, key: BackwardKey) -> Option<BackwardPlan> {
        let kept = Self::take(a, root, |p| matches!(p, Plan::Backward(k, _) if *k == key))?;
        let Plan::Backward(_, mut plan) = kept.plan else { return None };
        if kept.seen.places != a.places {
            plan.relocate(a);
        }
        Some(plan)
    }

    fn take(a: &mut Arena, root: Ix, wanted: impl Fn(&Plan) -> bool) -> Option<Self> {
        let structure = a.structure;
        let Plans(plans) = a.variables[root].extra.as_mut()?.plans.get_mut()?;
        let at = plans.iter().position(|kept| wanted(&kept.plan))?;
        let kept = plans.swap_remove(at);
        if kept.seen.structure == structure {
            return Some(kept);
        }
        a.discard(Garbage::Attachment(Box::new(kept)));
        None
    }

    /// Keeps a forward plan for the next run.
    pub(crate) fn put_forward(a: &mut Arena, root: Ix, key: ForwardKey, seen: EpochStamp, plan: ForwardPlan) {
        Self::put(a, root, seen, Plan::Forward(key, plan));
    }

    /// Keeps a backward plan for the next run.
    pub(crate) fn put_backward(
        a: &mut Arena,
        root: Ix,
        key: BackwardKey,
        seen: EpochStamp,
        plan: BackwardPlan,
    ) {
        Self::put(a, root, seen, Plan::Backward(key, plan));
    }

    fn put(a: &mut Arena, root: Ix, seen: EpochStamp, plan: Plan) {
        let kept = Self { seen, plan };
        let Plans(plans) = a.extra(root).plans.get_or_default();
        let oldest = (plans.len() >= PLANS_PER_VARIABLE).then(|| plans.remove(0));
        plans.push(kept);
        if let Some(oldest) = oldest {
            a.discard(Garbage::Attachment(Box::new(oldest)));
        }
    }
}

/// Has every plan made anew: an array that one of them knows was given memory that may be that of others too.
pub fn memory_changed() {
    arena::with(|a| a.structure += 1);
}
