//! All nodes, in slabs of slots behind one lock.
//!
//! Only this folder reads and writes the fields of a slot. Other code asks through `query` and changes nodes
//! through `create` and `edit`. So the invariants hold by construction: a change outdates the plans that depend on it,
//! and deferred fields are flushed before they are read. See `slots` for the content of a slot, `refcount` for its
//! lifetime, and `run_lock` for deferred fields.

pub(crate) mod aliasing;
pub(crate) mod attachment;
pub(crate) mod create;
pub(crate) mod describe;
pub(crate) mod edit;
pub(crate) mod fork;
pub(crate) mod order;
pub(crate) mod provenance;
pub(crate) mod query;
pub(crate) mod refcount;
pub(crate) mod run_lock;
pub(crate) mod scratch;
pub(crate) mod slab;
mod slots;
pub(crate) mod storages;
pub(crate) mod thread;
pub(crate) mod validity;

pub(crate) use attachment::{Attached, Attachment};
pub(crate) use create::NewFunction;
pub(crate) use query::{Outcomes, tensors};
pub(crate) use slab::{Ix, NONE, Slab};
pub(crate) use slots::{Partners, Saved, flag};

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use crate::array::Storage;
use crate::graph::arena::provenance::ManualRun;
use crate::graph::arena::run_lock::RunLocks;
use crate::graph::arena::slots::{Extra, FunctionSlot, TensorSlot, VariableSlot};
use crate::graph::arena::storages::OuterGradient;
use crate::graph::arena::thread::Thread;
use crate::ops::{Op, State};

/// Values to drop after the lock is released. Their destructors may lock memory or call into Python.
#[allow(dead_code)] // held only to be dropped
enum Garbage {
    Storage(Arc<Storage>),
    Op(Op),
    State(State),
    ManualRun(Box<ManualRun>),
    Extra(Box<Extra>),
    Attachment(Box<dyn Attachment>),
}

/// All nodes of all graphs.
pub(crate) struct Arena {
    /// All variables.
    variables: Slab<VariableSlot>,
    /// All tensors.
    tensors: Slab<TensorSlot>,
    /// All functions.
    functions: Slab<FunctionSlot>,
    /// Incremented when every plan becomes outdated.
    epoch: u64,
    /// Incremented when a tensor changes its shape.
    reshapes: u64,
    /// True once a hook on a gradient was registered.
    hooked: bool,
    /// The number of functions created so far.
    births: u64,
    /// The newest mark of a traversal. A node that carries it was visited.
    marks: u32,
    /// Values to drop after unlocking.
    garbage: SmallVec<[Garbage; 2]>,
    /// A spare list for the traversal that frees nodes, reused to save allocations.
    dying: Vec<Ix>,
    /// Functions in use by runs.
    run_locks: RunLocks,
    /// Gradients that a thread has replaced for its backward run, the most recent last.
    outer: Vec<OuterGradient>,
    /// Tensors whose gradients the run of a thread writes, all or none.
    written: Vec<(Thread, Arc<[Ix]>)>,
}

/// The arena of the process.
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
    /// True while this thread holds the lock.
    static LOCKED_HERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Records that this thread holds the lock.
#[cfg(debug_assertions)]
struct LockedHere;

#[cfg(debug_assertions)]
impl LockedHere {
    /// Notes that this thread holds the lock, until the value is dropped.
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
