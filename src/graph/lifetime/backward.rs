//! Clearing in a backward run, which may clear what it has differentiated through.

use std::collections::HashSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Storage;
use crate::graph::arena::order::backward_order;
use crate::graph::arena::{Arena, Ix, NONE, Outcomes, flag};

/// The clearing options of a backward run. Part of the cache key of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BackwardKey {
    /// Clears data too. Has no effect without `clear_grad`.
    pub(crate) clear_data: bool,
    /// Clears gradients of intermediate variables.
    pub(crate) clear_grad: bool,
    /// Clears the gradient that the run starts from.
    pub(crate) clear_seed: bool,
}

impl BackwardKey {
    /// For a run that frees all it can, as under a memory budget.
    pub(crate) const CLEARING: Self = Self { clear_data: true, clear_grad: true, clear_seed: true };
    /// For a run that frees only its seed.
    pub(crate) const KEEPING: Self = Self { clear_data: false, clear_grad: false, clear_seed: true };
}

/// A function that awaits its backward run, and the functions that will run backward with it.
pub(crate) struct AwaitedRun {
    /// Number and generation of the function where the run begins.
    function: (Ix, u32),
    /// The functions of the run.
    all: HashSet<Ix>,
}

impl AwaitedRun {
    /// The runs that begin at the live variables of `partners`.
    pub(crate) fn of(a: &mut Arena, partners: &[(Ix, u32)]) -> Vec<Self> {
        let alive = partners.iter().filter(|partner| a.is_alive(**partner));
        let alive: Vec<Ix> = alive.map(|(v, _)| *v).filter(|v| a.parent(*v) != NONE).collect();
        let runs = alive.into_iter().map(|v| {
            let f = a.parent(v);
            let function = (f, a.function_generation(f));
            Self { function, all: backward_order(a, v).into_iter().collect() }
        });
        runs.collect()
    }
}

/// The parts of an output that are cleared after a step of a backward run.
#[derive(Clone, Copy)]
pub(crate) struct Cleared {
    /// The data is cleared.
    pub(crate) data: bool,
    /// The gradient is cleared.
    pub(crate) grad: bool,
    /// The data can be recomputed, so other runs do not prevent clearing.
    pub(crate) restored: bool,
}

/// Functions and runs that may still read data that a backward run would clear.
pub(crate) struct Waiting {
    /// Functions outside the run that may still run backward and read it.
    pub(crate) guards: Vec<(Ix, u32)>,
    /// Starting points of expected backward runs that pass through here.
    pub(crate) partners: Vec<(Ix, u32)>,
}

impl Waiting {
    /// Itself, or None if no function and no run waits for the data.
    pub(crate) fn if_anybody(self) -> Option<Box<Self>> {
        (!self.guards.is_empty() || !self.partners.is_empty()).then(|| Box::new(self))
    }
}

/// Decides, function by function in the order of a backward run, which outputs to clear after it, by NNabla's rules.
/// The same marks determine the first contribution to each gradient.
///
/// Keeps state about the functions seen, so each plan needs its own instance.
pub(crate) struct BackwardClearing {
    /// The clearing policy of the run.
    key: BackwardKey,
    /// The mark of visited variables.
    seen: u32,
    /// The mark of the functions of the run.
    run: u32,
    /// Backward runs that are expected later.
    awaited: Vec<AwaitedRun>,
}

impl BackwardClearing {
    /// Scratch bits of a visited variable: its data or its gradient must be kept.
    const KEEP_DATA: u16 = flag::SCRATCH_NEED;
    /// Scratch bit: its gradient must be kept.
    const KEEP_GRAD: u16 = flag::SCRATCH_OVERWRITE;

    /// For a run of `functions`, which carry the newest mark. The runs in `awaited` are expected later.
    pub(crate) fn new(a: &mut Arena, key: BackwardKey, functions: &[Ix], awaited: Vec<AwaitedRun>) -> Self {
        let run = a.newest_mark();
        debug_assert!(functions.iter().all(|f| a.is_marked(*f, run)), "the order was made last");
        Self { key, seen: a.new_mark(), run, awaited }
    }

    /// Visits the inputs of `f`. Returns true for each input that no earlier function takes: `f` overwrites its
    /// gradient, later functions add to it.
    pub(crate) fn enter(&self, a: &mut Arena, f: Ix) -> SmallVec<[bool; 4]> {
        let mut first: SmallVec<[bool; 4]> = SmallVec::new();
        for i in 0..a.inputs(f).len() {
            let v = a.inputs(f)[i];
            first.push(a.enter(v, self.seen));
            let facts = a.facts(f);
            let mut bits = if facts.may_clear_inputs { 0 } else { Self::KEEP_DATA | Self::KEEP_GRAD };
            if let Some(alias) = facts.alias(i) {
                let output = a.live_output(f, alias.output);
                let keeps = output.is_none_or(|o| {
                    !a.is_entered(o, self.seen) || a.has_flag(o, Self::KEEP_DATA | flag::PERSISTENT)
                });
                bits |= if keeps { Self::KEEP_DATA } else { 0 };
            }
            a.set_flags(v, bits, true);
        }
        first
    }

    /// True if a function of the run takes output `o` of `f`.
    pub(crate) fn was_seen(&self, a: &Arena, f: Ix, o: usize) -> bool {
        a.live_output(f, o).is_some_and(|v| a.is_entered(v, self.seen))
    }

    /// The parts of output `o` of `f` to clear after `f` has run. `root` is true if the run begins at this output.
    pub(crate) fn after(&self, a: &Arena, f: Ix, o: usize, root: bool) -> Cleared {
        let BackwardKey { clear_data, clear_grad, clear_seed } = self.key;
        if !clear_grad {
            return Cleared { data: false, grad: false, restored: false };
        }
        let was_seen = self.was_seen(a, f, o);
        let flags = a.live_output(f, o).map(|v| a.flags(v));
        let (data, grad) = match flags {
            Some(flags) if flags & flag::PERSISTENT != 0 => (false, false),
            Some(flags) if was_seen => (flags & Self::KEEP_DATA == 0, flags & Self::KEEP_GRAD == 0),
            _ => (false, clear_seed || !root),
        };
        Cleared {
            data: data && clear_data && !a.facts(f).shares_output(o, a.inputs(f).len()),
            grad: grad && (was_seen || !root || clear_seed) && !a.is_retained(a.output_tensor(f, o)),
            restored: flags.is_some_and(|flags| flags & flag::RESTORED != 0),
        }
    }

    /// Functions and runs that may wait for the data of output `o` of `f`, if any.
    pub(crate) fn waiting(&self, a: &Arena, f: Ix, o: usize) -> Option<Box<Waiting>> {
        let mut waiting = Waiting { guards: Vec::new(), partners: Vec::new() };
        if let Some(v) = a.live_output(f, o) {
            let outside = a.consumers(v).filter(|f| !a.is_marked(*f, self.run));
            waiting.guards.extend(outside.map(|f| (f, a.function_generation(f))));
        }
        let through = self.awaited.iter().filter(|other| other.all.contains(&f));
        through.for_each(|other| waiting.partners.push(other.function));
        waiting.if_anybody()
    }
}

/// The readers of the data of an output.
pub(crate) struct Readers {
    /// The functions that take it through any variable, with their generations.
    pub(crate) functions: SmallVec<[(Ix, u32); 2]>,
    /// The tensors on the data: the tensor of the output, and tensors that share its memory in place.
    tensors: SmallVec<[Ix; 2]>,
    /// True if other variables share the memory.
    pub(crate) is_shared: bool,
}

impl Readers {
    /// True if `f` accepts one of the tensors on the data.
    pub(crate) fn any_tensor(&self, f: impl Fn(Ix) -> bool) -> bool {
        self.tensors.iter().any(|tensor| f(*tensor))
    }
}

/// The readers of the data of output `o` of `f`. None if the data must not be freed even after the last
/// differentiation of `f`.
///
/// Memory that functions share in place is freed with the function that created it, which is the last one to be
/// differentiated. Functions that share it free nothing.
pub(crate) fn after_last_gradient(a: &Arena, f: Ix, o: usize) -> Option<Readers> {
    if a.facts(f).shares_output(o, a.inputs(f).len()) {
        return None;
    }
    let mut readers = Readers { functions: SmallVec::new(), tensors: SmallVec::new(), is_shared: false };
    let mut outputs: SmallVec<[(Ix, usize); 2]> = SmallVec::from_slice(&[(f, o)]);
    let protected = flag::PERSISTENT | flag::PROHIBIT_CLEAR;
    while let Some((f, o)) = outputs.pop() {
        readers.tensors.push(a.output_tensor(f, o));
        let Some(v) = a.live_output(f, o) else { continue };
        if a.has_flag(v, protected) {
            return None;
        }
        for f in a.consumers(v) {
            let facts = a.facts(f);
            if !facts.may_clear_inputs {
                return None;
            }
            let reader = (f, a.function_generation(f));
            if readers.functions.contains(&reader) {
                continue; // through another of its inputs
            }
            readers.functions.push(reader);
            let inputs = a.inputs(f);
            let aliases = (0..inputs.len()).filter(|i| inputs[*i] == v).filter_map(|i| facts.alias(i));
            outputs.extend(aliases.map(|alias| (f, alias.output)));
        }
    }
    readers.is_shared = readers.tensors.len() > 1;
    Some(readers)
}

/// The data of the outputs of `f` that may be freed after its last differentiation.
///
/// In a static graph as for `clear_buffer`, in dynamic mode the data that no handle can see. Keeps data that a
/// function awaiting its backward run may read, and the tensors that `keep` selects.
pub(crate) fn after_differentiation(
    a: &Outcomes<'_>,
    f: Ix,
    keep: impl Fn(Ix) -> bool,
) -> SmallVec<[Arc<Storage>; 1]> {
    let at_once = a.ran_eagerly(f);
    let mut cleared = SmallVec::new();
    for (o, tensor) in a.output_tensors(f).enumerate() {
        let Some(data) = a.existing_data(tensor) else { continue };
        let readers = after_last_gradient(a, f, o).filter(|readers| !readers.any_tensor(&keep));
        let is_of_others = data.is_narrowed() || data.may_be_of_leaf();
        let Some(readers) = readers.filter(|_| !is_of_others) else { continue };
        let awaited = readers.functions.iter().any(|(f, _)| a.awaits_backward(*f));
        let seen = data.users() > 0 || (at_once && Arc::strong_count(data) > 1);
        if !awaited && !((at_once || readers.is_shared) && seen) {
            cleared.push(Arc::clone(data));
        }
    }
    cleared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Variable, apply, arena};

    /// Applies an operation without arguments and returns its first output.
    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    #[test]
    fn a_persistent_value_is_not_released_after_its_last_gradient() {
        let x = Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(true);
        let h = one("sin", &[&x]);
        let y = one("sin", &[&h]);
        let readers = || {
            arena::with(|a| {
                let f = a.parent(h.ix());
                after_last_gradient(a, f, 0).map(|readers| readers.functions.to_vec())
            })
        };
        let consumer = arena::with(|a| {
            let f = a.parent(y.ix());
            (f, a.function_generation(f))
        });
        assert_eq!(readers(), Some(vec![consumer]));
        h.set_persistent(true);
        assert_eq!(readers(), None);
    }
}
