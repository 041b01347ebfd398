//! The forward run: an order is made once, kept as a plan with its destination, and used until something it depends on
//! changes.

use crate::Error;
use crate::Result;
use crate::array::RunGuard;
use crate::array::Storage;
use crate::error::caught;
use crate::graph::arena;
use crate::graph::arena::Arena;
use crate::graph::arena::Ix;
use crate::graph::arena::NONE;
use crate::graph::arena::Saved;
use crate::graph::arena::aliasing;
use crate::graph::arena::describe::explain;
use crate::graph::arena::flag;
use crate::graph::arena::order;
use crate::graph::arena::run_lock::PlanLock;
use crate::graph::back_plan::ReleasedStorage;
use crate::graph::budget;
use crate::graph::ends;
use crate::graph::fusion;
use crate::graph::fusion::along::EpilogueChain;
use crate::graph::fusion::forward::FusedForward;
use crate::graph::handles::callbacks;
use crate::graph::handles::callbacks::Detach;
use crate::graph::handles::callbacks::FunctionHook;
use crate::graph::handles::callbacks::Pace;
use crate::graph::handles::function::Function;
use crate::graph::handles::variable::Variable;
use crate::graph::memory::clear_record;
use crate::graph::memory::release::Clearing;
use crate::graph::memory::release::Policy;
use crate::graph::plan::CachedPlan;
use crate::graph::plan::EpochStamp;
use crate::graph::plan::ForwardKey;
use crate::graph::settings::modes;
use crate::graph::step::anomaly;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::prepare;
use crate::graph::step::setup;
use crate::graph::step::setup::Stop;
use crate::graph::step::setup::set_up_outside;
use std::collections::HashSet;

/// How to run forward.
#[derive(Clone, Copy, Default)]
pub struct ForwardOptions<'a> {
    /// Give memory back after its last use in this run; a backward run is not possible then.
    pub clear_buffer: bool,
    /// Give memory back after its last use unless a gradient will read it.
    pub clear_no_need_grad: bool,
    /// Bytes that the arrays of the graph may take at most in this run and the backward run after it, which gives
    /// memory back as [`super::BackwardOptions::clear_buffer`] says. What must be dropped for that, and computed again,
    /// is chosen here. By default [`super::mode::memory_budget`].
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

/// A forward run made ready.
pub(crate) struct ForwardPlan {
    pub(crate) functions: PlanLock,
    pub(crate) steps: Vec<ForwardStep>,
    /// Which input of which step is cleared after which step, in order.
    pub(crate) clears: Vec<(u32, u32)>,
    /// Under a memory budget: what is given back before the first step, if it is there.
    pub(crate) fresh: Vec<ReleasedStorage>,
    /// Which steps run as one pass: found when the plan is used again.
    pub(crate) passes: Option<Vec<FusedForward>>,
    /// Which steps are done along with the one before them.
    pub(crate) chains: Vec<EpilogueChain>,
    /// Functions whose outputs are the memory of their inputs.
    in_place: Vec<Ix>,
    work: usize,
    /// Values decide shapes on the way: each step is made when its turn comes.
    late: bool,
    /// Steps count what they use and let nobody wait: there is a budget.
    counted: bool,
}

impl ForwardPlan {
    pub(crate) fn make(
        a: &mut Arena,
        roots: &[Ix],
        policy: Policy,
        enter: impl Fn(&Arena, Ix) -> bool,
    ) -> Result<Self, Stop> {
        let functions = setup::forward(a, roots, enter)?;
        let clearing = Clearing::new(a, policy);
        let late = functions.iter().any(|f| a.op(*f).shaped_by().is_some());
        let mut plan = Self {
            functions: functions.into(),
            steps: Vec::new(),
            clears: Vec::new(),
            fresh: Vec::new(),
            passes: None,
            chains: Vec::new(),
            in_place: Vec::new(),
            work: 0,
            late,
            counted: false,
        };
        plan.steps.reserve_exact(plan.functions.len());
        for (n, f) in plan.functions.iter().enumerate() {
            order::check_shapes(a, *f, "forward")?;
            let step = prepare::step(a, *f);
            plan.work += step.work();
            if (0..step.x.len()).any(|i| a.op(*f).alias(i).is_some()) {
                plan.in_place.push(*f);
            }
            plan.steps.push(step);
            plan.clears.extend(clearing.after(a, *f).into_iter().map(|i| (n as u32, i as u32)));
        }
        Ok(plan)
    }

    /// Looks at the storages that the pairs have now, and has outputs in place share those of their inputs.
    pub(crate) fn relocate(&mut self, a: &mut Arena) {
        self.in_place.iter().for_each(|f| aliasing::share_memory(a, *f));
        let mut any = false;
        for step in &mut self.steps {
            let mut moved = false;
            for slot in step.x.iter_mut().chain(&mut step.y) {
                moved |= slot.move_to(a.data(slot.core));
            }
            if moved {
                step.look();
            }
            any |= moved;
        }
        if any {
            self.unfuse();
        }
        self.fresh.iter_mut().for_each(|place| place.move_to_current(a));
    }

    /// Finds the steps that may run as one pass, and those that may write where they read.
    pub(crate) fn fuse(&mut self) {
        if self.passes.is_none() && !self.late && !modes::plan_is_plain() {
            self.chains = EpilogueChain::all(&self.steps, &self.clears);
            self.passes = Some(FusedForward::all(&self.steps, &self.clears, &self.chains));
            for (n, i) in &self.clears {
                let (step, i) = (&mut self.steps[*n as usize], *i as usize);
                let as_large = |len: usize| step.x.iter().all(|x| x.shape.size() == len);
                if fusion::forward::forward_len(step).is_some_and(|len| len > Storage::SMALL && as_large(len))
                {
                    step.over = Some(i);
                }
            }
        }
    }

    /// Has every step run alone and leave what it reads to whoever looks at it after the step.
    fn unfuse(&mut self) {
        if self.passes.take().is_some() {
            self.chains.clear();
            self.steps.iter_mut().for_each(|step| step.over = None);
        }
    }

    /// Gives back what earlier runs left and this run or the backward run after it writes again.
    fn start_fresh(&self) -> Result<()> {
        let storages = self.fresh.iter().map(|place| &place.storage);
        let mut left = storages.filter(|s| s.holds_memory() && !s.is_narrowed());
        left.try_for_each(|storage| storage.clear(true))
    }

    /// `optimise` says that the plan has run before, and that it has memory to hold more at once than single steps do.
    fn run(&mut self, options: &ForwardOptions<'_>, optimise: bool, guard: Option<&RunGuard>) -> Result<()> {
        if self.counted != guard.is_none() {
            self.counted = guard.is_none();
            self.steps.iter_mut().for_each(|step| step.count(guard.is_none()));
        }
        let recording = clear_record::is_recording();
        let anomaly = modes::detect_anomaly();
        let hooked = options.pre_hook.is_some() || options.post_hook.is_some();
        if optimise && !(hooked || recording || anomaly) {
            self.fuse();
        } else {
            self.unfuse();
        }
        self.start_fresh()?;
        let mut clears = self.clears.iter().peekable();
        let mut pace = Pace::new(guard);
        let mut passes = self.passes.iter_mut().flatten().peekable();
        let mut chains = self.chains.iter().peekable();
        let mut next = 0;
        while let Some(f) = self.functions.get(next) {
            let n = next;
            if let Some(pass) = passes.next_if(|pass| pass.steps.start == n)
                && pass.run()?
            {
                next = pass.steps.end;
                clears = self.clears[pass.clears.end..].iter().peekable();
                pace.step()?;
                continue;
            }
            if let Some(chain) = chains.next_if(|chain| chain.steps.start == n)
                && chain.run(&mut self.steps).map_err(|e| explain(e, *f, "forward"))?
            {
                next = chain.steps.end;
                clears = self.clears[chain.clears.end..].iter().peekable();
                pace.step()?;
                continue;
            }
            next += 1;
            let handle = hooked.then(|| arena::with(|a| Function::counted(a, *f)));
            if let (Some(hook), Some(f)) = (options.pre_hook, &handle) {
                hook(f)?;
            }
            if self.late {
                self.steps[n] = late_step(*f)?;
                self.steps[n].count(self.counted);
            }
            let step = &mut self.steps[n];
            step.forward(false).map_err(|e| explain(e, *f, "forward"))?;
            if anomaly {
                anomaly::after_forward(*f, step)?;
            }
            if let (Some(hook), Some(f)) = (options.post_hook, &handle) {
                hook(f)?;
            }
            while let Some((_, i)) = clears.next_if(|(at, _)| *at == n as u32) {
                self.steps[n].x[*i as usize].storage.clear(true)?;
            }
            if recording {
                arena::with(|a| clear_record::record(a, *f));
            }
            pace.step()?;
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
    let (mut plan, seen) = loop {
        let made = arena::with(|a| -> Result<(ForwardPlan, EpochStamp), Stop> {
            ends::introduce(a, roots, policy, budget);
            let kept = if cacheable { CachedPlan::take_forward(a, roots[0], &key) } else { None };
            optimise = kept.is_some() && budget.is_none();
            let mut plan = match kept {
                Some(plan) => plan,
                None => match budget {
                    Some(bytes) => budget::plan(a, roots, policy, bytes, enter)?,
                    None => ForwardPlan::make(a, roots, policy, enter)?,
                },
            };
            a.hold(&mut plan.functions)?;
            Ok((plan, EpochStamp::now(a)))
        });
        match made {
            Ok(ready) => break ready,
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::SetUp(f)) => set_up_outside(f)?,
        }
    };
    let done = callbacks::detached(
        options.detach,
        plan.work,
        options.pre_hook.or(options.post_hook).is_some(),
        || caught(|| plan.run(options, optimise, guard.as_ref())),
    );
    let whole = !done.as_ref().is_err_and(Error::is_panic);
    let (rest, done) = arena::with(|a| {
        let kept_shapes = || plan.functions.iter().try_for_each(|f| order::check_outputs(a, *f));
        let done = done.and_then(|()| if a.structure == seen.structure { Ok(()) } else { kept_shapes() });
        let life = done.is_ok().then_some(Saved::Ready);
        let is_usual = done.is_ok() && budget.is_none();
        a.let_go(&mut plan.functions, is_usual.then_some(true), |f| {
            (f.pending, f.life, f.budgeted) = (true, life.unwrap_or(f.life), budget.is_some());
        });
        if budget.is_some() {
            a.lives_change();
        }
        if let Some(closed) = &mut closed {
            closed.0.extend(plan.functions.iter().map(|f| (*f, a.functions[*f].generation)));
        } else if whole {
            CachedPlan::put_forward(a, roots[0], key, seen, plan);
            return (None, done);
        }
        (Some(plan), done)
    });
    drop(rest);
    drop(guard);
    done
}

/// Makes a function ready when its turn comes: shapes above it are known only now.
fn late_step(f: Ix) -> Result<ForwardStep> {
    if arena::with(|a| a.op(f).shaped_by().is_some()) {
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
