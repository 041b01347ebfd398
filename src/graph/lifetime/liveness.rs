//! Decides which values are still read, by which functions, and which may therefore be freed.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::array::Storage;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::lifetime::rules::{self, DroppedValues};
use crate::{Error, Result};

/// The reasons to keep the data of `v`, as scratch bits: a gradient reads it, or another variable shares its memory.
pub(crate) fn needs(a: &Arena, v: Ix) -> u16 {
    let mut bits = 0;
    let mut add = |yes: bool, bit: u16| bits |= if yes { bit } else { 0 };
    for f in a.consumers(v) {
        let facts = a.facts(f);
        let reads = rules::reads(facts, a.inputs(f).len());
        for i in (0..a.inputs(f).len()).filter(|i| a.inputs(f)[*i] == v) {
            let needs = a.passes_gradients(f) && rules::needs_input(facts, reads, i);
            add(needs, flag::SCRATCH_NEED);
            add(facts.alias(i).is_some(), flag::SCRATCH_INPLACE);
        }
    }
    let f = a.parent(v);
    if f != NONE {
        let facts = a.facts(f);
        for o in a.outputs_that_are(f, v) {
            let read = rules::reads(facts, a.inputs(f).len()).output(o);
            add(read && a.passes_gradients(f), flag::SCRATCH_NEED);
            add(facts.shares_output(o, a.inputs(f).len()), flag::SCRATCH_INPLACE);
        }
    }
    bits
}

/// True if a gradient reads the data of `v`, or another variable shares its memory.
pub(crate) fn is_read_backward(a: &Arena, v: Ix) -> bool {
    needs(a, v) != 0
}

/// The data of `v`, if dynamic mode may free it with this handle: nothing else can see it, and no gradient reads it.
pub(crate) fn unneeded(a: &Arena, v: Ix, users_below: u32) -> Option<Arc<Storage>> {
    let parent = a.parent(v);
    if parent == NONE || a.has_flag(v, flag::PERSISTENT) {
        return None;
    }
    let data = a.existing_data(a.tensor(v))?;
    if data.users() >= users_below {
        return None;
    }
    // A value evicted under a budget may have to be recomputed from it.
    if a.evictor(parent).is_some() && !is_repeatable(a, parent) {
        return None;
    }
    for o in a.outputs_that_are(parent, v) {
        let (facts, n) = (a.facts(parent), a.inputs(parent).len());
        if facts.shares_output(o, n) || rules::any_reads_output(facts, n, o) {
            return None;
        }
    }
    for f in a.consumers(v) {
        let (facts, n) = (a.facts(f), a.inputs(f).len());
        for (i, _) in a.inputs(f).iter().enumerate().filter(|(_, input)| **input == v) {
            // A variable that shares the memory may be read long after its own handle is gone.
            let is_read = a.passes_gradients(f) && rules::any_reads_input(facts, n, i);
            if is_read || facts.alias(i).is_some() {
                return None;
            }
        }
    }
    Some(Arc::clone(data))
}

static ERRORS_AT_DROP: Mutex<Vec<Error>> = Mutex::new(Vec::new());

/// Stores an error that a destructor cannot return.
pub(crate) fn note_error_at_drop(error: Error) {
    ERRORS_AT_DROP.lock().push(error);
}

/// Returns the first error that occurred while a handle was dropped since the last call.
///
/// # Errors
/// That error.
pub fn check_errors_at_drop() -> Result<()> {
    let mut errors = ERRORS_AT_DROP.lock();
    let first = (!errors.is_empty()).then(|| errors.remove(0));
    errors.clear();
    first.map_or(Ok(()), Err)
}

/// True if a second run of the function computes the same values and affects only its outputs.
pub(crate) fn is_repeatable(a: &Arena, f: Ix) -> bool {
    a.facts(f).is_repeatable(a.inputs(f).len())
}

/// True if the data of a tensor was cleared.
pub(crate) fn is_cleared(a: &Arena, tensor: Ix) -> bool {
    a.existing_data(tensor).is_some_and(|data| data.is_cleared())
}

/// The graph during a search for cleared values, with the mark of the search.
struct ClearedValues<'a>(&'a mut Arena, u32);

impl DroppedValues for ClearedValues<'_> {
    fn n_inputs(&self, f: Ix) -> usize {
        self.0.inputs(f).len()
    }

    fn producer(&self, f: Ix, i: usize) -> Option<Ix> {
        let parent = self.0.parent(self.0.inputs(f)[i]);
        (parent != NONE).then_some(parent)
    }

    fn has_dropped(&self, f: Ix) -> bool {
        self.0.output_tensors(f).any(|tensor| is_cleared(self.0, tensor))
    }

    fn find(&mut self, f: Ix) -> bool {
        let is_new = !self.0.is_marked(f, self.1);
        self.0.mark_function(f, self.1);
        is_new
    }
}

/// The functions to run again to recompute the data of `wanted`, each after its producers. Starts from data that is
/// still available.
pub(crate) fn to_restore(a: &mut Arena, wanted: &[Ix]) -> Vec<Ix> {
    let mark = a.new_mark();
    let roots: Vec<Ix> = wanted.iter().map(|v| a.parent(*v)).filter(|f| *f != NONE).collect();
    rules::restore_order(&mut ClearedValues(a, mark), roots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{ForwardOptions, Variable, apply, arena};

    /// Applies an operation without arguments and returns its first output.
    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    /// A variable of two values.
    fn leaf(need_grad: bool) -> Variable {
        Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(need_grad)
    }

    #[test]
    fn a_value_stays_for_the_gradient_that_reads_it() {
        let x = leaf(true);
        let (h, sum) = (one("sin", &[&x]), one("add2", &[&x, &x]));
        let (_product, _alike) = (one("mul2", &[&h, &x]), one("add2", &[&sum, &x]));
        assert!(arena::with(|a| is_read_backward(a, h.ix())));
        assert!(!arena::with(|a| is_read_backward(a, sum.ix())));
    }

    #[test]
    fn without_a_gradient_no_value_is_read_backward() {
        let h = one("sin", &[&leaf(false)]);
        let _product = one("mul2", &[&h, &h]);
        assert!(!arena::with(|a| is_read_backward(a, h.ix())));
    }

    #[test]
    fn a_leaf_is_never_unneeded() {
        let x = leaf(false);
        assert!(arena::with(|a| unneeded(a, x.ix(), u32::MAX)).is_none());
    }

    #[test]
    fn restoring_starts_at_values_that_are_in_memory() {
        // (exp(x) + sin(x)) * exp(x)
        let x = leaf(true);
        let (e, s) = (one("exp", &[&x]), one("sin", &[&x]));
        let sum = one("add2", &[&e, &s]);
        let y = one("mul2", &[&sum, &e]);
        let [exp, sum, product] = arena::with(|a| [&e, &sum, &y].map(|v| a.parent(v.ix())));
        y.forward(&ForwardOptions::default()).expect("runs");
        let clear = |f: Ix| {
            let tensor = arena::with(|a| a.output_tensor(f, 0));
            arena::with(|a| a.data(tensor).clone()).clear(true).expect("is whole");
        };
        clear(sum);
        assert_eq!(arena::with(|a| to_restore(a, &[y.ix()])), [sum, product]);
        clear(exp);
        assert_eq!(arena::with(|a| to_restore(a, &[y.ix()])), [exp, sum, product]);
    }
}
