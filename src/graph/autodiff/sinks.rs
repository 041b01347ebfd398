//! The end of a differentiation: adds its gradients to the gradients of the variables, all or none.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::graph::arena::{self, Ix, NONE};
use crate::graph::autodiff::cache::PreparedBackward;
use crate::graph::autodiff::route::{GradientRoute, GradientSlotIx};
use crate::graph::construct::connect;
use crate::graph::handles::ndarray::{NdArray, copied};
use crate::graph::handles::variable::Variable;
use crate::graph::settings::modes::{self, Scope};
use crate::graph::step::accumulate::{GradientSum, all};
use crate::{Error, Result};

/// Adds gradients in memory to the gradients of their tensors, all or none: steps that can fail come first.
pub(crate) fn arrays(ready: &PreparedBackward, sinks: &[GradientSlotIx]) -> Result<()> {
    let route = &ready.route;
    let tensor = |slot: &GradientSlotIx| route.slots[*slot as usize].tensor;
    let found = |slot: &GradientSlotIx| ready.gradients.by_slot[*slot as usize].as_ref();
    let (sinks, in_graphs) = arena::with(|a| {
        // Gradients written in place are already there.
        let is_there = |slot: &GradientSlotIx| {
            let own = a.existing_grad(tensor(slot));
            own.zip(found(slot)).is_some_and(|(own, found)| Arc::ptr_eq(own, found))
        };
        let left = sinks.iter().copied().filter(|slot| !is_there(slot));
        let left: SmallVec<[GradientSlotIx; 4]> = left.collect();
        let graphs =
            left.iter().map(tensor).filter_map(|tensor| Some((tensor, a.gradient_variable(tensor)?)));
        let graphs: Vec<(Ix, Variable)> = graphs.collect();
        (left, graphs)
    });
    if sinks.is_empty() {
        return Ok(());
    }
    // A gradient that is part of a graph must not change there.
    for (tensor, before) in in_graphs {
        let own = copied(&before.data())?;
        let old = arena::with(|a| {
            a.set_grad(tensor, Some(own.storage));
            a.set_gradient_variable(tensor, None)
        });
        drop(old);
    }
    let sums: Vec<GradientSum<'_>> = arena::with(|a| {
        let sum = |p: &GradientSlotIx| {
            let (tensor, more) = (tensor(p), found(p)?);
            let to = NdArray { shape: a.shape(tensor).clone(), storage: Arc::clone(a.grad(tensor)) };
            Some(GradientSum { to, tensor, more, is_ours: ready.is_ours(*p) })
        };
        sinks.iter().filter_map(sum).collect()
    });
    all(&sums)
}

/// Adds gradients with graphs to the gradients of their tensors. The sums get new memory, since the old gradients may
/// be part of a graph.
pub(crate) fn variables(
    route: &GradientRoute,
    sinks: &[GradientSlotIx],
    found: &[Option<Variable>],
) -> Result<()> {
    let mut sums = Vec::new();
    for slot in sinks {
        let tensor = route.slots[*slot as usize].tensor;
        let Some(g) = &found[*slot as usize] else { continue };
        let before = arena::with(|a| Variable::leaf_on(a, tensor)).grad_variable();
        let sum = match before {
            Some(before) => {
                let context = arena::with(|a| match a.parent(g.ix()) {
                    NONE => modes::current_context(),
                    f => a.context(f),
                });
                let _scopes = (Scope::at_once(true), Scope::context(context));
                connect::apply("add2", &[&before, g], &[])?.remove(0)
            }
            None => g.clone(),
        };
        let own = arena::with(|a| a.shape(tensor).clone());
        if sum.shape() != own {
            return Err(Error::shape("backward", format!("a gradient of shape {own}"), [&sum.shape()]));
        }
        sums.push((tensor, sum));
    }
    let old = arena::with(|a| {
        let commit = |(tensor, sum): (Ix, Variable)| {
            let data = Arc::clone(a.data(a.tensor(sum.ix())));
            a.set_grad(tensor, Some(data));
            a.set_gradient_variable(tensor, Some(sum))
        };
        sums.into_iter().map(commit).collect::<Vec<_>>()
    });
    drop(old);
    Ok(())
}
