//! The forward run: an order is made once, kept as a plan with its destination, and used until something it depends on
//! changes.

use std::collections::HashSet;

use crate::array::RunGuard;
use crate::error::caught;
use crate::graph::arena::describe::explain;
use crate::graph::arena::run_lock::{HeldPlan, RunOutcome};
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{self, Arena, Ix, NONE, Saved, flag, order};
use crate::graph::handles::callbacks::{self, Detach, FunctionHook};
use crate::graph::handles::variable::Variable;
use crate::graph::memory::release::Policy;
use crate::graph::plan::cache::{self, CachedPlan, ForwardKey};
use crate::graph::plan::checkpoint::{roots, search};
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::plan::instructions::Instruction;
use crate::graph::run::context::RunContext;
use crate::graph::run::timings;
use crate::graph::settings::modes;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::setup::{self, Stop, set_up_outside};
use crate::graph::step::{anomaly, prepare};
use crate::{Error, Result};

/// How to run forward.
#[derive(Clone, Copy, Default)]
pub struct ForwardOptions<'a> {
    /// Give memory back after its last use in this run; a backward run is not possible then.
    pub clear_buffer: bool,
    /// Give memory back after its last use unless a gradient will read it.
    pub clear_no_need_grad: bool,
    /// Bytes that the arrays of the graph may take at most in this run and the backward run after it, which gives
    /// memory back as [`crate::graph::BackwardOptions::clear_buffer`] says. What must be dropped for that, and computed again,
    /// is chosen here. By default [`crate::graph::settings::memory_budget`].
    pub memory_budget: Option<usize>,
    /// Called before each function.
    pub pre_hook: Option<FunctionHook<'a>>,
    /// Called after each function.
    pub post_hook: Option<FunctionHook<'a>>,
    /// Wraps the run where it is worth releasing a lock for.
    pub detach: Option<Detach<'a>>,
}

/// Functions that have run and need not run again: shared between calls that belong together.
#[derive(Default)]
pub struct Closed(HashSet<(Ix, u32)>);

impl ForwardPlan {
    /// Gives back what earlier runs left and this run or the backward run after it writes again.
    fn start_fresh(&self) -> Result<()> {
        let storages = self.fresh.iter().map(|place| &place.storage);
        let mut left = storages.filter(|s| s.holds_memory() && !s.is_narrowed());
        left.try_for_each(|storage| storage.clear(true))
    }

    fn run(&mut self, context: &RunContext<'_>) -> Result<()> {
        if self.counted != context.guard.is_none() {
            self.counted = context.guard.is_none();
            self.steps.iter_mut().for_each(|step| step.count(context.guard.is_none()));
        }
        if context.may_fuse() {
            self.fuse();
        } else {
            self.unfuse();
        }
        self.start_fresh()?;
        self.list();
        let passes = self.passes.as_deref_mut().unwrap_or_default();
        let mut pace = context.pace();
        let mut next = 0;
        while let Some(instruction) = self.instructions.get(next) {
            next += 1;
            let began = context.timer.begin();
            match *instruction {
                Instruction::Pass { at, next: after } if passes[at as usize].run()? => {
                    next = after as usize;
                    timings::end(began, &self.functions[passes[at as usize].steps.clone()], false);
                    pace.step()?;
                }
                Instruction::Chain { at, next: after } => {
                    let chain = &self.chains[at as usize];
                    let f = self.functions[chain.steps.start];
                    if chain.run(&mut self.steps).map_err(|e| explain(e, f, "forward"))? {
                        next = after as usize;
                        timings::end(began, &self.functions[chain.steps.clone()], false);
                        pace.step()?;
                    }
                }
                Instruction::Run { step: n } => {
                    let f = self.functions[n as usize];
                    let handle = context.handle(f);
                    context.before(handle.as_ref())?;
                    let began = context.timer.begin();
                    if self.late {
                        self.steps[n as usize] = late_step(f)?;
                        self.steps[n as usize].count(self.counted);
                    }
                    let step = &mut self.steps[n as usize];
                    step.forward(false).map_err(|e| explain(e, f, "forward"))?;
                    if context.anomaly {
                        anomaly::after_forward(f, step)?;
                    }
                    timings::end(began, &[f], false);
                    context.after(handle.as_ref())?;
                    while let Some(Instruction::Release { at }) = self.instructions.get(next) {
                        next += 1;
                        let (n, i) = self.clears[*at as usize];
                        self.steps[n as usize].x[i as usize].storage.clear(true)?;
                    }
                    context.finished(f, handle.as_ref())?;
                    pace.step()?;
                }
                // A step has its releases; the rest is a backward run's.
                _ => {}
            }
        }
        Ok(())
    }
}

impl Variable {
    /// Computes this variable, each function above it once.
    ///
    /// # Errors
    /// [`Error::Graph`] when no function computes it or the graph is being run already; whatever an operation, a hook
    /// or a user's function fails with. The graph stays usable.
    pub fn forward(&self, options: &ForwardOptions<'_>) -> Result<()> {
        if arena::with(|a| a.variables[self.ix()].parent == NONE) {
            return Err(Error::Graph(format!(
                "forward: expected a variable that a function computes, got {}, which has no parent",
                self.describe()
            )));
        }
        run(&[self.ix()], options, None)
    }

    /// As [`Variable::forward`] without the functions in `closed`; those that ran are added to it.
    ///
    /// ```
    /// use kinnor::graph::{Closed, ForwardOptions, Function, Variable, apply};
    /// use std::cell::RefCell;
    ///
    /// let x = Variable::from_values([1], &[2.0])?;
    /// let h = apply("mul2", &[&x, &x], &[])?.remove(0);
    /// let a = apply("exp", &[&h], &[])?.remove(0);
    /// let b = apply("sin", &[&h], &[])?.remove(0);
    /// let ran = RefCell::new(Vec::new());
    /// let hook = |f: &Function| Ok(ran.borrow_mut().push(f.type_name()));
    /// let options = ForwardOptions { pre_hook: Some(&hook), ..Default::default() };
    /// let mut closed = Closed::default();
    /// a.forward_with(&options, &mut closed)?;
    /// b.forward_with(&options, &mut closed)?;
    /// assert_eq!(*ran.borrow(), ["Mul2", "Exp", "Sin"]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Variable::forward`].
    pub fn forward_with(&self, options: &ForwardOptions<'_>, closed: &mut Closed) -> Result<()> {
        run(&[self.ix()], options, Some(closed))
    }
}

/// Computes several variables, each function above them once. None of them is cleared.
///
/// # Errors
/// As [`Variable::forward`]; variables that no function computes are skipped.
pub fn forward_all(variables: &[&Variable], options: &ForwardOptions<'_>) -> Result<()> {
    let roots: Vec<Ix> = arena::with(|a| {
        variables.iter().map(|v| v.ix()).filter(|v| a.variables[*v].parent != NONE).collect()
    });
    if roots.is_empty() {
        return Ok(());
    }
    let _persistent = Persistent::new(variables);
    run(&roots, options, None)
}

/// Variables that are persistent while it lives, as they were not before.
struct Persistent<'a>(Vec<&'a Variable>);

impl<'a> Persistent<'a> {
    fn new(variables: &[&'a Variable]) -> Self {
        let own = Self(variables.iter().copied().filter(|v| !v.persistent()).collect());
        own.set(true);
        own
    }

    /// Not through `set_persistent`: this holds for one call and must not spoil the plan.
    fn set(&self, on: bool) {
        arena::with(|a| {
            for v in &self.0 {
                let flags = &mut a.variables[v.ix()].flags;
                *flags = if on { *flags | flag::PERSISTENT } else { *flags & !flag::PERSISTENT };
            }
        });
    }
}

impl Drop for Persistent<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

fn run(roots: &[Ix], options: &ForwardOptions<'_>, mut closed: Option<&mut Closed>) -> Result<()> {
    let policy = Policy {
        clear_buffer: options.clear_buffer,
        clear_no_need_grad: options.clear_no_need_grad,
        recomputation: false,
    };
    let budget = options.memory_budget.or_else(modes::memory_budget);
    let key = ForwardKey::forward(roots, policy, budget);
    let cacheable = closed.is_none();
    let enter = |a: &Arena, f: Ix| {
        closed.as_ref().is_none_or(|closed| !closed.0.contains(&(f, a.functions[f].generation)))
    };
    let guard = budget.is_none().then(RunGuard::new);
    let mut optimise = false;
    let mut held: HeldPlan<ForwardPlan> = HeldPlan::NONE;
    let (validity, reshapes) = loop {
        let made = arena::with(|a| -> Result<(Option<Validity>, u64), Stop> {
            roots::introduce(a, roots, policy, budget);
            let kept = if cacheable { CachedPlan::take_forward(a, roots[0], &key) } else { None };
            optimise = kept.is_some() && budget.is_none();
            let (plan, validity) = if let Some((plan, validity)) = kept {
                (plan, Some(validity))
            } else {
                cache::count_made();
                let plan = match budget {
                    Some(bytes) => search::plan(a, roots, policy, bytes, enter)?,
                    None => ForwardPlan::make(a, roots, policy, enter)?,
                };
                let plan = Box::new(plan);
                let validity = cacheable.then(|| a.plan_made_from(&plan.functions));
                (plan, validity)
            };
            held.lock(a, plan)?;
            Ok((validity, a.reshapes))
        });
        match made {
            Ok(ready) => break ready,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::SetUp(f)) => set_up_outside(f)?,
        }
    };
    let context = RunContext::new([options.pre_hook, options.post_hook], &[], guard.as_ref(), optimise);
    let plan = held.plan();
    let done =
        callbacks::detached(options.detach, plan.work, context.is_hooked(), || caught(|| plan.run(&context)));
    let whole = !done.as_ref().is_err_and(Error::is_panic);
    let (rest, done) = arena::with(|a| {
        let functions = &held.plan().functions;
        let kept_shapes = || functions.iter().try_for_each(|f| order::check_outputs(a, *f));
        let done = done.and_then(|()| if a.reshapes == reshapes { Ok(()) } else { kept_shapes() });
        let life = done.is_ok().then_some(Saved::Ready);
        let is_usual = done.is_ok() && budget.is_none();
        let plan = held.unlock(a, is_usual.then_some(RunOutcome::Forward), |f| {
            (f.pending, f.life, f.budgeted) = (true, life.unwrap_or(f.life), budget.is_some());
        });
        if budget.is_some() {
            a.raise_lock_epoch();
        }
        if let Some(closed) = &mut closed {
            closed.0.extend(plan.functions.iter().map(|f| (*f, a.functions[*f].generation)));
        }
        match validity.filter(|_| whole) {
            Some(validity) => {
                CachedPlan::put_forward(a, roots[0], key, validity, plan);
                (None, done)
            }
            None => (Some(plan), done),
        }
    });
    drop(rest);
    drop(guard);
    done
}

/// Makes a function ready when its turn comes: shapes above it are known only now.
fn late_step(f: Ix) -> Result<ForwardStep> {
    if arena::with(|a| a.facts(f).shaped_by.is_some()) {
        set_up_outside(f)?;
    }
    loop {
        match arena::with(|a| {
            setup::refresh(a, f)?;
            order::check_shapes(a, f, "forward")?;
            Ok(prepare::step(a, f))
        }) {
            Ok(step) => return Ok(step),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::SetUp(f)) => set_up_outside(f)?,
        }
    }
}
