//! Prepared differentiations: route, plan and gradients. Differentiations of static graphs are cached.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Shape, Storage};
use crate::graph::arena::run_lock::RunOutcome;
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{self, Arena, Attachment, Ix, order};
use crate::graph::autodiff::gradients::{PlanUse, RunGradients, Seeds};
use crate::graph::autodiff::hooks;
use crate::graph::autodiff::options::{DifferentiateOptions, Root};
use crate::graph::autodiff::route::{Edge, GradientRoute, GradientSlotIx};
use crate::graph::budget::eager::evictor::{self, StepGuard};
use crate::graph::handles::ndarray::{NdArray, copied};
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::cache;

/// A prepared differentiation, and the guard that keeps its run within a budget.
type PreparedRun = (Box<PreparedBackward>, Option<Box<dyn StepGuard>>);

/// Identifies a differentiation that starts from a variable: where edges begin and end, and the treatment of gradients
/// and graph.
#[derive(Clone, PartialEq, Eq)]
struct RouteKey {
    /// For each edge: its function, its tensor, and whether gradients end there. See [`Edge::resolve`].
    roots: SmallVec<[(Ix, Ix, bool); 1]>,
    /// For each target, the same as for roots. None if all leaves are targets.
    targets: Option<Vec<(Ix, Ix, bool)>>,
    /// True if the run adds to the gradients of leaves instead of returning gradients.
    adds: bool,
    /// True if the run keeps the values that its functions need to be differentiated again.
    retains: bool,
}

/// A prepared differentiation.
pub(crate) struct PreparedBackward {
    /// The functions to differentiate, and their order.
    pub(crate) route: GradientRoute,
    /// The steps of the backward run.
    pub(crate) plan: BackwardPlan,
    /// The arrays for the gradients.
    pub(crate) gradients: RunGradients,
    /// If it is worth caching: the variable that caches it, which is the first root, and its validity.
    kept: Option<(Ix, Validity)>,
    /// The slots whose gradients are added to the gradients of their tensors, if it is cached.
    sinks: Vec<GradientSlotIx>,
    /// True if it came from the cache, and runs again.
    pub(crate) again: bool,
    /// It is running: its functions are locked, and gradients of leaves may be written.
    is_running: bool,
    /// The key under which it is cached.
    key: RouteKey,
}

impl Attachment for PreparedBackward {}

/// The prepared differentiations from one variable.
#[derive(Default)]
#[allow(clippy::vec_box)] // they are large, and moved for each run
struct Prepared(Vec<Box<PreparedBackward>>);

impl Attachment for Prepared {}

/// The number of differentiations cached for one variable.
const PREPARED_PER_VARIABLE: usize = 4;

impl PreparedBackward {
    /// A cached or new differentiation that adds to leaves or returns gradients. All checks are done, except of the
    /// values that it reads. Also returns the guard that keeps the run within a budget, if its functions ran eagerly
    /// under one.
    pub(crate) fn get(
        a: &mut Arena,
        roots: &[Root],
        targets: Option<&[Edge]>,
        seeds: &Seeds,
        options: &DifferentiateOptions<'_>,
        adds: bool,
    ) -> Result<PreparedRun> {
        let key = RouteKey {
            roots: roots.iter().map(|root| root.edge.resolve(a)).collect(),
            targets: targets.map(|targets| targets.iter().map(|edge| edge.resolve(a)).collect()),
            adds,
            retains: options.retain_graph,
        };
        let first = match roots {
            [Root { edge: Edge::Variable(v), .. }, ..] if options.since == 0 => Some(v.ix()),
            _ => None,
        };
        if let Some(mut ready) = first.and_then(|first| Self::take(a, first, &key)) {
            let Self { route, plan, gradients, .. } = &mut *ready;
            if a.first_freed(&mut plan.order).is_some() {
                route.check(&a.outcomes())?;
            }
            route.check_used(options.refuse_unused)?;
            gradients.start(a, route, plan, seeds);
            return Ok((ready, None));
        }
        let edges: Vec<&Edge> = roots.iter().map(|root| &root.edge).collect();
        let route = GradientRoute::make(a, &edges, targets, options.since);
        route.check(&a.outcomes())?;
        route.check_used(options.refuse_unused)?;
        let budget = evictor::guard(a, &route.order);
        let may_be_kept = first.filter(|_| !hooks::any(a, &route) && is_repeatable(a, &route));
        let kept = may_be_kept.map(|first| {
            let ends: Vec<Ix> = key.roots.iter().map(|root| root.0).collect();
            let above = order::up_to(a, &ends, |_, _| true);
            (first, a.plan_made_from(&above))
        });
        cache::count_made();
        let plan_use = PlanUse { once: kept.is_none(), frees: !options.retain_graph, adds };
        let (mut plan, mut gradients) = RunGradients::make(a, &route, seeds, plan_use);
        let mut sinks = Vec::new();
        if kept.is_some() {
            gradients.start(a, &route, &mut plan, seeds);
            sinks = route.sinks(a, targets.is_none());
        }
        Ok((
            Box::new(Self { route, plan, gradients, kept, sinks, again: false, is_running: false, key }),
            budget,
        ))
    }

    /// Takes the prepared run of this key out of the cache. Discards it if it is outdated.
    fn take(a: &mut Arena, first: Ix, key: &RouteKey) -> Option<Box<Self>> {
        let Prepared(kept) = a.existing_prepared_mut(first)?.get_mut()?;
        let at = kept.iter().position(|ready| ready.key == *key)?;
        let mut ready = kept.swap_remove(at);
        let validity = ready.kept.as_ref().map(|(_, validity)| validity).filter(|validity| validity.holds(a));
        let Some(moved) = validity.map(Validity::take_moved) else {
            a.discard(ready);
            return None;
        };
        if moved {
            let Self { plan, gradients, .. } = &mut *ready;
            gradients.relocate(a, plan);
        }
        ready.again = true;
        Some(ready)
    }

    /// True if it will be cached.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// Begins the run of a cached differentiation: locks its functions until [`PreparedBackward::finish`] or until it
    /// is dropped, which must not happen under the arena lock.
    ///
    /// # Errors
    /// As [`Arena::lock_run`].
    pub(crate) fn begin(&mut self, a: &mut Arena) -> Result<()> {
        a.lock_run(&mut self.plan.order)?;
        self.is_running = true;
        a.begin_writing(&self.gradients.in_place);
        Ok(())
    }

    /// Ends the run of a cached differentiation: unlocks its functions.
    pub(crate) fn finish(&mut self, a: &mut Arena, succeeded: bool) {
        self.is_running = false;
        a.end_writing(&self.gradients.in_place);
        let frees = !self.key.retains;
        let outcome = if frees { RunOutcome::Freed } else { RunOutcome::Retained };
        let functions = &mut self.plan.order;
        a.unlock_run(functions, if succeeded { outcome } else { RunOutcome::Failed });
        if frees && !succeeded {
            functions.iter().take(self.plan.done).for_each(|f| a.free(*f));
        }
    }

    /// The slots whose gradients are added to the gradients of their tensors: of all leaves, or of the targets.
    pub(crate) fn sinks(&self) -> Cow<'_, [GradientSlotIx]> {
        match self.is_kept() {
            true => Cow::Borrowed(&self.sinks),
            false => Cow::Owned(arena::with(|a| self.route.sinks(a, self.key.targets.is_none()))),
        }
    }

    /// True if nothing else holds the result in a slot.
    pub(crate) fn is_ours(&self, slot: GradientSlotIx) -> bool {
        let found = self.gradients.by_slot[slot as usize].as_ref();
        let alone = found.is_some_and(|found| Arc::strong_count(found) == 1);
        alone || (self.is_kept() && !self.route.roots.contains(&slot))
    }

    /// Moves the result in a slot to the caller.
    pub(crate) fn take_out(&self, slot: GradientSlotIx) -> Result<Option<Arc<Storage>>> {
        let Some(found) = &self.gradients.by_slot[slot as usize] else { return Ok(None) };
        if !self.is_kept() {
            return Ok(Some(Arc::clone(found)));
        }
        let own = Storage::new(found.len());
        if found.give_to(&own) {
            return Ok(Some(own));
        }
        let shape = Shape::from([found.len()]);
        Ok(Some(copied(&NdArray { shape, storage: Arc::clone(found) })?.storage))
    }

    /// Caches it if that is worthwhile. Its results must have been taken out.
    pub(crate) fn keep(self: Box<Self>) -> Result<()> {
        let Some(first) = self.kept.as_ref().map(|(first, _)| *first) else { return Ok(()) };
        self.gradients.give_back()?;
        arena::with(|a| {
            let Prepared(kept) = a.prepared_mut(first).get_or_default();
            let oldest = (kept.len() >= PREPARED_PER_VARIABLE).then(|| kept.remove(0));
            kept.push(self);
            if let Some(oldest) = oldest {
                a.discard(oldest);
            }
        });
        Ok(())
    }
}

impl Drop for PreparedBackward {
    fn drop(&mut self) {
        if self.is_running {
            arena::with(|a| self.finish(a, false));
            self.gradients.undo();
        }
    }
}

/// True if a plan of these functions can run again: they belong to a static graph, no user code may keep its arrays,
/// and no value may have been dropped.
fn is_repeatable(a: &Arena, route: &GradientRoute) -> bool {
    let is_plain = |f: Ix| !a.ran_eagerly(f) && a.op(f).on_arrays().is_none();
    route.order.iter().all(|f| is_plain(*f) && !reads_dropped(a, *f))
}

/// True if a function reads or computes values that may have to be recomputed.
fn reads_dropped(a: &Arena, f: Ix) -> bool {
    a.inputs(f).iter().any(|v| a.is_restorable(*v)) || a.live_outputs(f).any(|v| a.is_restorable(v))
}
