//! Differentiation with PyTorch's semantics: from any number of variables, to every leaf or to given targets, all or
//! nothing. See `run::backward` for NNabla's semantics.
//!
//! There are two ways to differentiate: by the plan of a backward run, and by rules that build a graph. Both follow
//! the same `GradientRoute` and end in the same two sinks: [`backward()`] adds to the gradients of leaves, [`grad`]
//! returns them.

pub(crate) mod cache;
pub(crate) mod gradients;
pub(crate) mod hooks;
pub(crate) mod options;
pub(crate) mod route;
pub(crate) mod sinks;
pub(crate) mod symbolic;

pub use self::options::DifferentiateOptions;
pub use self::options::Root;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{RunGuard, Storage, headroom};
use crate::error::caught;
use crate::graph::arena::{self, Ix};
use crate::graph::autodiff::cache::PreparedBackward;
use crate::graph::autodiff::hooks::{RunHooks, Suspended};
use crate::graph::autodiff::route::{Edge, GradientRoute, GradientSlotIx};
use crate::graph::construct::connect;
use crate::graph::handles::ndarray::{NdArray, copied};
use crate::graph::handles::variable::Variable;
use crate::graph::handles::{callbacks, gradient_hooks};
use crate::graph::lifetime::backward;
use crate::graph::lifetime::forward::Clearing;
use crate::graph::lifetime::rules::Policy;
use crate::graph::run::backward::{BackwardContext, StepObserver};
use crate::graph::run::context::RunContext;
use crate::graph::settings::modes::Scope;
use crate::graph::step::accumulate::add_into;
use crate::graph::step::backward::BackwardStep;
use crate::{Error, Result};

/// Adds the gradients of `roots` to the gradients of the leaves above them, or only of `inputs` if given.
///
/// # Errors
/// [`Error::Graph`] if nothing has run or the graph is running. [`Error::Freed`] if it was differentiated before
/// without being retained. [`Error::Shape`] if a seed has another shape. Errors of operations, hooks and user
/// functions. Then no gradient has changed.
pub fn backward(roots: &[Root], inputs: Option<&[Edge]>, options: &DifferentiateOptions<'_>) -> Result<()> {
    let found = differentiate(roots, inputs, options, true)?;
    let route = found.route();
    let sinks = match &found {
        Found::Arrays(ready) => ready.sinks(),
        Found::Variables(route, _) => Cow::Owned(arena::with(|a| route.sinks(a, inputs.is_none()))),
    };
    match &found {
        Found::Arrays(ready) => {
            sinks::arrays(ready, &sinks).inspect_err(|_| ready.gradients.undo())?;
        }
        Found::Variables(route, variables) => sinks::variables(route, &sinks, variables)?,
    }
    let leaves = sinks.iter().map(|p| route.slots[*p as usize]).filter(|slot| slot.leaf);
    let leaves: SmallVec<[Ix; 32]> = leaves.map(|leaf| leaf.tensor).collect();
    drop(sinks);
    found.keep()?;
    gradient_hooks::tell_all_accumulated(&leaves)
}

/// The gradients of `roots` by `inputs`. `None` for an input that no root depends on.
///
/// # Errors
/// As [`backward()`].
pub fn grad(
    roots: &[Root],
    inputs: &[Edge],
    options: &DifferentiateOptions<'_>,
) -> Result<Vec<Option<Variable>>> {
    let found = differentiate(roots, Some(inputs), options, false)?;
    let mut made: HashMap<GradientSlotIx, Variable> = HashMap::new();
    let mut results = Vec::with_capacity(inputs.len());
    for (slot, input) in found.route().targets.iter().zip(inputs) {
        if let Some(v) = made.get(slot) {
            results.push(Some(v.clone()));
            continue;
        }
        let g = match &found {
            Found::Arrays(ready) => {
                let array = |storage| Variable::over(&NdArray { shape: input.shape(), storage });
                ready.take_out(*slot)?.map(array).transpose()?
            }
            Found::Variables(_, variables) => variables[*slot as usize].clone(),
        };
        if let Some(g) = &g {
            made.insert(*slot, g.clone());
        }
        results.push(g);
    }
    found.keep()?;
    Ok(results)
}

/// The results of a differentiation, by slot.
enum Found {
    /// Gradients without a graph of their own.
    Arrays(Box<PreparedBackward>),
    /// Gradients that can be differentiated again: the route, and a gradient for each slot.
    Variables(GradientRoute, Vec<Option<Variable>>),
}

impl Found {
    /// The functions that the differentiation ran through.
    fn route(&self) -> &GradientRoute {
        match self {
            Self::Arrays(ready) => &ready.route,
            Self::Variables(route, _) => route,
        }
    }

    /// Caches the prepared differentiation.
    fn keep(self) -> Result<()> {
        match self {
            Self::Arrays(ready) => ready.keep(),
            Self::Variables(..) => Ok(()),
        }
    }
}

/// Differentiates the roots that require gradients, on arrays or as a graph. `adds` says whether leaves get the sums.
fn differentiate(
    roots: &[Root],
    inputs: Option<&[Edge]>,
    options: &DifferentiateOptions<'_>,
    adds: bool,
) -> Result<Found> {
    let mut roots = Cow::Borrowed(roots);
    if !roots.iter().all(|root| root.edge.need_grad()) {
        roots.to_mut().retain(|root| root.edge.need_grad());
    }
    if roots.is_empty() {
        return Err(Error::Graph(
            "autodiff: expected a variable that requires grad, got none that does".into(),
        ));
    }
    for (edge, seed) in roots.iter().filter_map(|root| Some((&root.edge, root.seed.as_ref()?))) {
        let shape = edge.shape();
        if seed.shape() != shape {
            return Err(Error::shape("autodiff", format!("a gradient of shape {shape}"), [&seed.shape()]));
        }
    }
    match options.create_graph {
        true => on_graph(&roots, inputs, options),
        false => on_arrays(&roots, inputs, options, adds),
    }
}

/// Differentiates by running kernels: the gradients are arrays.
fn on_arrays(
    roots: &[Root],
    inputs: Option<&[Edge]>,
    options: &DifferentiateOptions<'_>,
    adds: bool,
) -> Result<Found> {
    headroom::check()?;
    let seeds = seeds(roots, inputs.is_some())?;
    let (mut ready, held, clearing, budget, budgeted) = arena::with(|a| -> Result<_> {
        let (mut ready, budget) = PreparedBackward::get(a, roots, inputs, &seeds, options, adds)?;
        let functions = &ready.plan.order;
        let budgeted = budget.is_some() || functions.iter().any(|f| a.ran_under_budget(*f));
        let clearing = Clearing::new(a, Policy::RESTORING);
        // Must be last, since the destructor that undoes it locks the arena.
        let held = if ready.is_kept() {
            ready.begin(a)?;
            None
        } else {
            a.begin_run(functions)?;
            Some(Suspended { functions: functions.to_vec(), busy: Cell::new(true) })
        };
        Ok((ready, held, clearing, budget, budgeted))
    })?;
    let guard = (!budgeted).then(RunGuard::new);
    let (is_kept, optimise) = (ready.is_kept(), ready.again && !budgeted);
    let PreparedBackward { route, plan, gradients, .. } = &mut *ready;
    let run = || {
        gradients::check(plan)?;
        for (n, slot) in route.roots.iter().enumerate() {
            if let (Some(seed), Some(sum)) = (&seeds[n], &gradients.by_slot[*slot as usize])
                && route.roots[..n].contains(slot)
            {
                add_into(&NdArray { shape: roots[n].edge.shape(), storage: Arc::clone(sum) }, seed)?;
            }
        }
        let mut hooks = if is_kept { RunHooks::none(route) } else { RunHooks::of(route, held.as_ref()) };
        let looks_again = !plan.restored.is_empty() || hooks.any();
        let refuse = |text: String| Err(Error::Modified(text));
        let mut observer = Observer {
            route,
            hooks: &mut hooks,
            gradients: &mut gradients.by_slot,
            retains: options.retain_graph,
        };
        let is_hooked = observer.hooks.any();
        let mut context = BackwardContext {
            run: RunContext::new([options.pre_hook, options.post_hook], &[], guard.as_ref(), optimise),
            modified: if looks_again { Some(&refuse) } else { None },
            clearing: &clearing,
            budget,
            observer: if is_kept { None } else { Some(&mut observer) },
        };
        let is_hooked = is_hooked || context.run.is_hooked();
        callbacks::detached(options.detach, plan.work, is_hooked, || caught(|| plan.run(&mut context)))?;
        drop(context);
        observer.finish()
    };
    let done = run();
    drop(held);
    if is_kept {
        arena::with(|a| ready.finish(a, done.is_ok()));
    }
    drop(guard);
    if done.is_err() {
        ready.gradients.undo();
    }
    done.map(|()| Found::Arrays(ready))
}

/// The seeds. Leaves out seeds of ones that a plan may already have.
fn seeds(roots: &[Root], are_returned: bool) -> Result<SmallVec<[Option<Arc<Storage>>; 1]>> {
    let shared = roots.len() > 1 || are_returned;
    let seed = |root: &Root| match &root.seed {
        // A gradient that is added to or returned must not be the caller's array.
        Some(seed) if shared => Ok(Some(copied(&seed.data())?.storage)),
        Some(seed) => Ok(Some(seed.data().storage)),
        None if !shared => Ok(None),
        None => {
            let ones = Storage::new(root.edge.shape().size());
            ones.fill(1.0)?;
            Ok(Some(ones))
        }
    };
    roots.iter().map(seed).collect()
}

/// Calls hooks with gradients as soon as they are complete, and unlocks each function after it has run.
struct Observer<'a, 'b> {
    /// The route that runs.
    route: &'b GradientRoute,
    /// The hooks that were not called yet.
    hooks: &'a mut RunHooks<'b>,
    /// For each slot, the gradient that exists at the end of the run, if any.
    gradients: &'a mut [Option<Arc<Storage>>],
    /// The functions keep what they saved.
    retains: bool,
}

impl Observer<'_, '_> {
    /// Calls the remaining hooks after the last function.
    fn finish(self) -> Result<()> {
        if !self.hooks.any() {
            return Ok(());
        }
        for slot in 0..self.route.slots.len() as GradientSlotIx {
            self.hooks.on_array(slot, self.gradients)?;
        }
        Ok(())
    }
}

impl StepObserver for Observer<'_, '_> {
    fn before(&mut self, n: usize, step: &mut BackwardStep) -> Result<()> {
        for (o, slot) in self.route.outputs(n).iter().enumerate() {
            if let Some(changed) = self.hooks.on_array(*slot, self.gradients)? {
                step.start_from(o, &changed);
            }
        }
        Ok(())
    }

    fn after(&mut self, n: usize, step: &mut BackwardStep) -> Result<()> {
        step.release();
        if self.retains { Ok(()) } else { free(self.route, self.route.order[n]) }
    }
}

/// Frees the values that a function saved for its backward run, so that it cannot run backward again.
fn free(route: &GradientRoute, f: Ix) -> Result<()> {
    let cleared = arena::with(|a| {
        a.free(f);
        backward::after_differentiation(&a.outcomes(), f, |tensor| route.is_root(tensor))
    });
    cleared.into_iter().try_for_each(|storage| storage.clear(true))
}

/// Differentiates by building a graph: the gradients are variables that can be differentiated again.
fn on_graph(roots: &[Root], inputs: Option<&[Edge]>, options: &DifferentiateOptions<'_>) -> Result<Found> {
    let edges: Vec<&Edge> = roots.iter().map(|root| &root.edge).collect();
    let (route, nodes, clearing) = arena::with(|a| -> Result<_> {
        let route = GradientRoute::make(a, &edges, inputs, options.since);
        route.check(&a.outcomes())?;
        route.check_used(options.refuse_unused)?;
        let nodes = symbolic::nodes(a, &route);
        Ok((route, nodes, Clearing::new(a, Policy::RESTORING)))
    })?;
    let mut seeds = Vec::with_capacity(roots.len());
    for root in roots {
        seeds.push(match &root.seed {
            Some(seed) => seed.clone(),
            None => {
                let ones = Variable::new(root.edge.shape())?.with_need_grad(false);
                ones.data().storage.fill(1.0)?;
                ones
            }
        });
    }
    let mut hooks = RunHooks::of(&route, None);
    let scope = Scope::at_once(true);
    let found = symbolic::on_graph(&route, &nodes, &seeds, Some((&mut hooks, options, &clearing)));
    let found = found.and_then(|mut found| {
        // A rule may return no gradient at all.
        for (slot, used) in route.targets.iter().zip(route.used()) {
            let g = &mut found[*slot as usize];
            if used && g.is_none() {
                let tensor = route.slots[*slot as usize].tensor;
                *g = Some(Variable::new(arena::with(|a| a.shape(tensor).clone()))?);
            }
        }
        own_each(&mut found)?;
        Ok(found)
    });
    drop(scope);
    let found = found?;
    drop((nodes, hooks));
    if !options.retain_graph {
        route.order.iter().try_for_each(|f| free(&route, *f))?;
    }
    Ok(Found::Variables(route, found))
}

/// Gives each slot its own differentiable variable, distinct from the seed and from the variables of other slots.
fn own_each(found: &mut [Option<Variable>]) -> Result<()> {
    let mut seen: HashSet<Variable> = HashSet::new();
    for g in found.iter_mut().flatten() {
        if g.parent().is_none() || seen.contains(g) {
            *g = connect::apply("identity", &[&*g], &[])?.remove(0);
        }
        if !g.need_grad() {
            g.set_need_grad(true);
        }
        seen.insert(g.clone());
    }
    Ok(())
}
