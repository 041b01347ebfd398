//! The roots of a forward run under a budget. Several backward runs may follow, and the first one must keep values
//! for the others.

use crate::Result;
use crate::graph::arena::{Arena, Ix, NONE, Partners};
use crate::graph::budget::r#static::model::StepModel;
use crate::graph::lifetime::backward::BackwardKey;
use crate::graph::lifetime::rules::Policy;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::forward::ForwardPlan;

/// The roots of a forward run from which a backward run may follow, with their generations.
fn ends(a: &Arena, roots: &[Ix], policy: Policy) -> Partners {
    let differentiable = |v: &Ix| {
        let parent = a.parent(*v);
        parent != NONE && a.passes_gradients(parent) && !policy.clear_buffer
    };
    let mut ends = Partners::new();
    for v in roots.iter().copied().filter(differentiable) {
        let end = (v, a.generation(v));
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    ends
}

/// Links the roots of a forward run under a budget, so that the backward run of one keeps the values that the others
/// read. A run without a budget removes such links.
pub(crate) fn introduce(a: &mut Arena, roots: &[Ix], policy: Policy, budget: Option<usize>) {
    let all = if budget.is_some() { ends(a, roots, policy) } else { Partners::new() };
    for root in roots {
        let others: Partners = all.iter().copied().filter(|(v, _)| v != root).collect();
        a.set_partners(*root, others);
    }
}

/// The model of the step that begins with this forward run. Backward runs from its roots follow, in any order.
///
/// # Errors
/// [`crate::Error::Graph`] if shapes changed since the forward run.
pub(crate) fn rehearsal(
    a: &mut Arena,
    plan: &ForwardPlan,
    roots: &[Ix],
    policy: Policy,
) -> Result<StepModel> {
    let ends = ends(a, roots, policy);
    let backward = ends.iter().map(|(end, _)| {
        let others: Partners = ends.iter().copied().filter(|(v, _)| v != end).collect();
        BackwardPlan::make(a, *end, BackwardKey::CLEARING, &others)
    });
    let backward = backward.collect::<Result<Vec<BackwardPlan>>>()?;
    Ok(StepModel::new(a, plan, &backward))
}
