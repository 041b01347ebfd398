//! A model of a training step: the arrays that its functions use, forward and backward, and their sizes.
//!
//! It is made from the plans of both runs and is then independent of the arena. So a step can be simulated for
//! hundreds of choices in the time of one real step (see `simulate`).

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{DType, Shape, Storage};
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::lifetime::release::ReleasedStorage;
use crate::graph::lifetime::rules::{self, ValueFacts};
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::step::cost::work_of;
use crate::graph::step::formula;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::Operand;

/// The elements of one storage.
pub(crate) struct Block {
    /// The storage.
    pub(crate) storage: Arc<Storage>,
    /// The tensor whose data or gradient it is.
    tensor: Ix,
    /// True if it is the gradient of the tensor.
    is_grad: bool,
    /// True if a step writes it.
    written: bool,
    /// The type of its elements, if they exist before and after the step.
    pub(crate) lasting: Option<DType>,
}

/// The use of a block by a step.
#[derive(Clone, Copy)]
pub(crate) struct Touch {
    /// The number of the block.
    pub(crate) block: u32,
    /// The type in which the step uses the elements.
    pub(crate) dtype: DType,
    /// True if the step writes the elements.
    pub(crate) write: bool,
}

/// A value between two functions.
pub(crate) struct ModelValue {
    /// The variable, `NONE` if it was freed.
    pub(crate) variable: Ix,
    /// The number of its block.
    pub(crate) block: u32,
    /// The function of the forward run that computes it.
    pub(crate) producer: Option<u32>,
    /// Its last reader in the forward run.
    pub(crate) last: Option<u32>,
    /// The number of uses of the value by functions in this run.
    reads: u32,
    /// The number of uses of the value by all functions.
    pub(crate) uses: u32,
    /// Bytes of memory that it takes.
    pub(crate) bytes: usize,
    /// True for a leaf, a persistent or in-place value, or an output of a function that must not run twice.
    pub(crate) fixed: bool,
    /// A gradient reads it.
    pub(crate) needed: bool,
    /// The user marked it for recomputation.
    pub(crate) flagged: bool,
}

impl ModelValue {
    /// The facts that determine whether a recomputation clears it. Under a budget it may clear values that existed
    /// before.
    pub(crate) fn facts(&self) -> ValueFacts {
        let Self { fixed, needed, flagged, .. } = *self;
        ValueFacts { fixed, needed, recompute: flagged, existed: false }
    }

    /// True if a forward run may drop it.
    pub(crate) fn may_drop(&self) -> bool {
        !self.fixed && self.last.is_some() && rules::is_last_use(self.reads, self.uses)
    }
}

/// A function of the forward run.
pub(crate) struct ModelForward {
    /// Numbers of values.
    pub(crate) inputs: SmallVec<[u32; 3]>,
    /// Numbers of values.
    pub(crate) outputs: SmallVec<[u32; 1]>,
    /// Estimated work, to compare costs of recomputation.
    pub(crate) work: u64,
    /// The blocks that it uses.
    pub(crate) touches: SmallVec<[Touch; 4]>,
    /// Bytes of temporary memory while it runs.
    pub(crate) temporary: usize,
}

/// A function of the backward run.
#[derive(Default)]
pub(crate) struct ModelBackward {
    /// Values that must be available.
    pub(crate) reads: SmallVec<[u32; 4]>,
    /// The blocks that it uses.
    pub(crate) touches: SmallVec<[Touch; 6]>,
    /// Bytes of temporary memory while it runs.
    pub(crate) temporary: usize,
    /// The blocks that may be cleared after it.
    pub(crate) clears: SmallVec<[ModelRelease; 2]>,
}

/// A block that is cleared after a function of the backward run, once certain other runs are done.
pub(crate) struct ModelRelease {
    /// The number of the block.
    pub(crate) block: u32,
    /// The runs that must be done before.
    pub(crate) after: After,
    /// As `after`, for a dropped value, which other runs do not wait for.
    pub(crate) unless_dropped: After,
    /// The value that the block holds, if it is one that may be dropped.
    pub(crate) value: Option<u32>,
}

/// Sets of backward runs, as bit sets. Of each set at least one run must be done.
type After = SmallVec<[u64; 1]>;

impl ModelRelease {
    /// True if it may be cleared, given the set of completed runs.
    pub(crate) fn may_go(&self, done: u64, drop: &[bool]) -> bool {
        let been = |after: &After| after.iter().all(|runs| runs & done != 0);
        been(&self.after) && (self.value.is_some_and(|v| drop[v as usize]) || been(&self.unless_dropped))
    }
}

/// The number of runs that have a bit. A block that waits for another run is kept.
const MOST_RUNS: usize = 64;

/// The forward and backward runs of one step.
#[derive(Default)]
pub(crate) struct StepModel {
    /// The storages of the step.
    pub(crate) blocks: Vec<Block>,
    /// The values, in order of computation.
    pub(crate) values: Vec<ModelValue>,
    /// The forward run, function by function.
    pub(crate) forward: Vec<ModelForward>,
    /// One list for each root.
    pub(crate) backward: Vec<Vec<ModelBackward>>,
    /// The possible orders of the backward runs.
    pub(crate) orders: Vec<Vec<usize>>,
    /// For each function of the forward run, the values that it reads last.
    pub(crate) ends: Vec<SmallVec<[u32; 2]>>,
}

/// Maps blocks and values to numbers while a model is made.
#[derive(Default)]
struct Numbers {
    /// The number of each storage.
    blocks: HashMap<*const Storage, u32>,
    /// The number of each value, by variable.
    values: HashMap<Ix, u32>,
}

impl StepModel {
    /// The step made of these plans. Without backward plans it ends with the forward run.
    pub(crate) fn new(a: &Arena, forward: &ForwardPlan, backward: &[BackwardPlan]) -> Self {
        let (mut all, mut numbers) = (Self::default(), Numbers::default());
        for (f, step) in forward.order.iter().zip(&forward.steps) {
            all.add_forward(a, &mut numbers, *f, step);
        }
        for plan in backward {
            all.add_backward(a, &mut numbers, plan, backward);
        }
        all.orders = orders(backward.len());
        all.ends = vec![SmallVec::new(); all.forward.len()];
        for (v, value) in all.values.iter().enumerate() {
            if let Some(last) = value.last {
                all.ends[last as usize].push(v as u32);
            }
        }
        for value in &mut all.values {
            value.fixed |= value.producer.is_none(); // computed outside this run
            value.needed &= !backward.is_empty();
        }
        all.find_lasting();
        all
    }

    /// The number of the block of memory of a storage, which is added if it is new.
    fn block(&mut self, numbers: &mut Numbers, storage: &Arc<Storage>, tensor: Ix, is_grad: bool) -> u32 {
        *numbers.blocks.entry(Arc::as_ptr(storage)).or_insert_with(|| {
            let storage = Arc::clone(storage);
            self.blocks.push(Block { storage, tensor, is_grad, written: false, lasting: None });
            self.blocks.len() as u32 - 1
        })
    }

    /// Records the use of an array. Returns it with the temporary bytes needed for it.
    fn touch(&mut self, numbers: &mut Numbers, slot: &Operand, is_grad: bool, write: bool) -> (Touch, usize) {
        let block = self.block(numbers, &slot.storage, slot.tensor, is_grad);
        self.blocks[block as usize].written |= write;
        let (dtype, temporary) = match write && slot.stored != slot.dtype {
            true => (slot.stored, slot.storage.len() * slot.dtype.size()),
            false => (slot.dtype, 0),
        };
        (Touch { block, dtype, write }, temporary)
    }

    /// The number of the value of a variable, which is added if it is new.
    fn value(&mut self, a: &Arena, numbers: &mut Numbers, v: Ix, slot: &Operand) -> u32 {
        let known = (v != NONE).then(|| numbers.values.get(&v).copied()).flatten();
        known.unwrap_or_else(|| {
            let block = self.block(numbers, &slot.storage, slot.tensor, false);
            let (fixed, flagged, uses) = match v {
                NONE => (true, false, 0),
                v => {
                    let fixed = a.parent(v) == NONE || a.has_flag(v, flag::PERSISTENT | flag::PROHIBIT_CLEAR);
                    (fixed, a.has_flag(v, flag::RECOMPUTE), a.consumers(v).count() as u32)
                }
            };
            self.values.push(ModelValue {
                variable: v,
                block,
                producer: None,
                last: None,
                reads: 0,
                uses,
                bytes: slot.storage.len() * slot.stored.size(),
                fixed,
                needed: false,
                flagged,
            });
            let at = self.values.len() as u32 - 1;
            numbers.values.insert(v, at);
            at
        })
    }

    /// Adds a step of the forward run.
    fn add_forward(&mut self, a: &Arena, numbers: &mut Numbers, f: Ix, step: &ForwardStep) {
        let at = self.forward.len() as u32;
        let (facts, need_grad, n) = (a.facts(f), a.passes_gradients(f), step.x.len());
        let reads = rules::reads(facts, n);
        let mut act = ModelForward {
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            work: work(step),
            touches: SmallVec::new(),
            temporary: 0,
        };
        for (i, slot) in step.x.iter().enumerate() {
            let v = self.value(a, numbers, a.inputs(f)[i], slot);
            let value = &mut self.values[v as usize];
            value.last = Some(at);
            value.reads += 1;
            value.needed |= need_grad && rules::needs_input(facts, reads, i);
            value.fixed |= rules::fixes_input(facts, i);
            act.inputs.push(v);
            let (touch, _) = self.touch(numbers, slot, false, false);
            act.touches.push(touch);
        }
        for (o, slot) in step.y.iter().enumerate() {
            let v = a.live_output(f, o).unwrap_or(NONE);
            let v = self.value(a, numbers, v, slot);
            let value = &mut self.values[v as usize];
            value.producer = Some(at);
            value.needed |= need_grad && reads.output(o);
            value.fixed |= facts.sets_up_outside || facts.shares_output(o, n);
            act.outputs.push(v);
            // An operation that only renames memory writes nothing: the memory may belong to a leaf.
            let (touch, temporary) = self.touch(numbers, slot, false, !step.idle);
            act.touches.push(touch);
            act.temporary += temporary;
        }
        if step.idle {
            (act.touches, act.temporary, act.work) = (SmallVec::new(), 0, 0);
        }
        self.forward.push(act);
    }

    /// Adds the steps of the backward run.
    fn add_backward(&mut self, a: &Arena, numbers: &mut Numbers, plan: &BackwardPlan, runs: &[BackwardPlan]) {
        let mut acts = Vec::with_capacity(plan.order.len());
        for (f, step) in plan.order.iter().zip(&plan.steps) {
            let mut act = ModelBackward::default();
            for (o, data) in step.y.iter().enumerate() {
                if let (Some(v), Some(slot)) = (a.live_output(*f, o), data.read()) {
                    act.reads.push(self.value(a, numbers, v, slot));
                }
            }
            for (v, data) in a.inputs(*f).iter().zip(&step.x) {
                if let Some(slot) = data.read() {
                    act.reads.push(self.value(a, numbers, *v, slot));
                }
            }
            if step.gx.iter().any(Option::is_some) && !step.op.facts().keeps_gradients {
                let data = step.x.iter().chain(&step.y).filter_map(|data| Some((data.read()?, false)));
                for (slot, is_grad) in data.chain(step.gy.iter().map(|slot| (slot, true))) {
                    act.touches.push(self.touch(numbers, slot, is_grad, false).0);
                }
                act.temporary += formula::temporary_bytes(step);
                for sink in step.gx.iter().flatten() {
                    let (touch, temporary) = self.touch(numbers, &sink.slot, true, true);
                    act.touches.push(touch);
                    act.temporary += temporary;
                    if temporary > 0 && !sink.first {
                        act.temporary += temporary; // available values are read in the kernel's type
                    }
                    if sink.again {
                        act.temporary += sink.slot.storage.len() * sink.slot.dtype.size();
                    }
                }
            }
            acts.push(act);
        }
        for clear in &plan.clears {
            let runs_with = |(f, _): &(Ix, u32)| -> u64 {
                let with = (0..).zip(runs.iter().take(MOST_RUNS)).filter(|(_, run)| run.order.contains(f));
                with.map(|(n, _)| 1 << n).sum()
            };
            let after: After = clear.guards().iter().map(runs_with).collect();
            if !after.contains(&0) {
                let ReleasedStorage { tensor, is_grad, storage } = &clear.place;
                let block = self.block(numbers, storage, *tensor, *is_grad);
                let unless_dropped = clear.partners().iter().map(runs_with).collect();
                let value = match clear.partners() {
                    [] => None,
                    _ => (0..).zip(&self.values).find(|(_, v)| v.block == block).map(|(v, _)| v),
                };
                acts[clear.step as usize].clears.push(ModelRelease { block, after, unless_dropped, value });
            }
        }
        self.backward.push(acts);
    }

    /// Finds the memory that persists from one step to the next: all that neither run frees.
    fn find_lasting(&mut self) {
        let mut lasts = vec![true; self.blocks.len()];
        for cleared in self.backward.iter().flatten().flat_map(|act| &act.clears) {
            lasts[cleared.block as usize] = false;
        }
        for value in self.values.iter().filter(|v| v.may_drop() && !v.needed) {
            lasts[value.block as usize] = false;
        }
        let Self { blocks, forward, backward, .. } = self;
        let touches = forward.iter().flat_map(|act| &act.touches);
        for touch in touches.chain(backward.iter().flatten().flat_map(|act| &act.touches)) {
            let block = &mut blocks[touch.block as usize];
            if lasts[touch.block as usize] && block.lasting.is_none() {
                block.lasting = Some(block.storage.dtype().unwrap_or(touch.dtype));
            }
        }
    }

    /// Memory that a step may free before it begins. Its last values are still there if the previous step was
    /// interrupted or had no budget.
    pub(crate) fn fresh(self) -> Vec<ReleasedStorage> {
        let given_back = self.blocks.into_iter().filter(|b| b.lasting.is_none() && b.written);
        given_back
            .map(|Block { tensor, is_grad, storage, .. }| ReleasedStorage { tensor, is_grad, storage })
            .collect()
    }

    /// The values to drop in any case: values that no gradient reads, and values that the user marked.
    pub(crate) fn modest(&self) -> Vec<bool> {
        self.values.iter().map(|v| v.may_drop() && (!v.needed || v.flagged)).collect()
    }

    /// The values to drop without a budget: those marked by the user.
    pub(crate) fn flagged(&self) -> Vec<bool> {
        self.values.iter().map(|v| v.may_drop() && v.flagged).collect()
    }

    /// The approximate work of a step, in the unit of [`StepCost::extra`](super::simulate::StepCost::extra). A
    /// backward run does twice the work of a forward run.
    pub(crate) fn work(&self) -> u64 {
        self.forward.iter().map(|act| act.work).sum::<u64>() * if self.backward.is_empty() { 1 } else { 3 }
    }
}

/// All orders of a few runs. For more runs, only the given order and its reverse.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n > 3 {
        return vec![(0..n).collect(), (0..n).rev().collect()];
    }
    let mut orders = vec![Vec::new()];
    for _ in 0..n {
        let longer = |order: Vec<usize>| {
            let rest = (0..n).filter(|i| !order.contains(i)).collect::<Vec<_>>();
            rest.into_iter().map(move |i| [&order[..], &[i]].concat())
        };
        orders = orders.into_iter().flat_map(longer).collect();
    }
    orders
}

/// The work of a function: elements that it touches, and multiplications.
fn work(step: &ForwardStep) -> u64 {
    let x: Vec<&Shape> = step.x.iter().map(|slot| &slot.shape).collect();
    let y: Vec<&Shape> = step.y.iter().map(|slot| &slot.shape).collect();
    work_of(&step.op, &x, &y)
}
