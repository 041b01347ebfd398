//! Runs one function backward: by its kernel, user code, or its rule.

use std::ops::Range;

use smallvec::SmallVec;

use crate::array::{Access, Buffer, InputCache, StepPins};
use crate::graph::settings::context::Precision;
use crate::graph::step::backward::{BackwardStep, DataOperand, GradientSink, add_to, forget, nowhere};
use crate::graph::step::formula;
use crate::graph::step::forward::overlap;
use crate::graph::step::operand::{RoundedInputs, Temporaries, store};
use crate::kernels::stop;
use crate::ops::{Array, Call, Memory};
use crate::{Error, Result};

impl BackwardStep {
    /// Runs the function backward.
    pub(crate) fn backward(&mut self) -> Result<()> {
        let facts = self.op.facts();
        if facts.keeps_gradients {
            return Ok(());
        }
        let has_kernel = facts.has_backward;
        if let Some(arrays) = &self.arrays {
            return self.backward_on_arrays(&arrays.x, &arrays.y);
        }
        if self.gx.iter().all(Option::is_none) {
            return Ok(());
        }
        let _holds = self.gy.first().is_some_and(|gy| gy.counted).then(StepPins::new);
        if !has_kernel {
            return formula::backward_by_symbols(self);
        }
        if self.is_plain && !self.meets { self.run_kernel::<true>() } else { self.run_kernel::<false>() }
    }

    /// Runs the kernel. If the step is `PLAIN`, each gradient is stored in the kernel's type and written directly to
    /// its memory.
    fn run_kernel<const PLAIN: bool>(&mut self) -> Result<()> {
        let mut temporaries = Temporaries::new();
        let mut again: SmallVec<[(usize, Buffer); 1]> = SmallVec::new();
        let Self { op, compute, x, y, gy, gx, provenance, over, meets, .. } = self;
        let meets = !PLAIN && *meets;
        let (rounds, mut rounded) = (if PLAIN { None } else { compute.rounds() }, RoundedInputs::new());
        let mut xm: SmallVec<[Memory<'_>; 5]> = SmallVec::new();
        for (i, data) in x.iter().enumerate() {
            let ptr = match data.read() {
                Some(slot) if PLAIN => slot.read(op, i)?,
                Some(slot) => slot.rounded(slot.read(op, i)?, rounds, &mut rounded)?,
                None => nowhere(),
            };
            xm.push(Memory { ptr, shape: data.shape() });
        }
        let ym = outputs(y)?;
        let mut gym: SmallVec<[Memory<'_>; 2]> = SmallVec::new();
        for slot in gy.iter() {
            let ptr = slot.resolve(Access::Read)?;
            let ptr = if PLAIN { ptr } else { slot.rounded(ptr, rounds, &mut rounded)? };
            gym.push(Memory { ptr, shape: &slot.shape });
        }
        // The ranges that the kernel reads and writes, if they may overlap a gradient.
        let mut used: SmallVec<[Range<usize>; 4]> = SmallVec::new();
        if meets {
            let data = x.iter().chain(&*y).map(DataOperand::read).zip(xm.iter().chain(&ym));
            let read = data.chain(gy.iter().map(Some).zip(&gym));
            used.extend(read.filter_map(|(slot, memory)| Some(slot?.span(memory.ptr))));
        }
        let mut passed = None;
        if let Some((i, sink)) = over.and_then(|i| Some((i, gx[i].as_ref()?)))
            && gy[0].storage.hand_over(&sink.slot.storage, sink.slot.dtype)
            && op.loops(*compute == Precision::Double).is_some_and(|loops| loops.passes[i])
        {
            passed = Some(i); // the gradient is already in place
        }
        let mut gxm: SmallVec<[Option<(Memory<'_>, bool)>; 5]> = SmallVec::new();
        for (i, sink) in gx.iter_mut().enumerate() {
            let Some(GradientSink { slot, first, again: shared }) =
                sink.as_mut().filter(|_| passed != Some(i))
            else {
                gxm.push(None);
                continue;
            };
            if !PLAIN && *shared {
                let buffer = Buffer::new(slot.shape.size() * slot.dtype.size())?;
                gxm.push(Some((Memory { ptr: buffer.ptr(), shape: &slot.shape }, false)));
                again.push((i, buffer));
                continue;
            }
            let accumulate = !*first && (slot.storage.is_ready() || !slot.storage.is_zero());
            let access = if accumulate { Access::ReadWrite } else { Access::Write };
            let mut ptr = if PLAIN { slot.resolve(access) } else { slot.place(access, &mut temporaries) }?;
            if meets && used.iter().any(|other| overlap(other, &slot.span(ptr))) {
                if accumulate {
                    let buffer = Buffer::new(slot.shape.size() * slot.dtype.size())?;
                    gxm.push(Some((Memory { ptr: buffer.ptr(), shape: &slot.shape }, false)));
                    again.push((i, buffer));
                    continue;
                }
                ptr = slot.beside(Access::Write, &mut temporaries)?;
            }
            if meets {
                used.push(slot.span(ptr));
            }
            gxm.push(Some((Memory { ptr, shape: &slot.shape }, accumulate)));
        }
        let state = &mut provenance.state;
        let double = *compute == Precision::Double;
        let kept = op
            .facts()
            .cached_input
            .filter(|_| rounded.is_empty())
            .and_then(|i| Some((x.get(i)?.read()?, xm[i].ptr)));
        let call = Call {
            gy: &gym,
            gx: &gxm,
            input_cache: kept.map(|(slot, at)| InputCache::new(&slot.storage, at)),
            rounds,
            ..Call::new(&xm, &ym, state, double)
        };
        let mut refused = false;
        let done = stop::guarded(|| {
            // SAFETY: the arrays were made for this operation, with the shapes it requires.
            let done = unsafe { op.backward(call) };
            refused = done.is_err();
            done
        });
        drop(gxm);
        let done = if PLAIN { done } else { done.and_then(|()| finish(gx, temporaries, again)) };
        gx.iter().flatten().for_each(|sink| sink.slot.storage.wrote());
        if done.is_err() && !refused {
            forget(gx);
        }
        done
    }

    /// Runs the backward function of a user's operation, with flags that tell which gradients are added to.
    fn backward_on_arrays(&self, x: &[Array], y: &[Array]) -> Result<()> {
        let user =
            self.op.on_arrays().ok_or_else(|| Error::Graph("backward: expected a user's function".into()))?;
        let wanted: Vec<bool> = self.gx.iter().map(Option::is_some).collect();
        let accumulate: Vec<bool> = self
            .gx
            .iter()
            .map(|s| s.as_ref().is_some_and(|s| s.again || (!s.first && !s.slot.storage.is_zeroing())))
            .collect();
        for (sink, accumulate) in self.gx.iter().zip(&accumulate) {
            if let (Some(sink), false) = (sink, accumulate) {
                sink.slot.storage.zero()?;
            }
        }
        user.backward(x, y, &wanted, &accumulate)
    }
}

/// The memory of the outputs. A kernel does not touch outputs that it does not read.
#[inline(always)]
fn outputs(of: &[DataOperand]) -> Result<SmallVec<[Memory<'_>; 2]>> {
    let mut found = SmallVec::new();
    for data in of {
        let ptr = data.read().map_or(Ok(nowhere()), |s| s.resolve(Access::Read))?;
        found.push(Memory { ptr, shape: data.shape() });
    }
    Ok(found)
}

/// Moves gradients from temporary memory to their destinations.
fn finish(
    gx: &mut [Option<GradientSink>],
    temporaries: Temporaries,
    again: SmallVec<[(usize, Buffer); 1]>,
) -> Result<()> {
    store(temporaries)?;
    for (i, buffer) in again {
        if let Some(sink) = &mut gx[i] {
            stop::guarded(|| add_to(&mut sink.slot, buffer.ptr()))?;
        }
    }
    Ok(())
}
