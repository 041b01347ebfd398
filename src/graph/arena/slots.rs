//! Fields of each node: variables, the tensors that they share, and functions. They are stored in slabs whose slots
//! have generations and counts.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Shape, Storage};
use crate::graph::arena::provenance::{ByHand, Provenance};
use crate::graph::arena::run_lock::Thread;
use crate::graph::arena::validity::PlanMarks;
use crate::graph::arena::{Attached, Ix, Slab};
use crate::ops::Op;

/// Flags of a variable, one bit each.
pub(crate) mod flag {
    /// The user set whether it needs a gradient.
    pub(crate) const NEED_GRAD_SET: u16 = 1;
    /// The value that the user set.
    pub(crate) const NEED_GRAD: u16 = 1 << 1;
    /// The value that follows from its parent.
    pub(crate) const NEED_GRAD_STATE: u16 = 1 << 2;
    /// Its data may be dropped after use and recomputed for the backward run.
    pub(crate) const RECOMPUTE: u16 = 1 << 3;
    /// Never cleared.
    pub(crate) const PERSISTENT: u16 = 1 << 4;
    /// Its data is shared with a variable that must not be cleared.
    pub(crate) const PROHIBIT_CLEAR: u16 = 1 << 5;
    /// A plan visited it.
    pub(crate) const PLANNED: u16 = 1 << 6;
    /// A run under a memory budget may have dropped its data, which a backward run then recomputes.
    pub(crate) const DROPPED: u16 = 1 << 10;
    /// It has no parent and shares the data of an output that was not computed when it was made.
    pub(crate) const OF_OUTPUT: u16 = 1 << 12;
    /// Its data may be missing when a backward run reads it.
    pub(crate) const RESTORED: u16 = RECOMPUTE | DROPPED;
    /// Scratch bits of one graph traversal.
    pub(crate) const SCRATCH_NEED: u16 = 1 << 7;
    pub(crate) const SCRATCH_OVERWRITE: u16 = 1 << 8;
    pub(crate) const SCRATCH_INPLACE: u16 = 1 << 9;
    pub(crate) const SCRATCH_RESTORED: u16 = 1 << 11;
    pub(crate) const SCRATCH: u16 = SCRATCH_NEED | SCRATCH_OVERWRITE | SCRATCH_INPLACE | SCRATCH_RESTORED;
}

/// A use of a variable by a function. It does not keep the function alive.
#[derive(Clone, Copy)]
pub(crate) struct Consumer {
    pub(crate) function: Ix,
    pub(crate) generation: u32,
}

/// Rarely used fields of a variable.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) name: Option<String>,
    /// Plans of runs that end here.
    pub(crate) plans: Attached,
    /// Prepared differentiations that start here.
    pub(crate) prepared: Attached,
    /// The other destinations of the forward run under a budget that ended here, with their generations. The backward
    /// run from here keeps the values that theirs will read.
    pub(crate) partners: Partners,
}

/// Variables with their generations, from which backward runs are expected.
pub(crate) type Partners = SmallVec<[(Ix, u32); 2]>;

/// A variable: a node of the graph.
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

/// A tensor: the data and gradient that a variable and its unlinked copies share.
pub(crate) struct TensorSlot {
    pub(crate) count: u32,
    pub(crate) handles: u32,
    pub(crate) shape: Shape,
    /// The value of [`Arena::reshapes`](super::Arena::reshapes) when its shape last changed after creation.
    pub(crate) reshaped: u64,
    pub(crate) data: Option<Arc<Storage>>,
    pub(crate) grad: Option<Arc<Storage>>,
    pub(crate) mark: u32,
    /// Scratch numbers of one graph traversal: of the value as a leaf, and as the output of a function.
    pub(crate) places: [u32; 2],
    /// Hooks on its gradient, and the gradient as a variable.
    pub(crate) gradient_state: Attached,
    /// The plans that depend on it.
    pub(crate) plans: PlanMarks,
}

/// An output of a function. The variable may be freed, its tensor remains.
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

/// State of the values that a function saved for its backward run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Saved {
    /// It has not run forward yet.
    #[default]
    New,
    /// It has run forward.
    Ready,
    /// It was differentiated through, and the values were freed.
    Freed,
}

/// A function: an operation with its inputs and outputs.
#[allow(clippy::struct_excessive_bools)] // independent flags
pub(crate) struct FunctionSlot {
    pub(crate) generation: u32,
    /// The number of functions created before it.
    pub(crate) born: u64,
    pub(crate) count: u32,
    pub(crate) op: Option<Op>,
    pub(crate) inputs: SmallVec<[Ix; 3]>,
    /// The inputs it was built with and whether each is active, if only some are. The function holds all of them.
    pub(crate) all_inputs: Option<Box<[(Ix, bool)]>>,
    pub(crate) outputs: SmallVec<[Output; 1]>,
    pub(crate) rank: u32,
    pub(crate) need_grad: bool,
    /// Created under `no_grad`: never needs a gradient.
    pub(crate) no_grad: bool,
    /// It changes an input in place only because nothing needed the input when it was built. If something needs the
    /// input at run time, the function changes a copy.
    pub(crate) may_take_copy: bool,
    /// It has run forward, but not backward since.
    pub(crate) pending: bool,
    pub(crate) life: Saved,
    /// It ran eagerly when it was built.
    pub(crate) at_once: bool,
    /// Its last forward run had a memory budget, which also applies to the backward run.
    pub(crate) budgeted: bool,
    /// The pool of evictable values, if it ran eagerly under a budget.
    pub(crate) evictor: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) planned: bool,
    /// The thread whose run uses it, if any.
    pub(crate) busy: Option<Thread>,
    /// The shape or parent of an input changed since it was set up.
    pub(crate) need_setup: bool,
    /// The value of [`Arena::reshapes`](super::Arena::reshapes) when it was set up. Tensors reshaped later differ
    /// from the shapes it was set up with.
    pub(crate) set_up: u64,
    /// The number of its context.
    pub(crate) context: u16,
    pub(crate) mark: u32,
    /// Scratch number of one graph traversal.
    pub(crate) at: u32,
    pub(crate) memo: Provenance,
    /// As `memo`, for manual runs on other arrays.
    pub(crate) by_hand: Option<Box<ByHand>>,
    pub(crate) tags: Vec<(String, String)>,
}
