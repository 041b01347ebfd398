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

use crate::graph::arena::{Arena, FunctionSlot, Ix, Saved, fork};
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
        if self.leases.leased.is_some() || !self.leases.owed.is_empty() {
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
mod tests {
    use std::cell::RefCell;

    use crate::Error;
    use crate::graph::{BackwardOptions, ForwardOptions, Function, Variable, apply, arena, forward_all};

    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    fn leaf() -> Variable {
        Variable::from_values([3], &[0.1, 0.2, 0.3]).expect("fits").with_need_grad(true)
    }

    fn step(y: &Variable, clear: bool) {
        y.forward(&ForwardOptions { clear_no_need_grad: clear, ..Default::default() }).expect("runs");
        y.backward(&BackwardOptions { clear_buffer: clear, ..Default::default() }).expect("runs");
    }

    /// What must be so when nothing is under way, looked at behind the lease.
    fn is_at_rest(y: &Variable, pending: bool) {
        arena::with(|a| {
            a.settle();
            let slot = &a.functions[a.variables[y.ix()].parent];
            assert_eq!((slot.busy, slot.count, slot.pending), (None, 1, pending));
        });
    }

    #[test]
    fn a_run_within_a_run_is_refused_cold_and_warm() {
        let y = one("sin", &[&one("exp", &[&leaf()])]);
        for _ in 0..4 {
            step(&y, false);
            let again = |_: &Function| y.forward(&ForwardOptions::default());
            let hooked = ForwardOptions { post_hook: Some(&again), ..Default::default() };
            let refused = y.forward(&hooked).expect_err("is running");
            assert!(refused.to_string().contains("expected a graph that is at rest"), "{refused}");
            is_at_rest(&y, true);
            step(&y, false);
            is_at_rest(&y, false);
        }
    }

    #[test]
    fn a_panic_is_an_error_and_leaves_the_graph_at_rest() {
        let (x, n) = (leaf(), std::cell::Cell::new(0));
        let y = one("sin", &[&one("exp", &[&x])]);
        y.grad().storage.fill(5.0).expect("has room");
        let panics = |_: &Function| match n.get() {
            0 => panic!("on purpose"),
            left => {
                n.set(left - 1);
                Ok(())
            }
        };
        for at in [0, 1, 0, 1] {
            step(&y, false);
            n.set(at);
            let hooked = ForwardOptions { post_hook: Some(&panics), ..Default::default() };
            let error = y.forward(&hooked).expect_err("panics");
            assert!(matches!(&error, Error::Internal(text) if text == "on purpose"), "{error}");
            step(&y, false);
            is_at_rest(&y, false);
            n.set(at);
            y.forward(&ForwardOptions::default()).expect("runs");
            let hooked = BackwardOptions { pre_hook: Some(&panics), ..Default::default() };
            let error = y.backward(&hooked).expect_err("panics");
            assert!(error.is_panic(), "{error}");
            is_at_rest(&y, true);
            assert_eq!(y.grad().to_vec().expect("is there"), [5.0; 3]);
        }
        // No run of this thread is thought to be under way for ever: plans are leased again.
        let own = super::Thread::current();
        assert!(arena::with(|a| !a.leases.single.contains(&own)));
    }

    #[test]
    fn what_dies_or_runs_during_a_run_changes_nothing() {
        let y = one("sin", &[&one("exp", &[&leaf()])]);
        step(&y, false);
        for _ in 0..3 {
            let other = one("cos", &[&leaf()]);
            step(&other, true);
            step(&other, true);
            let others = RefCell::new(vec![other]);
            let hook = |_: &Function| {
                others.borrow_mut().pop().map_or(Ok(()), |other| other.forward(&ForwardOptions::default()))
            };
            y.forward(&ForwardOptions { pre_hook: Some(&hook), ..Default::default() }).expect("runs");
            is_at_rest(&y, true);
            y.backward(&BackwardOptions::default()).expect("runs");
            is_at_rest(&y, false);
        }
    }

    #[test]
    fn a_loss_that_waits_keeps_the_trunk() {
        let x = leaf();
        let trunk = one("exp", &[&x]);
        let (a, b) = (one("sin", &[&trunk]), one("cos", &[&trunk]));
        drop(trunk); // nobody looks
        for n in 0..5 {
            x.grad().storage.zero().expect("is whole");
            forward_all(&[&a, &b], &ForwardOptions::default()).expect("run");
            let clearing = BackwardOptions { clear_buffer: true, ..Default::default() };
            a.backward(&clearing).expect("runs");
            is_at_rest(&b, true);
            b.backward(&clearing).unwrap_or_else(|e| panic!("step {n}: {e}"));
            let e: Vec<f64> = [0.1f64, 0.2, 0.3].iter().map(|x| x.exp()).collect();
            for (g, e) in x.grad().to_vec().expect("is there").iter().zip(e) {
                assert!((g - e * (e.cos() - e.sin())).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_function_dies_with_its_last_handle_after_warm_runs() {
        let y = one("sin", &[&one("exp", &[&leaf()])]);
        for _ in 0..3 {
            step(&y, true);
        }
        let f = arena::with(|a| a.variables[y.ix()].parent);
        let generation = arena::with(|a| a.functions[f].generation);
        drop(y);
        assert_ne!(arena::with(|a| a.functions[f].generation), generation);
    }
}
