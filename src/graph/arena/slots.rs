//! What the arena keeps of each node: variables, the tensors that they share, and functions, in
//! slabs whose slots have generations and counts.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Shape, Storage};
use crate::graph::arena::provenance::{ByHand, Provenance};
use crate::graph::arena::run_lock::Thread;
use crate::graph::arena::validity::PlanMarks;
use crate::graph::arena::{Attached, Ix, Slab};
use crate::ops::Op;

/// Facts about a variable, one bit each.
pub(crate) mod flag {
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
    /// Some plan visited it.
    pub(crate) const PLANNED: u16 = 1 << 6;
    /// A run under a memory budget may have dropped its data: a backward run restores it.
    pub(crate) const DROPPED: u16 = 1 << 10;
    /// Data of these may be missing when a backward run wants it.
    pub(crate) const RESTORED: u16 = RECOMPUTE | DROPPED;
    /// Scratch bits of one walk.
    pub(crate) const SCRATCH_NEED: u16 = 1 << 7;
    pub(crate) const SCRATCH_OVERWRITE: u16 = 1 << 8;
    pub(crate) const SCRATCH_INPLACE: u16 = 1 << 9;
    pub(crate) const SCRATCH_RESTORED: u16 = 1 << 11;
    pub(crate) const SCRATCH: u16 = SCRATCH_NEED | SCRATCH_OVERWRITE | SCRATCH_INPLACE | SCRATCH_RESTORED;
}

/// A use of a variable by a function, which it does not keep alive.
#[derive(Clone, Copy)]
pub(crate) struct Consumer {
    pub(crate) function: Ix,
    pub(crate) generation: u32,
}

/// What few variables have.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) name: Option<String>,
    /// Plans of runs that end here.
    pub(crate) plans: Attached,
    /// Differentiations from here that were made ready.
    pub(crate) prepared: Attached,
    /// The other ends of the forward run under a budget that ended here, with their generations: the backward run from
    /// here keeps what theirs will want.
    pub(crate) partners: Partners,
}

/// Variables with their generations, from which backward runs are to come.
pub(crate) type Partners = SmallVec<[(Ix, u32); 2]>;

/// A variable: a place in the graph.
pub(crate) struct VariableSlot {
    pub(crate) generation: u32,
    /// Handles and functions that hold it.
    pub(crate) count: u32,
    pub(crate) handles: u32,
    pub(crate) tensor: Ix,
    pub(crate) parent: Ix,
    pub(crate) rank: u32,
    pub(crate) flags: u16,
    pub(crate) mark: u32,
    pub(crate) visits: u32,
    pub(crate) consumers: SmallVec<[Consumer; 2]>,
    pub(crate) extra: Option<Box<Extra>>,
}

/// A tensor: the data and the gradient that a variable and its unlinked copies share.
pub(crate) struct TensorSlot {
    pub(crate) count: u32,
    pub(crate) handles: u32,
    pub(crate) shape: Shape,
    /// What [`super::arena::Arena::reshapes`] was when it got this shape after it was made.
    pub(crate) reshaped: u64,
    pub(crate) data: Option<Arc<Storage>>,
    pub(crate) grad: Option<Arc<Storage>>,
    pub(crate) mark: u32,
    /// Scratch numbers of one walk: of the value as a leaf, and as what a function computes.
    pub(crate) places: [u32; 2],
    /// Hooks on its gradient, and the gradient as a variable.
    pub(crate) gradient_state: Attached,
    /// The plans that depend on it.
    pub(crate) plans: PlanMarks,
}

/// An output of a function: the variable may die, its tensor stays.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) variable: Ix,
    pub(crate) generation: u32,
    pub(crate) tensor: Ix,
}

impl Output {
    /// The variable, if it is alive.
    #[inline]
    pub(crate) fn live(self, variables: &Slab<VariableSlot>) -> Option<Ix> {
        (variables[self.variable].generation == self.generation).then_some(self.variable)
    }
}

/// What has become of the values that a function would read to run backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Saved {
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
pub(crate) struct FunctionSlot {
    pub(crate) generation: u32,
    /// How many functions were made before it.
    pub(crate) born: u64,
    pub(crate) count: u32,
    pub(crate) op: Option<Op>,
    pub(crate) inputs: SmallVec<[Ix; 3]>,
    /// The inputs that it was built with and whether it takes them, if it takes some of them only; it holds all.
    pub(crate) all_inputs: Option<Box<[(Ix, bool)]>>,
    pub(crate) outputs: SmallVec<[Output; 1]>,
    pub(crate) rank: u32,
    pub(crate) need_grad: bool,
    /// Made under `no_grad`: never needs a gradient.
    pub(crate) no_grad: bool,
    /// It changes an input in place only because nothing needed that when it was built: it takes a copy where something
    /// does when it runs.
    pub(crate) may_take_copy: bool,
    /// Ran forward, and not backward since.
    pub(crate) pending: bool,
    pub(crate) life: Saved,
    /// Ran when it was built, in dynamic mode.
    pub(crate) at_once: bool,
    /// Its last forward run had a memory budget, to which the backward run keeps too.
    pub(crate) budgeted: bool,
    /// The pool of values that may be evicted, if it ran under a budget when it was built.
    pub(crate) evictor: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) planned: bool,
    /// The thread whose run has it, if one is under way.
    pub(crate) busy: Option<Thread>,
    /// Something that it takes has another shape or another origin since it was set up.
    pub(crate) need_setup: bool,
    /// What [`super::arena::Arena::reshapes`] was when it was set up: tensors that got another shape later are not those that
    /// it knows.
    pub(crate) set_up: u64,
    /// Number of its context.
    pub(crate) context: u16,
    pub(crate) mark: u32,
    /// Scratch number of one walk.
    pub(crate) at: u32,
    pub(crate) memo: Provenance,
    /// As `memo`, of runs by hand on other arrays.
    pub(crate) by_hand: Option<Box<ByHand>>,
    pub(crate) tags: Vec<(String, String)>,
}
