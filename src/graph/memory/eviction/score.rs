//! Candidates for eviction: values that eager functions computed under a budget, whether one may be evicted, and the
//! benefit of keeping it.

use std::sync::{Arc, Weak};

use crate::array::Storage;
use crate::graph::arena::liveness::is_cleared;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::step::cost;

/// The creation time of the function that computed a value, and the number of the output.
pub(crate) type ValueId = (u64, u32);

/// A value that a function computed and that is in memory.
pub(crate) struct EvictionCandidate {
    pub(crate) storage: Weak<Storage>,
    pub(crate) function: Ix,
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
    let slot = &a.functions[f];
    let inputs = slot.inputs.iter().map(|v| &a.tensors[a.variables[*v].tensor].shape);
    let outputs = slot.outputs.iter().map(|o| &a.tensors[o.tensor].shape);
    cost::work_of(a.op(f), &inputs.collect::<Vec<_>>(), &outputs.collect::<Vec<_>>())
}

impl EvictionCandidate {
    /// The variable, if it is alive.
    pub(crate) fn variable(&self, a: &Arena, o: u32) -> Option<Ix> {
        let alive = a.functions[self.function].generation == self.generation;
        if alive { a.live_output(self.function, o as usize) } else { None }
    }

    /// True if nothing else can see it and it can be recomputed.
    pub(crate) fn may_go(&self, a: &Arena, o: u32, storage: &Arc<Storage>, running: bool) -> bool {
        let Some(v) = self.variable(a, o) else { return false };
        let slot = &a.variables[v];
        let lasts =
            slot.flags & (flag::PERSISTENT | flag::PROHIBIT_CLEAR) != 0 || slot.flags & flag::DROPPED == 0;
        if lasts || storage.users() > 0 || storage.is_exported() || storage.is_narrowed() {
            return false;
        }
        // One count belongs to the caller.
        let held = if running { self.held } else { Arc::strong_count(storage) - 1 > sharers(a, v) };
        let f = &a.functions[self.function];
        let there = |v: &Ix| {
            let slot = &a.variables[*v];
            !is_cleared(a, slot.tensor) || (slot.parent != NONE && slot.flags & flag::RESTORED != 0)
        };
        !held && f.inputs.iter().all(there) && has_leaves_as_they_were(a, self.function)
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

/// True if the available inputs of `f` are unchanged since it ran.
pub(crate) fn is_as_it_was(a: &Arena, f: Ix) -> bool {
    let slot = &a.functions[f];
    let x = slot.inputs.iter().map(|v| a.tensors[a.variables[*v].tensor].data.as_deref());
    slot.memo.modified(x, std::iter::empty()).is_none()
}

/// As [`is_as_it_was`], for inputs without parent. A value computed from a changed leaf differs, and its readers
/// detect that.
fn has_leaves_as_they_were(a: &Arena, f: Ix) -> bool {
    let slot = &a.functions[f];
    let leaf = |v: &Ix| a.variables[*v].parent == NONE;
    let x = slot.inputs.iter().map(|v| a.tensors[a.variables[*v].tensor].data.as_deref().filter(|_| leaf(v)));
    slot.memo.modified(x, std::iter::empty()).is_none()
}

/// The number of tensors that share the memory of `v` through in-place functions, including `v`. Zero if one of them
/// is visible outside the graph.
pub(crate) fn sharers(a: &Arena, v: Ix) -> usize {
    let mut all = 0;
    let mut next = vec![v];
    while let Some(v) = next.pop() {
        // One count of its own, and one of the function that computes it.
        if a.tensors[a.variables[v].tensor].count > 2 {
            return 0;
        }
        all += 1;
        for c in a.consumers(v) {
            let slot = &a.functions[c.function];
            for (i, _) in slot.inputs.iter().enumerate().filter(|(_, input)| **input == v) {
                let op = a.op(c.function);
                if !op.facts().may_clear_inputs {
                    return 0;
                }
                let Some(alias) = op.facts().alias(i) else { continue };
                match a.live_output(c.function, alias.output) {
                    _ if alias.modifies => return 0,
                    Some(output) => next.push(output),
                    None => all += 1,
                }
            }
        }
    }
    all
}
