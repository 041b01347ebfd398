//! The backward run: visits functions by descending rank with the gradients of their outputs. Gradients of leaves
//! accumulate over runs. Gradients of intermediate variables are overwritten by their first contribution and kept.

use crate::array::{RunGuard, headroom};
use crate::error::caught;
use crate::graph::arena::describe::{self, explain};
use crate::graph::arena::run_lock::{HeldPlan, RunOutcome};
use crate::graph::arena::validity::Validity;
use crate::graph::arena::{self, Arena, Ix, NONE, Partners, order};
use crate::graph::budget::eager::evictor::{self, StepGuard};
use crate::graph::handles::callbacks::{Detach, FunctionHook, detached};
use crate::graph::handles::function::Function;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::lifetime::backward::BackwardKey;
use crate::graph::lifetime::forward::Clearing;
use crate::graph::lifetime::restore;
use crate::graph::lifetime::rules::Policy;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::cache::{self, CachedPlan};
use crate::graph::plan::instructions::Instruction;
use crate::graph::run::context::RunContext;
use crate::graph::run::lent_gradients::LentGradients;
use crate::graph::run::timings;
use crate::graph::settings;
use crate::graph::step::anomaly;
use crate::graph::step::backward::BackwardStep;
use crate::{Error, Result};

/// The gradient that a backward run starts from.
#[derive(Clone)]
pub enum Seed {
    /// The same number for all elements.
    Fill(f64),
    /// These elements. The run may clear them.
    Temporary(NdArray),
    /// These elements, by reference. The run does not change them.
    Shared(NdArray),
    /// The current gradient of the variable.
    Own,
}

/// Callbacks of a backward run for distributed training.
pub trait CommunicatorCallback {
    /// Called after each function.
    ///
    /// # Errors
    /// Ends the run with that error.
    fn on_finish_function_backward(&self, f: &Function) -> Result<()>;
    /// Called once at the end.
    ///
    /// # Errors
    /// Becomes the error of the run.
    fn on_finish_backward(&self) -> Result<()>;
}

/// Options of a backward run.
#[derive(Clone, Default)]
pub struct BackwardOptions<'a> {
    /// The gradient to start from, all ones by default.
    pub seed: Seed,
    /// Free the memory of intermediate variables as soon as it is no longer needed.
    pub clear_buffer: bool,
    /// Callbacks during the run.
    pub callbacks: Vec<&'a dyn CommunicatorCallback>,
    /// A hook that is called before each function.
    pub pre_hook: Option<FunctionHook<'a>>,
    /// A hook that is called after each function.
    pub post_hook: Option<FunctionHook<'a>>,
    /// Called at most once per run, for a value that a gradient reads and that changed since the forward run. An
    /// error ends the run, otherwise the run uses the new value. Without it, values are not checked.
    pub modified: Option<&'a (dyn Fn(String) -> Result<()> + Sync)>,
    /// Wraps a run with much work, to release a lock of the caller such as Python's.
    pub detach: Option<Detach<'a>>,
}

impl Default for Seed {
    fn default() -> Self {
        Self::Fill(1.0)
    }
}

/// The context of a backward run, in addition to [`RunContext`].
pub(crate) struct BackwardContext<'a> {
    /// The context of any run.
    pub(crate) run: RunContext<'a>,
    /// Called for a value that a gradient reads and that changed since the forward run. Only the first time if it
    /// returns no error.
    pub(crate) modified: Option<&'a (dyn Fn(String) -> Result<()> + Sync)>,
    /// The policy for clearing restored values again.
    pub(crate) clearing: &'a Clearing,
    /// Keeps the run within a budget, if its functions ran eagerly under one.
    pub(crate) budget: Option<Box<dyn StepGuard>>,
    /// An observer with gradients of its own, or one that releases functions after they have run.
    pub(crate) observer: Option<&'a mut dyn StepObserver>,
}

/// Callbacks before and after each step of a backward run.
pub(crate) trait StepObserver {
    /// Called before step `n`, once the gradients it reads are complete.
    ///
    /// # Errors
    /// Ends the run with that error.
    fn before(&mut self, n: usize, step: &mut BackwardStep) -> Result<()>;

    /// Called after step `n`, when nothing needs it any more.
    ///
    /// # Errors
    /// Ends the run with that error.
    fn after(&mut self, n: usize, step: &mut BackwardStep) -> Result<()>;
}

impl BackwardPlan {
    /// Zeroes the gradients of leaves that were cleared. A run may clear the gradient of an unlinked variable through
    /// the variable that shares it.
    fn zero_cleared(&self) -> Result<()> {
        let sinks = self.steps.iter().flat_map(|step| step.gx.iter().flatten());
        let mut cleared = sinks.filter(|sink| !sink.first && sink.slot.storage.is_cleared());
        cleared.try_for_each(|sink| sink.slot.storage.zero())
    }

    /// Runs every function backward.
    ///
    /// # Errors
    /// Errors of operations, hooks and user functions. Functions before the error have run.
    pub(crate) fn run(&mut self, context: &mut BackwardContext<'_>) -> Result<()> {
        let BackwardContext { run, modified, clearing, budget, observer } = context;
        if self.counted != run.guard.is_none() {
            self.counted = run.guard.is_none();
            self.steps.iter_mut().for_each(|step| step.count(run.guard.is_none()));
        }
        if run.may_fuse() && observer.is_none() && self.hooked.is_empty() {
            self.fuse();
        } else {
            self.unfuse();
        }
        self.list();
        if settings::is_nnabla() {
            self.zero_cleared()?;
        }
        let passes = self.passes.as_deref_mut().unwrap_or_default();
        let mut pace = run.pace();
        let (mut next, mut begun) = (0, 0);
        self.done = 0;
        while let Some(instruction) = self.instructions.get(next) {
            next += 1;
            let began = run.timer.begin();
            if let Instruction::Restore { step: n, .. } | Instruction::Run { step: n } = *instruction
                && begun <= n
            {
                begun = n + 1;
                let step = &mut self.steps[n as usize];
                if let Some(observer) = observer {
                    observer.before(n as usize, step)?;
                }
                if let Some(budget) = budget {
                    budget.before(self.order[n as usize], step)?;
                }
            }
            match *instruction {
                Instruction::Zero { step, output } => {
                    self.steps[step as usize].gy[output as usize].storage.zero()?;
                }
                Instruction::Hooks { step, at } => {
                    self.hooked.outputs[at as usize].tell(&mut self.steps[step as usize])?;
                }
                Instruction::Restore { at, .. } => {
                    let (_, v, storage) = &self.restored[at as usize];
                    if storage.is_cleared() {
                        restore::restore(*v, clearing)?;
                    }
                }
                Instruction::Pass { at, next: after } => {
                    let pass = &mut passes[at as usize];
                    let changed = |n: &usize| self.steps[*n].modified().is_some();
                    if !(modified.is_some() && pass.readers.iter().any(changed)) && pass.run()? {
                        (next, self.done) = (after as usize, pass.steps.end);
                        pass.clear(&self.clears)?;
                        timings::end(began, &self.order[pass.steps.clone()], true);
                        run.finished_together(&self.order[pass.steps.clone()])?;
                        pace.step()?;
                    }
                }
                Instruction::Run { step: n } => {
                    let (n, f) = (n as usize, self.order[n as usize]);
                    let step = &mut self.steps[n];
                    let handle = run.handle(f);
                    run.before(handle.as_ref())?;
                    let began = run.timer.begin();
                    if let (Some(tell), Some(which)) = (*modified, modified.and_then(|_| step.modified())) {
                        tell(which.describe(f))?;
                        *modified = None;
                    }
                    step.backward().map_err(|e| explain(e, f, "backward"))?;
                    if run.anomaly {
                        anomaly::after_backward(f, step)?;
                    }
                    timings::end(began, &[f], true);
                    if observer.is_none()
                        && let Some(budget) = budget
                    {
                        budget.after(f);
                    }
                    run.after(handle.as_ref())?;
                    self.done = n + 1;
                    if let Some(observer) = observer {
                        observer.after(n, step)?;
                        if let Some(budget) = budget {
                            budget.after(f);
                        }
                    }
                    while let Some(Instruction::Release { at }) = self.instructions.get(next) {
                        next += 1;
                        self.clears[*at as usize].now()?;
                    }
                    run.finished(f, handle.as_ref())?;
                    pace.step()?;
                }
                // Releases belong to a step, and chains to forward runs.
                Instruction::Release { .. } | Instruction::Chain { .. } => {}
            }
        }
        Ok(())
    }
}

impl Variable {
    /// Propagates gradients from this variable to all that it was computed from. The graph must have run forward.
    ///
    /// Its own gradient is restored afterwards.
    ///
    /// ```
    /// use kinnor::graph::{BackwardOptions, ForwardOptions, NdArray, Seed, Variable, apply};
    ///
    /// let x = Variable::from_values([2], &[3.0, 4.0])?.with_need_grad(true);
    /// let y = apply("mul2", &[&x, &x], &[])?.remove(0);
    /// y.forward(&ForwardOptions::default())?;
    /// let start = Variable::from_values([2], &[1.0, 10.0])?.data();
    /// // These elements stay as they are; those of a `Seed::Temporary` may be cleared.
    /// let options = BackwardOptions { seed: Seed::Shared(start.clone()), clear_buffer: true, ..Default::default() };
    /// y.backward(&options)?;
    /// assert_eq!(x.grad().to_vec()?, [6.0, 80.0]);
    /// assert_eq!(start.to_vec()?, [1.0, 10.0]);
    /// # Ok::<(), kinnor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Graph`] if it has no parent, was never computed, or the graph is already running. [`Error::Cleared`]
    /// if a required value was cleared. [`Error::Shape`] if the seed has another shape. Errors of operations, hooks
    /// and user functions. Gradients written before the error stay written.
    pub fn backward(&self, options: &BackwardOptions<'_>) -> Result<()> {
        headroom::check()?;
        let root = self.ix();
        if arena::with(|a| a.parent(root) == NONE) {
            return Err(Error::Graph(format!(
                "backward: expected a variable that a function computes, got {}, which has no parent",
                self.describe()
            )));
        }
        if let Seed::Shared(seed) | Seed::Temporary(seed) = &options.seed {
            let own = self.shape();
            if seed.shape != own {
                return Err(Error::shape("backward", format!("grad of shape {own}"), [&seed.shape]));
            }
        }
        let clear_seed = matches!(options.seed, Seed::Fill(_) | Seed::Temporary(_));
        // Dropping these undoes the marks of the run, on any exit.
        let mut held: HeldPlan<BackwardPlan> = HeldPlan::NONE;
        let mut lent = LentGradients::default();
        let (key, validity, reshapes, clearing, step_guard, optimise, budgeted) =
            arena::with(|a| -> Result<_> {
                let budgeted = a.ran_under_budget(a.parent(root));
                let clear_data = options.clear_buffer || budgeted;
                let above = if evictor::in_use() { order::backward_order(a, root) } else { Vec::new() };
                let step_guard = evictor::guard(a, &above);
                let key =
                    BackwardKey { clear_data, clear_grad: clear_data || step_guard.is_some(), clear_seed };
                let kept = CachedPlan::take_backward(a, root, key);
                let optimise = kept.is_some() && !budgeted && step_guard.is_none();
                let (plan, validity) = match kept {
                    Some((plan, validity)) => (plan, Some(validity)),
                    None => new_plan(a, root, key)?,
                };
                let plan = held.lock(a, plan)?;
                if let Some(f) = a.first_freed(&mut plan.order) {
                    return Err(describe::freed_graph(a.op(f).name()));
                }
                plan.hooked.set_apart(a, &mut lent.leaves);
                if !lent.leaves.is_empty() {
                    plan.relocate(a);
                }
                lent.swap_in(a, root, plan, &options.seed);
                let clearing = Clearing::new(a, Policy::RESTORING);
                Ok((key, validity, a.reshapes(), clearing, step_guard, optimise, budgeted))
            })?;
        let at_once = step_guard.is_some();
        // Under a budget no thread may wait for this run or for its graph traversal.
        let guard = (!at_once && !budgeted).then(RunGuard::new);
        let hooks = [options.pre_hook, options.post_hook];
        let mut context = BackwardContext {
            run: RunContext::new(hooks, &options.callbacks, guard.as_ref(), optimise),
            modified: options.modified,
            clearing: &clearing,
            budget: step_guard,
            observer: None,
        };
        let plan = held.plan();
        let hooked = context.run.is_hooked() || !plan.hooked.is_empty();
        let done = detached(options.detach, plan.work, hooked, || caught(|| plan.run(&mut context)));
        drop(context);
        let whole = !done.as_ref().is_err_and(Error::is_panic);
        let (apart, plan, done) = arena::with(|a| {
            let functions = &held.plan().order;
            let kept_shapes = || functions.iter().try_for_each(|f| order::check_shapes(a, *f, "backward"));
            let done = done.and_then(|()| if a.reshapes() == reshapes { Ok(()) } else { kept_shapes() });
            let apart = lent.give_back(a);
            let finished = done.is_ok();
            let plan = held.unlock(a, if finished { RunOutcome::Backward } else { RunOutcome::Failed });
            // Under a budget, a cached plan would hold values and prevent their eviction.
            match validity.filter(|_| whole && !at_once) {
                Some(validity) => {
                    CachedPlan::put_backward(a, root, key, validity, plan);
                    (apart, None, done)
                }
                None => (apart, Some(plan), done),
            }
        });
        drop(plan);
        drop(guard);
        done?;
        apart.finish()?;
        options.callbacks.iter().try_for_each(|callback| callback.on_finish_backward())
    }
}

/// A plan for a graph that has run, and its validity if it is worth caching.
fn new_plan(a: &mut Arena, root: Ix, key: BackwardKey) -> Result<(Box<BackwardPlan>, Option<Validity>)> {
    let parent = a.parent(root);
    if !settings::is_nnabla() && !a.is_computed(root) {
        return Err(Error::Graph(format!(
            "backward: expected a graph that has run, but {} has not; call forward() first, or build it \
             under nn.auto_forward()",
            a.op(parent).name()
        )));
    }
    cache::count_made();
    let partners = Partners::from(a.partners(root));
    let plan = Box::new(BackwardPlan::make(a, root, key, &partners)?);
    // Usually the first backward run of an eager graph is its only one.
    let is_kept = a.note_backward_plan(parent);
    Ok((plan, is_kept.then(|| BackwardPlan::validity(a, root, &partners))))
}
