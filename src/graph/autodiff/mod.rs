//! Differentiation as PyTorch has it: from any number of variables, to every leaf or to what is asked for, all or
//! nothing. How NNabla has it is in `backward`.
//!
//! Both ways to differentiate, by kernels and by rules that build a graph, follow the same `Course` and end in the same
//! two sinks: [`backward`] adds to the gradients of leaves, [`grad`] returns.

pub(crate) mod cache;
pub(crate) mod hooks;
pub(crate) mod kernels;
pub(crate) mod options;
pub(crate) mod route;
pub(crate) mod sinks;
pub(crate) mod symbolic;

pub use self::options::DifferentiateOptions;
pub use self::options::Root;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::array::{RunGuard, Storage};
use crate::error::caught;
use crate::graph::arena::{self, Ix};
use crate::graph::autodiff::cache::PreparedBackward;
use crate::graph::autodiff::hooks::{RunHooks, Suspended};
use crate::graph::autodiff::kernels::let_go;
use crate::graph::autodiff::route::{Edge, GradientRoute, GradientSlotIx};
use crate::graph::build::connect;
use crate::graph::handles::ndarray::{NdArray, copied};
use crate::graph::handles::variable::Variable;
use crate::graph::handles::{callbacks, gradient_hooks};
use crate::graph::memory::release::{Clearing, Policy};
use crate::graph::settings::modes::Scope;
use crate::graph::step::accumulate::add_into;
use crate::{Error, Result};

/// Adds the gradients of `roots` to those of the leaves above them; of `inputs` only, where given.
///
/// # Errors
/// [`Error::Graph`] when nothing was run or the graph is being run, [`Error::Freed`] when it was differentiated before
/// without being retained, [`Error::Shape`] when a seed does not fit; whatever an operation, a hook or a user's function
/// fails with. No gradient has changed then.
pub fn backward(roots: &[Root], inputs: Option<&[Edge]>, options: &DifferentiateOptions<'_>) -> Result<()> {
    let found = differentiate(roots, inputs, options)?;
    let course = found.course();
    let wanted = |place: &GradientSlotIx| inputs.is_none() || *place < course.n_targets;
    let sinks: Vec<GradientSlotIx> = arena::with(|a| {
        let all = 0..course.places.len() as GradientSlotIx;
        all.filter(|p| {
            let place = course.places[*p as usize];
            if place.leaf { wanted(p) } else { a.is_retained(place.core) }
        })
        .collect()
    });
    match &found {
        Found::Arrays(ready) => sinks::arrays(ready, &sinks)?,
        Found::Variables(course, variables) => sinks::variables(course, &sinks, variables)?,
    }
    let leaves = sinks.iter().map(|p| course.places[*p as usize]).filter(|place| place.leaf);
    let leaves: Vec<Ix> = leaves.map(|leaf| leaf.core).collect();
    found.keep()?;
    leaves.into_iter().try_for_each(gradient_hooks::tell_accumulated)
}

/// The gradients of `roots` by `inputs`; `None` for an input that no root depends on.
///
/// # Errors
/// As [`backward`].
pub fn grad(
    roots: &[Root],
    inputs: &[Edge],
    options: &DifferentiateOptions<'_>,
) -> Result<Vec<Option<Variable>>> {
    let found = differentiate(roots, Some(inputs), options)?;
    let mut made: HashMap<GradientSlotIx, Variable> = HashMap::new();
    let mut results = Vec::with_capacity(inputs.len());
    for (place, input) in found.course().targets.iter().zip(inputs) {
        if let Some(v) = made.get(place) {
            results.push(Some(v.clone()));
            continue;
        }
        let g = match &found {
            Found::Arrays(ready) => {
                let array = |storage| Variable::over(&NdArray { shape: input.shape(), storage });
                ready.take_out(*place)?.map(array).transpose()?
            }
            Found::Variables(_, variables) => variables[*place as usize].clone(),
        };
        if let Some(g) = &g {
            made.insert(*place, g.clone());
        }
        results.push(g);
    }
    found.keep()?;
    Ok(results)
}

/// What a differentiation found, by place.
enum Found {
    Arrays(Box<PreparedBackward>),
    Variables(GradientRoute, Vec<Option<Variable>>),
}

impl Found {
    fn course(&self) -> &GradientRoute {
        match self {
            Self::Arrays(ready) => &ready.course,
            Self::Variables(course, _) => course,
        }
    }

    /// Keeps what serves the next time.
    fn keep(self) -> Result<()> {
        match self {
            Self::Arrays(ready) => ready.keep(),
            Self::Variables(..) => Ok(()),
        }
    }
}

fn differentiate(
    roots: &[Root],
    inputs: Option<&[Edge]>,
    options: &DifferentiateOptions<'_>,
) -> Result<Found> {
    let roots: Vec<Root> = roots.iter().filter(|root| root.edge.need_grad()).cloned().collect();
    if roots.is_empty() {
        return Err(Error::Graph(
            "autodiff: expected a variable that requires grad, got none that does".into(),
        ));
    }
    for root in &roots {
        let shape = root.edge.shape();
        if let Some(seed) = &root.seed
            && seed.shape() != shape
        {
            return Err(Error::shape("autodiff", format!("a gradient of shape {shape}"), [&seed.shape()]));
        }
    }
    if options.create_graph { on_graph(&roots, inputs, options) } else { on_arrays(&roots, inputs, options) }
}

fn on_arrays(roots: &[Root], inputs: Option<&[Edge]>, options: &DifferentiateOptions<'_>) -> Result<Found> {
    let edges: Vec<Edge> = roots.iter().map(|root| root.edge.clone()).collect();
    let mut seeds = Vec::with_capacity(roots.len());
    for root in roots {
        seeds.push(match &root.seed {
            // What others contribute to must not be the caller's array, and neither must what is returned.
            Some(seed) if roots.len() > 1 || inputs.is_some() => copied(&seed.data())?.storage,
            Some(seed) => seed.data().storage,
            None => {
                let ones = Storage::new(root.edge.shape().size());
                ones.fill(1.0)?;
                ones
            }
        });
    }
    let (mut ready, held, clearing, mut keeper, budgeted) = arena::with(|a| -> Result<_> {
        let (ready, keeper) =
            PreparedBackward::get(a, &edges, inputs, &seeds, options.since, options.refuse_unused)?;
        a.begin_run(&ready.course.functions)?;
        let held = Suspended { functions: ready.course.functions.clone(), busy: Cell::new(true) };
        let policy = Policy { clear_buffer: false, clear_no_need_grad: true, recomputation: true };
        let budgeted = keeper.is_some() || ready.course.functions.iter().any(|f| a.functions[*f].budgeted);
        Ok((ready, held, Clearing::new(a, policy), keeper, budgeted))
    })?;
    let guard = (!budgeted).then(RunGuard::new);
    let PreparedBackward { course, run, kept, .. } = &mut *ready;
    run.check(course)?;
    for (n, place) in course.roots.iter().enumerate() {
        if let Some(first) = course.roots[..n].iter().position(|p| p == place) {
            let sum = NdArray { shape: edges[n].shape(), storage: Arc::clone(&seeds[first]) };
            add_into(&sum, &seeds[n])?;
        }
    }
    let mut hooks = RunHooks::of(course, Some(&held));
    if hooks.any() {
        *kept = None; // users may keep what they are shown
    }
    let hooked = options.pre_hook.is_some() || options.post_hook.is_some() || hooks.any();
    let runs_again = kept.is_some();
    callbacks::detached(options.detach, run.work, hooked, || {
        caught(|| run.run(course, &mut hooks, options, &clearing, keeper.take(), runs_again, guard.as_ref()))
    })?;
    drop(hooks);
    drop(held);
    drop(guard);
    Ok(Found::Arrays(ready))
}

fn on_graph(roots: &[Root], inputs: Option<&[Edge]>, options: &DifferentiateOptions<'_>) -> Result<Found> {
    let edges: Vec<Edge> = roots.iter().map(|root| root.edge.clone()).collect();
    let (course, nodes, clearing) = arena::with(|a| -> Result<_> {
        let course = GradientRoute::make(a, &edges, inputs, options.since);
        course.check(a)?;
        course.check_used(options.refuse_unused)?;
        let nodes = symbolic::nodes(a, &course);
        let policy = Policy { clear_buffer: false, clear_no_need_grad: true, recomputation: true };
        Ok((course, nodes, Clearing::new(a, policy)))
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
    let mut hooks = RunHooks::of(&course, None);
    let scope = Scope::at_once(true);
    let found = symbolic::on_graph(&course, &nodes, &seeds, Some((&mut hooks, options, &clearing)));
    let found = found.and_then(|mut found| {
        // A rule may say that a gradient is nothing at all.
        for (place, used) in course.targets.iter().zip(course.used()) {
            let g = &mut found[*place as usize];
            if used && g.is_none() {
                let core = course.places[*place as usize].core;
                *g = Some(Variable::new(arena::with(|a| a.cores[core].shape.clone()))?);
            }
        }
        own_each(&mut found)?;
        Ok(found)
    });
    drop(scope);
    let found = found?;
    drop((nodes, hooks));
    if !options.retain_graph {
        course.functions.iter().try_for_each(|f| let_go(&course, *f))?;
    }
    Ok(Found::Variables(course, found))
}

/// Gives each place a variable of its own that can be differentiated: not the seed, and not that of another place.
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
