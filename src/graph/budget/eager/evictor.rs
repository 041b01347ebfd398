//! The interface of eviction for code that runs functions. It hides the budget.

use std::sync::Arc;

use crate::Result;
use crate::graph::arena::{Arena, Ix};
use crate::graph::budget::eager::pool::{self, EvictionPool};
use crate::graph::step::backward::BackwardStep;

/// Evicts values that functions computed, and restores them.
pub(crate) trait Evictor {
    /// Recomputes the data of `v` if it was evicted.
    ///
    /// # Errors
    /// [`crate::Error::BudgetFor`] if the budget is too small for it. Errors of the functions that run again.
    fn restore(self: Arc<Self>, v: Ix) -> Result<()>;

    /// Begins a backward run. Must be called before the run holds any value.
    fn guard(self: Arc<Self>, a: &mut Arena) -> Box<dyn StepGuard>;
}

/// Keeps a backward run within a budget until it is dropped.
pub(crate) trait StepGuard {
    /// Restores what `f` reads in its backward run, and evicts values to make memory for its results.
    ///
    /// # Errors
    /// As [`Evictor::restore`].
    fn before(&mut self, f: Ix, step: &BackwardStep) -> Result<()>;

    /// Records that `f` has run backward for the last time.
    fn after(&self, f: Ix);
}

/// True if any function with an evictor was ever built.
pub(crate) fn in_use() -> bool {
    pool::in_use()
}

/// The evictor of the values that `f` computed, if any.
pub(crate) fn of(a: &Arena, f: Ix) -> Option<Arc<dyn Evictor>> {
    EvictionPool::of(a, f).map(|pool| -> Arc<dyn Evictor> { pool })
}

/// Begins a backward run through these functions, if one of them has an evictor. See [`Evictor::guard`].
pub(crate) fn guard(a: &mut Arena, functions: &[Ix]) -> Option<Box<dyn StepGuard>> {
    let evictor = functions.iter().find_map(|f| of(a, *f))?;
    Some(evictor.guard(a))
}
