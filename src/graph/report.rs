//! What a training step would do with its memory, for people to read.

use super::arena::{self, NONE};
use super::backward::{self, BackwardPlan};
use super::budget::{self, Search};
use super::clear::Policy;
use super::forward::{ForwardPlan, set_up_outside};
use super::order::Stop;
use super::rehearsal::Rehearsal;
use super::{Variable, mode};
use crate::array::Shape;
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
    /// The same of `forward(clear_no_need_grad)` and `backward(clear_buffer)`.
    pub peak_clearing: usize,
    /// The same under the budget, if there is one.
    pub peak: Option<usize>,
    /// The budget.
    pub budget: Option<usize>,
    /// An estimate of the work that is done twice, as a part of the whole.
    pub extra: f64,
}

/// What a training step to `root` does with its memory, under a budget or (`None`) under [`mode::memory_budget`], which
/// may be none. Nothing is run.
///
/// # Errors
/// [`Error::Graph`] when no function computes `root`, [`Error::Budget`] when the budget cannot be kept to, and what an
/// operation fails with that refuses its inputs.
pub fn report(root: &Variable, budget: Option<usize>) -> Result<Report> {
    let budget = budget.or_else(mode::memory_budget);
    let v = root.ix();
    if arena::with(|a| a.variables[v].parent == NONE) {
        let text = "plan_report: expected a variable that a function computes, got";
        return Err(Error::Graph(format!("{text} {}, which has no parent", root.describe())));
    }
    loop {
        let made = arena::with(|a| -> Result<_, Stop> {
            let plan = ForwardPlan::make(a, &[v], Policy::default(), |_, _| true)?;
            let clearing = budget::rehearsal(a, &plan, &[v], Policy::default());
            let differentiable = a.functions[a.variables[v].parent].need_grad;
            let keeping = differentiable.then(|| BackwardPlan::make(a, v, backward::Key::KEEPING));
            let keeping = Rehearsal::new(a, &plan, keeping.as_ref());
            Ok((plan, clearing, keeping))
        });
        match made {
            Ok((plan, clearing, keeping)) => return describe(&plan, &clearing, &keeping, budget),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::SetUp(f)) => set_up_outside(f)?,
        }
    }
}

fn describe(
    plan: &ForwardPlan,
    clearing: &Rehearsal,
    keeping: &Rehearsal,
    budget: Option<usize>,
) -> Result<Report> {
    let peak_clearing = clearing.play(&clearing.modest()).peak;
    let peak_keeping = keeping.play(&keeping.flagged()).peak;
    let (rehearsal, drop, outcome) = match budget {
        Some(bytes) => {
            let choice = Search::new(clearing).within(bytes)?;
            (clearing, choice.drop, choice.outcome)
        }
        None => (clearing, clearing.flagged(), clearing.play(&clearing.flagged())),
    };
    let mut steps = Vec::with_capacity(plan.steps.len());
    for (n, (act, step)) in rehearsal.forward.iter().zip(&plan.steps).enumerate() {
        let value = |(v, slot): (&u32, &super::execute::Slot)| {
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
    Ok(Report { steps, peak_keeping, peak_clearing, peak, budget, extra })
}
