//! Run locks: exclusive use of functions by a run.
//!
//! A run keeps its functions alive, and no other run may use them meanwhile. In a small step, marking each
//! function before and after a run would take a large part of the time. So if no other run is active, a plan whose
//! functions are unchanged since its last run *leases* all of them with a single mark. The outcome of such a run is
//! *deferred* in a single mark too. Deferred marks are flushed before any code reads one of the functions or releases
//! its last other count: each function is marked as if there had been no lease. Model:
//! `functions_have_one_run_at_a_time`.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::graph::arena::slots::FunctionSlot;
use crate::graph::arena::thread::Thread;
use crate::graph::arena::{self, Arena, Ix, Saved, fork};
use crate::{Error, Result};

/// Marks that are not yet written to each function.
pub(crate) struct RunLocks {
    /// The threads of runs that lock their functions individually.
    pub(crate) single: SmallVec<[Thread; 4]>,
    /// The functions of the run that holds a lease, and its thread.
    pub(crate) leased: Option<(Arc<[Ix]>, Thread)>,
    /// Outcomes of runs for their functions. Later entries override earlier ones.
    deferred: Vec<(Arc<[Ix]>, RunOutcome)>,
    /// Incremented when functions of a plan come under a budget.
    epoch: u64,
    /// Incremented when functions free the values they saved for the backward run.
    freed: u64,
}

/// The state in which a run leaves its functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    /// They ran forward and await their backward run. If `budgeted`, they may have dropped values.
    Forward { budgeted: bool },
    /// A forward run failed. Some of them may have run.
    ForwardFailed { budgeted: bool },
    /// They ran backward.
    Backward,
    /// They were differentiated through, and freed their saved values.
    Freed,
    /// They were differentiated through, and are unchanged.
    Retained,
    /// Another run failed. They are unchanged.
    Failed,
}

impl RunOutcome {
    /// True if the outcome may be deferred, and the next run of the plan may lease its functions.
    fn is_deferrable(self) -> bool {
        !matches!(self, Self::Forward { budgeted: true } | Self::ForwardFailed { .. } | Self::Failed)
    }
}

impl FunctionSlot {
    /// Records the outcome of a run.
    fn leave(&mut self, outcome: RunOutcome) {
        match outcome {
            RunOutcome::Forward { budgeted } => {
                (self.pending, self.saved, self.budgeted) = (true, Saved::Ready, budgeted);
            }
            RunOutcome::ForwardFailed { budgeted } => (self.pending, self.budgeted) = (true, budgeted),
            RunOutcome::Backward => self.pending = false,
            RunOutcome::Freed => (self.pending, self.saved) = (false, Saved::Freed),
            RunOutcome::Retained | RunOutcome::Failed => {}
        }
    }
}

/// The largest number of deferred outcomes. A step has only a few runs.
const DEFERRED_RUNS: usize = 6;

impl RunLocks {
    /// No runs.
    pub(crate) const NONE: Self =
        Self { single: SmallVec::new_const(), leased: None, deferred: Vec::new(), epoch: 0, freed: 0 };

    /// True if no marks are deferred.
    #[inline(always)]
    fn is_flushed(&self) -> bool {
        self.leased.is_none() && self.deferred.is_empty()
    }

    /// True if a run leases `f`, so that its count does not include the run.
    pub(super) fn leases(&self, f: Ix) -> bool {
        self.leased.as_ref().is_some_and(|(functions, _)| functions.contains(&f))
    }
}

/// The functions of a plan, and the conditions for a lease.
pub(crate) struct PlanLock {
    /// The functions, in execution order.
    functions: Arc<[Ix]>,
    /// The epoch of the arena before the last run, if that run succeeded without a budget.
    since: Option<u64>,
    /// The epoch of the run locks when the current or last run began.
    epoch: u64,
    /// The value of `freed` when no function of the plan had been freed.
    whole: Option<u64>,
}

impl From<Vec<Ix>> for PlanLock {
    fn from(functions: Vec<Ix>) -> Self {
        Self { functions: functions.into(), since: None, epoch: 0, whole: None }
    }
}

/// A plan whose functions are locked for a run, until [`HeldPlan::unlock`] or until it is dropped on another exit.
/// Must be created before the arena is locked, since its destructor locks the arena.
pub(crate) struct HeldPlan<P: AsMut<PlanLock>>(Option<Box<P>>);

impl<P: AsMut<PlanLock>> HeldPlan<P> {
    /// No plan yet.
    pub(crate) const NONE: Self = Self(None);

    /// Locks the functions of a plan.
    ///
    /// # Errors
    /// As [`Arena::lock_run`].
    pub(crate) fn lock(&mut self, a: &mut Arena, mut plan: Box<P>) -> Result<&mut P> {
        debug_assert!(self.0.is_none(), "a run has one plan");
        a.lock_run((*plan).as_mut())?;
        Ok(self.0.insert(plan))
    }

    /// The locked plan.
    pub(crate) fn plan(&mut self) -> &mut P {
        self.0.as_mut().unwrap_or_else(|| unreachable!("a run that was begun has a plan"))
    }

    /// Unlocks the functions of the plan, with this outcome of the run. Returns the plan to the caller.
    #[allow(clippy::unnecessary_box_returns)] // plans are large and never move
    pub(crate) fn unlock(&mut self, a: &mut Arena, outcome: RunOutcome) -> Box<P> {
        let mut plan = self.0.take().unwrap_or_else(|| unreachable!("a run that was begun has a plan"));
        a.unlock_run((*plan).as_mut(), outcome);
        plan
    }
}

impl<P: AsMut<PlanLock>> Drop for HeldPlan<P> {
    fn drop(&mut self) {
        if let Some(plan) = &mut self.0 {
            arena::with(|a| a.unlock_run((**plan).as_mut(), RunOutcome::Failed));
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
    /// Keeps the functions of a plan alive and locked for its run until [`Arena::unlock_run`]. Leases them if
    /// possible.
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

    /// The first function of a plan that belongs to a freed graph, if any.
    pub(crate) fn first_freed(&mut self, plan: &mut PlanLock) -> Option<Ix> {
        if plan.whole == Some(self.run_locks.freed) {
            return None;
        }
        self.flush_outcomes();
        let found = plan.functions.iter().copied().find(|f| self.functions[*f].saved == Saved::Freed);
        plan.whole = found.is_none().then_some(self.run_locks.freed);
        found
    }

    /// Marks a function as differentiated through, with its saved values freed.
    pub(crate) fn free(&mut self, f: Ix) {
        self.flush();
        self.run_locks.freed += 1;
        self.functions[f].leave(RunOutcome::Freed);
    }

    /// Ends a run that [`Arena::lock_run`] began, with this outcome for each function.
    pub(crate) fn unlock_run(&mut self, plan: &mut PlanLock, outcome: RunOutcome) {
        let run_locks = &mut self.run_locks;
        run_locks.freed += u64::from(outcome == RunOutcome::Freed);
        let is_leased =
            run_locks.leased.as_ref().is_some_and(|(leased, _)| Arc::ptr_eq(leased, &plan.functions));
        plan.since = outcome.is_deferrable().then_some(plan.epoch);
        if !is_leased || !outcome.is_deferrable() {
            return self.leave_functions(&plan.functions, outcome);
        }
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

    /// Writes all deferred marks to the functions. The arena calls it before it reads or changes a deferred field.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        if !self.run_locks.is_flushed() {
            self.flush_each();
        }
    }

    /// Writes the deferred outcomes of completed runs, for code that reads only those.
    #[inline]
    pub(super) fn flush_outcomes(&mut self) {
        if !self.run_locks.deferred.is_empty() {
            self.flush_each_outcome();
        }
    }

    /// Writes deferred outcomes into their functions.
    #[cold]
    fn flush_each_outcome(&mut self) {
        for (functions, outcome) in self.run_locks.deferred.drain(..) {
            functions.iter().for_each(|f| self.functions[*f].leave(outcome));
        }
    }

    /// Writes deferred outcomes, and the deferred lock of a plan, into the functions.
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

    /// Invalidates leases after a function of some plan was freed or came under a budget: the next run checks each
    /// function.
    pub(crate) fn raise_lock_epoch(&mut self) {
        self.run_locks.epoch += 1;
    }

    /// Keeps the functions of a run alive and locked until [`Arena::end_run`]. Returns true if none of them was
    /// freed.
    ///
    /// # Errors
    /// [`Error::Graph`] if one of them is already running. Then nothing is locked.
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
                self.end_run(&functions[..n]);
                return Err(Error::Graph(format!(
                    "{name}: expected a graph that is at rest, but another run of it is under way"
                )));
            }
            slot.busy = Some(thread);
            slot.count += 1;
            is_whole &= slot.saved != Saved::Freed;
        }
        Ok(is_whole)
    }

    /// Ends a run that [`Arena::begin_run`] began. Its functions are unchanged.
    pub(crate) fn end_run(&mut self, functions: &[Ix]) {
        self.leave_functions(functions, RunOutcome::Failed);
    }

    /// Unlocks functions after a run and writes its outcome into them.
    fn leave_functions(&mut self, functions: &[Ix], outcome: RunOutcome) {
        self.flush();
        self.leave_run();
        for f in functions {
            let slot = &mut self.functions[*f];
            slot.busy = None;
            slot.leave(outcome);
            self.release_function(*f);
        }
    }

    /// Unlocks the functions of a run that [`Arena::begin_run`] began, and keeps them alive. Other runs may use them
    /// until [`Arena::resume_run`].
    pub(crate) fn suspend_run(&mut self, functions: &[Ix]) {
        for f in functions {
            self.functions[*f].busy = None;
        }
    }

    /// Locks the functions of a suspended run again. Returns false, and locks none, if another run uses one of them.
    pub(crate) fn resume_run(&mut self, functions: &[Ix]) -> bool {
        self.flush();
        if functions.iter().any(|f| self.functions[*f].busy.is_some()) {
            return false;
        }
        let own = Some(Thread::current());
        for f in functions {
            self.functions[*f].busy = own;
        }
        true
    }

    /// The functions of a list that no run uses.
    pub(crate) fn idle(&mut self, functions: &[Ix]) -> Vec<Ix> {
        self.flush();
        functions.iter().copied().filter(|f| self.functions[*f].busy.is_none()).collect()
    }

    /// Ends a suspended run.
    pub(crate) fn release_run(&mut self, functions: &[Ix]) {
        self.leave_run();
        for f in functions {
            self.release_function(*f);
        }
    }

    /// Records the end of a run of this thread that locked its functions individually.
    fn leave_run(&mut self) {
        let thread = Thread::current();
        if let Some(at) = self.run_locks.single.iter().rposition(|of| *of == thread) {
            self.run_locks.single.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests;
