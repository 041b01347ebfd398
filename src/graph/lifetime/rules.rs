//! The rules of lifetime: the readers of a value, permission to clear it, and the functions that restore it.
//!
//! Pure: a rule depends on the facts of operations and on what its caller knows about a value. So runs of a graph and
//! simulations of a run (`budget::static`) follow the same rules.

use crate::ops::{Facts, Reads};

/// The clearing policy of a forward run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Clear every value after its last use.
    pub(crate) clear_buffer: bool,
    /// Clear values that no gradient reads.
    pub(crate) clear_no_need_grad: bool,
    /// The run recomputes values for a backward run.
    pub(crate) recomputation: bool,
}

/// The facts that determine whether a forward run may clear a value.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // independent facts
pub(crate) struct ValueFacts {
    /// It must not be cleared: a leaf, persistent, shared in place, or read by a function that fixes its inputs.
    pub(crate) fixed: bool,
    /// A gradient needs it.
    pub(crate) needed: bool,
    /// The user marked it for recomputation.
    pub(crate) recompute: bool,
    /// It existed before the recomputation that reads it, and there is no budget.
    pub(crate) existed: bool,
}

impl Policy {
    /// The policy for recomputation in a backward run: clears values that no gradient reads.
    pub(crate) const RESTORING: Self =
        Self { clear_buffer: false, clear_no_need_grad: true, recomputation: true };

    /// True if a run clears a value after its last use.
    pub(crate) fn clears(self, value: ValueFacts) -> bool {
        let ValueFacts { fixed, needed, recompute, existed } = value;
        let wanted =
            self.clear_buffer || (self.clear_no_need_grad && !needed) || (recompute && !self.recomputation);
        wanted && !fixed && !existed
    }
}

/// True if a value with `uses` uses has none left after `visits` of them.
pub(crate) fn is_last_use(visits: u32, uses: u32) -> bool {
    uses < 2 || visits >= uses
}

/// The union of what the gradients of `n` inputs read.
pub(crate) fn reads(facts: &Facts, n: usize) -> Reads {
    (0..n).fold(Reads::NOTHING, |all, i| all.or(facts.backward_reads(i)))
}

/// True if the kernel or the rule of one of `n` gradients reads input `i`.
pub(crate) fn any_reads_input(facts: &Facts, n: usize, i: usize) -> bool {
    (0..n).any(|gx| facts.either_reads(gx).input(i))
}

/// True if the kernel or the rule of one of `n` gradients reads output `o`.
pub(crate) fn any_reads_output(facts: &Facts, n: usize, o: usize) -> bool {
    (0..n).any(|gx| facts.either_reads(gx).output(o))
}

/// True if a function that passes gradients needs input `i` after it has run: a gradient reads it, or a second run must
/// find it as it was.
pub(crate) fn needs_input(facts: &Facts, reads: Reads, i: usize) -> bool {
    reads.input(i) || facts.overwrites(i)
}

/// True if no run may clear input `i` of a function by the usual rule: an output shares its memory, or the function
/// requires that its inputs stay.
pub(crate) fn fixes_input(facts: &Facts, i: usize) -> bool {
    facts.alias(i).is_some() || !facts.may_clear_inputs
}

/// True if a function lets a run clear memory that it takes as input `i` and shares in place.
pub(crate) fn frees_shared_input(facts: &Facts, i: usize) -> bool {
    facts.may_clear_inputs && !facts.modifies(i) && !facts.overwrites(i)
}

/// The functions of a graph, by number, and the values that were dropped.
pub(crate) trait DroppedValues {
    /// The number of inputs of `f`.
    fn n_inputs(&self, f: u32) -> usize;

    /// The function that computes input `i` of `f`. None for a leaf.
    fn producer(&self, f: u32, i: usize) -> Option<u32>;

    /// True if an output of `f` was dropped.
    fn has_dropped(&self, f: u32) -> bool;

    /// Marks `f` as found. Returns true the first time.
    fn find(&mut self, f: u32) -> bool;
}

/// The functions to run again to restore outputs of `roots`, each after its producers: depth first, starting from
/// values that are still there.
pub(crate) fn restore_order(
    graph: &mut impl DroppedValues,
    roots: impl IntoIterator<Item = u32>,
) -> Vec<u32> {
    let mut order = Vec::new();
    let mut path: Vec<(u32, usize)> = Vec::new();
    for root in roots {
        if graph.find(root) {
            path.push((root, 0));
        }
        while let Some((f, i)) = path.last_mut() {
            if *i == graph.n_inputs(*f) {
                order.push(*f);
                path.pop();
                continue;
            }
            let producer = graph.producer(*f, *i);
            *i += 1;
            if let Some(next) = producer
                && graph.has_dropped(next)
                && graph.find(next)
            {
                path.push((next, 0));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value that nothing protects.
    const VALUE: ValueFacts = ValueFacts { fixed: false, needed: false, recompute: false, existed: false };

    #[test]
    fn each_policy_clears_needed_and_marked_values_as_declared() {
        let needed = ValueFacts { needed: true, ..VALUE };
        let marked = ValueFacts { recompute: true, ..needed };
        let all = Policy { clear_buffer: true, ..Policy::default() };
        let unneeded = Policy { clear_no_need_grad: true, ..Policy::default() };
        let cleared = |policy: Policy| [VALUE, needed, marked].map(|value| policy.clears(value));
        assert_eq!(cleared(Policy::default()), [false, false, true]);
        assert_eq!(cleared(all), [true; 3]);
        assert_eq!(cleared(unneeded), [true, false, true]);
        assert_eq!(cleared(Policy::RESTORING), [true, false, false]);
    }

    #[test]
    fn no_policy_clears_a_fixed_value() {
        let policy = Policy { clear_buffer: true, ..Policy::default() };
        assert!(!policy.clears(ValueFacts { fixed: true, ..VALUE }));
        assert!(!Policy::RESTORING.clears(ValueFacts { existed: true, ..VALUE }));
    }
}
