//! Whoever gives values up to keep within a budget, as those see it who run functions. They ask here, and name no budget.

use std::sync::Arc;

use crate::Result;
use crate::graph::arena::{Arena, Ix};
use crate::graph::memory::eviction::pool::{self, EvictionPool};
use crate::graph::step::backward::BackwardStep;

/// What may give up what functions computed, and brings it back.
pub(crate) trait Evictor {
    /// Computes the data of `v` again, if it was given up.
    ///
    /// # Errors
    /// [`crate::Error::BudgetFor`] when there is no room for it; whatever a function on the way fails with.
    fn restore(self: Arc<Self>, v: Ix) -> Result<()>;

    /// Begins a backward run. To be called before the run has hold of any value.
    fn guard(self: Arc<Self>, a: &mut Arena) -> Box<dyn StepGuard>;
}

/// Keeps a backward run to a budget until it is dropped.
pub(crate) trait StepGuard {
    /// Makes ready what `f` reads to run backward, and room for what it writes.
    ///
    /// # Errors
    /// As [`Evictor::restore`].
    fn before(&mut self, f: Ix, step: &BackwardStep) -> Result<()>;

    /// Says that `f` ran backward for good.
    fn after(&self, f: Ix);
}

/// Whether any function was ever built that has an evictor.
pub(crate) fn in_use() -> bool {
    pool::in_use()
}

/// The evictor of what `f` computed, if there is one.
pub(crate) fn of(a: &Arena, f: Ix) -> Option<Arc<dyn Evictor>> {
    EvictionPool::of(a, f).map(|pool| -> Arc<dyn Evictor> { pool })
}

/// Begins a backward run through these functions, if one of them has an evictor: as [`Evictor::guard`].
pub(crate) fn guard(a: &mut Arena, functions: &[Ix]) -> Option<Box<dyn StepGuard>> {
    let evictor = functions.iter().find_map(|f| of(a, *f))?;
    Some(evictor.guard(a))
}
