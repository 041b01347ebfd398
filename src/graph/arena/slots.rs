//! Fields of each node: variables, the tensors that they share, and functions. They are stored in slabs whose slots
//! have generations and counts. Only the arena reads and writes them.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Shape, Storage};
use crate::graph::arena::provenance::{ManualRun, Provenance};
use crate::graph::arena::thread::Thread;
use crate::graph::arena::validity::PlanMarks;
use crate::graph::arena::{Attached, Ix, NONE, Slab};
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
    /// Scratch bit of one graph traversal: its data is still needed.
    pub(crate) const SCRATCH_NEED: u16 = 1 << 7;
    /// Scratch bit: the backward run must keep its gradient.
    pub(crate) const SCRATCH_OVERWRITE: u16 = 1 << 8;
    /// Scratch bit: it shares memory with another variable.
    pub(crate) const SCRATCH_INPLACE: u16 = 1 << 9;
    /// Scratch bit: this run recomputed it.
    pub(crate) const SCRATCH_RESTORED: u16 = 1 << 11;
    /// All scratch bits.
    pub(crate) const SCRATCH: u16 = SCRATCH_NEED | SCRATCH_OVERWRITE | SCRATCH_INPLACE | SCRATCH_RESTORED;
}

/// A use of a variable by a function. It does not keep the function alive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Consumer {
    /// The function.
    pub(super) function: Ix,
    /// The generation of its slot at the time of use. If it differs now, the function was freed.
    pub(super) generation: u32,
}

/// Rarely used fields of a variable.
#[derive(Default)]
pub(super) struct Extra {
    /// The name that the user gave the variable.
    pub(super) name: Option<String>,
    /// Plans of runs that end here.
    pub(super) plans: Attached,
    /// Prepared differentiations that start here.
    pub(super) prepared: Attached,
    /// The other destinations of the forward run under a budget that ended here, with their generations. The backward
    /// run from here keeps the values that theirs will read.
    pub(super) partners: Partners,
}

/// Variables with their generations, from which backward runs are expected.
pub(crate) type Partners = SmallVec<[(Ix, u32); 2]>;

/// A variable: a node of the graph.
pub(super) struct VariableSlot {
    /// Incremented when the variable is freed, so that old numbers of the slot can be recognized.
    pub(super) generation: u32,
    /// Handles and functions that hold it.
    pub(super) count: u32,
    /// Handles alone, without the functions that hold it.
    pub(super) handles: u32,
    /// The tensor with its data and gradient.
    pub(super) tensor: Ix,
    /// The function that computes it, `NONE` for a leaf.
    pub(super) parent: Ix,
    /// One more than the rank of its function, or 0 for a leaf.
    pub(super) rank: u32,
    /// Bits of [`flag`].
    pub(super) flags: u16,
    /// The traversal that last visited it.
    pub(super) mark: u32,
    /// Visits by the current traversal.
    pub(super) visits: u32,
    /// The functions that take it as an input.
    pub(super) consumers: SmallVec<[Consumer; 2]>,
    /// Rarely used fields, allocated on first use.
    pub(super) extra: Option<Box<Extra>>,
}

impl VariableSlot {
    /// A slot in no use.
    pub(super) fn blank() -> Self {
        Self {
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
        }
    }

    /// True if the variable needs a gradient: as the user set it, otherwise as its parent determines.
    #[inline]
    pub(super) fn need_grad(&self) -> bool {
        let is_set = self.flags & flag::NEED_GRAD_SET != 0;
        self.flags & if is_set { flag::NEED_GRAD } else { flag::NEED_GRAD_STATE } != 0
    }
}

/// A tensor: the data and gradient that a variable and its unlinked copies share.
pub(super) struct TensorSlot {
    /// Variables and functions that hold it.
    pub(super) count: u32,
    /// Handles on its variables.
    pub(super) handles: u32,
    /// The shape of data and gradient.
    pub(super) shape: Shape,
    /// The value of [`Arena::reshapes`](super::Arena::reshapes) when its shape last changed after creation.
    pub(super) reshaped: u64,
    /// The data. None until it is used.
    pub(super) data: Option<Arc<Storage>>,
    /// The gradient. None until it is used.
    pub(super) grad: Option<Arc<Storage>>,
    /// The traversal that last visited it.
    pub(super) mark: u32,
    /// Scratch numbers of one graph traversal: of the value as a leaf, and as the output of a function.
    pub(super) places: [u32; 2],
    /// Hooks on its gradient, and the gradient as a variable.
    pub(super) gradient_state: Attached,
    /// The plans that depend on it.
    pub(super) plans: PlanMarks,
}

impl TensorSlot {
    /// A slot in no use.
    pub(super) fn blank() -> Self {
        Self {
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
        }
    }
}

/// An output of a function. The variable may be freed, its tensor remains.
#[derive(Clone, Copy)]
pub(super) struct Output {
    /// The variable, which may have been freed.
    pub(super) variable: Ix,
    /// The generation of the variable's slot. If it differs now, the variable was freed.
    pub(super) generation: u32,
    /// The tensor of the variable.
    pub(super) tensor: Ix,
}

impl Output {
    /// The variable, if it is alive.
    #[inline]
    pub(super) fn live(self, variables: &Slab<VariableSlot>) -> Option<Ix> {
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
pub(super) struct FunctionSlot {
    /// Incremented when the slot gets another function.
    pub(super) generation: u32,
    /// The number of functions created before it.
    pub(super) born: u64,
    /// Handles, outputs and runs that hold it.
    pub(super) count: u32,
    /// The operation. None in a free slot.
    pub(super) op: Option<Op>,
    /// The active inputs.
    pub(super) inputs: SmallVec<[Ix; 3]>,
    /// The inputs it was built with and whether each is active, if only some are. The function holds all of them.
    pub(super) all_inputs: Option<Box<[(Ix, bool)]>>,
    /// The outputs, in order.
    pub(super) outputs: SmallVec<[Output; 1]>,
    /// One more than the largest rank of the functions that compute its inputs.
    pub(super) rank: u32,
    /// True if a gradient flows through it.
    pub(super) need_grad: bool,
    /// Created under `no_grad`: never needs a gradient.
    pub(super) no_grad: bool,
    /// It changes an input in place only because nothing needed the input when it was built. If something needs the
    /// input at run time, the function changes a copy.
    pub(super) may_take_copy: bool,
    /// True if it has run forward, but not backward since.
    pub(super) pending: bool,
    /// The state of the values that it saved for its backward run.
    pub(super) saved: Saved,
    /// True if it ran eagerly when it was built.
    pub(super) ran_eagerly: bool,
    /// Its last forward run had a memory budget, which also applies to the backward run.
    pub(super) budgeted: bool,
    /// The pool of evictable values, if it ran eagerly under a budget.
    pub(super) evictor: Option<Arc<dyn Any + Send + Sync>>,
    /// True if a plan was made from it.
    pub(super) planned: bool,
    /// The thread whose run uses it, if any.
    pub(super) busy: Option<Thread>,
    /// The shape or parent of an input changed since it was set up.
    pub(super) need_setup: bool,
    /// The value of [`Arena::reshapes`](super::Arena::reshapes) when it was set up. Tensors reshaped later differ
    /// from the shapes it was set up with.
    pub(super) set_up: u64,
    /// The number of its context.
    pub(super) context: u16,
    /// The traversal that last visited it.
    pub(super) mark: u32,
    /// Scratch number of one graph traversal.
    pub(super) at: u32,
    /// State saved by its last run in the graph.
    pub(super) provenance: Provenance,
    /// The state saved by its last direct call on other arrays, if there was one.
    pub(super) manual: Option<Box<ManualRun>>,
    /// Tags by key, set by the user or, such as the line that built it, by the library.
    pub(super) tags: Vec<(String, String)>,
}

impl FunctionSlot {
    /// A slot in no use.
    pub(super) fn blank() -> Self {
        Self {
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
            saved: Saved::New,
            ran_eagerly: false,
            budgeted: false,
            evictor: None,
            planned: false,
            busy: None,
            need_setup: false,
            set_up: 0,
            context: 0,
            mark: 0,
            at: 0,
            provenance: Provenance::default(),
            manual: None,
            tags: Vec::new(),
        }
    }
}
