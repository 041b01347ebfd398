//! Validity of cached plans: a plan shares a mark with the tensors of the functions above its destination.
//!
//! Code that changes a premise of a plan (producers, consumers, flags, shapes, hooks, partners) outdates the plans of
//! that tensor only. Code that replaces the memory of a tensor makes its plans look up their arrays again. A tensor
//! does not keep a plan alive, and a dropped plan outdates its mark.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use smallvec::SmallVec;

use crate::graph::arena::{Arena, Ix, NONE, flag, tensors};

/// A premise of the plan has changed.
const OUTDATED: u8 = 1;
/// A tensor has other memory.
const MOVED: u8 = 2;

/// The mark shared by a plan and the tensors that it depends on. Access requires the arena lock, except when a plan
/// is dropped. Model: `marks_of_plans_are_not_lost`.
struct PlanMark(AtomicU8);

impl PlanMark {
    /// Sets bits of the mark.
    fn add(&self, bits: u8) {
        self.0.fetch_or(bits, Ordering::Relaxed);
    }

    /// True if the plan must not be used any more.
    fn is_outdated(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OUTDATED != 0
    }
}

/// The plans that depend on a tensor. Some may be outdated.
#[derive(Default)]
pub(crate) struct PlanMarks(Option<Box<SmallVec<[Arc<PlanMark>; 3]>>>);

impl PlanMarks {
    /// No plans.
    pub(crate) const NONE: Self = Self(None);

    /// Adds a plan. Consecutive additions of the same plan count once.
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

    /// Outdates the plans, and forgets them.
    #[inline]
    pub(super) fn outdate(&mut self) {
        if let Some(marks) = self.0.take() {
            marks.iter().for_each(|mark| mark.add(OUTDATED));
        }
    }
}

/// The plan's side of the mark.
pub(crate) struct Validity {
    /// Shared with the tensors of the plan, which outdate it.
    mark: Arc<PlanMark>,
    /// The epoch of the arena when the plan was made.
    epoch: u64,
}

impl Validity {
    /// True if no premise of the plan has changed.
    pub(crate) fn holds(&self, a: &Arena) -> bool {
        self.epoch == a.epoch && !self.mark.is_outdated()
    }

    /// True if a tensor got other memory since the last call.
    pub(crate) fn take_moved(&self) -> bool {
        self.mark.0.fetch_and(!MOVED, Ordering::Relaxed) & MOVED != 0
    }
}

impl Drop for Validity {
    /// Marks the plan as outdated, so that tensors drop their references to it.
    fn drop(&mut self) {
        self.mark.add(OUTDATED);
    }
}

impl Arena {
    /// The validity of a new plan made from `functions`: all above its destination, and its other premises.
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

    /// Outdates every plan that depends on a tensor.
    #[inline]
    pub(crate) fn outdate(&mut self, tensor: Ix) {
        self.tensors[tensor].plans.outdate();
    }

    /// Outdates every plan.
    pub(crate) fn outdate_all(&mut self) {
        self.epoch += 1;
    }

    /// Outdates every plan that depends on an input or output of `f`.
    pub(crate) fn outdate_around(&mut self, f: Ix) {
        let (x, y) = tensors(self, f);
        x.into_iter().chain(y).for_each(|tensor| self.outdate(tensor));
    }

    /// Outdates every plan that depends on the tensor of `v`, if a plan visited `v`.
    pub(crate) fn changed(&mut self, v: Ix) {
        let slot = &self.variables[v];
        if slot.flags & flag::PLANNED != 0 {
            self.outdate(slot.tensor);
        }
    }

    /// Outdates plans that rely on the consumers of an intermediate variable, since the last consumer may clear it.
    #[inline]
    pub(crate) fn consumers_changed(&mut self, v: Ix) {
        if self.variables[v].parent != NONE {
            self.changed(v);
        }
    }

    /// Makes plans that depend on a tensor look up its memory again.
    pub(crate) fn moved(&mut self, tensor: Ix) {
        let marks = self.tensors[tensor].plans.0.as_deref();
        marks.into_iter().flatten().for_each(|mark| mark.add(MOVED));
    }
}
