//! The ends of a forward run under a budget, from which several backward runs may follow: what the first one leaves for
//! the others.

use crate::Result;
use crate::graph::arena::{Arena, Ix, NONE, Partners};
use crate::graph::memory::release::BackwardKey;
use crate::graph::memory::release::Policy;
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::checkpoint::model::StepModel;
use crate::graph::plan::forward::ForwardPlan;

/// The ends of a forward run from which a backward run may follow, with their generations.
fn ends(a: &Arena, roots: &[Ix], policy: Policy) -> Partners {
    let differentiable = |v: &Ix| {
        let parent = a.variables[*v].parent;
        parent != NONE && a.functions[parent].need_grad && !policy.clear_buffer
    };
    let mut ends = Partners::new();
    for v in roots.iter().copied().filter(differentiable) {
        let end = (v, a.variables[v].generation);
        if !ends.contains(&end) {
            ends.push(end);
        }
    }
    ends
}

/// Tells the ends of a forward run under a budget of each other, so that the backward run of one leaves the others what
/// they want; those of a run without a budget forget what they knew.
pub(crate) fn introduce(a: &mut Arena, roots: &[Ix], policy: Policy, budget: Option<usize>) {
    let all = if budget.is_some() { ends(a, roots, policy) } else { Partners::new() };
    for root in roots {
        let others: Partners = all.iter().copied().filter(|(v, _)| v != root).collect();
        let known = a.variables[*root].extra.as_ref().map_or(&[][..], |extra| &extra.partners);
        if *known != others[..] {
            a.extra(*root).partners = others;
            a.outdate(a.variables[*root].tensor); // plans of backward runs rest on it
        }
    }
}

/// The step that begins with this forward run: backward runs from its ends follow, in whatever order.
///
/// # Errors
/// [`crate::Error::Graph`] where shapes are not those of the forward run.
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
