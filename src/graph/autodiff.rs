//! Differentiation as PyTorch has it: from any number of variables, to every leaf or to what is asked for, all or
//! nothing. How NNabla has it is in `backward`.
//!
//! Both ways to differentiate, by kernels and by rules that build a graph, follow the same `Course` and end in the same
//! two sinks: [`backward`] adds to the gradients of leaves, [`grad`] returns.

use crate::Error;
use crate::Result;
use crate::array::RunGuard;
use crate::array::Storage;
use crate::error::caught;
use crate::graph::accumulate;
use crate::graph::arena;
use crate::graph::arena::Ix;
use crate::graph::arena::run_lock::Thread;
use crate::graph::build::connect;
use crate::graph::by_kernels::let_go;
use crate::graph::course::Edge;
use crate::graph::course::GradientRoute;
use crate::graph::course::GradientSlot;
use crate::graph::course::GradientSlotIx;
use crate::graph::gradient;
use crate::graph::handles::callbacks;
use crate::graph::handles::callbacks::Detach;
use crate::graph::handles::callbacks::FunctionHook;
use crate::graph::handles::gradient_hooks;
use crate::graph::handles::gradient_hooks::GradientHook;
use crate::graph::handles::gradient_hooks::When;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::ndarray::copied;
use crate::graph::handles::variable::Variable;
use crate::graph::memory::release::Clearing;
use crate::graph::memory::release::Policy;
use crate::graph::ready::PreparedBackward;
use crate::graph::settings::modes::Scope;
use crate::graph::step::accumulate::add_into;
use std::cell::Cell;
use std::collections::HashMap;
use std::collections::HashSet;
use std::sync::Arc;

/// Where a differentiation starts.
#[derive(Clone)]
pub struct Root {
    /// What to differentiate.
    pub edge: Edge,
    /// The gradient to start from; ones where none is given.
    pub seed: Option<Variable>,
}

/// How to differentiate.
#[derive(Clone, Copy, Default)]
pub struct DifferentiateOptions<'a> {
    /// Keep what the functions need to be differentiated again.
    pub retain_graph: bool,
    /// Make gradients that can be differentiated themselves.
    pub create_graph: bool,
    /// Go through functions only that were made at this time of [`super::births`] or later.
    pub since: u64,
    /// Refuse inputs that no root depends on.
    pub refuse_unused: bool,
    /// Called before each function.
    pub pre_hook: Option<FunctionHook<'a>>,
    /// Called after each function.
    pub post_hook: Option<FunctionHook<'a>>,
    /// Wraps the run where it is worth releasing a lock for.
    pub detach: Option<Detach<'a>>,
}

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
        Found::Arrays(ready) => accumulate::arrays(ready, &sinks)?,
        Found::Variables(course, variables) => accumulate::variables(course, &sinks, variables)?,
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
        let nodes = gradient::nodes(a, &course);
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
    let found = gradient::on_graph(&course, &nodes, &seeds, Some((&mut hooks, options, &clearing)));
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

/// The functions of a run, which are the run's own until it is dropped.
struct Suspended {
    functions: Vec<Ix>,
    busy: Cell<bool>,
}

impl Suspended {
    /// Calls a hook, which may run the graph.
    fn at_rest<R>(&self, hook: impl FnOnce() -> Result<R>) -> Result<R> {
        arena::with(|a| self.functions.iter().for_each(|f| a.functions[*f].busy = None));
        self.busy.set(false);
        let result = hook()?;
        arena::with(|a| {
            a.settle();
            if self.functions.iter().any(|f| a.functions[*f].busy.is_some()) {
                let text =
                    "autodiff: expected the graph at rest after a hook, but another run of it is under way";
                return Err(Error::Graph(text.into()));
            }
            let own = Some(Thread::current());
            self.functions.iter().for_each(|f| a.functions[*f].busy = own);
            self.busy.set(true);
            Ok(result)
        })
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        arena::with(|a| match self.busy.get() {
            true => a.end_run(&self.functions, |_| ()),
            false => a.release_run(&self.functions),
        });
    }
}

/// What users want to be told of gradients on a course, each once.
pub(crate) struct RunHooks<'a> {
    by_place: HashMap<GradientSlotIx, Vec<Arc<dyn GradientHook>>>,
    course: &'a GradientRoute,
    held: Option<&'a Suspended>,
}

impl<'a> RunHooks<'a> {
    fn of(course: &'a GradientRoute, held: Option<&'a Suspended>) -> Self {
        let by_place = arena::with(|a| {
            let hooks = |(n, place): (usize, &GradientSlot)| {
                // What a part of a graph contributes to a variable outside is not its gradient yet.
                if course.ends_outside(n) {
                    return None;
                }
                let hooks = a.gradient_hooks(place.core, place.leaf, When::Gradient);
                (!hooks.is_empty()).then_some((n as GradientSlotIx, hooks))
            };
            course.places.iter().enumerate().filter_map(hooks).collect()
        });
        Self { by_place, course, held }
    }

    pub(crate) fn any(&self) -> bool {
        !self.by_place.is_empty()
    }

    /// Whether there are hooks on a place that were not called yet.
    pub(crate) fn has(&self, place: GradientSlotIx) -> bool {
        self.by_place.contains_key(&place)
    }

    /// Calls the hooks on a place whose gradient is complete, and returns what takes its place, if anything does.
    pub(crate) fn on_variable(&mut self, place: GradientSlotIx, g: &Variable) -> Result<Option<Variable>> {
        let Some(hooks) = self.by_place.remove(&place) else { return Ok(None) };
        gradient_hooks::call_each(&hooks, g)
    }

    /// As [`Hooks::on_variable`] for a gradient in memory, which is replaced there too.
    pub(crate) fn on_array(
        &mut self,
        place: GradientSlotIx,
        gradients: &mut [Option<Arc<Storage>>],
    ) -> Result<Option<Arc<Storage>>> {
        if !self.has(place) {
            return Ok(None);
        }
        let Some(storage) = gradients[place as usize].clone() else { return Ok(None) };
        let core = self.course.places[place as usize].core;
        let shape = arena::with(|a| a.cores[core].shape.clone());
        let g = Variable::over(&NdArray { shape, storage })?;
        let held = self.held;
        let _scope = Scope::at_once(false);
        let mut call = || self.on_variable(place, &g);
        let changed = match held {
            Some(held) => held.at_rest(call)?,
            None => call()?,
        };
        let changed = changed.map(|v| v.data().storage);
        if let Some(changed) = &changed {
            gradients[place as usize] = Some(Arc::clone(changed));
        }
        Ok(changed)
    }
}
