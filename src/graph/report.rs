//! A readable report on the memory of a training step or a prediction.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::array::Shape;
use crate::graph::arena::{self, Arena, Ix, NONE};
use crate::graph::budget::eager::pool::EvictionPool;
use crate::graph::budget::r#static::model::StepModel;
use crate::graph::budget::r#static::roots;
use crate::graph::budget::r#static::search::CheckpointSearch;
use crate::graph::handles::variable::Variable;
use crate::graph::lifetime::backward::BackwardKey;
use crate::graph::lifetime::liveness;
use crate::graph::lifetime::rules::Policy;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::plan::fusion;
use crate::graph::settings::modes;
use crate::graph::step::operand::Operand;
use crate::graph::step::setup::{Stop, set_up_outside};
use crate::{Error, Result};

/// The treatment of a value after its last reader in the forward run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Kept for the backward run, or permanently.
    Kept,
    /// Freed: nothing reads it any more.
    Dropped,
    /// Freed, and recomputed for the backward run.
    Recomputed,
    /// Evicted from an eager graph under a budget, and recomputed on demand.
    Evicted,
}

/// An output of a function.
#[derive(Clone, Debug)]
pub struct ReportValue {
    /// The shape.
    pub shape: Shape,
    /// The size of its elements in bytes.
    pub bytes: usize,
    /// The treatment of its memory.
    pub fate: Fate,
}

/// A function of the forward run.
#[derive(Clone, Debug)]
pub struct ReportStep {
    /// The type name of the operation, such as `Convolution`.
    pub type_name: String,
    /// Shapes of its inputs.
    pub inputs: Vec<Shape>,
    /// Its outputs.
    pub outputs: Vec<ReportValue>,
    /// Bytes in use by all arrays after it has run.
    pub live: usize,
}

/// The memory use of a training step.
#[derive(Clone, Debug)]
pub struct Report {
    /// The functions of the forward run, in order.
    pub steps: Vec<ReportStep>,
    /// Peak bytes of `forward()` and `backward()`.
    pub peak_keeping: usize,
    /// Peak bytes of `forward(clear_no_need_grad)` and `backward(clear_buffer)`, or of a prediction by
    /// `forward(clear_buffer)`.
    pub peak_clearing: usize,
    /// Peak bytes under the budget, if any.
    pub peak: Option<usize>,
    /// The budget.
    pub budget: Option<usize>,
    /// True if the functions ran eagerly under a budget. Then values and `live` describe the current state, and
    /// `peak` is the current use.
    pub at_once: bool,
    /// The estimated repeated work, as a fraction of the total.
    pub extra: f64,
    /// Optimizations of the forward and the backward run, without a budget.
    pub optimised: [Optimised; 2],
    /// The instructions of these runs, as text.
    pub instructions: String,
}

/// Optimizations of a run that clears unneeded values, from its second execution on.
#[derive(Clone, Debug, Default)]
pub struct Optimised {
    /// Functions that run as one fused pass, as ranges of numbers in the order of the run, from 0.
    pub passes: Vec<Range<usize>>,
    /// Separate functions that write their result over an input.
    pub in_place: Vec<usize>,
    /// Bytes of values that exist only in the cache.
    pub saved: usize,
    /// Functions that run as an epilogue of the one before them. Ranges as in `passes`.
    pub along: Vec<Range<usize>>,
}

impl Optimised {
    /// Passes and chains are given with the bytes that they save.
    fn new(
        passes: impl Iterator<Item = (Range<usize>, usize)>,
        chains: impl Iterator<Item = (Range<usize>, usize)>,
        over: impl Iterator<Item = bool>,
    ) -> Self {
        let (passes, saved): (Vec<Range<usize>>, Vec<usize>) = passes.unzip();
        let (along, more): (Vec<Range<usize>>, Vec<usize>) =
            chains.map(|(chain, saved)| (chain.start + 1..chain.end, saved)).unzip();
        let alone = |n: usize| !fusion::holds(&passes, n) && !fusion::holds(&along, n);
        let in_place = over.enumerate().filter(|(n, over)| *over && alone(*n)).map(|(n, _)| n).collect();
        Self { passes, in_place, saved: saved.iter().chain(&more).sum(), along }
    }
}

/// The optimizations of a step that clears by `policy`, and its instructions.
fn optimised(a: &mut Arena, root: Ix, policy: Policy) -> Result<([Optimised; 2], String), Stop> {
    let mut plan = ForwardPlan::make(a, &[root], policy, |_, _| true)?;
    plan.fuse();
    let passes = plan.passes.iter().flatten().map(|pass| (pass.steps.clone(), pass.saved()));
    let chains = plan.chains.iter().map(|chain| (chain.steps.clone(), chain.saved(&plan.steps)));
    let forward = Optimised::new(passes, chains, plan.steps.iter().map(|step| step.over.is_some()));
    let text = plan.text();
    if policy.clear_buffer || !a.passes_gradients(a.parent(root)) {
        return Ok(([forward, Optimised::default()], text));
    }
    let mut plan = BackwardPlan::make(a, root, BackwardKey::CLEARING, &[])?;
    plan.fuse();
    let passes = plan.passes.iter().flatten().map(|pass| (pass.steps.clone(), pass.saved()));
    let chains = std::iter::empty();
    let backward = Optimised::new(passes, chains, plan.steps.iter().map(|step| step.over.is_some()));
    Ok(([forward, backward], text + "\n" + &plan.text()))
}

/// Reports the memory use of a training step to `root`, or with `clear_buffer` of a prediction that clears all it
/// can. The budget is that given, otherwise [`crate::graph::settings::memory_budget`], otherwise none. Runs nothing.
///
/// # Errors
/// [`Error::Graph`] if `root` has no parent, [`Error::Budget`] if the budget is too small, and errors of operations
/// that refuse their inputs.
pub fn report(root: &Variable, budget: Option<usize>, clear_buffer: bool) -> Result<Report> {
    let policy = Policy { clear_buffer, clear_no_need_grad: !clear_buffer, ..Policy::default() };
    let budget = budget.or_else(modes::memory_budget);
    let v = root.ix();
    if arena::with(|a| a.parent(v) == NONE) {
        let text = "plan_report: expected a variable that a function computes, got";
        return Err(Error::Graph(format!("{text} {}, which has no parent", root.describe())));
    }
    loop {
        let made = arena::with(|a| -> Result<_, Stop> {
            let plan = ForwardPlan::make(a, &[v], Policy::default(), |_, _| true)?;
            let clearing = roots::rehearsal(a, &plan, &[v], policy)?;
            let differentiable = a.passes_gradients(a.parent(v));
            let keeping = differentiable.then(|| BackwardPlan::make(a, v, BackwardKey::KEEPING, &[]));
            let keeping = keeping.transpose()?;
            let keeping = StepModel::new(a, &plan, keeping.as_slice());
            Ok((plan, clearing, keeping, optimised(a, v, policy)?))
        });
        match made {
            Ok((plan, clearing, keeping, optimised)) => {
                let pool = arena::with(|a| EvictionPool::of(a, a.parent(v)));
                let planned = |budget| describe(&plan, [&clearing, &keeping], budget, policy, optimised);
                return match pool {
                    Some(pool) => {
                        let planned = planned(None)?;
                        Ok(arena::with(|a| as_it_is(a, &plan, planned, pool.state().limit)))
                    }
                    None => planned(budget),
                };
            }
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::SetUp(f)) => set_up_outside(f)?,
        }
    }
}

/// The current state of values that were computed eagerly under a budget.
fn as_it_is(a: &Arena, plan: &ForwardPlan, mut report: Report, budget: usize) -> Report {
    let mut counted = HashSet::new();
    let mut live = 0;
    for ((f, step), said) in plan.order.iter().zip(&plan.steps).zip(&mut report.steps) {
        for tensor in step.x.iter().chain(&step.y).map(|slot| slot.tensor) {
            let storages = a.existing_data(tensor).into_iter().chain(a.existing_grad(tensor));
            let new = storages.filter(|s| counted.insert(Arc::as_ptr(s)));
            live += new.map(|s| s.held_bytes()).sum::<usize>();
        }
        for (o, value) in said.outputs.iter_mut().enumerate() {
            let gone = step.y[o].storage.is_cleared();
            let read = a.live_output(*f, o).is_some_and(|v| liveness::is_read_backward(a, v));
            value.fate = match (gone, read) {
                (false, _) => Fate::Kept,
                (true, true) => Fate::Evicted,
                (true, false) => Fate::Dropped,
            };
        }
        said.live = live;
    }
    Report { peak: Some(live), budget: Some(budget), at_once: true, ..report }
}

/// Makes the report: simulates the plan with and without clearing, and within the budget if there is one.
fn describe(
    plan: &ForwardPlan,
    [clearing, keeping]: [&StepModel; 2],
    budget: Option<usize>,
    policy: Policy,
    (optimised, instructions): ([Optimised; 2], String),
) -> Result<Report> {
    let peak_clearing = clearing.play(&clearing.modest()).peak;
    let peak_keeping = keeping.play(&keeping.flagged()).peak;
    let (rehearsal, drop, outcome) = match budget {
        Some(bytes) => {
            let choice = CheckpointSearch::new(clearing).within(bytes)?;
            (clearing, choice.drop, choice.outcome)
        }
        None => {
            let drop = if policy.clear_buffer { clearing.modest() } else { clearing.flagged() };
            let outcome = clearing.play(&drop);
            (clearing, drop, outcome)
        }
    };
    let mut steps = Vec::with_capacity(plan.steps.len());
    for (n, (act, step)) in rehearsal.forward.iter().zip(&plan.steps).enumerate() {
        let value = |(v, slot): (&u32, &Operand)| {
            let fate = match (drop[*v as usize], outcome.again[n]) {
                (false, _) => Fate::Kept,
                (true, 0) => Fate::Dropped,
                (true, _) => Fate::Recomputed,
            };
            ReportValue { shape: slot.shape.clone(), bytes: rehearsal.values[*v as usize].bytes, fate }
        };
        steps.push(ReportStep {
            type_name: step.op.type_name().to_string(),
            inputs: step.x.iter().map(|slot| slot.shape.clone()).collect(),
            outputs: act.outputs.iter().zip(&step.y).map(value).collect(),
            live: outcome.live[n],
        });
    }
    let peak = budget.map(|_| outcome.peak);
    let extra = outcome.extra as f64 / rehearsal.work().max(1) as f64;
    let at_once = false;
    Ok(Report { steps, peak_keeping, peak_clearing, peak, budget, at_once, extra, optimised, instructions })
}
