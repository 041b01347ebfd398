//! When memory is given back that functions share in place: a forward run that clears does so after its last use by any of
//! them, where nobody looks at it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::array::Storage;
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::step::forward::ForwardStep;

/// Memory that functions of a run share.
#[derive(Default)]
struct SharedMemory {
    /// A function of the run has written it before others took it.
    is_made: bool,
    is_kept: bool,
    /// How often each variable that has it is taken.
    uses: HashMap<Ix, usize>,
    /// The last use, by the numbers of the step and of its input.
    last: (u32, u32),
}

/// After which step of a run, and as which of its inputs, each memory that functions share in place has its last use. Left
/// out is what leaves or persistent variables have, what a Python variable reaches, what a function outside of the run
/// takes, and what nobody takes.
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
    let is_seen = |v: Ix| a.variables[v].flags & (flag::PERSISTENT | flag::PROHIBIT_CLEAR) != 0;
    for (n, (f, step)) in functions.iter().zip(steps).enumerate() {
        let facts = a.facts(*f);
        for (i, x) in step.x.iter().enumerate() {
            let Some(memory) = all.get_mut(&Arc::as_ptr(&x.storage)) else { continue };
            let v = a.functions[*f].inputs[i];
            let may_go = facts.may_clear_inputs && !facts.modifies(i) && !facts.overwrites(i);
            let is_leaf = a.variables[v].parent == NONE || !memory.is_made;
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
