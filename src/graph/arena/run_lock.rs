//! Which run has which functions to itself.
//!
//! A run keeps its functions alive, and no other run may take one of them meanwhile. To note that in each of them, and
//! afterwards which of them wait for a backward run, would be a good part of what a step of a small network costs. So a plan
//! whose functions have been as its last run left them takes all of them on a *lease*, one note for all, while no other run
//! is under way; and what such runs leave is *owed* to the functions, again in one note. As soon as somebody looks at one of
//! the functions, or gives the last other count of one back, all that is outstanding is settled: it is noted in each
//! function as if there had been no lease.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;

use crate::graph::arena::{self, Arena, FunctionSlot, Ix, Saved, fork};
use crate::{Error, Result};

/// A number that a thread has to itself. (Where there were more threads than numbers, two have one; nothing but what a forked
/// child takes for its own depends on it.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(NonZeroU32);

impl Thread {
    /// That of this thread.
    pub(crate) fn current() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        thread_local! {
            static OWN: Cell<Option<NonZeroU32>> = const { Cell::new(None) };
        }
        Self(OWN.get().unwrap_or_else(|| {
            let new = NonZeroU32::MIN.saturating_add(LAST.fetch_add(1, Ordering::Relaxed));
            OWN.set(Some(new));
            new
        }))
    }
}

/// What is outstanding.
pub(crate) struct RunLocks {
    /// The threads of the runs that hold their functions one by one.
    pub(crate) single: SmallVec<[Thread; 4]>,
    /// The functions of the one run that holds them together, and its thread.
    pub(crate) leased: Option<(Arc<[Ix]>, Thread)>,
    /// What runs left functions as; the last word counts.
    owed: Vec<(Arc<[Ix]>, RunOutcome)>,
    /// Raised when functions of some plan come under a budget.
    lives: u64,
    /// Raised when functions give back what they would run backward from.
    freed: u64,
}

/// What a run that succeeded leaves its functions as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    /// They ran forward, and wait for their backward run.
    Forward,
    /// They ran backward.
    Backward,
    /// They were differentiated through, and gave back what that needs.
    Freed,
    /// They were differentiated through, and are as they were.
    Retained,
}

impl FunctionSlot {
    /// Notes what a run left it as.
    pub(crate) fn leave(&mut self, outcome: RunOutcome) {
        match outcome {
            RunOutcome::Forward => (self.pending, self.life) = (true, Saved::Ready),
            RunOutcome::Backward => self.pending = false,
            RunOutcome::Freed => (self.pending, self.life) = (false, Saved::Freed),
            RunOutcome::Retained => {}
        }
    }
}

/// Notes that wait at most: the runs of one step are a few.
const DEFERRED_RUNS: usize = 6;

impl RunLocks {
    pub(crate) const NONE: Self =
        Self { single: SmallVec::new_const(), leased: None, owed: Vec::new(), lives: 0, freed: 0 };

    /// Whether each function says itself what it is.
    #[inline(always)]
    pub(crate) fn is_settled(&self) -> bool {
        self.leased.is_none() && self.owed.is_empty()
    }
}

/// Functions of a plan, and how they may be held.
pub(crate) struct PlanLock {
    pub(crate) functions: Arc<[Ix]>,
    /// The lives of the arena before the last run, if that succeeded, without a budget.
    since: Option<u64>,
    lives: u64,
    /// When none of them was freed.
    whole: Option<u64>,
}

impl From<Vec<Ix>> for PlanLock {
    fn from(functions: Vec<Ix>) -> Self {
        Self { functions: functions.into(), since: None, lives: 0, whole: None }
    }
}

/// A plan whose functions a run has to itself: until [`HeldPlan::let_go`], or until it is dropped if the run ends in another
/// way. It is made before the arena is locked, since it locks the arena when it is dropped.
pub(crate) struct HeldPlan<P: AsMut<PlanLock>>(Option<P>);

impl<P: AsMut<PlanLock>> HeldPlan<P> {
    /// None yet.
    pub(crate) const NONE: Self = Self(None);

    /// Takes the functions of a plan.
    ///
    /// # Errors
    /// As [`Arena::hold`].
    pub(crate) fn hold(&mut self, a: &mut Arena, mut plan: P) -> Result<&mut P> {
        debug_assert!(self.0.is_none(), "a run has one plan");
        a.hold(plan.as_mut())?;
        Ok(self.0.insert(plan))
    }

    /// The plan that runs.
    pub(crate) fn plan(&mut self) -> &mut P {
        self.0.as_mut().unwrap_or_else(|| unreachable!("a run that was begun has a plan"))
    }

    /// As [`Arena::let_go`]; the plan is the caller's from now on.
    pub(crate) fn let_go(
        &mut self,
        a: &mut Arena,
        outcome: Option<RunOutcome>,
        each: impl Fn(&mut FunctionSlot),
    ) -> P {
        let mut plan = self.0.take().unwrap_or_else(|| unreachable!("a run that was begun has a plan"));
        a.let_go(plan.as_mut(), outcome, each);
        plan
    }
}

impl<P: AsMut<PlanLock>> Drop for HeldPlan<P> {
    fn drop(&mut self) {
        if let Some(plan) = &mut self.0 {
            arena::with(|a| a.let_go(plan.as_mut(), None, |_| ()));
        }
    }
}

impl std::ops::Deref for PlanLock {
    type Target = [Ix];

    fn deref(&self) -> &[Ix] {
        &self.functions
    }
}

impl Arena {
    /// Keeps the functions of a plan alive and to its run until [`Arena::let_go`], together where that can be.
    ///
    /// # Errors
    /// As [`Arena::begin_run`].
    pub(crate) fn hold(&mut self, holding: &mut PlanLock) -> Result<()> {
        let leases = &mut self.leases;
        holding.lives = leases.lives;
        if holding.since == Some(leases.lives) && leases.single.is_empty() && leases.leased.is_none() {
            leases.leased = Some((Arc::clone(&holding.functions), Thread::current()));
            return Ok(());
        }
        self.begin_run(&holding.functions)
    }

    /// Which function of a plan, if any, belongs to a graph that was freed.
    pub(crate) fn first_freed(&mut self, holding: &mut PlanLock) -> Option<Ix> {
        if holding.whole == Some(self.leases.freed) {
            return None;
        }
        self.settle_owed();
        let found = holding.functions.iter().copied().find(|f| self.functions[*f].life == Saved::Freed);
        holding.whole = found.is_none().then_some(self.leases.freed);
        found
    }

    /// Notes that a function was differentiated through and gives back what that needs.
    pub(crate) fn free(&mut self, f: Ix) {
        self.settle();
        self.leases.freed += 1;
        self.functions[f].leave(RunOutcome::Freed);
    }

    /// Ends what [`Arena::hold`] began. `outcome` says that the run succeeded, and what it leaves its functions as; `each` does
    /// the same, and more, to one of them.
    pub(crate) fn let_go(
        &mut self,
        holding: &mut PlanLock,
        outcome: Option<RunOutcome>,
        each: impl Fn(&mut FunctionSlot),
    ) {
        let leases = &mut self.leases;
        leases.freed += u64::from(outcome == Some(RunOutcome::Freed));
        let is_leased =
            leases.leased.as_ref().is_some_and(|(leased, _)| Arc::ptr_eq(leased, &holding.functions));
        holding.since = outcome.map(|_| holding.lives);
        if !is_leased {
            return self.end_run(&holding.functions, each);
        }
        let Some(outcome) = outcome else {
            self.settle();
            return self.end_run(&holding.functions, each);
        };
        leases.leased = None;
        if outcome == RunOutcome::Retained {
            return;
        }
        leases.owed.retain(|(functions, _)| !Arc::ptr_eq(functions, &holding.functions));
        leases.owed.push((Arc::clone(&holding.functions), outcome));
        if leases.owed.len() > DEFERRED_RUNS {
            self.settle();
        }
    }

    /// Notes in each function what is outstanding: to be called before one of them is looked at, changed or let die.
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        if !self.leases.is_settled() {
            self.settle_each();
        }
    }

    /// Notes what runs that are over left: for who looks only at that.
    pub(crate) fn settle_owed(&mut self) {
        for (functions, outcome) in self.leases.owed.drain(..) {
            functions.iter().for_each(|f| self.functions[*f].leave(outcome));
        }
    }

    #[cold]
    fn settle_each(&mut self) {
        self.settle_owed();
        if let Some((functions, thread)) = self.leases.leased.take() {
            self.leases.single.push(thread);
            for f in &*functions {
                let slot = &mut self.functions[*f];
                slot.busy = Some(thread);
                slot.count += 1;
            }
        }
    }

    /// Says that a function that a plan may have was freed or came under a budget: its next run looks at each.
    pub(crate) fn lives_change(&mut self) {
        self.leases.lives += 1;
    }

    /// Keeps the functions of a run alive and to itself until [`Arena::end_run`].
    ///
    /// # Errors
    /// [`Error::Graph`] when one of them is running already; nothing is held then.
    pub(crate) fn begin_run(&mut self, functions: &[Ix]) -> Result<()> {
        self.settle();
        fork::guard();
        let thread = Thread::current();
        self.leases.single.push(thread);
        for (n, f) in functions.iter().enumerate() {
            let slot = &mut self.functions[*f];
            if slot.busy.is_some() {
                let name = self.op(*f).name().to_string();
                self.end_run(&functions[..n], |_| ());
                return Err(Error::Graph(format!(
                    "{name}: expected a graph that is at rest, but another run of it is under way"
                )));
            }
            slot.busy = Some(thread);
            slot.count += 1;
        }
        Ok(())
    }

    /// Ends what [`Arena::begin_run`] began, `mark`ing each function.
    pub(crate) fn end_run(&mut self, functions: &[Ix], mark: impl Fn(&mut FunctionSlot)) {
        self.settle();
        for f in functions {
            let slot = &mut self.functions[*f];
            slot.busy = None;
            mark(slot);
        }
        self.release_run(functions);
    }

    /// As [`Arena::end_run`] of functions that others may run already.
    pub(crate) fn release_run(&mut self, functions: &[Ix]) {
        let thread = Thread::current();
        if let Some(at) = self.leases.single.iter().rposition(|of| *of == thread) {
            self.leases.single.swap_remove(at);
        }
        for f in functions {
            self.release_function(*f);
        }
    }
}

#[cfg(test)]
mod tests;
