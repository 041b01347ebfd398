//! The cache of plans: location, key and validity.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::graph::arena::validity::Validity;
use crate::graph::arena::{self, Arena, Attachment, Ix};
use crate::graph::lifetime::backward::BackwardKey;
use crate::graph::lifetime::rules::Policy;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::settings::modes::{self, ExecutionOrder};
use crate::ops::{Op, Operation};

/// Identifies a forward plan of one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForwardKey {
    /// The destinations.
    roots: SmallVec<[Ix; 2]>,
    /// The clearing policy.
    policy: Policy,
    /// The memory budget in bytes, if any.
    budget: Option<usize>,
    /// The order of functions.
    execution_order: ExecutionOrder,
}

impl ForwardKey {
    /// The key of a forward plan with the current order of execution.
    pub(crate) fn forward(roots: &[Ix], policy: Policy, budget: Option<usize>) -> Self {
        let execution_order = modes::execution_order();
        Self { roots: SmallVec::from_slice(roots), policy, budget, execution_order }
    }
}

/// A cached plan and its validity.
pub(crate) struct CachedPlan {
    /// Tells whether the graph still fits the plan.
    validity: Validity,
    /// The plan.
    plan: Plan,
}

/// A plan. Boxed, since plans are large and are moved in each run.
enum Plan {
    Forward(ForwardKey, Box<ForwardPlan>),
    Backward(BackwardKey, Box<BackwardPlan>),
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

/// The number of plans cached for one destination: for training and evaluation, with and without clearing.
const PLANS_PER_VARIABLE: usize = 6;

impl CachedPlan {
    /// Takes the forward plan of `root` with this key from the cache, if there is a valid one.
    pub(crate) fn take_forward(
        a: &mut Arena,
        root: Ix,
        key: &ForwardKey,
    ) -> Option<(Box<ForwardPlan>, Validity)> {
        let Self { plan, validity } = Self::take(a, root, |p| matches!(p, Plan::Forward(k, _) if k == key))?;
        let Plan::Forward(_, mut plan) = plan else { return None };
        if validity.take_moved() {
            plan.relocate(a);
        } else {
            plan.spare_what_is_held_now(a);
        }
        Some((plan, validity))
    }

    /// Takes the backward plan of `root` with this key from the cache, if there is a valid one.
    pub(crate) fn take_backward(
        a: &mut Arena,
        root: Ix,
        key: BackwardKey,
    ) -> Option<(Box<BackwardPlan>, Validity)> {
        let Self { plan, validity } =
            Self::take(a, root, |p| matches!(p, Plan::Backward(k, _) if *k == key))?;
        let Plan::Backward(_, mut plan) = plan else { return None };
        if validity.take_moved() {
            plan.relocate(a);
        }
        Some((plan, validity))
    }

    /// Takes a plan out of the cache. Discards it if it is outdated.
    fn take(a: &mut Arena, root: Ix, wanted: impl Fn(&Plan) -> bool) -> Option<Self> {
        let Plans(plans) = a.existing_plans_mut(root)?.get_mut()?;
        let at = plans.iter().position(|kept| wanted(&kept.plan))?;
        let kept = plans.swap_remove(at);
        if kept.validity.holds(a) {
            return Some(kept);
        }
        a.discard(Box::new(kept));
        None
    }

    /// Caches a forward plan for the next run.
    pub(crate) fn put_forward(
        a: &mut Arena,
        root: Ix,
        key: ForwardKey,
        validity: Validity,
        plan: Box<ForwardPlan>,
    ) {
        Self::put(a, root, validity, Plan::Forward(key, plan));
    }

    /// Caches a backward plan for the next run.
    pub(crate) fn put_backward(
        a: &mut Arena,
        root: Ix,
        key: BackwardKey,
        validity: Validity,
        plan: Box<BackwardPlan>,
    ) {
        Self::put(a, root, validity, Plan::Backward(key, plan));
    }

    /// Puts a plan into the cache of a variable. The oldest one is discarded if there are too many.
    fn put(a: &mut Arena, root: Ix, validity: Validity, plan: Plan) {
        let kept = Self { validity, plan };
        let Plans(plans) = a.plans_mut(root).get_or_default();
        let oldest = (plans.len() >= PLANS_PER_VARIABLE).then(|| plans.remove(0));
        plans.push(kept);
        if let Some(oldest) = oldest {
            a.discard(Box::new(oldest));
        }
    }
}

/// Outdates every plan, since an array in one of them was given memory that may be shared with others.
pub fn memory_changed() {
    arena::with(Arena::outdate_all);
}

/// The number of plans made by the process.
static PLANS_MADE: AtomicU64 = AtomicU64::new(0);

/// Counts a new plan.
pub(crate) fn count_made() {
    PLANS_MADE.fetch_add(1, Ordering::Relaxed);
}

/// The number of plans made so far, for tests of the cache.
pub fn plans_made() -> u64 {
    PLANS_MADE.load(Ordering::Relaxed)
}
