//! A segment of a graph: the functions that a piece of code created, and the variables they read from outside.
//! Without a graph, reads and outputs are recorded during execution.

use std::cell::RefCell;

use crate::graph::arena::{self, Ix, NONE, order};
use crate::graph::handles::variable::Variable;
use crate::graph::settings::modes;

/// A record of the variables that functions read and created without a graph.
#[derive(Default)]
pub struct Notes {
    /// Variables that need a gradient and were read, each once.
    pub read: Vec<Variable>,
    /// Numbers and generations of variables that were created.
    made: Vec<(Ix, u32)>,
}

thread_local! {
    /// The record of this thread, if it records.
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Registers the thread-local with a destructor.
#[cfg(feature = "python")]
pub(crate) fn begin_thread() {
    let _ = NOTES.try_with(|_| ());
}

/// Starts or stops recording on this thread. Returns the previous record.
pub fn swap_notes(new: Option<Notes>) -> Option<Notes> {
    modes::set_noting(new.is_some());
    NOTES.replace(new)
}

/// Records variables that are read and need a gradient.
pub fn note_read<'a>(variables: impl IntoIterator<Item = &'a Variable>) {
    for v in variables.into_iter().filter(|v| v.need_grad()) {
        NOTES.with_borrow_mut(|notes| {
            if let Some(notes) = notes.as_mut().filter(|notes| !notes.read.contains(v)) {
                notes.read.push(v.clone());
            }
        });
    }
}

/// Records variables that were created.
pub(crate) fn note_made(variables: &[Variable]) {
    let named = arena::with(|a| variables.iter().map(|v| (v.ix(), a.generation(v.ix()))).collect());
    let mut named: Vec<_> = named;
    NOTES.with_borrow_mut(|notes| notes.iter_mut().for_each(|notes| notes.made.append(&mut named)));
}

impl Notes {
    /// True if a function created the variable during this record.
    pub fn has_made(&self, v: &Variable) -> bool {
        self.made.contains(&(v.ix(), arena::with(|a| a.generation(v.ix()))))
    }
}

/// The number of functions created so far. A segment that starts here contains those created later.
pub fn births() -> u64 {
    arena::with(|a| a.births())
}

/// True if a function of the segment that started at `since` computes `v`.
pub fn is_born_since(v: &Variable, since: u64) -> bool {
    arena::with(|a| {
        let f = a.parent(v.ix());
        f != NONE && a.birth(f) >= since
    })
}

/// The variables that need a gradient and that the segment from `since` to `ends` reads from outside, each tensor
/// once. Excludes the tensors of `known`.
pub fn taken_from_outside(ends: &[&Variable], since: u64, known: &[&Variable]) -> Vec<Variable> {
    arena::with(|a| {
        let roots: Vec<Ix> = ends.iter().map(|v| v.ix()).collect();
        let mut seen: Vec<Ix> = known.iter().map(|v| a.tensor(v.ix())).collect();
        let segment = order::depth_first(a, &roots, |a, f| a.birth(f) >= since);
        let inputs = segment.iter().flat_map(|f| a.inputs(*f).to_vec());
        let mut taken = Vec::new();
        for v in roots.iter().copied().chain(inputs) {
            let parent = a.parent(v);
            let outside = parent == NONE || a.birth(parent) < since;
            let tensor = a.tensor(v);
            if outside && a.need_grad(v) && !seen.contains(&tensor) {
                seen.push(tensor);
                taken.push(v);
            }
        }
        let handle = |v: Ix| {
            a.hold(v);
            Variable::adopt(a, v)
        };
        taken.into_iter().map(handle).collect()
    })
}
