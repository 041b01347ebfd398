//! The forward run: makes an order once, caches it as a plan with its destination, and reuses it until something it
//! depends on changes.

use std::collections::HashSet;

use crate::array::{RunGuard, headroom};
use crate::error::caught;
use crate::graph::arena::describe::explain;
use crate::graph::arena::run_lock::{HeldPlan, RunOutcome};
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{self, Arena, Ix, NONE, flag, order};
use crate::graph::budget::r#static::{roots, search};
use crate::graph::handles::callbacks::{self, Detach, FunctionHook};
use crate::graph::handles::variable::Variable;
use crate::graph::lifetime::rules::Policy;
use crate::graph::plan::cache::{self, CachedPlan, ForwardKey};
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::plan::instructions::Instruction;
use crate::graph::run::context::RunContext;
use crate::graph::run::timings;
use crate::graph::settings::modes;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::setup::{self, Stop, set_up_outside};
use crate::graph::step::{anomaly, prepare};
use crate::{Error, Result};

/// Options of a forward run.
#[derive(Clone, Copy, Default)]
pub struct ForwardOptions<'a> {
    /// Free memory after its last use in this run. A backward run is then impossible.
    pub clear_buffer: bool,
    /// Free memory after its last use unless a gradient will read it.
    pub clear_no_need_grad: bool,
    /// The memory limit, in bytes, for the arrays of the graph in this run and the following backward run, which
    /// frees memory as with [`crate::graph::BackwardOptions::clear_buffer`]. The engine chooses which values to drop
    /// and recompute. By default [`crate::graph::settings::memory_budget`].
    pub memory_budget: Option<usize>,
    /// A hook that is called before each function.
    pub pre_hook: Option<FunctionHook<'a>>,
    /// A hook that is called after each function.
    pub post_hook: Option<FunctionHook<'a>>,
    /// Wraps a run with much work, to release a lock of the caller such as Python's.
    pub detach: Option<Detach<'a>>,
}

/// Functions that have run and need not run again, shared between related calls.
#[derive(Default)]
pub struct Closed(HashSet<(Ix, u32)>);

impl ForwardPlan {
    /// Frees what earlier runs left and this run or the following backward run overwrites.
    fn start_fresh(&self) -> Result<()> {
        let storages = self.fresh.iter().map(|place| &place.storage);
        let mut left = storages.filter(|s| s.holds_memory() && !s.is_narrowed());
        left.try_for_each(|storage| storage.clear(true))
    }

    /// Runs the plan, fused if the context allows it.
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
                    timings::end(began, &self.order[passes[at as usize].steps.clone()], false);
                    pace.step()?;
                }
                Instruction::Chain { at, next: after } => {
                    let chain = &self.chains[at as usize];
                    let f = self.order[chain.steps.start];
                    if chain.run(&mut self.steps).map_err(|e| explain(e, f, "forward"))? {
                        next = after as usize;
                        timings::end(began, &self.order[chain.steps.clone()], false);
                        pace.step()?;
                    }
                }
                Instruction::Run { step: n } => {
                    let f = self.order[n as usize];
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
                // Releases belong to a step, and the others to backward runs.
                _ => {}
            }
        }
        Ok(())
    }
}

impl Variable {
    /// Computes this variable. Each function above it runs once.
    ///
    /// # Errors
    /// [`Error::Graph`] if it has no parent or the graph is already running. Errors of operations, hooks and user
    /// functions. The graph stays usable.
    pub fn forward(&self, options: &ForwardOptions<'_>) -> Result<()> {
        if arena::with(|a| a.parent(self.ix()) == NONE) {
            return Err(Error::Graph(format!(
                "forward: expected a variable that a function computes, got {}, which has no parent",
                self.describe()
            )));
        }
        run(&[self.ix()], options, None)
    }

    /// Computes this variable. Skips the functions in `closed`, and adds the functions that ran to it.
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

/// Computes several variables. Each function above them runs once. None of them is cleared.
///
/// # Errors
/// As [`Variable::forward`], but skips variables without parent.
pub fn forward_all(variables: &[&Variable], options: &ForwardOptions<'_>) -> Result<()> {
    let roots: Vec<Ix> =
        arena::with(|a| variables.iter().map(|v| v.ix()).filter(|v| a.parent(*v) != NONE).collect());
    if roots.is_empty() {
        return Ok(());
    }
    let _persistent = Persistent::new(variables);
    run(&roots, options, None)
}

/// Derives the shapes of several variables again, where shapes above them changed. Runs no function.
///
/// Returns the number of changes of shapes so far. A later call with this number as `since` skips what was derived in
/// the meantime, with everything above it.
///
/// ```
/// use kinnor::graph::{Variable, apply, set_up_all};
///
/// let x = Variable::new([2])?;
/// let y = apply("exp", &[&x], &[])?.remove(0);
/// let z = apply("sin", &[&y], &[])?.remove(0);
/// x.reset_shape([3], true)?;
/// let since = set_up_all(&[&x], None)?;
/// set_up_all(&[&y], Some(since))?;
/// set_up_all(&[&z], Some(since))?;
/// assert_eq!([&*y.shape(), &*z.shape()], [&[3][..], &[3][..]]);
/// # Ok::<(), kinnor::Error>(())
/// ```
///
/// # Errors
/// [`Error::Shape`] and other errors of operations that do not accept the new shapes.
pub fn set_up_all(variables: &[&Variable], since: Option<u64>) -> Result<u64> {
    let roots: Vec<Ix> = variables.iter().map(|v| v.ix()).collect();
    let enter = |a: &Arena, f: Ix| since.is_none_or(|since| !a.is_set_up_since(f, since));
    loop {
        match arena::with(|a| setup::forward(a, &roots, enter).map(|_| a.reshapes())) {
            Ok(reshapes) => return Ok(reshapes),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::SetUp(f)) => set_up_outside(f)?,
        }
    }
}

/// Makes variables persistent until it is dropped. Excludes variables that already were.
struct Persistent<'a>(Vec<&'a Variable>);

impl<'a> Persistent<'a> {
    /// Makes variables persistent until this is dropped. Skips variables that are persistent already.
    fn new(variables: &[&'a Variable]) -> Self {
        let own = Self(variables.iter().copied().filter(|v| !v.persistent()).collect());
        own.set(true);
        own
    }

    /// Sets the flag directly: `set_persistent` would outdate the plan, and this holds for one call only.
    fn set(&self, on: bool) {
        arena::with(|a| {
            for v in &self.0 {
                a.set_flags(v.ix(), flag::PERSISTENT, on);
            }
        });
    }
}

impl Drop for Persistent<'_> {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Runs forward by a cached or new plan, within a budget if there is one.
fn run(roots: &[Ix], options: &ForwardOptions<'_>, mut closed: Option<&mut Closed>) -> Result<()> {
    headroom::check()?;
    let policy = Policy {
        clear_buffer: options.clear_buffer,
        clear_no_need_grad: options.clear_no_need_grad,
        recomputation: false,
    };
    let budget = options.memory_budget.or_else(modes::memory_budget);
    let key = ForwardKey::forward(roots, policy, budget);
    let cacheable = closed.is_none();
    let enter = |a: &Arena, f: Ix| {
        closed.as_ref().is_none_or(|closed| !closed.0.contains(&(f, a.function_generation(f))))
    };
    let guard = budget.is_none().then(RunGuard::new);
    let mut optimise = false;
    let mut held: HeldPlan<ForwardPlan> = HeldPlan::NONE;
    let (validity, reshapes) = loop {
        let made = arena::with(|a| -> Result<(Option<Validity>, u64), Stop> {
            roots::introduce(a, roots, policy, budget);
            let kept = if cacheable { CachedPlan::take_forward(a, roots[0], &key) } else { None };
            // A run that clears its buffers serves its results only, often once for each new shape.
            optimise = (kept.is_some() || options.clear_buffer) && budget.is_none();
            let (plan, validity) = if let Some((plan, validity)) = kept {
                (plan, Some(validity))
            } else {
                cache::count_made();
                let plan = match budget {
                    Some(bytes) => search::plan(a, roots, policy, bytes, enter)?,
                    None => ForwardPlan::make(a, roots, policy, enter)?,
                };
                let plan = Box::new(plan);
                let validity = cacheable.then(|| a.plan_made_from(&plan.order));
                (plan, validity)
            };
            held.lock(a, plan)?;
            Ok((validity, a.reshapes()))
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
        let functions = &held.plan().order;
        let kept_shapes = || functions.iter().try_for_each(|f| order::check_outputs(a, *f));
        let done = done.and_then(|()| if a.reshapes() == reshapes { Ok(()) } else { kept_shapes() });
        let budgeted = budget.is_some();
        let outcome = match done {
            Ok(()) => RunOutcome::Forward { budgeted },
            Err(_) => RunOutcome::ForwardFailed { budgeted },
        };
        let plan = held.unlock(a, outcome);
        if budget.is_some() {
            a.raise_lock_epoch();
        }
        if let Some(closed) = &mut closed {
            closed.0.extend(plan.order.iter().map(|f| (*f, a.function_generation(*f))));
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

/// Prepares a function just before it runs, since the shapes above it are known only then.
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
