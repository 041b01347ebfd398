//! Functions whose gradient is done along with the step before them in a backward run: with the gradient that this one
//! writes, while that is in the cache.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::super::back_plan::Clear;
use super::super::back_step::{BackStep, Sink};
use super::super::execute::Slot;
use super::links::{Link, Links, Whole};
use super::{Spread, backward_len};
use crate::Result;
use crate::array::{Access, Shape, Storage};
use crate::ops::{Activation, Part, Then};

/// A step and those after it that are done along with it.
pub(in crate::graph) struct BackChain {
    /// The steps, of which the first has the kernel.
    pub(in crate::graph) steps: Range<usize>,
    /// Which entries of the list of what is cleared belong to them, and those of them that concern more than what is handed on.
    pub(in crate::graph) clears: Range<usize>,
    pub(in crate::graph) cleared: Vec<usize>,
}

/// The gradient that a step hands on, if it writes no more to it afterwards.
fn handed_on(step: &BackStep) -> Option<&Sink> {
    let sink = step.gx.first()?.as_ref()?;
    let again = step.gx[1..].iter().flatten().any(|other| same(&other.slot, &sink.slot));
    (!again && sink.slot.dtype == sink.slot.stored).then_some(sink)
}

/// The only gradient that a function of a chain makes.
fn only(step: &BackStep) -> Option<(usize, &Sink)> {
    let mut sinks = step.gx.iter().enumerate().filter_map(|(i, sink)| Some((i, sink.as_ref()?)));
    let found = sinks.next().filter(|(_, sink)| sink.first && !sink.again)?;
    sinks.next().is_none().then_some(found)
}

fn same(a: &Slot, b: &Slot) -> bool {
    Arc::ptr_eq(&a.storage, &b.storage)
}

/// Data that a step reads.
fn data(step: &BackStep) -> impl Iterator<Item = &Slot> {
    step.x.iter().chain(&step.y).filter_map(|(_, slot)| slot.as_ref())
}

impl BackChain {
    /// All chains of a plan, in order. Something happens before the steps that `apart` names.
    pub(in crate::graph) fn all(steps: &[BackStep], clears: &[Clear], apart: &HashSet<u32>) -> Vec<Self> {
        let mut found = Vec::new();
        let mut start = 0;
        while start < steps.len() {
            let mut end = start + 1;
            if may_take_along(&steps[start]) {
                while end < steps.len()
                    && !apart.contains(&(end as u32))
                    && follows(&steps[start..=end], clears, end)
                {
                    end += 1;
                }
                if end > start + 1 {
                    found.push(Self::new(steps, clears, start..end));
                }
            }
            start = end;
        }
        found
    }

    fn new(steps: &[BackStep], clears: &[Clear], range: Range<usize>) -> Self {
        let at = |n: usize| clears.partition_point(|clear| (clear.step as usize) < n);
        let (from, to) = (at(range.start), at(range.end));
        let between = &steps[range.start + 1..range.end];
        let handed_on = |clear: &Clear| {
            let is = |step: &BackStep| Arc::ptr_eq(&step.gy[0].storage, &clear.place.storage);
            clear.place.is_grad && between.iter().any(is)
        };
        let cleared = (from..to).filter(|n| !handed_on(&clears[*n])).collect();
        Self { steps: range, clears: from..to, cleared }
    }

    /// Bytes of gradients that are never anywhere else than on their way.
    pub(in crate::graph) fn saved(&self, steps: &[BackStep]) -> usize {
        let gy = &steps[self.steps.end - 1].gy[0];
        let summed = handed_on(&steps[self.steps.start]).is_some_and(|sink| !sink.first);
        (self.steps.len() - 1 - usize::from(summed)) * gy.shape.size() * gy.dtype.size()
    }

    /// Runs the steps; false if they must run one by one, nothing having been done.
    ///
    /// # Errors
    /// When the first of them fails.
    pub(in crate::graph) fn run(&self, steps: &mut [BackStep]) -> Result<bool> {
        let [first, rest @ ..] = &mut steps[self.steps.clone()] else { return Ok(false) };
        let Some((links, adds)) = links(first, rest) else { return Ok(false) };
        let len = rest[0].gy[0].shape.size();
        let then = Then { activation: Activation::Identity, rows: links.rows(len) };
        first.backward_along(Some((links.at, adds, then)))?;
        // SAFETY: all elements are there, and nobody else uses them.
        unsafe { links.rest(len) };
        Ok(true)
    }
}

fn may_take_along(step: &BackStep) -> bool {
    step.op.takes_along_back()
        && step.op.has_backward()
        && step.arrays.is_none()
        && !step.op.keeps_gradients()
        && handed_on(step).is_some()
}

/// Whether the last one of these steps, number `n` of a plan, can be done along with the first one as those between are.
fn follows(steps: &[BackStep], clears: &[Clear], n: usize) -> bool {
    let [first, between @ .., step] = steps else { return false };
    let before = match between.last() {
        Some(step) => only(step).map(|(_, sink)| sink),
        None => handed_on(first),
    };
    let (Some(before), Some((_, to))) = (before, only(step)) else { return false };
    let at = clears.partition_point(|clear| (clear.step as usize) < n);
    let mut cleared = clears[at..].iter().take_while(|clear| clear.step as usize == n);
    let is = |clear: &Clear| clear.place.is_grad && Arc::ptr_eq(&clear.place.storage, &before.slot.storage);
    let used = steps.iter().any(|step| step.gy.iter().chain(data(step)).any(|slot| same(slot, &to.slot)))
        || first.gx.iter().flatten().any(|sink| same(&sink.slot, &to.slot));
    backward_len(step).is_some()
        && step.compute == first.compute
        && same(&step.gy[0], &before.slot)
        && step.gy[0].shape == before.slot.shape
        && cleared.any(is)
        && !used
        && !data(step).any(|slot| same(slot, &before.slot))
}

/// What the gradient that `first` hands on goes through, in the memory of the last gradient, and whether it is added to what
/// is there; none where something is not as usual.
fn links(first: &BackStep, rest: &[BackStep]) -> Option<(Links, bool)> {
    let handed_on = handed_on(first)?;
    let (_, to) = only(rest.last()?)?;
    let gone = |storage: &Storage| storage.is_given_back();
    if to.slot.storage.is_narrowed() || !rest[1..].iter().all(|step| gone(&step.gy[0].storage)) {
        return None;
    }
    // The errors of the first step come before anything is written, those of the others after it has run.
    data(first).chain(&first.gy).try_for_each(|slot| slot.resolve(Access::Read).map(drop)).ok()?;
    let mut parts: SmallVec<[Part; 2]> = SmallVec::new();
    for step in rest {
        let place = |read: &(Shape, Option<Slot>)| match &read.1 {
            Some(slot) => slot.resolve(Access::Read).ok(),
            None => Some(std::ptr::null_mut()),
        };
        let (x, y) = (step.x.iter().map(place), place(&step.y[0])?);
        let x: SmallVec<[*mut u8; 2]> = x.collect::<Option<_>>()?;
        parts.push(Part { x: [x[0], *x.last()?].map(<*mut u8>::cast_const), y, ..Part::NOTHING });
    }
    let storage = &handed_on.slot.storage;
    let adds = !handed_on.first;
    if adds {
        // What there is to add to goes where the sum will be.
        if !storage.is_ready() || !storage.hand_over(&to.slot.storage, to.slot.dtype) {
            return None;
        }
    } else if !gone(storage) {
        return None;
    }
    let at = to.slot.resolve(if adds { Access::ReadWrite } else { Access::Write }).ok()?;
    let double = to.slot.dtype.size() == size_of::<f64>();
    let mut links = Links { at, size: to.slot.dtype.size(), links: SmallVec::new() };
    for (step, part) in rest.iter().zip(parts) {
        let (loops, (i, _)) = (step.op.loops(double)?, only(step)?);
        let mut gx = [std::ptr::null_mut(); 2];
        gx[i] = at;
        if !loops.passes[i] {
            let spread = [&step.x[0].0, &step.x.last()?.0].map(|x| Spread::of(x, &to.slot.shape));
            links.links.push(Link::Back(loops, Whole { part: Part { gy: at, gx, ..part }, spread }));
        }
    }
    Some((links, adds))
}
