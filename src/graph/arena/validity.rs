//! How long a kept plan holds: a plan shares a mark with the tensors of the functions above its destination.
//!
//! Whoever changes what a plan was made from (who computes or takes a variable, flags, shapes, hooks, partners) outdates the
//! plans of that tensor, and of no other. Whoever gives a tensor other memory has its plans look again where their arrays are.
//! A tensor does not keep a plan alive, and a plan that is gone outdates its mark.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;

use crate::graph::arena::{Arena, Ix, NONE, flag};

/// What the plan was made from has changed.
const OUTDATED: u8 = 1;
/// A tensor has other memory.
const MOVED: u8 = 2;

/// What a plan and the tensors that it depends on share. It is read and written under the arena's lock, except that a plan
/// may go without.
struct PlanMark(AtomicU8);

impl PlanMark {
    fn add(&self, bits: u8) {
        self.0.fetch_or(bits, Ordering::Relaxed);
    }

    fn is_outdated(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OUTDATED != 0
    }
}

/// The plans that depend on a tensor, some of which may be outdated.
#[derive(Default)]
pub(crate) struct PlanMarks(Option<Box<SmallVec<[Arc<PlanMark>; 3]>>>);

impl PlanMarks {
    pub(crate) const NONE: Self = Self(None);

    /// Adds a plan; once, if no other one is added meanwhile.
    fn add(&mut self, mark: &Arc<PlanMark>) {
        let marks = self.0.get_or_insert_default();
        if marks.last().is_some_and(|last| Arc::ptr_eq(last, mark)) {
            return;
        }
        if marks.len() == marks.capacity() {
            marks.retain(|mark| !mark.is_outdated());
        }
        marks.push(Arc::clone(mark));
    }
}

/// The plan's side: whether it still holds.
pub(crate) struct Validity {
    mark: Arc<PlanMark>,
    epoch: u64,
}

impl Validity {
    /// Whether nothing that the plan was made from has changed.
    pub(crate) fn holds(&self, a: &Arena) -> bool {
        self.epoch == a.epoch && !self.mark.is_outdated()
    }

    /// Whether a tensor got other memory since this was asked last.
    pub(crate) fn take_moved(&self) -> bool {
        self.mark.0.fetch_and(!MOVED, Ordering::Relaxed) & MOVED != 0
    }
}

impl Drop for Validity {
    fn drop(&mut self) {
        self.mark.add(OUTDATED);
    }
}

impl Arena {
    /// The validity of a plan that was just made from `functions`: all above its destination, and what else it rests on.
    pub(crate) fn plan_made_from(&mut self, functions: &[Ix]) -> Validity {
        let mark = Arc::new(PlanMark(AtomicU8::new(0)));
        let Self { functions: slots, variables, tensors, .. } = self;
        for f in functions {
            let slot = &mut slots[*f];
            slot.planned = true;
            for v in &slot.inputs {
                let variable = &mut variables[*v];
                variable.flags |= flag::PLANNED;
                tensors[variable.tensor].plans.add(&mark);
            }
            for output in &slot.outputs {
                let variable = &mut variables[output.variable];
                if variable.generation == output.generation {
                    variable.flags |= flag::PLANNED;
                }
                tensors[output.tensor].plans.add(&mark);
            }
        }
        Validity { mark, epoch: self.epoch }
    }

    /// Has every plan that depends on a tensor made anew.
    #[inline]
    pub(crate) fn outdate(&mut self, tensor: Ix) {
        if let Some(marks) = self.tensors[tensor].plans.0.take() {
            marks.iter().for_each(|mark| mark.add(OUTDATED));
        }
    }

    /// As [`Arena::outdate`], where a plan visited `v`.
    pub(crate) fn changed(&mut self, v: Ix) {
        let slot = &self.variables[v];
        if slot.flags & flag::PLANNED != 0 {
            self.outdate(slot.tensor);
        }
    }

    /// Has plans made anew that count on the consumers of an intermediate variable: the last one may clear it.
    #[inline]
    pub(crate) fn consumers_changed(&mut self, v: Ix) {
        if self.variables[v].parent != NONE {
            self.changed(v);
        }
    }

    /// Has plans that depend on a tensor look again where its memory is.
    pub(crate) fn moved(&mut self, tensor: Ix) {
        let marks = self.tensors[tensor].plans.0.as_deref();
        marks.into_iter().flatten().for_each(|mark| mark.add(MOVED));
    }
}
