//! What a training step or a prediction would do with its memory, for people to read.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use crate::array::Shape;
use crate::graph::arena::{self, Arena, Ix, NONE, liveness};
use crate::graph::handles::variable::Variable;
use crate::graph::memory::eviction::pool::EvictionPool;
use crate::graph::memory::release::BackwardKey;
use crate::graph::memory::release::Policy;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::checkpoint::model::StepModel;
use crate::graph::plan::checkpoint::roots;
use crate::graph::plan::checkpoint::search::CheckpointSearch;
use crate::graph::plan::forward::ForwardPlan;
use crate::graph::plan::fusion;
use crate::graph::settings::modes;
use crate::graph::step::operand::Operand;
use crate::graph::step::setup::{Stop, set_up_outside};
use crate::{Error, Result};

/// What becomes of a value after its last reader in the forward run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Stays for the backward run, or for good.
    Kept,
    /// Is given back: nothing reads it any more.
    Dropped,
    /// Is given back, and computed again for the backward run.
    Recomputed,
    /// Was given up for a budget by functions that ran as they were built, and comes back when it is wanted.
    Evicted,
}

/// An output of a function.
#[derive(Clone, Debug)]
pub struct ReportValue {
    /// Its shape.
    pub shape: Shape,
    /// Bytes that its elements take.
    pub bytes: usize,
    /// What becomes of it.
    pub fate: Fate,
}

/// A function of the forward run.
#[derive(Clone, Debug)]
pub struct ReportStep {
    /// What it computes: `Convolution`.
    pub type_name: String,
    /// Shapes of its inputs.
    pub inputs: Vec<Shape>,
    /// Its outputs.
    pub outputs: Vec<ReportValue>,
    /// Bytes that all arrays take once it has run.
    pub live: usize,
}

/// What a training step does with its memory.
#[derive(Clone, Debug)]
pub struct Report {
    /// The functions of the forward run, in order.
    pub steps: Vec<ReportStep>,
    /// Bytes at the worst moment of `forward()` and `backward()`.
    pub peak_keeping: usize,
    /// The same of `forward(clear_no_need_grad)` and `backward(clear_buffer)`, or of a prediction by `forward(clear_buffer)`.
    pub peak_clearing: usize,
    /// The same under the budget, if there is one.
    pub peak: Option<usize>,
    /// The budget.
    pub budget: Option<usize>,
    /// The functions ran as they were built, under a budget: what is said of values and of `live` is how it is now, and
    /// `peak` is what there is now.
    pub at_once: bool,
    /// An estimate of the work that is done twice, as a part of the whole.
    pub extra: f64,
    /// What is optimised in the run forward and in the run backward, without a budget.
    pub optimised: [Optimised; 2],
    /// What these runs do, one thing after the other, for people.
    pub instructions: String,
}

/// What is optimised in a run that clears what nobody needs, from the second time on.
#[derive(Clone, Debug, Default)]
pub struct Optimised {
    /// Functions that run as one pass: numbers in the order of the run, from 0 on.
    pub passes: Vec<Range<usize>>,
    /// Functions alone that write where they read.
    pub in_place: Vec<usize>,
    /// Bytes of values that live in the cache only.
    pub saved: usize,
    /// Functions that are done along with the one before them, on the way of its result to memory: numbers as in `passes`.
    pub along: Vec<Range<usize>>,
}

impl Optimised {
    /// Passes and chains come with the bytes that they save.
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

/// What is optimised in a step that clears by `policy`, and its instructions.
fn optimised(a: &mut Arena, root: Ix, policy: Policy) -> Result<([Optimised; 2], String), Stop> {
    let mut plan = ForwardPlan::make(a, &[root], policy, |_, _| true)?;
    plan.fuse();
    let passes = plan.passes.iter().flatten().map(|pass| (pass.steps.clone(), pass.saved()));
    let chains = plan.chains.iter().map(|chain| (chain.steps.clone(), chain.saved(&plan.steps)));
    let forward = Optimised::new(passes, chains, plan.steps.iter().map(|step| step.over.is_some()));
    let text = plan.text();
    if policy.clear_buffer || !a.functions[a.variables[root].parent].need_grad {
        return Ok(([forward, Optimised::default()], text));
    }
    let mut plan = BackwardPlan::make(a, root, BackwardKey::CLEARING, &[])?;
    plan.fuse();
    let passes = plan.passes.iter().flatten().map(|pass| (pass.steps.clone(), pass.saved()));
    let chains = std::iter::empty();
    let backward = Optimised::new(passes, chains, plan.steps.iter().map(|step| step.over.is_some()));
    Ok(([forward, backward], text + "\n" + &plan.text()))
}

/// What a training step to `root`, or with `clear_buffer` a prediction that clears all that it can, does with its memory,
/// under a budget or (`None`) under [`crate::graph::settings::memory_budget`], which may be none. Nothing is run.
///
/// # Errors
/// [`Error::Graph`] when no function computes `root`, [`Error::Budget`] when the budget cannot be kept to, and what an
/// operation fails with that refuses its inputs.
pub fn report(root: &Variable, budget: Option<usize>, clear_buffer: bool) -> Result<Report> {
    let policy = Policy { clear_buffer, clear_no_need_grad: !clear_buffer, ..Policy::default() };
    let budget = budget.or_else(modes::memory_budget);
    let v = root.ix();
    if arena::with(|a| a.variables[v].parent == NONE) {
        let text = "plan_report: expected a variable that a function computes, got";
        return Err(Error::Graph(format!("{text} {}, which has no parent", root.describe())));
    }
    loop {
        let made = arena::with(|a| -> Result<_, Stop> {
            let plan = ForwardPlan::make(a, &[v], Policy::default(), |_, _| true)?;
            let clearing = roots::rehearsal(a, &plan, &[v], policy)?;
            let differentiable = a.functions[a.variables[v].parent].need_grad;
            let keeping = differentiable.then(|| BackwardPlan::make(a, v, BackwardKey::KEEPING, &[]));
            let keeping = keeping.transpose()?;
            let keeping = StepModel::new(a, &plan, keeping.as_slice());
            Ok((plan, clearing, keeping, optimised(a, v, policy)?))
        });
        match made {
            Ok((plan, clearing, keeping, optimised)) => {
                let pool = arena::with(|a| EvictionPool::of(a, a.variables[v].parent));
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

/// What has become of values that were computed at once under a budget.
fn as_it_is(a: &Arena, plan: &ForwardPlan, mut report: Report, budget: usize) -> Report {
    let mut counted = HashSet::new();
    let mut live = 0;
    for ((f, step), said) in plan.functions.iter().zip(&plan.steps).zip(&mut report.steps) {
        for tensor in step.x.iter().chain(&step.y).map(|slot| &a.tensors[slot.tensor]) {
            let new =
                [&tensor.data, &tensor.grad].into_iter().flatten().filter(|s| counted.insert(Arc::as_ptr(s)));
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
