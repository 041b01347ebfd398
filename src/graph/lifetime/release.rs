//! Releases of a backward run: the arrays cleared after each step, and what prevents clearing.

use std::collections::HashSet;
use std::sync::Arc;

use crate::Result;
use crate::array::Storage;
use crate::graph::arena::{self, Arena, Ix, NONE};
use crate::graph::lifetime::backward::Waiting;

/// A storage to clear, held until then: data or gradient of a tensor, or memory private to a run.
pub(crate) struct ReleasedStorage {
    /// The tensor whose gradient or data it is, `NONE` if it is private to the run.
    pub(crate) tensor: Ix,
    /// True for the gradient, false for the data.
    pub(crate) is_grad: bool,
    /// The storage to clear.
    pub(crate) storage: Arc<Storage>,
}

impl ReleasedStorage {
    /// The gradient or data of a tensor.
    pub(crate) fn new(a: &mut Arena, tensor: Ix, is_grad: bool) -> Self {
        Self { tensor, is_grad, storage: Arc::clone(if is_grad { a.grad(tensor) } else { a.data(tensor) }) }
    }

    /// Looks up the current storage of the tensor.
    pub(crate) fn move_to_current(&mut self, a: &mut Arena) {
        if self.tensor == NONE {
            return;
        }
        *self = Self::new(a, self.tensor, self.is_grad);
    }
}

/// A storage to clear after a step.
pub(crate) struct Release {
    /// The number of the step.
    pub(crate) step: u32,
    /// The storage to clear.
    pub(crate) place: ReleasedStorage,
    /// Functions and runs that may wait for it, if any.
    pub(crate) waiting: Option<Box<Waiting>>,
    /// It can be recomputed, so other runs do not prevent clearing.
    pub(crate) restored: bool,
    /// The arrays that must not be cleared because other holders may read them.
    pub(crate) spares: Spares,
}

/// The arrays that a release does not clear.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spares {
    /// None.
    Nothing,
    /// Slices of other arrays, arrays with slices, and arrays that a leaf may share.
    Parts,
    /// As `Parts`, and arrays that a user's variable reaches.
    Seen,
    /// All: a leaf of the graph shares the memory.
    Held,
}

impl Release {
    /// A release of a gradient that is private to the run.
    pub(crate) fn of_private(step: u32, storage: Arc<Storage>) -> Self {
        let place = ReleasedStorage { tensor: NONE, is_grad: true, storage };
        Self { step, place, waiting: None, restored: false, spares: Spares::Nothing }
    }

    /// Functions outside the run that may still run backward and read it.
    pub(crate) fn guards(&self) -> &[(Ix, u32)] {
        self.waiting.as_ref().map_or(&[], |waiting| &waiting.guards)
    }

    /// Starting points of expected backward runs that pass through here.
    pub(crate) fn partners(&self) -> &[(Ix, u32)] {
        self.waiting.as_ref().map_or(&[], |waiting| &waiting.partners)
    }

    /// Clears the storage, unless a function waits for it.
    pub(crate) fn now(&self) -> Result<()> {
        let storage = &self.place.storage;
        let waits = |guards: &[(Ix, u32)]| !guards.is_empty() && awaited(guards);
        let may_be_of_leaf =
            || matches!(self.spares, Spares::Parts | Spares::Seen) && storage.may_be_of_leaf();
        if self.spares == Spares::Held
            || may_be_of_leaf()
            || storage.is_given_back()
            || waits(self.guards())
            || (!self.restored && waits(self.partners()))
            || (self.spares == Spares::Seen && storage.users() > 0)
        {
            return Ok(());
        }
        // Clearing a slice is an error.
        let is_spared = || self.spares != Spares::Nothing && storage.is_narrowed();
        storage.clear(true).or_else(|error| if is_spared() { Ok(()) } else { Err(error) })
    }
}

/// The memory of leaves among the inputs of functions. An output on the same memory, as after `h0.data = h.data`, is
/// not cleared, since the next run reads the leaf.
pub(crate) fn held_by_leaves(a: &Arena, functions: &[Ix]) -> HashSet<*const Storage> {
    let leaves = functions.iter().flat_map(|f| a.inputs(*f)).filter(|v| a.parent(**v) == NONE);
    leaves.filter_map(|v| a.existing_data(a.tensor(*v)).map(Arc::as_ptr)).collect()
}

/// True if a function outside the run has run forward and not yet backward.
fn awaited(guards: &[(Ix, u32)]) -> bool {
    arena::with(|a| {
        let a = a.outcomes();
        guards.iter().any(|guard| a.is_alive_function(*guard) && a.awaits_backward(guard.0))
    })
}
