//! All nodes, in slabs of slots behind one lock, and the queries on a node. See `slots` for the content of a slot,
//! `refcount` for its lifetime.

pub(crate) mod aliasing;
pub(crate) mod attachment;
pub(crate) mod describe;
pub(crate) mod fork;
pub(crate) mod liveness;
pub(crate) mod order;
pub(crate) mod provenance;
pub(crate) mod refcount;
pub(crate) mod run_lock;
pub(crate) mod slab;
pub(crate) mod slots;
pub(crate) mod storages;
pub(crate) mod validity;

pub(crate) use attachment::{Attached, Attachment};
pub(crate) use slab::{Ix, NONE, Slab};
pub(crate) use slots::{
    Consumer, Extra, FunctionSlot, Output, Partners, Saved, TensorSlot, VariableSlot, flag,
};

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::array::{Shape, Storage};
use crate::graph::arena::provenance::{ByHand, Provenance};
use crate::graph::arena::run_lock::{RunLocks, Thread};
use crate::graph::arena::storages::OuterGradient;
use crate::graph::arena::validity::PlanMarks;
use crate::graph::settings::modes;
use crate::ops::{Facts, Op, State};

/// Values to drop after the lock is released. Their destructors may lock memory or call into Python.
#[allow(dead_code)] // held only to be dropped
pub(crate) enum Garbage {
    Storage(Arc<Storage>),
    Op(Op),
    State(State),
    ByHand(Box<ByHand>),
    Extra(Box<Extra>),
    Attachment(Box<dyn Attachment>),
}

/// All nodes of all graphs.
pub(crate) struct Arena {
    pub(crate) variables: Slab<VariableSlot>,
    pub(crate) tensors: Slab<TensorSlot>,
    pub(crate) functions: Slab<FunctionSlot>,
    /// Incremented when every plan becomes outdated.
    pub(crate) epoch: u64,
    /// Incremented when a tensor changes its shape.
    pub(crate) reshapes: u64,
    /// True once a hook on a gradient was registered.
    pub(crate) hooked: bool,
    /// The number of functions created so far.
    pub(crate) births: u64,
    marks: u32,
    pub(crate) garbage: SmallVec<[Garbage; 2]>,
    pub(crate) dying: Vec<Ix>,
    pub(crate) run_locks: RunLocks,
    /// Gradients that a thread has replaced for its backward run, the most recent last.
    pub(crate) outer: Vec<OuterGradient>,
    /// Tensors whose gradients the run of a thread writes, all or none.
    pub(crate) written: Vec<(Thread, Arc<[Ix]>)>,
}

static ARENA: Mutex<Arena> = Mutex::new(Arena {
    variables: Slab::new(),
    tensors: Slab::new(),
    functions: Slab::new(),
    epoch: 0,
    reshapes: 0,
    hooked: false,
    births: 0,
    marks: 0,
    garbage: SmallVec::new_const(),
    dying: Vec::new(),
    run_locks: RunLocks::NONE,
    outer: Vec::new(),
    written: Vec::new(),
});

/// Locks the arena.
pub(crate) fn lock() -> MutexGuard<'static, Arena> {
    ARENA.lock()
}

/// Calls `f` with the locked arena, and drops its garbage after unlocking.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(&mut Arena) -> R) -> R {
    debug_assert!(!is_locked_here(), "nobody locks the arena twice");
    let mut arena = ARENA.lock();
    let result = {
        #[cfg(debug_assertions)]
        let _here = LockedHere::new();
        f(&mut arena)
    };
    if arena.garbage.is_empty() {
        return result;
    }
    let garbage = std::mem::take(&mut arena.garbage);
    drop(arena);
    drop(garbage);
    result
}

/// True if this thread holds the arena lock. Kernels and user code must not run under it. Tracked only with debug
/// assertions.
pub(crate) fn is_locked_here() -> bool {
    #[cfg(debug_assertions)]
    return LOCKED_HERE.get();
    #[cfg(not(debug_assertions))]
    false
}

#[cfg(debug_assertions)]
thread_local! {
    static LOCKED_HERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Records that this thread holds the lock.
#[cfg(debug_assertions)]
struct LockedHere;

#[cfg(debug_assertions)]
impl LockedHere {
    fn new() -> Self {
        LOCKED_HERE.set(true);
        Self
    }
}

#[cfg(debug_assertions)]
impl Drop for LockedHere {
    fn drop(&mut self) {
        LOCKED_HERE.set(false);
    }
}

impl Arena {
    /// A new mark, which no slot has.
    pub(crate) fn new_mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks
    }

    /// The newest mark.
    pub(crate) fn newest_mark(&self) -> u32 {
        self.marks
    }

    /// Enqueues a value to be dropped after unlocking.
    pub(crate) fn discard(&mut self, garbage: Garbage) {
        self.garbage.push(garbage);
    }

    /// A new tensor with a count of one.
    pub(crate) fn new_tensor(&mut self, shape: &Shape) -> Ix {
        let ix = self.tensors.take(|| TensorSlot {
            count: 0,
            handles: 0,
            shape: Shape::default(),
            reshaped: 0,
            data: None,
            grad: None,
            mark: 0,
            places: [NONE; 2],
            gradient_state: Attached::NONE,
            plans: PlanMarks::NONE,
        });
        let slot = &mut self.tensors[ix];
        slot.count = 1;
        slot.shape.clone_from(shape);
        ix
    }

    /// A new variable on a tensor. Takes over the caller's count of the tensor, and has a count of one itself.
    pub(crate) fn new_variable(&mut self, tensor: Ix, flags: u16, parent: Ix, rank: u32) -> Ix {
        let ix = self.variables.take(|| VariableSlot {
            generation: 0,
            count: 0,
            handles: 0,
            tensor: NONE,
            parent: NONE,
            rank: 0,
            flags: 0,
            mark: 0,
            visits: 0,
            consumers: SmallVec::new(),
            extra: None,
        });
        let slot = &mut self.variables[ix];
        slot.count = 1;
        slot.tensor = tensor;
        slot.flags = flags;
        slot.parent = parent;
        slot.rank = rank;
        ix
    }

    /// A new function with a count of zero.
    pub(crate) fn new_function(&mut self, op: Op) -> Ix {
        let ix = self.functions.take(|| FunctionSlot {
            generation: 0,
            born: 0,
            count: 0,
            op: None,
            inputs: SmallVec::new(),
            all_inputs: None,
            outputs: SmallVec::new(),
            rank: 0,
            need_grad: false,
            no_grad: false,
            may_take_copy: false,
            pending: false,
            life: Saved::New,
            at_once: false,
            budgeted: false,
            evictor: None,
            planned: false,
            busy: None,
            need_setup: false,
            set_up: 0,
            context: 0,
            mark: 0,
            at: 0,
            memo: Provenance::default(),
            by_hand: None,
            tags: Vec::new(),
        });
        let slot = &mut self.functions[ix];
        (slot.op, slot.born, slot.set_up) = (Some(op), self.births, self.reshapes);
        self.births += 1;
        slot.memo.tell_apart(slot.generation, ix);
        ix
    }

    /// The operation of a live function.
    pub(crate) fn op(&self, f: Ix) -> &Op {
        self.functions[f].op.as_ref().unwrap_or_else(|| unreachable!("a live function has an operation"))
    }

    /// The facts of the operation of a live function.
    pub(crate) fn facts(&self, f: Ix) -> &Facts {
        self.op(f).facts()
    }

    /// Adds `function` to the consumers of `v`.
    pub(crate) fn add_consumer(&mut self, v: Ix, function: Ix) {
        self.consumers_changed(v);
        let generation = self.functions[function].generation;
        let Self { variables, functions, .. } = self;
        let consumers = &mut variables[v].consumers;
        if consumers.len() == consumers.capacity() {
            consumers.retain(|c| functions[c.function].generation == c.generation);
        }
        consumers.push(Consumer { function, generation });
    }

    /// Removes one use by `function` from the consumers of `v`.
    pub(crate) fn remove_consumer(&mut self, v: Ix, function: Ix) {
        self.consumers_changed(v);
        let generation = self.functions[function].generation;
        let consumers = &mut self.variables[v].consumers;
        let found = consumers.iter().position(|c| c.function == function && c.generation == generation);
        if let Some(at) = found {
            consumers.remove(at);
        }
    }

    /// The live consumers of a variable, once for each time that a function takes it.
    pub(crate) fn consumers(&self, v: Ix) -> impl Iterator<Item = &Consumer> {
        let live = |c: &&Consumer| self.functions[c.function].generation == c.generation;
        self.variables[v].consumers.iter().filter(live)
    }

    /// Marks every function that takes `v` for another setup.
    pub(crate) fn mark_need_setup(&mut self, v: Ix) {
        self.changed(v);
        let Self { variables, functions, .. } = self;
        for c in &variables[v].consumers {
            let f = &mut functions[c.function];
            f.need_setup |= f.generation == c.generation;
        }
    }

    /// Changes the shape of a tensor, and its memory if the size changes. Functions that use the tensor through any
    /// variable notice the change when they are prepared to run.
    pub(crate) fn reshape(&mut self, tensor: Ix, shape: Shape) {
        let resized = self.tensors[tensor].shape.size() != shape.size();
        self.outdate(tensor);
        self.reshapes += 1;
        let slot = &mut self.tensors[tensor];
        (slot.shape, slot.reshaped) = (shape, self.reshapes);
        if resized {
            let data = Storage::new(self.tensors[tensor].shape.size());
            if self.tensors[tensor].data.as_ref().is_some_and(|old| old.may_be_of_leaf()) {
                data.give_to_leaf(); // an unlinked copy has the tensor too
            }
            self.set_data(tensor, data);
            self.set_grad(tensor, None);
        }
    }

    /// True if the shape of a tensor changed after `f` was set up.
    pub(crate) fn is_reshaped(&self, f: Ix, tensor: Ix) -> bool {
        self.tensors[tensor].reshaped > self.functions[f].set_up
    }

    /// True if the shape of an input or output of `f` changed after it was set up.
    pub(crate) fn has_other_shapes(&self, f: Ix) -> bool {
        let slot = &self.functions[f];
        self.reshapes > slot.set_up
            && (slot.inputs.iter().any(|v| self.is_reshaped(f, self.variables[*v].tensor))
                || slot.outputs.iter().any(|o| self.is_reshaped(f, o.tensor)))
    }

    /// True if `f` must be set up before it runs forward.
    pub(crate) fn needs_setup(&self, f: Ix) -> bool {
        self.functions[f].need_setup || self.has_other_shapes(f)
    }

    /// The variable of output `o` of `f`, counted for the caller. If the variable in the graph was freed, returns a
    /// new one on the same tensor that is not in the graph.
    pub(crate) fn output(&mut self, f: Ix, o: usize) -> Ix {
        if let Some(v) = self.live_output(f, o) {
            self.variables[v].count += 1;
            return v;
        }
        let tensor = self.functions[f].outputs[o].tensor;
        self.tensors[tensor].count += 1;
        let flags = if modes::recompute() { flag::RECOMPUTE } else { 0 };
        self.new_variable(tensor, flags, NONE, 0)
    }

    /// As [`Arena::output`], but a new variable replaces a freed one in the graph.
    pub(crate) fn revived(&mut self, f: Ix, o: usize) -> Ix {
        let v = self.output(f, o);
        if self.live_output(f, o).is_none() {
            let (rank, need_grad) = (self.functions[f].rank, self.functions[f].need_grad);
            self.functions[f].count += 1;
            let slot = &mut self.variables[v];
            (slot.parent, slot.rank) = (f, rank + 1);
            slot.flags |= if need_grad { flag::NEED_GRAD_STATE } else { 0 };
            let generation = slot.generation;
            let output = &mut self.functions[f].outputs[o];
            (output.variable, output.generation) = (v, generation);
        }
        v
    }

    /// The live variable of output `o` of `f`, without counting it.
    pub(crate) fn live_output(&self, f: Ix, o: usize) -> Option<Ix> {
        self.functions[f].outputs[o].live(&self.variables)
    }

    /// True if `v` needs a gradient: as the user set it, otherwise as its parent determines.
    pub(crate) fn need_grad(&self, v: Ix) -> bool {
        let flags = self.variables[v].flags;
        let bit = if flags & flag::NEED_GRAD_SET != 0 { flag::NEED_GRAD } else { flag::NEED_GRAD_STATE };
        flags & bit != 0
    }

    /// True if no gradient flows on from `v`: it has no parent, or its parent needs no gradient.
    pub(crate) fn is_end(&self, v: Ix) -> bool {
        let parent = self.variables[v].parent;
        parent == NONE || !self.functions[parent].need_grad
    }

    /// True if `v` is a leaf with values of its own, or its parent has run.
    pub(crate) fn is_computed(&self, v: Ix) -> bool {
        let parent = self.variables[v].parent;
        if parent == NONE {
            return self.variables[v].flags & flag::OF_OUTPUT == 0;
        }
        let slot = &self.functions[parent];
        slot.life != Saved::New || slot.memo.has_run()
    }

    /// True if a leaf that `v` depends on changed since the function that reads it ran.
    pub(crate) fn is_stale(&self, v: Ix) -> bool {
        let (mut open, mut seen) = (vec![self.variables[v].parent], HashSet::new());
        while let Some(f) = open.pop() {
            if f == NONE || !seen.insert(f) {
                continue;
            }
            let slot = &self.functions[f];
            let leaf = |v: &Ix| {
                let slot = &self.variables[*v];
                (slot.parent == NONE).then(|| self.tensors[slot.tensor].data.as_deref()).flatten()
            };
            let changed =
                slot.memo.changed(slot.inputs.iter().map(leaf), [].into_iter(), |x| !x.is_cleared());
            if changed.is_some() {
                return true;
            }
            open.extend(slot.inputs.iter().map(|v| self.variables[*v].parent));
        }
        false
    }

    /// The number of live variables, in graphs or held by handles.
    pub(crate) fn live_variables(&self) -> usize {
        self.variables.in_use()
    }

    /// The rarely used fields of a variable, created on first use.
    pub(crate) fn extra(&mut self, v: Ix) -> &mut Extra {
        self.variables[v].extra.get_or_insert_default()
    }
}

/// The tensors of the inputs and outputs of a function.
pub(crate) fn tensors(a: &Arena, f: Ix) -> (SmallVec<[Ix; 4]>, SmallVec<[Ix; 2]>) {
    let slot = &a.functions[f];
    let (mut inputs, mut outputs) = (SmallVec::new(), SmallVec::new());
    slot.inputs.iter().for_each(|v| inputs.push(a.variables[*v].tensor));
    slot.outputs.iter().for_each(|o| outputs.push(o.tensor));
    (inputs, outputs)
}
