//! Plans that are kept: where, under which key, and how long they hold.

use std::sync::Arc;

use smallvec::SmallVec;

use super::arena::{self, Arena, Ix};
use super::back_plan::BackwardPlan;
use super::clear::Policy;
use super::forward::{Detach, ForwardPlan};
use crate::Result;
use crate::array::RunGuard;
use crate::kernels::stop;
use crate::ops::{Op, Operation};

/// What tells the plans of one destination apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    roots: SmallVec<[Ix; 2]>,
    policy: Policy,
    budget: Option<usize>,
    depth_first: bool,
}

impl Key {
    pub(super) fn forward(roots: &[Ix], policy: Policy, budget: Option<usize>) -> Self {
        let depth_first = super::mode::depth_first();
        Self { roots: SmallVec::from_slice(roots), policy, budget, depth_first }
    }
}

/// A plan at rest, and the state of the arena for which it was made.
pub(super) struct Kept {
    seen: Seen,
    plan: Plan,
}

/// The state of the arena that a run found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) structure: u64,
    pub(super) places: u64,
}

impl Seen {
    pub(super) fn now(a: &Arena) -> Self {
        Self { structure: a.structure, places: a.places }
    }
}

enum Plan {
    Forward(Key, ForwardPlan),
    Backward(super::back_plan::Key, BackwardPlan),
}

/// Plans that one destination keeps: to train, to evaluate, with and without clearing.
const MOST: usize = 6;

impl Kept {
    /// Takes the forward plan of `root` with this key out, if there is one that still holds.
    pub(super) fn take_forward(a: &mut Arena, root: Ix, key: &Key) -> Option<ForwardPlan> {
        let kept = Self::take(a, root, |p| matches!(p, Plan::Forward(k, _) if k == key))?;
        let Plan::Forward(_, mut plan) = kept.plan else { return None };
        if kept.seen.places != a.places {
            plan.relocate(a);
        }
        Some(plan)
    }

    /// Takes the backward plan of `root` with this key out, if there is one that still holds.
    pub(super) fn take_backward(a: &mut Arena, root: Ix, key: super::back_plan::Key) -> Option<BackwardPlan> {
        let kept = Self::take(a, root, |p| matches!(p, Plan::Backward(k, _) if *k == key))?;
        let Plan::Backward(_, mut plan) = kept.plan else { return None };
        if kept.seen.places != a.places {
            plan.relocate(a);
        }
        Some(plan)
    }

    fn take(a: &mut Arena, root: Ix, wanted: impl Fn(&Plan) -> bool) -> Option<Self> {
        let structure = a.structure;
        let plans = &mut a.variables[root].extra.as_mut()?.plans;
        let at = plans.iter().position(|kept| wanted(&kept.plan))?;
        let kept = plans.swap_remove(at);
        if kept.seen.structure == structure {
            return Some(kept);
        }
        a.discard(super::arena::Garbage::Plan(Box::new(kept)));
        None
    }

    /// Keeps a forward plan for the next run.
    pub(super) fn put_forward(a: &mut Arena, root: Ix, key: Key, seen: Seen, plan: ForwardPlan) {
        Self::put(a, root, seen, Plan::Forward(key, plan));
    }

    /// Keeps a backward plan for the next run.
    pub(super) fn put_backward(
        a: &mut Arena,
        root: Ix,
        key: super::back_plan::Key,
        seen: Seen,
        plan: BackwardPlan,
    ) {
        Self::put(a, root, seen, Plan::Backward(key, plan));
    }

    /// How often it has hold of an operation.
    pub(super) fn uses(&self, op: &Arc<dyn Operation>) -> usize {
        let is = |other: &Op| matches!(other, Op::Shared(other) if Arc::ptr_eq(op, other));
        match &self.plan {
            Plan::Forward(_, plan) => plan.steps.iter().filter(|step| is(&step.op)).count(),
            Plan::Backward(_, plan) => plan.steps.iter().filter(|step| is(&step.op)).count(),
        }
    }

    fn put(a: &mut Arena, root: Ix, seen: Seen, plan: Plan) {
        let kept = Self { seen, plan };
        let plans = &mut a.extra(root).plans;
        let oldest = (plans.len() >= MOST).then(|| plans.remove(0));
        plans.push(kept);
        if let Some(oldest) = oldest {
            a.discard(super::arena::Garbage::Plan(Box::new(oldest)));
        }
    }
}

/// Has every plan made anew: an array that one of them knows was given memory that may be that of others too.
pub fn memory_changed() {
    arena::with(|a| a.structure += 1);
}

/// Elements of work from which it pays to release a lock of the caller's: some microseconds.
const WORTH_DETACHING: usize = 1 << 14;

/// What is handed to [`Detach`], which wants something that could be sent to another thread.
struct Carry<F>(F);

// SAFETY: `detach` calls it once, before it returns, on the thread that it was called from.
unsafe impl<F> Send for Carry<F> {}

impl<F: FnMut() -> Result<()>> Carry<F> {
    fn call(&mut self) -> Result<()> {
        (self.0)()
    }
}

/// Runs `f`, with the caller's lock released where that pays and nobody's code is called.
pub(super) fn detached(
    detach: Option<Detach<'_>>,
    work: usize,
    hooked: bool,
    mut f: impl FnMut() -> Result<()>,
) -> Result<()> {
    let Some(detach) = detach.filter(|_| work >= WORTH_DETACHING && !hooked) else { return f() };
    let mut carried = Carry(&mut f);
    let mut done = Ok(());
    detach(&mut || done = carried.call());
    done
}

/// Counts functions, has no other thread wait longer than one of them takes, and asks now and then whether to go on.
pub(super) struct Pace<'a> {
    steps: u32,
    guard: Option<&'a RunGuard>,
}

impl<'a> Pace<'a> {
    pub(super) fn new(guard: Option<&'a RunGuard>) -> Self {
        Self { steps: 0, guard }
    }

    #[inline(always)]
    pub(super) fn step(&mut self) -> Result<()> {
        self.guard.inspect(|guard| guard.renew());
        self.steps += 1;
        if !self.steps.is_multiple_of(64) {
            return Ok(());
        }
        stop::ask()
    }
}
