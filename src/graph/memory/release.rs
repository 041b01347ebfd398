//! What may be given back, and when.
//!
//! A forward run may clear an input after its last use; what a gradient will read is kept if the run is told to prepare
//! for a backward run. A backward run may clear what it has differentiated through. Dynamic mode clears what its last
//! handle let go of. Leaves, persistent variables and memory shared in place are never cleared.

use crate::graph::arena::liveness::{needs, reads};
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::ops::Reads;

/// What a forward run clears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) clear_buffer: bool,
    pub(crate) clear_no_need_grad: bool,
    pub(crate) recomputation: bool,
}

impl Policy {
    /// Of a backward run that restores values: what no gradient reads goes again.
    pub(crate) const RESTORING: Self =
        Self { clear_buffer: false, clear_no_need_grad: true, recomputation: true };
}

/// Decides, function by function in the order of a run, which inputs are cleared after it.
///
/// It remembers what it has seen: one run, one instance.
pub(crate) struct Clearing {
    policy: Policy,
    mark: u32,
}

impl Clearing {
    pub(crate) fn new(a: &mut Arena, policy: Policy) -> Self {
        Self { policy, mark: a.new_mark() }
    }

    fn scratch(&self, a: &mut Arena, v: Ix, bits: u16) {
        let slot = &mut a.variables[v];
        if slot.mark != self.mark {
            (slot.mark, slot.visits) = (self.mark, 0);
            slot.flags &= !flag::SCRATCH;
        }
        slot.flags |= bits;
    }

    /// The inputs of `f`, by index, to be cleared once it has run.
    pub(crate) fn after(&self, a: &mut Arena, f: Ix) -> Vec<usize> {
        let Policy { clear_buffer, clear_no_need_grad, recomputation } = self.policy;
        let n = a.functions[f].inputs.len();
        let (need_grad, budgeted) = (a.functions[f].need_grad, a.functions[f].budgeted);
        let mut cleared = Vec::new();
        let reads = if need_grad { reads(a, f) } else { Reads::NOTHING };
        for o in 0..a.functions[f].outputs.len() {
            let needed = if reads.output(o) { flag::SCRATCH_NEED } else { 0 };
            let bits = needed | if recomputation { flag::SCRATCH_RESTORED } else { 0 };
            if let Some(v) = a.live_output(f, o).filter(|_| bits != 0) {
                self.scratch(a, v, bits);
            }
        }
        for i in 0..n {
            let v = a.functions[f].inputs[i];
            let mut bits = 0;
            if reads.input(i) {
                bits |= flag::SCRATCH_NEED;
            }
            if need_grad && a.facts(f).overwrites(i) {
                bits |= flag::SCRATCH_OVERWRITE;
            }
            let alias = a.facts(f).alias(i);
            if let Some(alias) = alias {
                bits |= flag::SCRATCH_INPLACE;
                if let Some(output) = a.live_output(f, alias.output) {
                    self.scratch(a, output, flag::SCRATCH_INPLACE);
                }
            }
            if recomputation {
                bits |= needs(a, v); // functions that do not run again have a say too
            }
            self.scratch(a, v, bits);
            a.variables[v].visits += 1;
            let slot = &a.variables[v];
            let keep = slot.parent == NONE
                || slot.flags & (flag::PERSISTENT | flag::PROHIBIT_CLEAR | flag::SCRATCH_INPLACE) != 0
                || alias.is_some()
                || !a.facts(f).may_clear_inputs;
            // What was there before is not the recomputation's to take away, unless a budget wants it.
            let kept = recomputation && !budgeted && slot.flags & flag::SCRATCH_RESTORED == 0;
            let unneeded = slot.flags & (flag::SCRATCH_NEED | flag::SCRATCH_OVERWRITE) == 0;
            let wanted = clear_buffer
                || (slot.flags & flag::RECOMPUTE != 0 && !recomputation)
                || (clear_no_need_grad && unneeded);
            if !keep && !kept && wanted {
                let uses = a.consumers(v).count() as u32;
                if uses < 2 || a.variables[v].visits >= uses {
                    cleared.push(i);
                }
            }
        }
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Variable, apply, arena};

    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    /// What each function of a graph clears, in the order of a run.
    fn cleared(policy: Policy, graph: &[&Variable]) -> Vec<Vec<usize>> {
        arena::with(|a| {
            let clearing = Clearing::new(a, policy);
            let functions: Vec<Ix> = graph.iter().map(|v| a.variables[v.ix()].parent).collect();
            functions.into_iter().map(|f| clearing.after(a, f)).collect()
        })
    }

    #[test]
    fn a_value_goes_after_its_last_use_and_a_leaf_never() {
        let x = Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(true);
        let h = one("sin", &[&x]);
        let (a, b) = (one("exp", &[&h]), one("cos", &[&h]));
        let all = Policy { clear_buffer: true, ..Policy::default() };
        assert_eq!(cleared(all, &[&h, &a, &b]), [vec![], vec![], vec![0]]);
        h.set_persistent(true);
        assert!(cleared(all, &[&h, &a, &b]).iter().all(Vec::is_empty));
    }

    #[test]
    fn a_value_that_a_gradient_reads_stays_for_it() {
        let x = Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(true);
        let h = one("sin", &[&x]);
        let sum = one("add2", &[&h, &x]);
        let read = one("cos", &[&sum]);
        let unread = one("add2", &[&read, &x]);
        let policy = Policy { clear_no_need_grad: true, ..Policy::default() };
        assert_eq!(cleared(policy, &[&h, &sum, &read, &unread]), [vec![], vec![0], vec![], vec![0]]);
    }
}
