//! Clearing in a forward run: an input may be cleared after its last use. A run that prepares for a backward run keeps
//! what a gradient will read. Leaves and persistent variables are never cleared. See `in_place` for memory that
//! functions share.

use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::lifetime::liveness::needs;
use crate::graph::lifetime::rules::{self, Policy, ValueFacts};
use crate::ops::Reads;

/// Decides, function by function in the order of a run, which inputs to clear after it.
///
/// Keeps state about the functions seen, so each run needs its own instance.
pub(crate) struct Clearing {
    /// The clearing policy of the run.
    policy: Policy,
    /// The mark of visited variables.
    mark: u32,
}

impl Clearing {
    /// The state before the first function of a run.
    pub(crate) fn new(a: &mut Arena, policy: Policy) -> Self {
        Self { policy, mark: a.new_mark() }
    }

    /// Sets bits of a variable that hold for this run only.
    fn scratch(&self, a: &mut Arena, v: Ix, bits: u16) {
        a.enter(v, self.mark);
        a.set_flags(v, bits, true);
    }

    /// The indices of the inputs of `f` to clear after it has run.
    pub(crate) fn after(&self, a: &mut Arena, f: Ix) -> Vec<usize> {
        let recomputation = self.policy.recomputation;
        let n = a.inputs(f).len();
        let need_grad = a.passes_gradients(f);
        let mut cleared = Vec::new();
        let reads = if need_grad { rules::reads(a.facts(f), n) } else { Reads::NOTHING };
        for o in 0..a.n_outputs(f) {
            let needed = if reads.output(o) { flag::SCRATCH_NEED } else { 0 };
            let bits = needed | if recomputation { flag::SCRATCH_RESTORED } else { 0 };
            if let Some(v) = a.live_output(f, o).filter(|_| bits != 0) {
                self.scratch(a, v, bits);
            }
        }
        for i in 0..n {
            let v = a.inputs(f)[i];
            let is_needed = need_grad && rules::needs_input(a.facts(f), reads, i);
            let mut bits = if is_needed { flag::SCRATCH_NEED } else { 0 };
            if let Some(alias) = a.facts(f).alias(i) {
                bits |= flag::SCRATCH_INPLACE;
                if let Some(output) = a.live_output(f, alias.output) {
                    self.scratch(a, output, flag::SCRATCH_INPLACE);
                }
            }
            if recomputation {
                bits |= needs(a, v); // functions that do not run again count too
            }
            self.scratch(a, v, bits);
            let visits = a.count_visit(v);
            let (flags, parent) = (a.flags(v), a.parent(v));
            // The input may have been computed again later, in a run without a budget.
            let budgeted = a.ran_under_budget(f) && parent != NONE && a.ran_under_budget(parent);
            let fixed = flag::PERSISTENT | flag::PROHIBIT_CLEAR | flag::SCRATCH_INPLACE;
            let value = ValueFacts {
                fixed: parent == NONE || flags & fixed != 0 || rules::fixes_input(a.facts(f), i),
                needed: flags & flag::SCRATCH_NEED != 0,
                recompute: flags & flag::RECOMPUTE != 0,
                existed: recomputation && !budgeted && flags & flag::SCRATCH_RESTORED == 0,
            };
            if self.policy.clears(value) && rules::is_last_use(visits, a.consumers(v).count() as u32) {
                cleared.push(i);
            }
        }
        cleared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Variable, apply, arena};

    /// Applies an operation without arguments and returns its first output.
    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    /// The inputs that each function of a graph clears, in the order of a run.
    fn cleared(policy: Policy, graph: &[&Variable]) -> Vec<Vec<usize>> {
        arena::with(|a| {
            let clearing = Clearing::new(a, policy);
            let functions: Vec<Ix> = graph.iter().map(|v| a.parent(v.ix())).collect();
            functions.into_iter().map(|f| clearing.after(a, f)).collect()
        })
    }

    #[test]
    fn a_value_is_cleared_after_its_last_use_unless_it_is_persistent() {
        let x = Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(true);
        let h = one("sin", &[&x]);
        let (a, b) = (one("exp", &[&h]), one("cos", &[&h]));
        let all = Policy { clear_buffer: true, ..Policy::default() };
        assert_eq!(cleared(all, &[&h, &a, &b]), [vec![], vec![], vec![0]]);
        h.set_persistent(true);
        assert_eq!(cleared(all, &[&h, &a, &b]), [vec![], vec![], Vec::<usize>::new()]);
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
