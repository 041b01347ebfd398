//! A segment of a graph: the functions that a piece of code made, and what they take from outside of it.

use crate::graph::arena::{self, Ix, NONE, order};
use crate::graph::handles::variable::Variable;

/// Counts the functions that were made so far: those that are made from now on belong to a segment that starts here.
pub fn births() -> u64 {
    arena::with(|a| a.births)
}

/// Whether a function of the segment that started at `since` computes `v`.
pub fn is_born_since(v: &Variable, since: u64) -> bool {
    arena::with(|a| {
        let f = a.variables[v.ix()].parent;
        f != NONE && a.functions[f].born >= since
    })
}

/// The variables that need a gradient and that the segment from `since` to `ends` takes from outside, each pair of data
/// and gradient once; those of `known` are left out.
pub fn taken_from_outside(ends: &[&Variable], since: u64, known: &[&Variable]) -> Vec<Variable> {
    arena::with(|a| {
        let roots: Vec<Ix> = ends.iter().map(|v| v.ix()).collect();
        let mut seen: Vec<Ix> = known.iter().map(|v| a.variables[v.ix()].core).collect();
        let segment = order::depth_first(a, &roots, |a, f| a.functions[f].born >= since);
        let inputs = segment.iter().flat_map(|f| a.functions[*f].inputs.clone());
        let mut taken = Vec::new();
        for v in roots.iter().copied().chain(inputs) {
            let parent = a.variables[v].parent;
            let outside = parent == NONE || a.functions[parent].born < since;
            let core = a.variables[v].core;
            if outside && a.need_grad(v) && !seen.contains(&core) {
                seen.push(core);
                taken.push(v);
            }
        }
        let handle = |v: Ix| {
            a.variables[v].count += 1;
            Variable::adopt(a, v)
        };
        taken.into_iter().map(handle).collect()
    })
}
