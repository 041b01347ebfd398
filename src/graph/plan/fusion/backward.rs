//! Fused passes of a backward run.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::array::{Access, Calm, DType, Storage};
use crate::graph::lifetime::release::Release;
use crate::graph::plan::fusion::broadcast::BroadcastCycle;
use crate::graph::plan::fusion::{Arrays, Location, NOTHING, Planner, TileRange, runs};
use crate::graph::step::backward::{BackwardStep, DataOperand};
use crate::graph::step::operand::Operand;
use crate::kernels::{sixteen_bits, stop};
use crate::ops::{Loops, Op, Part};

/// How a pass writes a gradient.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GradientFate {
    /// Overwrites it.
    Written,
    /// Adds to it.
    Added,
    /// Adds to it, or overwrites it if it is empty when the pass begins.
    Found,
}

/// One function of a pass. Arrays are given by the numbers of their locations.
struct BackwardPassCall {
    /// The loops of the function.
    loops: Loops,
    /// The inputs.
    x: [u32; 2],
    /// The output.
    y: u32,
    /// The gradient of the output.
    gy: u32,
    /// The gradients of the inputs.
    gx: [u32; 2],
    /// How the pass writes the gradient of each input.
    fate: [GradientFate; 2],
    /// Keeps the formula of the loops alive.
    _op: Op,
}

/// Steps of a backward plan that run as one pass.
pub(crate) struct FusedBackward {
    /// The steps.
    pub(crate) steps: Range<usize>,
    /// The steps whose gradient reads values.
    pub(crate) readers: Vec<usize>,
    /// The entries in the plan's list of releases that belong to these steps and have memory.
    cleared: Vec<usize>,
    /// The entries of `cleared` that had memory to clear in the last run.
    there: Vec<usize>,
    /// The moment since which the other entries of `cleared` have had no memory.
    gone: Calm,
    /// The arrays of all functions.
    arrays: Arrays,
    /// The functions, in order.
    calls: Vec<BackwardPassCall>,
}

/// As [`BackwardPassCall`], before locations have numbers.
struct Placed {
    /// The operation.
    op: Op,
    /// The inputs that the gradient reads.
    x: [Option<Location>; 2],
    /// The output, if the gradient reads it.
    y: Option<Location>,
    /// The gradient of the output.
    gy: Location,
    /// The requested gradients of the inputs, and how each is written.
    gx: [Option<(Location, GradientFate)>; 2],
}

impl Placed {
    /// This step with places replaced by their numbers in the pass.
    fn numbered(self, planner: &Planner, double: bool) -> Option<BackwardPassCall> {
        let number = |place: Option<Location>| place.map_or(NOTHING, |place| planner.number(place));
        Some(BackwardPassCall {
            loops: self.op.loops(double)?,
            x: self.x.map(number),
            y: number(self.y),
            gy: planner.number(self.gy),
            gx: self.gx.map(|gx| number(gx.map(|(place, _)| place))),
            fate: self.gx.map(|gx| gx.map_or(GradientFate::Written, |(_, fate)| fate)),
            _op: self.op,
        })
    }
}

/// The number of elements of a step's gradients, if it may be part of a pass.
pub(crate) fn backward_len(step: &BackwardStep) -> Option<usize> {
    let gy = step.gy.first()?;
    let len = gy.shape.size();
    let dtype = step.compute.dtype();
    let same = |slot: &Operand| {
        slot.shape == gy.shape && slot.dtype == dtype && slot.stored == step.compute.stored()
    };
    let read = |data: &DataOperand| {
        data.read().is_none_or(|slot| slot.dtype == dtype && BroadcastCycle::fits(&slot.shape, &gy.shape))
    };
    let fits = step.op.facts().has_backward
        && step.compute.rounds().is_none()
        && step.arrays.is_none()
        && !step.op.facts().keeps_gradients
        && step.gy.len() == 1
        && (1..=2).contains(&step.x.len())
        && step.op.loops(false).is_some()
        && len > 0
        && !step.gx.iter().flatten().any(|sink| sink.slot.storage.may_be_met())
        && step.gx.iter().flatten().map(|sink| &sink.slot).chain([gy]).all(same)
        && step.x.iter().chain(&step.y).all(read);
    fits.then_some(len)
}

impl FusedBackward {
    /// All passes of a plan, in order. A step in `apart` can only be the first of a pass, since something happens
    /// before it. A pass contains no `varying` step, because its arrays must be the same in each run.
    pub(crate) fn all(
        steps: &[BackwardStep],
        clears: &[Release],
        apart: &HashSet<u32>,
        varying: &[u32],
    ) -> Vec<Self> {
        let joins = |a: usize, b: usize| {
            steps[a].compute == steps[b].compute && (a + 1..=b).all(|n| !apart.contains(&(n as u32)))
        };
        let len = |n: usize| backward_len(&steps[n]).filter(|_| varying.binary_search(&(n as u32)).is_err());
        let found = runs(steps.len(), len, joins);
        found.into_iter().filter_map(|range| Self::plan(steps, clears, range)).collect()
    }

    /// Fuses a range of backward steps, if that is possible.
    fn plan(steps: &[BackwardStep], clears: &[Release], range: Range<usize>) -> Option<Self> {
        let from = clears.partition_point(|c| (c.step as usize) < range.start);
        let to = clears.partition_point(|c| (c.step as usize) < range.end);
        let grads = clears[from..to].iter().filter(|c| c.place.is_grad);
        let cleared: HashSet<*const Storage> = grads.map(|c| Arc::as_ptr(&c.place.storage)).collect();
        // Only a gradient whose function is one of these is complete, and read, within the pass.
        let read: HashSet<*const Storage> =
            range.clone().map(|n| Arc::as_ptr(&steps[n].gy[0].storage)).collect();
        let mut planner = Planner::default();
        let mut placed = Vec::with_capacity(range.len());
        for n in range.clone() {
            let step = &steps[n];
            let data = |planner: &mut Planner, data: &DataOperand| -> Option<Option<Location>> {
                let Some(slot) = data.read() else { return Some(None) };
                if planner
                    .find(&slot.storage)
                    .is_some_and(|place| planner.access(place) != Some(Access::Read))
                {
                    return None;
                }
                planner.read(&slot.storage, &slot.shape, &step.gy[0].shape).map(Some)
            };
            let mut x = [None; 2];
            for (operand, x) in step.x.iter().zip(&mut x) {
                *x = data(&mut planner, operand)?;
            }
            let y = data(&mut planner, &step.y[0])?;
            let gy = &step.gy[0].storage;
            let gy_location = planner.find(gy).unwrap_or_else(|| planner.own(gy, Access::Read));
            // A gradient equal to the gradient of the output needs no computation if it can take over its tile buffer.
            let passes = step.op.loops(false)?.passes;
            let leaves = cleared.contains(&Arc::as_ptr(gy)) && matches!(gy_location, Location::Buffer(_));
            let lives = |storage: &Arc<Storage>| {
                cleared.contains(&Arc::as_ptr(storage)) && read.contains(&Arc::as_ptr(storage))
            };
            let mut passed: Option<&Arc<Storage>> = None;
            let mut gx = [None; 2];
            for (i, (sink, gx)) in step.gx.iter().zip(&mut gx).enumerate() {
                let Some(sink) = sink else { continue };
                let storage = &sink.slot.storage;
                if planner.has_left(storage) || passed.is_some_and(|passed| Arc::ptr_eq(passed, storage)) {
                    return None;
                }
                let placed = match planner.find(storage) {
                    Some(place) if place == gy_location || planner.access(place) == Some(Access::Read) => {
                        return None;
                    }
                    Some(place) => {
                        (place, if sink.first { GradientFate::Written } else { GradientFate::Added })
                    }
                    None if sink.again => return None,
                    None if sink.first && lives(storage) && leaves && passes[i] && passed.is_none() => {
                        passed = Some(storage);
                        continue;
                    }
                    None if sink.first && lives(storage) => {
                        (planner.assign_buffer(storage), GradientFate::Written)
                    }
                    None if sink.first => (planner.own(storage, Access::Write), GradientFate::Written),
                    None => (planner.own(storage, Access::ReadWrite), GradientFate::Found),
                };
                // If the same gradient is requested twice, the second is added to the first.
                *gx = Some(if sink.again { (placed.0, GradientFate::Added) } else { placed });
            }
            match passed {
                Some(storage) => planner.rename(gy, storage),
                None if leaves => planner.leave(gy),
                None => {}
            }
            if gx == [None; 2] {
                continue;
            }
            placed.push(Placed { op: step.op.clone(), x, y, gy: gy_location, gx });
        }
        let double = steps[range.start].compute.dtype() == DType::F64;
        let calls = placed.into_iter().map(|call| call.numbered(&planner, double));
        let calls = calls.collect::<Option<Vec<BackwardPassCall>>>().filter(|calls| !calls.is_empty())?;
        let concerns = |n: &usize| {
            let place = &clears[*n].place;
            !(place.is_grad && planner.has_left(&place.storage))
        };
        let cleared = (from..to).filter(concerns).collect();
        let reads = |n: &usize| steps[*n].x.iter().chain(&steps[*n].y).any(|data| data.read().is_some());
        let readers = range.clone().filter(reads).collect();
        let first = &steps[range.start];
        let arrays = Arrays::new(planner, first.compute, first.gy[0].shape.size());
        Some(Self { steps: range, readers, cleared, there: Vec::new(), gone: Calm::NEVER, arrays, calls })
    }

    /// Bytes of gradients that exist only in tile buffers.
    pub(crate) fn saved(&self) -> usize {
        self.arrays.saved()
    }

    /// Invalidates the list of storages without memory, since they may have moved.
    pub(crate) fn look_again(&mut self) {
        self.gone = Calm::NEVER;
    }

    /// Clears the arrays to be cleared after these steps.
    ///
    /// # Errors
    /// If an array cannot be cleared.
    pub(crate) fn clear(&mut self, clears: &[Release]) -> Result<()> {
        if !self.gone.lasts() {
            self.gone = Calm::now();
            self.there.clear();
            self.there.extend(self.cleared.iter().filter(|n| !clears[**n].place.storage.watch()));
        }
        self.there.iter().try_for_each(|n| clears[*n].now())
    }

    /// Runs the pass. Returns false without side effects if the steps must run separately.
    ///
    /// # Errors
    /// If the user interrupts it.
    pub(crate) fn run(&mut self) -> Result<bool> {
        if !self.arrays.resolve() {
            return Ok(false);
        }
        let (calls, adds) = (&self.calls, &self.arrays.adds);
        let done = stop::guarded(|| {
            self.arrays.pass(calls.len(), |tile, n| match tile.rounds {
                None => calls.iter().for_each(|call| call.run::<false>(tile, adds, n)),
                Some(_) => calls.iter().for_each(|call| call.run::<true>(tile, adds, n)),
            });
            Ok(true)
        });
        let written = self.arrays.own.iter().filter(|own| own.1 != Access::Read);
        written.for_each(|(storage, _)| storage.wrote());
        done.inspect_err(|_| self.arrays.forget())
    }
}

impl BackwardPassCall {
    /// Runs this step on a tile of `n` elements, and rounds its results if `ROUNDS`. `adds` tells which found gradients
    /// are added to.
    #[inline(always)]
    fn run<const ROUNDS: bool>(&self, tile: TileRange<'_>, adds: &[bool], n: usize) {
        let adds = |i: usize| match self.fate[i] {
            GradientFate::Written => false,
            GradientFate::Added => true,
            GradientFate::Found => adds[self.gx[i] as usize],
        };
        let part = Part {
            x: self.x.map(|x| tile.of(x).cast_const()),
            y: tile.of(self.y),
            gy: tile.of(self.gy),
            gx: self.gx.map(|gx| tile.of(gx)),
            adds: [adds(0), adds(1)],
            n,
        };
        // SAFETY: the operation is alive, and each array has a tile of `n` elements of its type.
        unsafe {
            self.loops.backward(&part);
            if ROUNDS {
                sixteen_bits::round_each(&part.gx, tile.rounds, n);
            }
        };
    }
}
