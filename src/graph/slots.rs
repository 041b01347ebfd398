//! What the arena keeps of each node: variables, the pairs of data and gradient that they share, and functions, in
//! slabs whose slots have generations and counts.

use std::sync::Arc;

use smallvec::SmallVec;

use super::lease::Thread;
use super::memo::{ByHand, Memo};
use crate::array::{Shape, Storage};
use crate::ops::Op;

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
    /// Differentiations from here that were made ready.
    #[allow(clippy::vec_box)] // they are large, and taken out for each run
    pub(super) ready: Vec<Box<super::ready::Ready>>,
    /// The other ends of the forward run under a budget that ended here, with their generations: the backward run from
    /// here keeps what theirs will want.
    pub(super) partners: Partners,
}

/// Variables with their generations, from which backward runs are to come.
pub(super) type Partners = SmallVec<[(Ix, u32); 2]>;

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
    /// What [`super::arena::Arena::reshapes`] was when it got this shape after it was made.
    pub(super) reshaped: u64,
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
    /// Counts what it computed, where it ran under a budget when it was built.
    pub(super) ledger: Option<std::sync::Arc<super::ledger::Ledger>>,
    pub(super) planned: bool,
    /// The thread whose run has it, if one is under way.
    pub(super) busy: Option<Thread>,
    /// Something that it takes has another shape or another origin since it was set up.
    pub(super) need_setup: bool,
    /// What [`super::arena::Arena::reshapes`] was when it was set up: pairs that got another shape later are not those that
    /// it knows.
    pub(super) set_up: u64,
    /// Number of its context.
    pub(super) context: u16,
    pub(super) mark: u32,
    /// Scratch number of one walk.
    pub(super) at: u32,
    pub(super) memo: Memo,
    /// As `memo`, of runs by hand on other arrays.
    pub(super) by_hand: Option<Box<ByHand>>,
    pub(super) tags: Vec<(String, String)>,
}

/// Slots in chunks, so that growing never moves them.
pub(super) struct Slab<T> {
    chunks: Vec<Box<[T]>>,
    pub(super) free: Vec<Ix>,
    len: Ix,
}

const CHUNK: u32 = 10;

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// A slot to be filled: a freed one as its last tenant left it, or a blank one.
    #[inline(always)]
    pub(super) fn take(&mut self, blank: impl Fn() -> T) -> Ix {
        if let Some(ix) = self.free.pop() {
            return ix;
        }
        if (self.len >> CHUNK) as usize == self.chunks.len() {
            self.chunks.push((0..1 << CHUNK).map(|_| blank()).collect());
        }
        self.len += 1;
        self.len - 1
    }

    /// All slots, those without a tenant too.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.chunks.iter_mut().flat_map(|chunk| chunk.iter_mut())
    }

    /// Slots that have a tenant.
    pub(super) fn in_use(&self) -> usize {
        self.len as usize - self.free.len()
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
