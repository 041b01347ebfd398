//! Which run has which functions to itself.
//!
//! A run keeps its functions alive, and no other run may take one of them meanwhile. To note that in each of them, and
//! afterwards which of them wait for a backward run, would be a good part of what a step of a small network costs. So a plan
//! whose functions have been as its last run left them takes all of them on a *lease*, one note for all, while no other run
//! is under way; and what such runs leave is *deferred*, again in one note. As soon as somebody looks at one of
//! the functions, or gives the last other count of one back, all that is outstanding is flushed: it is noted in each
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
            crate::ops::begin_thread();
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
    deferred: Vec<(Arc<[Ix]>, RunOutcome)>,
    /// Raised when functions of some plan come under a budget.
    epoch: u64,
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
        Self { single: SmallVec::new_const(), leased: None, deferred: Vec::new(), epoch: 0, freed: 0 };

    /// Whether each function says itself what it is.
    #[inline(always)]
    pub(crate) fn is_flushed(&self) -> bool {
        self.leased.is_none() && self.deferred.is_empty()
    }
}

/// Functions of a plan, and how they may be held.
pub(crate) struct PlanLock {
    pub(crate) functions: Arc<[Ix]>,
    /// The epoch of the arena before the last run, if that succeeded, without a budget.
    since: Option<u64>,
    epoch: u64,
    /// When none of them was freed.
    whole: Option<u64>,
}

impl From<Vec<Ix>> for PlanLock {
    fn from(functions: Vec<Ix>) -> Self {
        Self { functions: functions.into(), since: None, epoch: 0, whole: None }
    }
}

/// A plan whose functions a run has to itself: until [`HeldPlan::unlock`], or until it is dropped if the run ends in another
/// way. It is made before the arena is locked, since it locks the arena when it is dropped.
pub(crate) struct HeldPlan<P: AsMut<PlanLock>>(Option<Box<P>>);

impl<P: AsMut<PlanLock>> HeldPlan<P> {
    /// None yet.
    pub(crate) const NONE: Self = Self(None);

    /// Takes the functions of a plan.
    ///
    /// # Errors
    /// As [`Arena::lock_run`].
    pub(crate) fn lock(&mut self, a: &mut Arena, mut plan: Box<P>) -> Result<&mut P> {
        debug_assert!(self.0.is_none(), "a run has one plan");
        a.lock_run((*plan).as_mut())?;
        Ok(self.0.insert(plan))
    }

    /// The plan that runs.
    pub(crate) fn plan(&mut self) -> &mut P {
        self.0.as_mut().unwrap_or_else(|| unreachable!("a run that was begun has a plan"))
    }

    /// As [`Arena::unlock_run`]; the plan is the caller's from now on.
    #[allow(clippy::unnecessary_box_returns)] // plans are large, and stay where they are
    pub(crate) fn unlock(
        &mut self,
        a: &mut Arena,
        outcome: Option<RunOutcome>,
        each: impl Fn(&mut FunctionSlot),
    ) -> Box<P> {
        let mut plan = self.0.take().unwrap_or_else(|| unreachable!("a run that was begun has a plan"));
        a.unlock_run((*plan).as_mut(), outcome, each);
        plan
    }
}

impl<P: AsMut<PlanLock>> Drop for HeldPlan<P> {
    fn drop(&mut self) {
        if let Some(plan) = &mut self.0 {
            arena::with(|a| a.unlock_run((**plan).as_mut(), None, |_| ()));
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
    /// Keeps the functions of a plan alive and to its run until [`Arena::unlock_run`], together where that can be.
    ///
    /// # Errors
    /// As [`Arena::begin_run`].
    pub(crate) fn lock_run(&mut self, plan: &mut PlanLock) -> Result<()> {
        let run_locks = &mut self.run_locks;
        plan.epoch = run_locks.epoch;
        if plan.since == Some(run_locks.epoch) && run_locks.single.is_empty() && run_locks.leased.is_none() {
            run_locks.leased = Some((Arc::clone(&plan.functions), Thread::current()));
            return Ok(());
        }
        let is_whole = self.begin_run(&plan.functions)?;
        plan.whole = is_whole.then_some(self.run_locks.freed);
        Ok(())
    }

    /// Which function of a plan, if any, belongs to a graph that was freed.
    pub(crate) fn first_freed(&mut self, plan: &mut PlanLock) -> Option<Ix> {
        if plan.whole == Some(self.run_locks.freed) {
            return None;
        }
        self.flush_outcomes();
        let found = plan.functions.iter().copied().find(|f| self.functions[*f].life == Saved::Freed);
        plan.whole = found.is_none().then_some(self.run_locks.freed);
        found
    }

    /// Notes that a function was differentiated through and gives back what that needs.
    pub(crate) fn free(&mut self, f: Ix) {
        self.flush();
        self.run_locks.freed += 1;
        self.functions[f].leave(RunOutcome::Freed);
    }

    /// Ends what [`Arena::lock_run`] began. `outcome` says that the run succeeded, and what it leaves its functions as; `each` does
    /// the same, and more, to one of them.
    pub(crate) fn unlock_run(
        &mut self,
        plan: &mut PlanLock,
        outcome: Option<RunOutcome>,
        each: impl Fn(&mut FunctionSlot),
    ) {
        let run_locks = &mut self.run_locks;
        run_locks.freed += u64::from(outcome == Some(RunOutcome::Freed));
        let is_leased =
            run_locks.leased.as_ref().is_some_and(|(leased, _)| Arc::ptr_eq(leased, &plan.functions));
        plan.since = outcome.map(|_| plan.epoch);
        if !is_leased {
            return self.end_run(&plan.functions, each);
        }
        let Some(outcome) = outcome else {
            self.flush();
            return self.end_run(&plan.functions, each);
        };
        run_locks.leased = None;
        if outcome == RunOutcome::Retained {
            return;
        }
        run_locks.deferred.retain(|(functions, _)| !Arc::ptr_eq(functions, &plan.functions));
        run_locks.deferred.push((Arc::clone(&plan.functions), outcome));
        if run_locks.deferred.len() > DEFERRED_RUNS {
            self.flush();
        }
    }

    /// Notes in each function what is outstanding: to be called before one of them is looked at, changed or let die.
    #[inline(always)]
    pub(crate) fn flush(&mut self) {
        if !self.run_locks.is_flushed() {
            self.flush_each();
        }
    }

    /// Notes what runs that are over left: for who looks only at that.
    pub(crate) fn flush_outcomes(&mut self) {
        for (functions, outcome) in self.run_locks.deferred.drain(..) {
            functions.iter().for_each(|f| self.functions[*f].leave(outcome));
        }
    }

    #[cold]
    fn flush_each(&mut self) {
        self.flush_outcomes();
        if let Some((functions, thread)) = self.run_locks.leased.take() {
            self.run_locks.single.push(thread);
            for f in &*functions {
                let slot = &mut self.functions[*f];
                slot.busy = Some(thread);
                slot.count += 1;
            }
        }
    }

    /// Says that a function that a plan may have was freed or came under a budget: its next run looks at each.
    pub(crate) fn raise_lock_epoch(&mut self) {
        self.run_locks.epoch += 1;
    }

    /// Keeps the functions of a run alive and to itself until [`Arena::end_run`]. Says whether none of them was freed.
    ///
    /// # Errors
    /// [`Error::Graph`] when one of them is running already; nothing is held then.
    pub(crate) fn begin_run(&mut self, functions: &[Ix]) -> Result<bool> {
        self.flush();
        fork::guard();
        let thread = Thread::current();
        self.run_locks.single.push(thread);
        let mut is_whole = true;
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
            is_whole &= slot.life != Saved::Freed;
        }
        Ok(is_whole)
    }

    /// Ends what [`Arena::begin_run`] began, `mark`ing each function.
    pub(crate) fn end_run(&mut self, functions: &[Ix], mark: impl Fn(&mut FunctionSlot)) {
        self.flush();
        self.leave_run();
        for f in functions {
            let slot = &mut self.functions[*f];
            slot.busy = None;
            mark(slot);
            self.release_function(*f);
        }
    }

    /// As [`Arena::end_run`] of functions that others may run already.
    pub(crate) fn release_run(&mut self, functions: &[Ix]) {
        self.leave_run();
        for f in functions {
            self.release_function(*f);
        }
    }

    /// Notes that a run of this thread is over that had its functions one by one.
    fn leave_run(&mut self) {
        let thread = Thread::current();
        if let Some(at) = self.run_locks.single.iter().rposition(|of| *of == thread) {
            self.run_locks.single.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests;
