//! Fused passes of a forward run.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::Result;
use crate::array::{Access, DType, Storage, VersionedFingerprint};
use crate::graph::plan::fusion::broadcast::BroadcastCycle;
use crate::graph::plan::fusion::epilogue::EpilogueChain;
use crate::graph::plan::fusion::{Arrays, Location, NOTHING, Planner, TileRange, holds, runs};
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::{Operand, ProvenancePtr};
use crate::kernels::{sixteen_bits, stop};
use crate::ops::{Loops, Op, Part};

/// One function of a pass. Arrays are given by the numbers of their locations.
struct ForwardPassCall {
    /// The loops of the function.
    loops: Loops,
    /// The state that the function saves from the run.
    provenance: ProvenancePtr,
    /// The inputs.
    x: [u32; 2],
    /// The output.
    y: u32,
    /// Keeps the formula of the loops alive.
    _op: Op,
}

/// Steps of a forward plan that run as one pass.
pub(in crate::graph) struct FusedForward {
    /// The steps.
    pub(in crate::graph) steps: Range<usize>,
    /// The arrays of all functions.
    arrays: Arrays,
    /// The functions, in order.
    calls: Vec<ForwardPassCall>,
    /// Storages that the plan clears after one of the steps and that have memory.
    cleared: Vec<Arc<Storage>>,
    /// Fingerprints of the values in the locations.
    fingerprints: Vec<VersionedFingerprint>,
}

/// The number of elements of a step, if it may be part of a pass.
pub(in crate::graph) fn forward_len(step: &ForwardStep) -> Option<usize> {
    let len = step.y.first()?.shape.size();
    let same = |slot: &Operand| {
        let fits = BroadcastCycle::fits(&slot.shape, &step.y[0].shape);
        fits && slot.dtype == step.compute.dtype()
    };
    let fits = (step.is_plain() || step.is_tiled())
        && !step.keeps_integers() // a run refuses arrays that hold integers later
        && step.y.len() == 1
        && (1..=2).contains(&step.x.len())
        && step.op.loops(false).is_some()
        && len > 0
        && !step.y[0].storage.may_be_met()
        && step.x.iter().chain(&step.y).all(same);
    fits.then_some(len)
}

impl FusedForward {
    /// All passes of a plan, in order, of steps outside chains. `clears` lists the inputs to clear, as numbers of the
    /// step and its input.
    pub(in crate::graph) fn all(
        steps: &[ForwardStep],
        clears: &[(u32, u32)],
        chains: &[EpilogueChain],
    ) -> Vec<Self> {
        let joins = |a: usize, b: usize| steps[a].compute == steps[b].compute;
        let taken: Vec<Range<usize>> = chains.iter().map(|chain| chain.steps.clone()).collect();
        let len = |n: usize| forward_len(&steps[n]).filter(|_| !holds(&taken, n));
        let found = runs(steps.len(), len, joins);
        found.into_iter().filter_map(|range| Self::plan(steps, clears, range)).collect()
    }

    /// The pass of these steps. None if they share memory in a way that requires running them separately.
    fn plan(steps: &[ForwardStep], clears: &[(u32, u32)], range: Range<usize>) -> Option<Self> {
        let from = clears.partition_point(|(n, _)| (*n as usize) < range.start);
        let to = clears.partition_point(|(n, _)| (*n as usize) < range.end);
        let clears: Vec<(usize, &Arc<Storage>)> = clears[from..to]
            .iter()
            .map(|(n, i)| (*n as usize, &steps[*n as usize].x[*i as usize].storage))
            .collect();
        let cleared: HashSet<*const Storage> = clears.iter().map(|(_, s)| Arc::as_ptr(s)).collect();
        let mut planner = Planner::default();
        let mut places: Vec<(SmallVec<[Location; 2]>, Location)> = Vec::with_capacity(range.len());
        let mut left = clears.iter().peekable();
        let mut kept = Vec::new();
        for n in range.clone() {
            let step = &steps[n];
            let mut x = SmallVec::new();
            for slot in &step.x {
                x.push(planner.read(&slot.storage, &slot.shape, &step.y[0].shape)?);
            }
            let mut leaving: SmallVec<[&Arc<Storage>; 2]> = SmallVec::new();
            while let Some((_, storage)) = left.next_if(|(at, _)| *at == n) {
                leaving.push(storage);
            }
            // A function of one input may overwrite it.
            let lone = step.x.len() == 1;
            if lone {
                leaving.iter().for_each(|storage| planner.leave(storage));
            }
            let y = &step.y[0].storage;
            if planner.find(y).is_some() || planner.has_left(y) {
                return None;
            }
            let y = if cleared.contains(&Arc::as_ptr(y)) {
                planner.assign_buffer(y)
            } else {
                planner.own(y, Access::Write)
            };
            if !lone {
                leaving.iter().for_each(|storage| planner.leave(storage));
            }
            for storage in leaving {
                if let Some(Location::Own(_)) = planner.find(storage) {
                    kept.push(Arc::clone(storage));
                }
            }
            places.push((x, y));
        }
        let double = steps[range.start].compute.dtype() == DType::F64;
        let mut calls = Vec::with_capacity(range.len());
        for (step, (x, y)) in steps[range.clone()].iter().zip(&places) {
            let mut numbers = [NOTHING; 2];
            x.iter().zip(&mut numbers).for_each(|(place, number)| *number = planner.number(*place));
            let (loops, op) = (step.op.loops(double)?, step.op.clone());
            calls.push(ForwardPassCall {
                loops,
                provenance: step.provenance,
                x: numbers,
                y: planner.number(*y),
                _op: op,
            });
        }
        let fingerprints = vec![VersionedFingerprint::NONE; planner.own.len() + planner.n_buffers as usize];
        let first = &steps[range.start];
        let arrays = Arrays::new(planner, first.compute, first.y[0].shape.size());
        Some(Self { steps: range, arrays, calls, cleared: kept, fingerprints })
    }

    /// Bytes of values that exist only in tile buffers.
    pub(in crate::graph) fn saved(&self) -> usize {
        self.arrays.saved()
    }

    /// Runs the pass. Returns false without side effects if the steps must run separately.
    ///
    /// # Errors
    /// If the user interrupts it, or if an array cannot be cleared.
    pub(in crate::graph) fn run(&mut self) -> Result<bool> {
        let Self { arrays, calls, fingerprints, .. } = self;
        if !arrays.resolve() {
            return Ok(false);
        }
        let own = fingerprints.iter_mut().zip(&arrays.own);
        for (fingerprint, (storage, _)) in own.filter(|(_, own)| own.1 == Access::Read) {
            *fingerprint = storage.versioned_fingerprint();
        }
        for repeated in &arrays.repeated {
            fingerprints[arrays.own.len() + repeated.buffer as usize] = fingerprints[repeated.own as usize];
        }
        let done = stop::guarded(|| -> Result<()> {
            Self::pass(arrays, calls, fingerprints);
            Ok(())
        });
        done.inspect_err(|_| arrays.forget())?;
        for (fingerprint, (storage, access)) in fingerprints.iter().zip(&arrays.own) {
            if *access != Access::Read {
                storage.set_fingerprint(fingerprint.fingerprint());
            }
        }
        self.cleared.iter().try_for_each(|storage| storage.clear(true))?;
        Ok(true)
    }

    /// Runs all steps of the pass, tile by tile, and sets the fingerprints of their outputs.
    fn pass(arrays: &Arrays, calls: &[ForwardPassCall], fingerprints: &mut [VersionedFingerprint]) {
        if arrays.is_one_tile() {
            // Fingerprints are computed while the processor waits for memory.
            let own = &arrays.own;
            arrays.tiles(0..arrays.len, |tile, n| {
                for call in calls {
                    call.stamp(own, fingerprints);
                    call.run::<true>(tile, n);
                }
            });
        } else {
            for call in calls {
                call.stamp(&arrays.own, fingerprints);
            }
            arrays.pass(calls.len(), |tile, n| match tile.rounds {
                None => calls.iter().for_each(|call| call.run::<false>(tile, n)),
                Some(_) => calls.iter().for_each(|call| call.run::<true>(tile, n)),
            });
        }
    }
}

// SAFETY: the targets of its pointers are used by one run at a time, see `ProvenancePtr`.
unsafe impl Sync for ForwardPassCall {}

impl ForwardPassCall {
    /// Saves the fingerprints of the function's inputs, and sets the fingerprints of its outputs.
    #[inline(always)]
    fn stamp(&self, own: &[(Arc<Storage>, Access)], fingerprints: &mut [VersionedFingerprint]) {
        let mut provenance = self.provenance;
        let given = self.x.iter().filter(|x| **x != NOTHING);
        let inputs = provenance.save_inputs(given.map(|x| fingerprints[*x as usize]), false);
        let new = provenance.of_output(inputs, 0);
        fingerprints[self.y as usize] = match own.get(self.y as usize) {
            Some((storage, _)) => storage.with_version(new),
            None => new.into(),
        };
    }

    /// Runs this step on a tile of `n` elements, and rounds its results if `ROUNDS` and functions store 16 bits.
    #[inline(always)]
    fn run<const ROUNDS: bool>(&self, tile: TileRange<'_>, n: usize) {
        let part =
            Part { x: self.x.map(|x| tile.of(x).cast_const()), y: tile.of(self.y), n, ..Part::NOTHING };
        // SAFETY: the operation is alive, and each array has a tile of `n` elements of its type.
        unsafe {
            self.loops.forward(&part);
            if ROUNDS && tile.rounds.is_some() {
                sixteen_bits::round_each(&[part.y], tile.rounds, n);
            }
        };
    }
}
