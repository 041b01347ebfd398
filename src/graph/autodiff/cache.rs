//! A differentiation by kernels made ready: its course and its steps. Those of static graphs are kept for the next time.

use std::sync::Arc;

use crate::Result;
use crate::array::{Shape, Storage};
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{self, Arena, Attachment, Garbage, Ix, NONE, flag, order};
use crate::graph::autodiff::kernels::KernelRun;
use crate::graph::autodiff::route::{Edge, GradientRoute, GradientSlotIx};
use crate::graph::handles::ndarray::{NdArray, copied};
use crate::graph::memory::eviction::reserve::BudgetedBackward;
use crate::graph::plan::cache;

/// What tells differentiations apart that start from the same variable: where edges begin and end.
#[derive(Clone, PartialEq, Eq)]
struct RouteKey {
    roots: Vec<(Ix, Ix, bool)>,
    targets: Option<Vec<(Ix, Ix, bool)>>,
}

/// A differentiation made ready.
pub(crate) struct PreparedBackward {
    pub(crate) course: GradientRoute,
    pub(crate) run: KernelRun,
    /// Whether it is worth to be kept, and where: the variable that is the first root.
    pub(crate) kept: Option<Ix>,
    key: RouteKey,
    validity: Option<Validity>,
}

impl Attachment for PreparedBackward {}

/// The differentiations from one variable that were made ready.
#[derive(Default)]
#[allow(clippy::vec_box)] // they are large, and taken out for each run
struct Prepared(Vec<Box<PreparedBackward>>);

impl Attachment for Prepared {}

/// As many are kept for one variable.
const PREPARED_PER_VARIABLE: usize = 4;

impl PreparedBackward {
    /// One that was kept, or a new one. It has been checked, but for the values that it reads. With it comes
    /// what keeps the run to a budget, if its functions ran under one as they were built.
    pub(crate) fn get(
        a: &mut Arena,
        roots: &[Edge],
        targets: Option<&[Edge]>,
        seeds: &[Arc<Storage>],
        since: u64,
        refuse_unused: bool,
    ) -> Result<(Box<Self>, Option<BudgetedBackward>)> {
        let resolved = |edges: &[Edge]| edges.iter().map(|edge| edge.resolve(a)).collect::<Vec<_>>();
        let key = RouteKey { roots: resolved(roots), targets: targets.map(resolved) };
        let first = match roots {
            [Edge::Variable(v), ..] if since == 0 => Some(v.ix()),
            _ => None,
        };
        if let Some(mut ready) = first.and_then(|first| Self::take(a, first, &key)) {
            ready.course.check(a)?;
            ready.course.check_used(refuse_unused)?;
            ready.run.start_from(a, &ready.course, seeds);
            return Ok((ready, None));
        }
        let course = GradientRoute::make(a, roots, targets, since);
        course.check(a)?;
        course.check_used(refuse_unused)?;
        let keeper = BudgetedBackward::begin(a, &course.functions);
        let run = KernelRun::make(a, &course, seeds);
        let kept =
            first.filter(|_| run.is_plain() && course.functions.iter().all(|f| !a.functions[*f].at_once));
        cache::count_made();
        let validity = kept.map(|_| {
            let ends: Vec<Ix> = key.roots.iter().map(|root| root.0).collect();
            let above = order::up_to(a, &ends, |_, _| true);
            a.plan_made_from(&above)
        });
        Ok((Box::new(Self { course, run, kept, key, validity }), keeper))
    }

    fn take(a: &mut Arena, first: Ix, key: &RouteKey) -> Option<Box<Self>> {
        let Prepared(kept) = a.variables[first].extra.as_mut()?.prepared.get_mut()?;
        let at = kept.iter().position(|ready| ready.key == *key)?;
        let mut ready = kept.swap_remove(at);
        let validity = ready.validity.as_ref().filter(|validity| validity.holds(a));
        let Some(validity) =
            validity.filter(|_| !ready.course.functions.iter().any(|f| reads_dropped(a, *f)))
        else {
            a.discard(Garbage::Attachment(ready));
            return None;
        };
        if validity.take_moved() {
            ready.run.relocate(a);
        }
        Some(ready)
    }

    /// Whether nobody else sees what was found at a place.
    pub(crate) fn is_ours(&self, place: GradientSlotIx) -> bool {
        let found = self.run.gradients[place as usize].as_ref();
        let alone = found.is_some_and(|found| Arc::strong_count(found) == 1);
        alone || (self.kept.is_some() && !self.course.roots.contains(&place))
    }

    /// What was found at a place, for the caller to keep.
    pub(crate) fn take_out(&self, place: GradientSlotIx) -> Result<Option<Arc<Storage>>> {
        let Some(found) = &self.run.gradients[place as usize] else { return Ok(None) };
        if self.kept.is_none() {
            return Ok(Some(Arc::clone(found)));
        }
        let own = Storage::new(found.len());
        if found.give_to(&own) {
            return Ok(Some(own));
        }
        let shape = Shape::from([found.len()]);
        Ok(Some(copied(&NdArray { shape, storage: Arc::clone(found) })?.storage))
    }

    /// Keeps it for the next time, if it is worth that. What it found must have been taken out.
    pub(crate) fn keep(self: Box<Self>) -> Result<()> {
        let Some(first) = self.kept else { return Ok(()) };
        self.run.give_back(&self.course)?;
        arena::with(|a| {
            let Prepared(kept) = a.extra(first).prepared.get_or_default();
            let oldest = (kept.len() >= PREPARED_PER_VARIABLE).then(|| kept.remove(0));
            kept.push(self);
            if let Some(oldest) = oldest {
                a.discard(Garbage::Attachment(oldest));
            }
        });
        Ok(())
    }
}

/// Whether a function has to do with values that may have to be computed again.
fn reads_dropped(a: &Arena, f: Ix) -> bool {
    let dropped = |v: Ix| a.variables[v].flags & flag::RESTORED != 0 && a.variables[v].parent != NONE;
    let slot = &a.functions[f];
    let mut outputs = (0..slot.outputs.len()).filter_map(|o| a.live_output(f, o));
    slot.inputs.iter().any(|v| dropped(*v)) || outputs.any(dropped)
}
