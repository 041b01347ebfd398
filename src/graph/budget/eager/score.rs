//! Candidates for eviction: values that eager functions computed under a budget, whether one may be evicted, and the
//! benefit of keeping it.

use std::sync::{Arc, Weak};

use crate::array::Storage;
use crate::graph::arena::provenance::Modified;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::lifetime::liveness::is_cleared;
use crate::graph::step::cost;

/// The creation time of the function that computed a value, and the number of the output.
pub(crate) type ValueId = (u64, u32);

/// A value that a function computed and that is in memory.
pub(crate) struct EvictionCandidate {
    /// The memory of the value.
    pub(crate) storage: Weak<Storage>,
    /// The function that computed it.
    pub(crate) function: Ix,
    /// The generation of the function's slot. If it differs now, the function was freed.
    pub(crate) generation: u32,
    /// The work to recompute it, including evicted values above it.
    pub(crate) cost: u64,
    /// A gradient reads it, or its function must not run again.
    pub(crate) needed: bool,
    /// It had other holders when a run began.
    pub(crate) held: bool,
    /// The active run no longer needs it.
    pub(crate) done: bool,
}

/// The estimated work of a function, see [`cost::work_of`].
pub(crate) fn work(a: &Arena, f: Ix) -> u64 {
    let inputs = a.input_tensors(f).map(|tensor| a.shape(tensor));
    let outputs = a.output_tensors(f).map(|tensor| a.shape(tensor));
    cost::work_of(a.op(f), &inputs.collect::<Vec<_>>(), &outputs.collect::<Vec<_>>())
}

impl EvictionCandidate {
    /// The variable, if it is alive.
    pub(crate) fn variable(&self, a: &Arena, o: u32) -> Option<Ix> {
        let alive = a.function_generation(self.function) == self.generation;
        if alive { a.live_output(self.function, o as usize) } else { None }
    }

    /// True if nothing else can see it and it can be recomputed.
    pub(crate) fn may_go(&self, a: &Arena, o: u32, storage: &Arc<Storage>, running: bool) -> bool {
        let Some(v) = self.variable(a, o) else { return false };
        let lasts = a.has_flag(v, flag::PERSISTENT | flag::PROHIBIT_CLEAR) || !a.has_flag(v, flag::DROPPED);
        if lasts || storage.users() > 0 || storage.is_exported() || storage.is_narrowed() {
            return false;
        }
        // One count belongs to the caller.
        let held = if running { self.held } else { Arc::strong_count(storage) - 1 > sharers(a, v) };
        let there = |v: &Ix| !is_cleared(a, a.tensor(*v)) || a.is_restorable(*v);
        !held && a.inputs(self.function).iter().all(there) && has_leaves_as_they_were(a, self.function)
    }

    /// The benefit of keeping it.
    pub(crate) fn score(&self, born: u64, bytes: usize, now: u64) -> f64 {
        match self {
            Self { done: true, .. } => -1.0,
            Self { needed: false, .. } => 0.0,
            _ => self.cost as f64 / (bytes as f64 * (now.abs_diff(born) + 1) as f64),
        }
    }
}

/// The first available input of `f` that changed since it ran.
pub(crate) fn change_since_run(a: &Arena, f: Ix) -> Option<Modified> {
    a.provenance(f).modified(a.input_data(f), std::iter::empty())
}

/// True if the available leaves among the inputs of `f` are unchanged since it ran. A value computed from a changed
/// leaf differs, and its readers detect that.
fn has_leaves_as_they_were(a: &Arena, f: Ix) -> bool {
    let leaves = a.inputs(f).iter().map(|v| a.parent(*v) == NONE);
    let x = a.input_data(f).zip(leaves).map(|(data, is_leaf)| data.filter(|_| is_leaf));
    a.provenance(f).modified(x, std::iter::empty()).is_none()
}

/// The number of tensors that share the memory of `v` through in-place functions, including `v`. Zero if one of them
/// is visible outside the graph.
pub(crate) fn sharers(a: &Arena, v: Ix) -> usize {
    let mut all = 0;
    let mut next = vec![v];
    while let Some(v) = next.pop() {
        if !a.is_only_in_graph(a.tensor(v)) {
            return 0;
        }
        all += 1;
        for f in a.consumers(v) {
            for (i, _) in a.inputs(f).iter().enumerate().filter(|(_, input)| **input == v) {
                let facts = a.facts(f);
                if !facts.may_clear_inputs {
                    return 0;
                }
                let Some(alias) = facts.alias(i) else { continue };
                match a.live_output(f, alias.output) {
                    _ if alias.modifies => return 0,
                    Some(output) => next.push(output),
                    None => all += 1,
                }
            }
        }
    }
    all
}
