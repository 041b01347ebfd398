//! Finds the last use of each buffer shared by in-place functions, so that a clearing run can free it. Skips buffers
//! visible to Python.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::Storage;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::lifetime::rules;
use crate::graph::step::forward::ForwardStep;

/// A buffer shared by functions of a run.
#[derive(Default)]
struct SharedMemory {
    /// A function of the run wrote it before others took it.
    is_made: bool,
    /// It must not be freed: a leaf, a persistent value, or one that a user may read.
    is_kept: bool,
    /// The number of uses of each variable on it.
    uses: HashMap<Ix, usize>,
    /// The last use, as the numbers of the step and its input.
    last: (u32, u32),
}

/// The last use of each buffer shared in place, as the numbers of the step and its input. Excludes buffers
/// without uses, and buffers of leaves, of persistent variables, of variables that Python reaches, or of inputs to
/// functions outside the run.
pub(crate) fn last_uses(a: &Arena, functions: &[Ix], steps: &[ForwardStep]) -> Vec<(u32, u32)> {
    let mut all: HashMap<*const Storage, SharedMemory> = HashMap::new();
    for (f, step) in functions.iter().zip(steps) {
        let shares = |i: &usize| a.facts(*f).alias(*i).is_some();
        for i in (0..step.x.len()).filter(shares) {
            all.insert(Arc::as_ptr(&step.x[i].storage), SharedMemory::default());
        }
    }
    if all.is_empty() {
        return Vec::new();
    }
    let is_seen = |v: Ix| a.has_flag(v, flag::PERSISTENT | flag::PROHIBIT_CLEAR);
    for (n, (f, step)) in functions.iter().zip(steps).enumerate() {
        let facts = a.facts(*f);
        for (i, x) in step.x.iter().enumerate() {
            let Some(memory) = all.get_mut(&Arc::as_ptr(&x.storage)) else { continue };
            let v = a.inputs(*f)[i];
            let may_go = rules::frees_shared_input(facts, i);
            let is_leaf = a.parent(v) == NONE || !memory.is_made;
            memory.is_kept |= !may_go || is_leaf || is_seen(v) || x.storage.users() > 0;
            *memory.uses.entry(v).or_default() += 1;
            memory.last = (n as u32, i as u32);
        }
        for (o, y) in step.y.iter().enumerate() {
            let Some(memory) = all.get_mut(&Arc::as_ptr(&y.storage)) else { continue };
            memory.is_made = true;
            if let Some(v) = a.live_output(*f, o) {
                memory.is_kept |= is_seen(v);
                memory.uses.entry(v).or_default();
            }
        }
    }
    let goes = |memory: &SharedMemory| {
        let is_taken_up = |(v, n): (&Ix, &usize)| *n > 0 && a.consumers(*v).count() == *n;
        !memory.is_kept && memory.uses.iter().all(is_taken_up)
    };
    all.into_values().filter(goes).map(|memory| memory.last).collect()
}
