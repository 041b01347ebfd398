//! Runs one function backward: by its kernel, user code, or its rule.

use std::ops::Range;

use smallvec::SmallVec;

use crate::array::{Access, Buffer, DType, InputCache, Shape, StepPins};
use crate::graph::settings::context::Precision;
use crate::graph::step::backward::{BackwardStep, DataOperand, GradientSink, add_to, forget, nowhere};
use crate::graph::step::formula;
use crate::graph::step::forward::{keeps_bits, overlap};
use crate::graph::step::operand::{Operand, RunBuffers, Temporaries, store};
use crate::graph::step::tiles::{TiledArray, TiledFunction};
use crate::kernels::stop;
use crate::ops::{Array, Call, InBFloat16, Loops, Memory, Op};
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
        if self.moves_bits() {
            return self.move_bits();
        }
        if let Some(loops) = self.tiled_loops() {
            return self.run_in_tiles(loops);
        }
        if self.is_plain && !self.meets { self.run_kernel::<true>() } else { self.run_kernel::<false>() }
    }

    /// True if the function keeps gradients that all are stored in the 16 bits of its context, and adds to none.
    fn moves_bits(&self) -> bool {
        let Self { op, compute, x, y, gy, gx, meets, is_plain, .. } = self;
        let stored = compute.stored();
        let facts = op.facts();
        let sets = |(i, sink): (usize, &GradientSink)| {
            if facts.widens(i) {
                return !sink.again;
            }
            let adds = !sink.first && (sink.slot.storage.is_ready() || !sink.slot.storage.is_zero());
            !adds && !sink.again && sink.slot.has_bits(stored, Access::Write)
        };
        let of_x = x.iter().enumerate().filter(|(i, _)| !facts.widens(*i)).map(|(_, x)| x);
        let mut read = of_x.chain(y).filter_map(DataOperand::read).chain(gy);
        if *is_plain || *meets || stored == compute.dtype() || !(facts.moves_back || keeps_bits(op, stored)) {
            return false;
        }
        let shapes: SmallVec<[&Shape; 4]> = x.iter().map(DataOperand::shape).collect();
        read.all(|slot| slot.has_bits(stored, Access::Read))
            && gx.iter().enumerate().filter_map(|(i, sink)| Some((i, sink.as_ref()?))).all(sets)
            && op.moves_back(&shapes)
    }

    /// Runs the kernel on gradients of 16 bits as they are.
    fn move_bits(&mut self) -> Result<()> {
        let Self { op, compute, x, y, gy, gx, provenance, .. } = self;
        let (stored, facts) = (compute.stored(), op.facts());
        let (mut widened, mut rounded) = (RunBuffers::new(), RunBuffers::new());
        let mut temporaries = Temporaries::new();
        let (mut xm, mut ym): (SmallVec<[Memory<'_>; 5]>, SmallVec<[Memory<'_>; 2]>) = Default::default();
        for (i, data) in x.iter().enumerate() {
            let ptr = match data.read() {
                None => nowhere(),
                Some(slot) if facts.widens(i) => {
                    let at = slot.read_widened(op, i, &mut widened)?;
                    slot.rounded(at, compute.rounds(), &mut rounded)?
                }
                Some(slot) if slot.dtype.is_float() => slot.resolve_bits(stored, Access::Read)?,
                Some(slot) => slot.read(op, i)?,
            };
            xm.push(Memory { ptr, shape: data.shape() });
        }
        for data in &*y {
            let ptr = data.read().map_or_else(|| Ok(nowhere()), |y| y.resolve_bits(stored, Access::Read))?;
            ym.push(Memory { ptr, shape: data.shape() });
        }
        let (mut gym, mut gxm): (SmallVec<[Memory<'_>; 2]>, SmallVec<[_; 5]>) = Default::default();
        for slot in &*gy {
            gym.push(Memory { ptr: slot.resolve_bits(stored, Access::Read)?, shape: &slot.shape });
        }
        for (i, sink) in gx.iter().enumerate() {
            let Some(GradientSink { slot, first, .. }) = sink else {
                gxm.push(None);
                continue;
            };
            let adds = facts.widens(i) && !*first && (slot.storage.is_ready() || !slot.storage.is_zero());
            let ptr = match facts.widens(i) {
                true => slot.place(if adds { Access::ReadWrite } else { Access::Write }, &mut temporaries)?,
                false => slot.resolve_bits(stored, Access::Write)?,
            };
            gxm.push(Some((Memory { ptr, shape: &slot.shape }, adds)));
        }
        let state = &mut provenance.state;
        let call = Call { gy: &gym, gx: &gxm, bits: Some(stored), ..Call::new(&xm, &ym, state, false) };
        let done = stop::guarded(|| call_kernel(op, call));
        drop(gxm);
        let done = done.and_then(|()| store(temporaries));
        gx.iter().flatten().for_each(|sink| sink.slot.storage.wrote());
        done.inspect_err(|_| forget(gx))
    }

    /// The loops of an elementwise function of arrays of one shape that stores gradients of 16 bits.
    fn tiled_loops(&self) -> Option<Loops> {
        let Self { op, compute, x, y, gy, gx, meets, is_plain, .. } = self;
        let gy = gy.first().filter(|_| !*is_plain && !*meets && compute.rounds().is_none())?;
        let n = gy.shape.size();
        let fits = |slot: &Operand| slot.shape.size() == n && slot.dtype == DType::F32;
        let data = || x.iter().chain(y).filter_map(DataOperand::read);
        let fits = self.gy.len() == 1
            && (1..=2).contains(&x.len())
            && x.iter().chain(y).all(|data| data.shape().size() == n)
            && !gx.iter().flatten().any(|sink| sink.again)
            && gx.iter().flatten().map(|sink| &sink.slot).chain([gy]).chain(data()).all(fits);
        if fits { op.loops(false) } else { None }
    }

    /// Runs an elementwise function tile by tile.
    fn run_in_tiles(&mut self, loops: Loops) -> Result<()> {
        let Self { x, y, gy, gx, .. } = self;
        let mut arrays = [TiledArray::MISSING; 6];
        for (data, array) in x.iter().zip(&mut arrays) {
            if let Some(slot) = data.read() {
                *array = slot.tiled(Access::Read)?;
            }
        }
        if let Some(slot) = y[0].read() {
            arrays[2] = slot.tiled(Access::Read)?;
        }
        arrays[3] = gy[0].tiled(Access::Read)?;
        let mut adds = [false; 2];
        for (i, sink) in gx.iter().enumerate() {
            let Some(GradientSink { slot, first, .. }) = sink else { continue };
            adds[i] = !*first && (slot.storage.is_ready() || !slot.storage.is_zero());
            arrays[4 + i] = slot.tiled(if adds[i] { Access::ReadWrite } else { Access::Write })?;
        }
        let n = gy[0].shape.size();
        let done = stop::guarded(|| {
            TiledFunction { loops, arrays, adds, n }.run(false);
            Ok(())
        });
        gx.iter().flatten().for_each(|sink| sink.slot.storage.wrote());
        done.inspect_err(|_: &Error| forget(gx))
    }

    /// Runs the kernel. If the step is `PLAIN`, each gradient is stored in the kernel's type and written directly to
    /// its memory.
    fn run_kernel<const PLAIN: bool>(&mut self) -> Result<()> {
        let mut temporaries = Temporaries::new();
        let mut again: SmallVec<[(usize, Buffer); 1]> = SmallVec::new();
        let Self { op, compute, x, y, gy, gx, provenance, over, meets, .. } = self;
        let meets = !PLAIN && *meets;
        let (rounds, mut rounded) = (if PLAIN { None } else { compute.rounds() }, RunBuffers::new());
        let mut widened = RunBuffers::new();
        let listed = if PLAIN || *compute != Precision::BFloat16 { 0 } else { op.facts().in_bfloat16 };
        let is_listed = |i: usize| is_listed(listed, i);
        let mut in_bfloat16 = InBFloat16 { products: *compute == Precision::BFloat16, ..InBFloat16::NONE };
        let (xm, native) = inputs::<PLAIN>(x, op, listed, rounds, &mut widened, &mut rounded)?;
        in_bfloat16.x = native;
        let ym = outputs::<PLAIN>(y, &mut widened)?;
        let (gym, is_native) =
            gradients_of_outputs::<PLAIN>(gy, listed != 0, rounds, &mut widened, &mut rounded)?;
        in_bfloat16.gy = is_native;
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
            let native = match !meets && is_listed(i) && slot.stored == DType::BF16 {
                true => slot.in_bfloat16(access)?,
                false => None,
            };
            if let Some(ptr) = native {
                in_bfloat16.gx |= 1 << i;
                gxm.push(Some((Memory { ptr, shape: &slot.shape }, accumulate)));
                continue;
            }
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
            in_bfloat16,
            ..Call::new(&xm, &ym, state, double)
        };
        let mut refused = false;
        let done = stop::guarded(|| {
            let done = call_kernel(op, call);
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
                sink.slot.make_double()?;
            }
        }
        // The user writes through views, which do not count as writes. Zeros may be the gradient.
        self.gx.iter().flatten().for_each(|sink| sink.slot.storage.touch());
        user.backward(x, y, &wanted, &accumulate)
    }
}

/// True if bit `i` is set. Inputs beyond the last bit share it.
fn is_listed(listed: u64, i: usize) -> bool {
    listed >> i.min(63) & 1 == 1
}

/// The memory of the inputs, and the bits of inputs that are read in bfloat16, which `listed` ones may be.
#[inline(always)]
fn inputs<'a, const PLAIN: bool>(
    x: &'a [DataOperand],
    op: &Op,
    listed: u64,
    rounds: Option<DType>,
    widened: &mut RunBuffers,
    rounded: &mut RunBuffers,
) -> Result<(SmallVec<[Memory<'a>; 5]>, u64)> {
    let (mut found, mut in_bfloat16) = (SmallVec::new(), 0);
    for (i, data) in x.iter().enumerate() {
        let ptr = match data.read() {
            Some(slot) if PLAIN => slot.read(op, i)?,
            Some(slot) => match if is_listed(listed, i) { slot.in_bfloat16(Access::Read)? } else { None } {
                Some(at) => {
                    in_bfloat16 |= 1 << i;
                    at
                }
                None => slot.rounded(slot.read_widened(op, i, widened)?, rounds, rounded)?,
            },
            None => nowhere(),
        };
        found.push(Memory { ptr, shape: data.shape() });
    }
    Ok((found, in_bfloat16))
}

/// The memory of the gradients of the outputs. The flag tells whether the first of them is read in bfloat16, which it
/// may be if `reads_narrow`.
#[inline(always)]
fn gradients_of_outputs<'a, const PLAIN: bool>(
    gy: &'a [Operand],
    reads_narrow: bool,
    rounds: Option<DType>,
    widened: &mut RunBuffers,
    rounded: &mut RunBuffers,
) -> Result<(SmallVec<[Memory<'a>; 2]>, bool)> {
    let (mut found, mut is_native) = (SmallVec::new(), false);
    for (o, slot) in gy.iter().enumerate() {
        let native = if o == 0 && reads_narrow { slot.in_bfloat16(Access::Read)? } else { None };
        is_native |= native.is_some();
        let ptr = match native {
            Some(at) => at,
            None if PLAIN => slot.resolve(Access::Read)?,
            None => {
                let at = slot.resolve_widened(widened)?;
                slot.rounded(at.map_or_else(|| slot.resolve(Access::Read), Ok)?, rounds, rounded)?
            }
        };
        found.push(Memory { ptr, shape: &slot.shape });
    }
    Ok((found, is_native))
}

/// The memory of the outputs. A kernel does not touch outputs that it does not read.
#[inline(always)]
fn outputs<'a, const PLAIN: bool>(
    of: &'a [DataOperand],
    widened: &mut RunBuffers,
) -> Result<SmallVec<[Memory<'a>; 2]>> {
    let mut found = SmallVec::new();
    for data in of {
        let ptr = match data.read() {
            None => nowhere(),
            Some(slot) => match if PLAIN { None } else { slot.resolve_widened(widened)? } {
                Some(at) => at,
                None => slot.resolve(Access::Read)?,
            },
        };
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

/// Runs the kernel of a gradient on the arrays of a step.
#[inline(always)]
fn call_kernel(op: &Op, call: Call<'_>) -> Result<()> {
    // SAFETY: the arrays were made for this operation, with the shapes it requires.
    unsafe { op.backward(call) }
}
