//! Functions that run as an epilogue of the one before them in a forward run, on its output while that is in the
//! cache.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Access, Storage};
use crate::graph::plan::fusion::broadcast::BroadcastCycle;
use crate::graph::plan::fusion::forward::forward_len;
use crate::graph::plan::fusion::tile_chain::{EpilogueTail, TailOperation, WholeArray};
use crate::graph::settings::context::Precision;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::Operand;
use crate::kernels::stop;
use crate::ops::{Activation, Call, Memory, Part, RowFunctions, Tail};
use crate::{Error, Result};

/// A step, and the steps after it that run as its epilogue.
pub(in crate::graph) struct EpilogueChain {
    /// The steps. The first one has the kernel.
    pub(in crate::graph) steps: Range<usize>,
    /// Storages that these steps clear and that have memory.
    cleared: Vec<Arc<Storage>>,
}

/// True if two operands are the same array.
fn same(a: &Operand, b: &Operand) -> bool {
    Arc::ptr_eq(&a.storage, &b.storage)
}

impl EpilogueChain {
    /// All chains of a plan, in order. `clears` lists the inputs to clear, as numbers of the step and its input.
    pub(in crate::graph) fn all(steps: &[ForwardStep], clears: &[(u32, u32)]) -> Vec<Self> {
        let mut found = Vec::new();
        let mut start = 0;
        while start < steps.len() {
            let mut end = start + 1;
            if steps[start].may_take_along() {
                while end < steps.len() && follows(&steps[start..=end], clears, end) {
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

    /// The steps of an epilogue, and the storages that are cleared after them and not made by them.
    fn new(steps: &[ForwardStep], clears: &[(u32, u32)], range: Range<usize>) -> Self {
        let at = |n: usize| clears.partition_point(|(step, _)| (*step as usize) < n);
        let between = &steps[range.start..range.end - 1];
        let cleared = clears[at(range.start)..at(range.end)]
            .iter()
            .map(|(n, i)| &steps[*n as usize].x[*i as usize])
            .filter(|slot| !between.iter().any(|step| same(&step.y[0], slot)))
            .map(|slot| Arc::clone(&slot.storage))
            .collect();
        Self { steps: range, cleared }
    }

    /// Bytes of values that are never written to memory.
    pub(in crate::graph) fn saved(&self, steps: &[ForwardStep]) -> usize {
        let y = &steps[self.steps.start].y[0];
        (self.steps.len() - 1) * y.shape.size() * y.dtype.size()
    }

    /// Runs the steps. Returns false without side effects if they must run separately.
    ///
    /// # Errors
    /// If the first of them fails, after which the last output is cleared, or if an array cannot be cleared.
    pub(in crate::graph) fn run(&self, steps: &mut [ForwardStep]) -> Result<bool> {
        let [first, rest @ ..] = &mut steps[self.steps.clone()] else { return Ok(false) };
        // Preparation may allocate. If that fails, the steps run separately.
        let Ok(Some((links, activation))) = stop::unasked(|| Ok::<_, Error>(links(first, rest))) else {
            return Ok(false);
        };
        let len = first.y[0].shape.size();
        let along = Tail { activation, rows: links.rows(len) };
        let ran = first.run(false, Some((links.at, along)));
        let to = rest.last().map(|step| &step.y[0].storage);
        let forget = || to.into_iter().for_each(|to| drop(to.clear(true)));
        let mut fingerprint = ran.inspect_err(|_| forget())?;
        let done = stop::guarded(|| -> Result<()> {
            if links.rows(len).is_none() {
                // SAFETY: all elements are initialized, and this has exclusive access.
                unsafe { links.finish(links.at, len) };
            }
            Ok(())
        });
        done.inspect_err(|_| forget())?;
        let mut before = &first.y[0];
        for step in &*rest {
            let mut provenance = step.provenance;
            let of = |x: &Operand| match same(x, before) {
                true => fingerprint.into(),
                false => x.storage.versioned_fingerprint(),
            };
            let inputs = provenance.save_inputs(step.x.iter().map(of), false);
            fingerprint = provenance.of_output(inputs, 0);
            before = &step.y[0];
        }
        before.storage.set_fingerprint(fingerprint);
        self.cleared.iter().try_for_each(|storage| storage.clear(true))?;
        Ok(true)
    }
}

/// True if the last of these steps, number `n` of the plan, can join the epilogue of the first, as those in between
/// do.
fn follows(steps: &[ForwardStep], clears: &[(u32, u32)], n: usize) -> bool {
    let ([before @ .., step], Some(first)) = (steps, steps.first()) else { return false };
    let Some(y) = before.last().map(|step| &step.y[0]) else { return false };
    let fits = |slot: &Operand| slot.dtype == y.dtype && slot.stored == y.dtype;
    let fits_epilogue = || {
        let shapes: SmallVec<[_; 5]> = step.x.iter().map(|x| &x.shape).collect();
        step.is_plain() && step.op.fits_epilogue(&shapes) && same(&step.x[0], y)
    };
    let takes = forward_len(step).is_some() || fits_epilogue();
    let at = clears.partition_point(|(step, _)| (*step as usize) < n);
    let mut cleared = clears[at..].iter().take_while(|(step, _)| *step as usize == n);
    let own = |slot: &&Operand| !same(slot, y);
    let written = |slot: &Operand| {
        before.iter().any(|step| step.y.iter().any(|y| same(y, slot)))
            || (0..first.x.len()).any(|i| first.op.facts().overwrites(i) && same(&first.x[i], slot))
    };
    let to = &step.y[0];
    let read = |slot: &Operand| before.iter().chain([step]).any(|step| step.x.iter().any(|x| same(x, slot)));
    takes
        && step.compute == first.compute
        && step.y.len() == 1
        && to.shape == y.shape
        && !to.storage.may_be_met()
        && step.x.iter().chain([to]).all(fits)
        && cleared.any(|(_, i)| same(&step.x[*i as usize], y))
        && !step.x.iter().filter(own).any(written)
        && !written(to)
        && !read(to)
}

/// The operations on the output of `first`, which is written to the memory of the last output. None in an unusual
/// state.
fn links(first: &ForwardStep, rest: &[ForwardStep]) -> Option<(EpilogueTail, Activation)> {
    let last = &rest.last()?.y[0];
    let mut between = [first].into_iter().chain(&rest[..rest.len() - 1]).map(|step| &step.y[0].storage);
    if last.storage.is_narrowed()
        || !between.all(|storage| storage.is_given_back())
        || rest.iter().any(ForwardStep::compares_integers)
    {
        return None;
    }
    // Errors of the first step must come before anything is written, errors of the others after it has run.
    first.x.iter().try_for_each(|x| x.resolve(Access::Read).map(drop)).ok()?;
    let mut before = &first.y[0];
    let mut places: SmallVec<[*mut u8; 16]> = SmallVec::new();
    for step in rest {
        for x in &step.x {
            let is_before = same(x, before); // at the address where it is written
            places.push(if is_before { std::ptr::null_mut() } else { x.resolve(Access::Read).ok()? });
        }
        before = &step.y[0];
    }
    let at = last.resolve(Access::Write).ok()?;
    let double = first.compute == Precision::Double;
    let mut links = EpilogueTail { at, size: last.dtype.size(), links: SmallVec::new() };
    let mut activation = Activation::Identity;
    places.iter_mut().filter(|place| place.is_null()).for_each(|place| *place = at);
    let mut remaining = &places[..];
    for (n, step) in rest.iter().enumerate() {
        let (places, others) = remaining.split_at(step.x.len());
        remaining = others;
        if let (0, Some(in_registers)) = (n, step.op.facts().activation) {
            activation = in_registers;
        } else if let (Some(TailOperation::ChunkedForward(_, last @ Activation::Identity)), Some(next)) =
            (links.links.last_mut(), step.op.facts().activation)
        {
            *last = next;
        } else if let Some(loops) = step.op.loops(double) {
            let x = [places[0].cast_const(), places.last()?.cast_const()];
            let spread = [&step.x[0], step.x.last()?].map(|x| BroadcastCycle::of(&x.shape, &last.shape));
            let whole = WholeArray { part: Part { x, y: at, ..Part::NOTHING }, spread };
            links.links.push(TailOperation::Loops(loops, whole));
        } else {
            let x: SmallVec<[Memory<'_>; 5]> =
                places.iter().zip(&step.x).map(|(ptr, x)| Memory { ptr: *ptr, shape: &x.shape }).collect();
            let mut provenance = step.provenance;
            let state = &mut provenance.state;
            let tail = Tail::NOTHING;
            let call = Call { tail, ..Call::new(&x, &[], state, double) };
            // SAFETY: the arrays were made for this operation, with the shapes it requires.
            let chunked = unsafe { step.op.chunked_forward(call) }?;
            links.links.push(TailOperation::ChunkedForward(chunked, Activation::Identity));
        }
    }
    Some((links, activation))
}
