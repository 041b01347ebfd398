//! What is cleared after a step of a backward run, and who keeps it from that.

use std::collections::HashSet;
use std::sync::Arc;

use crate::Result;
use crate::array::Storage;
use crate::graph::arena::{self, Arena, Ix, NONE};
use crate::graph::memory::release::Waiting;

/// A storage that is cleared: of a tensor, or of a run's own.
pub(crate) struct ReleasedStorage {
    /// The tensor that it is the gradient or the data of; `NONE` if it is the run's own.
    pub(crate) tensor: Ix,
    pub(crate) is_grad: bool,
    pub(crate) storage: Arc<Storage>,
}

impl ReleasedStorage {
    /// Where the gradient or the data of a tensor is.
    pub(crate) fn new(a: &mut Arena, tensor: Ix, is_grad: bool) -> Self {
        Self { tensor, is_grad, storage: Arc::clone(if is_grad { a.grad(tensor) } else { a.data(tensor) }) }
    }

    /// Looks at the storage that the tensor has now.
    pub(crate) fn move_to_current(&mut self, a: &mut Arena) {
        if self.tensor == NONE {
            return;
        }
        *self = Self::new(a, self.tensor, self.is_grad);
    }
}

/// What is cleared after a step.
pub(crate) struct Release {
    pub(crate) step: u32,
    pub(crate) place: ReleasedStorage,
    /// Who may wait for it, if anybody does.
    pub(crate) waiting: Option<Box<Waiting>>,
    /// It can be computed again: other runs do not wait for it.
    pub(crate) restored: bool,
    /// Whether what somebody else may look at is spared.
    pub(crate) spares: Spares,
}

/// What a release leaves alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spares {
    /// Nothing.
    Nothing,
    /// What is a part of another array, or has one, and what a leaf may have.
    Parts,
    /// Parts, and what a variable in somebody's hands reaches.
    Seen,
    /// Everything: a leaf of the graph has the same memory.
    Held,
}

impl Release {
    /// That of a gradient of the run's own.
    pub(crate) fn of_private(step: u32, storage: Arc<Storage>) -> Self {
        let place = ReleasedStorage { tensor: NONE, is_grad: true, storage };
        Self { step, place, waiting: None, restored: false, spares: Spares::Nothing }
    }

    /// Functions outside of the run that may still have to run backward, and would read it.
    pub(crate) fn guards(&self) -> &[(Ix, u32)] {
        self.waiting.as_ref().map_or(&[], |waiting| &waiting.guards)
    }

    /// Where other backward runs that are to come begin, if they lead through here.
    pub(crate) fn partners(&self) -> &[(Ix, u32)] {
        self.waiting.as_ref().map_or(&[], |waiting| &waiting.partners)
    }

    /// Clears it, unless a function waits for it.
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
        // Parts are refused.
        let is_spared = || self.spares != Spares::Nothing && storage.is_narrowed();
        storage.clear(true).or_else(|error| if is_spared() { Ok(()) } else { Err(error) })
    }
}

/// Memory of leaves among the inputs of functions. An output that has the same, as `h0.data = h.data` makes it, is not
/// cleared: the leaf is read in the next run.
pub(crate) fn held_by_leaves(a: &Arena, functions: &[Ix]) -> HashSet<*const Storage> {
    let inputs = functions.iter().flat_map(|f| &a.functions[*f].inputs).map(|v| &a.variables[*v]);
    let leaves = inputs.filter(|v| v.parent == NONE);
    leaves.filter_map(|v| a.tensors[v.tensor].data.as_ref().map(Arc::as_ptr)).collect()
}

/// Whether a function outside of the run ran forward and still has to run backward.
fn awaited(guards: &[(Ix, u32)]) -> bool {
    arena::with(|a| {
        a.flush_outcomes();
        guards.iter().any(|(f, generation)| {
            let slot = &a.functions[*f];
            slot.generation == *generation && slot.pending && slot.need_grad
        })
    })
}
