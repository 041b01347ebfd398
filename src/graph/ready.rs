//! A differentiation by kernels made ready: its course and its steps. Those of static graphs are kept for the next time.

use std::sync::Arc;

use super::arena::{self, Arena, Garbage, Ix, NONE, flag};
use super::by_kernels::KernelRun;
use super::course::{Course, Edge, PlaceIx};
use super::plan::Seen;
use super::room::Keeper;
use super::{NdArray, copied};
use crate::Result;
use crate::array::{Shape, Storage};

/// What tells differentiations apart that start from the same variable: where edges begin and end.
#[derive(Clone, PartialEq, Eq)]
struct Key {
    roots: Vec<(Ix, Ix, bool)>,
    targets: Option<Vec<(Ix, Ix, bool)>>,
}

/// A differentiation made ready.
pub(super) struct Ready {
    pub(super) course: Course,
    pub(super) run: KernelRun,
    /// Whether it is worth to be kept, and where: the variable that is the first root.
    pub(super) kept: Option<Ix>,
    key: Key,
    seen: Seen,
}

/// As many are kept for one variable.
const MOST: usize = 4;

impl Ready {
    /// One that was kept, or a new one. It has been checked, but for the values that it reads. With it comes
    /// what keeps the run to a budget, if its functions ran under one as they were built.
    pub(super) fn get(
        a: &mut Arena,
        roots: &[Edge],
        targets: Option<&[Edge]>,
        seeds: &[Arc<Storage>],
        since: u64,
        refuse_unused: bool,
    ) -> Result<(Box<Self>, Option<Keeper>)> {
        let resolved = |edges: &[Edge]| edges.iter().map(|edge| edge.resolve(a)).collect::<Vec<_>>();
        let key = Key { roots: resolved(roots), targets: targets.map(resolved) };
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
        let course = Course::make(a, roots, targets, since);
        course.check(a)?;
        course.check_used(refuse_unused)?;
        let keeper = Keeper::begin(a, &course.functions);
        let run = KernelRun::make(a, &course, seeds);
        let kept =
            first.filter(|_| run.is_plain() && course.functions.iter().all(|f| !a.functions[*f].at_once));
        Ok((Box::new(Self { course, run, kept, key, seen: Seen::now(a) }), keeper))
    }

    fn take(a: &mut Arena, first: Ix, key: &Key) -> Option<Box<Self>> {
        let kept = &mut a.variables[first].extra.as_mut()?.ready;
        let at = kept.iter().position(|ready| ready.key == *key)?;
        let mut ready = kept.swap_remove(at);
        if ready.seen.structure != a.structure || ready.course.functions.iter().any(|f| reads_dropped(a, *f))
        {
            a.discard(Garbage::Ready(ready));
            return None;
        }
        if ready.seen.places != a.places {
            ready.run.relocate(a);
        }
        ready.seen = Seen::now(a);
        Some(ready)
    }

    /// Whether nobody else sees what was found at a place.
    pub(super) fn is_ours(&self, place: PlaceIx) -> bool {
        let found = self.run.gradients[place as usize].as_ref();
        let alone = found.is_some_and(|found| Arc::strong_count(found) == 1);
        alone || (self.kept.is_some() && !self.course.roots.contains(&place))
    }

    /// What was found at a place, for the caller to keep.
    pub(super) fn take_out(&self, place: PlaceIx) -> Result<Option<Arc<Storage>>> {
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
    pub(super) fn keep(self: Box<Self>) -> Result<()> {
        let Some(first) = self.kept else { return Ok(()) };
        self.run.give_back(&self.course)?;
        arena::with(|a| {
            for f in &self.course.functions {
                a.functions[*f].planned = true;
                for v in a.functions[*f].inputs.clone() {
                    a.variables[v].flags |= flag::PLANNED;
                }
            }
            let kept = &mut a.extra(first).ready;
            let oldest = (kept.len() >= MOST).then(|| kept.remove(0));
            kept.push(self);
            if let Some(oldest) = oldest {
                a.discard(Garbage::Ready(oldest));
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
