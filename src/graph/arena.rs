//! Where the nodes live: slabs of slots with generations and counts, behind one lock.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::execute::Memo;
use crate::array::{Shape, Storage};
use crate::ops::{Op, State};
use crate::{Error, Result};

/// Number of a slot. Slots are used again; a generation tells the tenants apart.
pub(super) type Ix = u32;

/// No slot.
pub(super) const NONE: Ix = u32::MAX;

/// Facts about a variable, one bit each.
pub(super) mod flag {
    /// The user said whether it needs a gradient.
    pub(crate) const NEED_GRAD_SET: u16 = 1;
    /// What the user said.
    pub(crate) const NEED_GRAD: u16 = 1 << 1;
    /// What follows from its parent.
    pub(crate) const NEED_GRAD_STATE: u16 = 1 << 2;
    /// Its data may be dropped after use and computed again for the backward run.
    pub(crate) const RECOMPUTE: u16 = 1 << 3;
    /// Never cleared.
    pub(crate) const PERSISTENT: u16 = 1 << 4;
    /// Its data is that of a variable that must not be cleared.
    pub(crate) const PROHIBIT_CLEAR: u16 = 1 << 5;
    /// Some plan depends on it.
    pub(crate) const PLANNED: u16 = 1 << 6;
    /// A run under a memory budget may have dropped its data: a backward run restores it.
    pub(crate) const DROPPED: u16 = 1 << 10;
    /// Data of these may be missing when a backward run wants it.
    pub(crate) const RESTORED: u16 = RECOMPUTE | DROPPED;
    /// Scratch bits of one walk.
    pub(crate) const SCRATCH_NEED: u16 = 1 << 7;
    pub(crate) const SCRATCH_OVERWRITE: u16 = 1 << 8;
    pub(crate) const SCRATCH_INPLACE: u16 = 1 << 9;
    pub(crate) const SCRATCH: u16 = SCRATCH_NEED | SCRATCH_OVERWRITE | SCRATCH_INPLACE;
}

/// A use of a variable by a function, which it does not keep alive.
#[derive(Clone, Copy)]
pub(super) struct Consumer {
    pub(super) function: Ix,
    pub(super) generation: u32,
}

/// What few variables have.
#[derive(Default)]
pub(super) struct Extra {
    pub(super) name: Option<String>,
    pub(super) plans: Vec<super::plan::Kept>,
}

/// A variable: a place in the graph.
pub(super) struct VariableSlot {
    pub(super) generation: u32,
    /// Handles and functions that hold it.
    pub(super) count: u32,
    pub(super) handles: u32,
    pub(super) core: Ix,
    pub(super) parent: Ix,
    pub(super) rank: u32,
    pub(super) flags: u16,
    pub(super) mark: u32,
    pub(super) visits: u32,
    pub(super) consumers: SmallVec<[Consumer; 2]>,
    pub(super) extra: Option<Box<Extra>>,
}

/// The pair of data and gradient that a variable and its unlinked copies share.
pub(super) struct CoreSlot {
    pub(super) count: u32,
    pub(super) handles: u32,
    pub(super) shape: Shape,
    pub(super) data: Option<Arc<Storage>>,
    pub(super) grad: Option<Arc<Storage>>,
    pub(super) mark: u32,
    /// Scratch numbers of one walk: of the value as a leaf, and as what a function computes.
    pub(super) places: [u32; 2],
    pub(super) watch: Option<Box<super::watch::Watch>>,
}

/// An output of a function: the variable may die, its pair stays.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) variable: Ix,
    pub(super) generation: u32,
    pub(super) core: Ix,
}

/// What has become of the values that a function would read to run backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    /// It has not run forward yet.
    #[default]
    New,
    /// It has run forward.
    Ready,
    /// It was differentiated through, and gave them back.
    Freed,
}

/// A function: an operation with its inputs and outputs.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub(super) struct FunctionSlot {
    pub(super) generation: u32,
    /// How many functions were made before it.
    pub(super) born: u64,
    pub(super) count: u32,
    pub(super) op: Option<Op>,
    pub(super) inputs: SmallVec<[Ix; 3]>,
    pub(super) outputs: SmallVec<[Output; 1]>,
    pub(super) rank: u32,
    pub(super) need_grad: bool,
    /// Made under `no_grad`: never needs a gradient.
    pub(super) no_grad: bool,
    /// Ran forward, and not backward since.
    pub(super) pending: bool,
    pub(super) life: Life,
    /// Ran when it was built, in dynamic mode.
    pub(super) at_once: bool,
    /// Its last forward run had a memory budget, to which the backward run keeps too.
    pub(super) budgeted: bool,
    pub(super) planned: bool,
    /// A run is under way.
    pub(super) busy: bool,
    /// Something that it takes has another shape or another origin since it was set up.
    pub(super) need_setup: bool,
    /// Number of its context.
    pub(super) context: u16,
    pub(super) mark: u32,
    /// Scratch number of one walk.
    pub(super) at: u32,
    pub(super) memo: Memo,
    pub(super) tags: Vec<(String, String)>,
}

/// Slots in chunks, so that growing never moves them.
pub(super) struct Slab<T> {
    chunks: Vec<Box<[T]>>,
    free: Vec<Ix>,
    len: Ix,
}

const CHUNK: u32 = 10;

impl<T> Slab<T> {
    const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// A slot to be filled: a freed one as its last tenant left it, or a blank one.
    #[inline(always)]
    fn take(&mut self, blank: impl Fn() -> T) -> Ix {
        if let Some(ix) = self.free.pop() {
            return ix;
        }
        if (self.len >> CHUNK) as usize == self.chunks.len() {
            self.chunks.push((0..1 << CHUNK).map(|_| blank()).collect());
        }
        self.len += 1;
        self.len - 1
    }
}

impl<T> std::ops::Index<Ix> for Slab<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, ix: Ix) -> &T {
        &self.chunks[(ix >> CHUNK) as usize][(ix & ((1 << CHUNK) - 1)) as usize]
    }
}

impl<T> std::ops::IndexMut<Ix> for Slab<T> {
    #[inline(always)]
    fn index_mut(&mut self, ix: Ix) -> &mut T {
        &mut self.chunks[(ix >> CHUNK) as usize][(ix & ((1 << CHUNK) - 1)) as usize]
    }
}

/// What must be dropped after the lock is released: destructors may lock memory or call into Python.
#[allow(dead_code)] // held only to be dropped
pub(super) enum Garbage {
    Storage(Arc<Storage>),
    Op(Op),
    State(State),
    Extra(Box<Extra>),
    Plan(Box<super::plan::Kept>),
    Watch(Box<super::watch::Watch>),
}

/// Every node of every graph.
pub(super) struct Arena {
    pub(super) variables: Slab<VariableSlot>,
    pub(super) cores: Slab<CoreSlot>,
    pub(super) functions: Slab<FunctionSlot>,
    /// Raised when a node that a plan depends on changes.
    pub(super) structure: u64,
    /// Raised when a pair gets other memory.
    pub(super) places: u64,
    /// Functions that were ever made.
    pub(super) births: u64,
    marks: u32,
    garbage: SmallVec<[Garbage; 2]>,
    dying: Vec<Ix>,
}

static ARENA: Mutex<Arena> = Mutex::new(Arena {
    variables: Slab::new(),
    cores: Slab::new(),
    functions: Slab::new(),
    structure: 0,
    places: 0,
    births: 0,
    marks: 0,
    garbage: SmallVec::new_const(),
    dying: Vec::new(),
});

/// Runs `f` on the arena under its lock, and drops what it threw away after unlocking.
#[inline(always)]
pub(super) fn with<R>(f: impl FnOnce(&mut Arena) -> R) -> R {
    let mut arena = ARENA.lock();
    let result = f(&mut arena);
    if arena.garbage.is_empty() {
        return result;
    }
    let garbage = std::mem::take(&mut arena.garbage);
    drop(arena);
    drop(garbage);
    result
}

impl Arena {
    /// A new mark that no slot carries.
    pub(super) fn new_mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks
    }

    /// Throws something away.
    pub(super) fn discard(&mut self, garbage: Garbage) {
        self.garbage.push(garbage);
    }

    /// A new pair, counted once.
    pub(super) fn new_core(&mut self, shape: &Shape) -> Ix {
        let ix = self.cores.take(|| CoreSlot {
            count: 0,
            handles: 0,
            shape: Shape::default(),
            data: None,
            grad: None,
            mark: 0,
            places: [NONE; 2],
            watch: None,
        });
        let slot = &mut self.cores[ix];
        slot.count = 1;
        slot.shape.clone_from(shape);
        ix
    }

    /// A new variable around a pair whose count it takes over; counted once for the caller.
    pub(super) fn new_variable(&mut self, core: Ix, flags: u16, parent: Ix, rank: u32) -> Ix {
        let ix = self.variables.take(|| VariableSlot {
            generation: 0,
            count: 0,
            handles: 0,
            core: NONE,
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
        slot.core = core;
        slot.flags = flags;
        slot.parent = parent;
        slot.rank = rank;
        ix
    }

    /// A new function, counted by nobody yet.
    pub(super) fn new_function(&mut self, op: Op) -> Ix {
        let ix = self.functions.take(|| FunctionSlot {
            generation: 0,
            born: 0,
            count: 0,
            op: None,
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            rank: 0,
            need_grad: false,
            no_grad: false,
            pending: false,
            life: Life::New,
            at_once: false,
            budgeted: false,
            planned: false,
            busy: false,
            need_setup: false,
            context: 0,
            mark: 0,
            at: 0,
            memo: Memo::default(),
            tags: Vec::new(),
        });
        let slot = &mut self.functions[ix];
        (slot.op, slot.born) = (Some(op), self.births);
        self.births += 1;
        slot.memo.id = u64::from(slot.generation) << 32 | u64::from(ix);
        ix
    }

    /// The operation of a live function.
    pub(super) fn op(&self, f: Ix) -> &Op {
        self.functions[f].op.as_ref().unwrap_or_else(|| unreachable!("a live function has an operation"))
    }

    /// Counts a new handle on a variable.
    pub(super) fn add_handle(&mut self, v: Ix) {
        self.variables[v].count += 1;
        self.count_handle(v);
    }

    /// Says that one of the counts of a variable is a handle.
    pub(super) fn count_handle(&mut self, v: Ix) {
        let slot = &mut self.variables[v];
        slot.handles += 1;
        let core = &mut self.cores[slot.core];
        core.handles += 1;
        if let Some(data) = &core.data {
            data.add_users(1);
        }
    }

    /// Gives a handle back; the variable dies with its last holder.
    pub(super) fn drop_handle(&mut self, v: Ix) {
        let slot = &mut self.variables[v];
        slot.handles -= 1;
        let core = &mut self.cores[slot.core];
        core.handles -= 1;
        if let Some(data) = &core.data {
            data.add_users(-1);
        }
        self.release(v);
    }

    /// Gives one count of a variable back, and of all that this sets free. (A list, not a recursion.)
    pub(super) fn release(&mut self, v: Ix) {
        let slot = &mut self.variables[v];
        slot.count -= 1;
        if slot.count > 0 {
            return;
        }
        let mut dying = std::mem::take(&mut self.dying);
        dying.push(v);
        self.bury_all(dying);
    }

    /// Keeps the functions of a run alive and to itself until [`Arena::end_run`].
    ///
    /// # Errors
    /// [`Error::Graph`] when one of them is running already; nothing is held then.
    pub(super) fn begin_run(&mut self, functions: &[Ix]) -> Result<()> {
        for (n, f) in functions.iter().enumerate() {
            let slot = &mut self.functions[*f];
            if slot.busy {
                let name = self.op(*f).name().to_string();
                self.end_run(&functions[..n], |_| ());
                return Err(Error::Graph(format!(
                    "{name}: expected a graph that is at rest, but another run of it is under way"
                )));
            }
            slot.busy = true;
            slot.count += 1;
        }
        Ok(())
    }

    /// Ends what [`Arena::begin_run`] began, `mark`ing each function.
    pub(super) fn end_run(&mut self, functions: &[Ix], mark: impl Fn(&mut FunctionSlot)) {
        for f in functions {
            let slot = &mut self.functions[*f];
            slot.busy = false;
            mark(slot);
            self.release_function(*f);
        }
    }

    /// Gives one count of a function back.
    pub(super) fn release_function(&mut self, f: Ix) {
        if self.functions[f].count > 1 {
            self.functions[f].count -= 1;
            return;
        }
        let mut dying = std::mem::take(&mut self.dying);
        self.release_function_to(f, &mut dying);
        self.bury_all(dying);
    }

    fn bury_all(&mut self, mut dying: Vec<Ix>) {
        while let Some(v) = dying.pop() {
            let slot = &mut self.variables[v];
            slot.generation = slot.generation.wrapping_add(1);
            slot.consumers.clear();
            let (parent, core) = (std::mem::replace(&mut slot.parent, NONE), slot.core);
            let planned = slot.flags & flag::PLANNED != 0;
            if let Some(extra) = slot.extra.take() {
                self.garbage.push(Garbage::Extra(extra));
            }
            self.variables.free.push(v);
            self.structure += u64::from(planned);
            self.release_core(core);
            if parent != NONE {
                self.release_function_to(parent, &mut dying);
            }
        }
        self.dying = dying;
    }

    /// Gives one count of a pair back.
    pub(super) fn release_core(&mut self, core: Ix) {
        let slot = &mut self.cores[core];
        slot.count -= 1;
        if slot.count > 0 {
            return;
        }
        for storage in [&mut slot.data, &mut slot.grad] {
            if let Some(storage) = storage.take() {
                self.garbage.push(Garbage::Storage(storage));
            }
        }
        if let Some(watch) = slot.watch.take() {
            self.garbage.push(Garbage::Watch(watch));
        }
        self.cores.free.push(core);
    }

    fn release_function_to(&mut self, f: Ix, dying: &mut Vec<Ix>) {
        let slot = &mut self.functions[f];
        slot.count -= 1;
        if slot.count > 0 {
            return;
        }
        slot.generation = slot.generation.wrapping_add(1);
        (slot.pending, slot.budgeted, slot.busy, slot.need_setup) = (false, false, false, false);
        (slot.life, slot.at_once) = (Life::New, false);
        let planned = std::mem::take(&mut slot.planned);
        slot.tags = Vec::new();
        let (op, state) = (slot.op.take(), slot.memo.take_state());
        let (inputs, outputs) = (std::mem::take(&mut slot.inputs), std::mem::take(&mut slot.outputs));
        self.functions.free.push(f);
        self.structure += u64::from(planned);
        // One that lives as long as the process has no destructor to wait for.
        if let Some(op @ Op::Shared(_)) = op {
            self.garbage.push(Garbage::Op(op));
        }
        if !state.is_empty() {
            self.garbage.push(Garbage::State(state));
        }
        for output in outputs {
            self.release_core(output.core);
        }
        for input in inputs {
            self.consumers_changed(input);
            let slot = &mut self.variables[input];
            slot.count -= 1;
            if slot.count == 0 {
                dying.push(input);
            }
        }
    }

    /// Plans count on the consumers of intermediate variables: the last one may clear them.
    fn consumers_changed(&mut self, v: Ix) {
        let slot = &self.variables[v];
        if slot.flags & flag::PLANNED != 0 && slot.parent != NONE {
            self.structure += 1;
        }
    }

    /// Notes that `function` uses `v`.
    pub(super) fn add_consumer(&mut self, v: Ix, function: Ix) {
        self.consumers_changed(v);
        let generation = self.functions[function].generation;
        let Self { variables, functions, .. } = self;
        let consumers = &mut variables[v].consumers;
        if consumers.len() == consumers.capacity() {
            consumers.retain(|c| functions[c.function].generation == c.generation);
        }
        consumers.push(Consumer { function, generation });
    }

    /// The live uses of a variable, one for each time that a function takes it.
    pub(super) fn consumers(&self, v: Ix) -> impl Iterator<Item = &Consumer> {
        let live = |c: &&Consumer| self.functions[c.function].generation == c.generation;
        self.variables[v].consumers.iter().filter(live)
    }

    /// Says that a plan that visited `v` is out of date.
    pub(super) fn changed(&mut self, v: Ix) {
        if self.variables[v].flags & flag::PLANNED != 0 {
            self.structure += 1;
        }
    }

    /// Says that every function that takes `v` must set itself up again.
    pub(super) fn mark_need_setup(&mut self, v: Ix) {
        self.changed(v);
        let Self { variables, functions, .. } = self;
        for c in &variables[v].consumers {
            let f = &mut functions[c.function];
            f.need_setup |= f.generation == c.generation;
        }
    }

    /// The variable of output `o` of `f`, counted for the caller: the one in the graph, or a bare one around the same
    /// pair where that has died.
    pub(super) fn output(&mut self, f: Ix, o: usize) -> Ix {
        if let Some(v) = self.live_output(f, o) {
            self.variables[v].count += 1;
            return v;
        }
        let core = self.functions[f].outputs[o].core;
        self.cores[core].count += 1;
        let flags = if super::mode::recompute() { flag::RECOMPUTE } else { 0 };
        self.new_variable(core, flags, NONE, 0)
    }

    /// As [`Arena::output`]; where the variable has died, another takes its place in the graph.
    pub(super) fn revived(&mut self, f: Ix, o: usize) -> Ix {
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

    /// The live variable of output `o` of `f`, uncounted.
    pub(super) fn live_output(&self, f: Ix, o: usize) -> Option<Ix> {
        let Output { variable, generation, .. } = self.functions[f].outputs[o];
        (self.variables[variable].generation == generation).then_some(variable)
    }

    /// Whether gradients flow to `v`: what the user said, else what follows from its parent.
    pub(super) fn need_grad(&self, v: Ix) -> bool {
        let flags = self.variables[v].flags;
        let bit = if flags & flag::NEED_GRAD_SET != 0 { flag::NEED_GRAD } else { flag::NEED_GRAD_STATE };
        flags & bit != 0
    }

    /// Whether no gradient flows on from `v`: no function computes it, or one that no gradients flow through.
    pub(super) fn is_end(&self, v: Ix) -> bool {
        let parent = self.variables[v].parent;
        parent == NONE || !self.functions[parent].need_grad
    }

    /// The data of a pair, made if it was never touched.
    pub(super) fn data(&mut self, core: Ix) -> &Arc<Storage> {
        let slot = &mut self.cores[core];
        let (handles, len) = (slot.handles, slot.shape.size());
        slot.data.get_or_insert_with(|| {
            let data = Storage::new(len);
            data.add_users(i64::from(handles));
            data
        })
    }

    /// The gradient of a pair, made if it was never touched.
    pub(super) fn grad(&mut self, core: Ix) -> &Arc<Storage> {
        let slot = &mut self.cores[core];
        let len = slot.shape.size();
        slot.grad.get_or_insert_with(|| Storage::new(len))
    }

    /// Gives a pair other data.
    pub(super) fn set_data(&mut self, core: Ix, data: Arc<Storage>) {
        self.places += 1;
        let slot = &mut self.cores[core];
        data.add_users(i64::from(slot.handles));
        if let Some(old) = slot.data.replace(data) {
            old.add_users(-i64::from(slot.handles));
            self.garbage.push(Garbage::Storage(old));
        }
    }

    /// Gives a pair another gradient.
    pub(super) fn set_grad(&mut self, core: Ix, grad: Option<Arc<Storage>>) {
        self.places += 1;
        let old = std::mem::replace(&mut self.cores[core].grad, grad);
        self.garbage.extend(old.map(Garbage::Storage));
    }

    /// Variables that are alive, in graphs or in hands.
    pub(super) fn live_variables(&self) -> usize {
        self.variables.len as usize - self.variables.free.len()
    }

    /// What few variables have, made on first use.
    pub(super) fn extra(&mut self, v: Ix) -> &mut Extra {
        self.variables[v].extra.get_or_insert_default()
    }
}
