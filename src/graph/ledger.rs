//! What functions that run as soon as they are built have in memory under a budget, and which of it to give up.
//!
//! Nobody knows what such a program computes next, so that the choice is greedy: whenever memory is wanted that is not
//! there, values go that cost little to compute again for the bytes they give and that are far away in the order of the
//! graph, which a backward run comes back to last. (The idea is that of Kirisame et al., Dynamic Tensor
//! Rematerialization, ICLR 2021; here the distance takes the place of the time since the last use, since the way back is
//! known.) What a value costs counts what is gone above it, so that what stays lies spaced out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::arena::{Arena, Ix, NONE, flag};
use super::{clear, execute, mode, rehearsal};
use crate::array::Storage;

/// Values of up to so many elements are not counted: their memory is not worth giving back.
pub(super) const SMALL: usize = 1024;

/// The memory of the graphs that one thread builds under a budget.
#[derive(Default)]
pub(super) struct Ledger(Mutex<Book>);

thread_local! {
    static OWN: Arc<Ledger> = Arc::default();
}

static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether any function was ever built under a budget.
pub(super) fn in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Storages that must stay for the moment, with how many need each.
#[derive(Default)]
pub(super) struct Pins(HashMap<*const Storage, u32>);

// SAFETY: the pointers are compared, never followed.
unsafe impl Send for Pins {}

impl Pins {
    pub(super) fn add(&mut self, storage: &Arc<Storage>) {
        *self.0.entry(Arc::as_ptr(storage)).or_default() += 1;
    }

    /// Takes one pin back; says whether it was the last one.
    pub(super) fn take(&mut self, storage: &Arc<Storage>) -> bool {
        let Some(n) = self.0.get_mut(&Arc::as_ptr(storage)) else { return true };
        *n -= 1;
        let last = *n == 0;
        if last {
            self.0.remove(&Arc::as_ptr(storage));
        }
        last
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn contains(&self, storage: &Arc<Storage>) -> bool {
        self.0.contains_key(&Arc::as_ptr(storage))
    }
}

/// When a value was first computed, and as which output.
type Key = (u64, u32);

/// What a function computed and what is in memory.
struct Value {
    storage: Weak<Storage>,
    function: Ix,
    generation: u32,
    /// Work to compute it again, with what is gone above it.
    cost: u64,
    /// A gradient reads it, or its function may not run again.
    needed: bool,
    /// Somebody had hold of its memory when a run began.
    held: bool,
    /// The run under way has no more use for it.
    done: bool,
}

#[derive(Default)]
pub(super) struct Book {
    pub(super) limit: usize,
    values: BTreeMap<Key, Value>,
    /// Variables that no function computes, with their generations.
    leaves: BTreeSet<(Ix, u32)>,
    /// Gradients on their way.
    gradients: Vec<Weak<Storage>>,
    /// Backward runs under way: they have hold of all values.
    pub(super) runs: u32,
}

impl Ledger {
    /// That of this thread, with the budget that holds now.
    pub(super) fn of_thread(limit: usize) -> Arc<Self> {
        IN_USE.store(true, Ordering::Relaxed);
        let own = OWN.with(Arc::clone);
        own.0.lock().limit = limit;
        own
    }

    /// To be locked after the arena.
    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }
}

/// Whether a function computes the same when it runs again, and nobody but its outputs notices.
pub(super) fn is_repeatable(a: &Arena, f: Ix) -> bool {
    let op = a.op(f);
    let modifies = |i| op.alias(i).is_some_and(|alias| alias.modifies);
    !execute::sets_up_outside(op) && !(0..a.functions[f].inputs.len()).any(modifies)
}

/// The work of a function as [`rehearsal::work_of`] estimates it.
fn work(a: &Arena, f: Ix) -> u64 {
    let slot = &a.functions[f];
    let inputs = slot.inputs.iter().map(|v| &a.cores[a.variables[*v].core].shape);
    let outputs = slot.outputs.iter().map(|o| &a.cores[o.core].shape);
    rehearsal::work_of(a.op(f), &inputs.collect::<Vec<_>>(), &outputs.collect::<Vec<_>>())
}

fn is_gone(a: &Arena, core: Ix) -> bool {
    a.cores[core].data.as_ref().is_some_and(|data| data.is_cleared())
}

impl Book {
    /// Counts what `f` has just computed, and what it took from outside.
    pub(super) fn add(&mut self, a: &mut Arena, f: Ix) {
        for i in 0..a.functions[f].inputs.len() {
            let v = a.functions[f].inputs[i];
            if a.variables[v].parent == NONE && a.cores[a.variables[v].core].shape.size() > SMALL {
                self.leaves.insert((v, a.variables[v].generation));
            }
        }
        let repeatable = is_repeatable(a, f);
        let cost = work(a, f);
        for o in 0..a.functions[f].outputs.len() {
            let op = a.op(f);
            let shared =
                (0..a.functions[f].inputs.len()).any(|i| op.alias(i).is_some_and(|alias| alias.output == o));
            if let (Some(v), true) = (a.live_output(f, o), repeatable) {
                a.variables[v].flags |= flag::DROPPED;
            }
            let (slot, output) = (&a.functions[f], a.functions[f].outputs[o]);
            let Some(data) = a.cores[output.core].data.as_ref().filter(|d| !shared && d.len() > SMALL) else {
                continue;
            };
            let storage = Arc::downgrade(data);
            let (function, generation) = (f, slot.generation);
            let value =
                Value { storage, function, generation, cost, needed: !repeatable, held: false, done: false };
            self.values.insert((slot.born, o as u32), value);
        }
    }

    /// Counts an array that a backward run writes.
    pub(super) fn add_gradient(&mut self, storage: &Arc<Storage>) {
        if storage.len() > SMALL && !self.gradients.iter().any(|g| g.as_ptr() == Arc::as_ptr(storage)) {
            self.gradients.push(Arc::downgrade(storage));
        }
    }

    /// Notes whose memory somebody else has hold of, which cannot be told once a run has.
    pub(super) fn note_holders(&mut self, a: &Arena) {
        let Self { values, .. } = self;
        for ((_, o), value) in values {
            let v = value.variable(a, *o);
            let storage = value.storage.upgrade();
            value.held = match (v, storage) {
                (Some(v), Some(storage)) => Arc::strong_count(&storage) - 1 > sharers(a, v),
                _ => true,
            };
            value.done = false;
        }
    }

    /// From now on the budget is that of the thread which asks, if it has one.
    pub(super) fn renew_limit(&mut self) {
        self.limit = mode::memory_budget().unwrap_or(self.limit);
    }

    /// Says that the run under way has no more use for what `f` computed.
    pub(super) fn finish(&mut self, a: &Arena, f: Ix) {
        let born = a.functions[f].born;
        self.values.range_mut((born, 0)..=(born, u32::MAX)).for_each(|(_, value)| value.done = true);
    }

    /// Bytes of all that is in memory; forgets what is not.
    fn sweep(&mut self, a: &Arena) -> usize {
        let mut live = 0;
        let mut lost = Vec::new();
        self.values.retain(|(_, o), value| {
            let bytes = value.storage.upgrade().map_or(0, |s| s.held_bytes());
            live += bytes;
            if bytes == 0 && value.variable(a, *o).is_some() {
                lost.push((value.function, *o, value.cost));
            }
            bytes > 0
        });
        for (f, o, cost) in lost {
            self.spread(a, f, o, cost);
        }
        live + self.lasting(a) + self.on_their_way()
    }

    /// Bytes of leaves that something in a graph still reads, and of their gradients.
    pub(super) fn lasting(&mut self, a: &Arena) -> usize {
        let used = |&(v, generation): &(Ix, u32)| {
            a.variables[v].generation == generation && a.consumers(v).next().is_some()
        };
        self.leaves.retain(used);
        let mut cores: Vec<Ix> = self.leaves.iter().map(|(v, _)| a.variables[*v].core).collect();
        cores.sort_unstable();
        cores.dedup();
        let bytes = |core: &Ix| {
            let both = [&a.cores[*core].data, &a.cores[*core].grad];
            both.into_iter().flatten().map(|s| s.held_bytes()).sum::<usize>()
        };
        cores.iter().map(bytes).sum()
    }

    fn on_their_way(&mut self) -> usize {
        let mut live = 0;
        self.gradients.retain(|g| {
            let bytes = g.upgrade().map_or(0, |s| s.held_bytes());
            live += bytes;
            bytes > 0
        });
        live
    }

    /// Gives values up until `need` more bytes fit, for a function that was born at `now`; nothing where that cannot be.
    ///
    /// # Errors
    /// Bytes that would do.
    pub(super) fn make_room(&mut self, a: &Arena, need: usize, pins: &Pins, now: u64) -> Result<(), usize> {
        let mut live = self.sweep(a);
        if live.saturating_add(need) <= self.limit {
            return Ok(());
        }
        let mut candidates = Vec::new();
        let mut most = 0;
        for (key, value) in &mut self.values {
            let Some(storage) = value.storage.upgrade().filter(|s| !pins.contains(s)) else { continue };
            if !value.may_go(a, key.1, &storage, self.runs > 0) {
                continue;
            }
            value.needed =
                value.needed || value.variable(a, key.1).is_some_and(|v| clear::is_read_backward(a, v));
            most += storage.held_bytes();
            candidates.push((*key, storage.held_bytes()));
        }
        if (live - most).saturating_add(need) > self.limit {
            return Err((live - most).saturating_add(need));
        }
        while live.saturating_add(need) > self.limit {
            let score = |(key, bytes): &(Key, usize)| {
                self.values.get(key).map_or(0.0, |v| v.score(key.0, *bytes, now))
            };
            let scores: Vec<f64> = candidates.iter().map(score).collect();
            let Some(at) = (0..scores.len()).min_by(|i, j| scores[*i].total_cmp(&scores[*j])) else { break };
            let (key, bytes) = candidates.remove(at);
            if self.give_up(a, key) {
                live -= bytes;
            }
        }
        Ok(())
    }

    /// Clears what output `o` of `f` holds, if nobody sees it and no gradient reads it.
    pub(super) fn drop_idle(&mut self, a: &Arena, f: Ix, o: usize) {
        let key = (a.functions[f].born, o as u32);
        let Some(value) = self.values.get(&key) else { return };
        let Some(storage) = value.storage.upgrade() else { return };
        let read = value.variable(a, key.1).is_none_or(|v| clear::is_read_backward(a, v));
        if !read && value.may_go(a, key.1, &storage, self.runs > 0) {
            drop(storage);
            self.give_up(a, key);
        }
    }

    fn give_up(&mut self, a: &Arena, key: Key) -> bool {
        let Some(value) = self.values.remove(&key) else { return false };
        let cleared = value.storage.upgrade().is_some_and(|s| s.clear(true).is_ok());
        self.spread(a, value.function, key.1, value.cost);
        cleared
    }

    /// What is computed from a value that is gone costs more from now on.
    fn spread(&mut self, a: &Arena, f: Ix, o: u32, cost: u64) {
        let mut seen = HashSet::new();
        let mut gone: Vec<Ix> = a.live_output(f, o as usize).into_iter().collect();
        while let Some(v) = gone.pop() {
            for c in a.consumers(v).filter(|c| seen.insert(c.function)) {
                let slot = &a.functions[c.function];
                for (o, output) in slot.outputs.iter().enumerate() {
                    if is_gone(a, output.core) {
                        gone.extend(a.live_output(c.function, o));
                    } else if let Some(below) = self.values.get_mut(&(slot.born, o as u32)) {
                        below.cost = below.cost.saturating_add(cost);
                    }
                }
            }
        }
    }
}

impl Value {
    /// The variable, if it is alive.
    fn variable(&self, a: &Arena, o: u32) -> Option<Ix> {
        let alive = a.functions[self.function].generation == self.generation;
        if alive { a.live_output(self.function, o as usize) } else { None }
    }

    /// Whether nobody sees it, and it can be computed again.
    fn may_go(&self, a: &Arena, o: u32, storage: &Arc<Storage>, running: bool) -> bool {
        let Some(v) = self.variable(a, o) else { return false };
        let slot = &a.variables[v];
        let lasts =
            slot.flags & (flag::PERSISTENT | flag::PROHIBIT_CLEAR) != 0 || slot.flags & flag::DROPPED == 0;
        if lasts || storage.users() > 0 || storage.is_exported() || storage.is_narrowed() {
            return false;
        }
        // One count is the caller's.
        let held = if running { self.held } else { Arc::strong_count(storage) - 1 > sharers(a, v) };
        let f = &a.functions[self.function];
        let there = |v: &Ix| {
            let slot = &a.variables[*v];
            !is_gone(a, slot.core) || (slot.parent != NONE && slot.flags & flag::RESTORED != 0)
        };
        !held && f.inputs.iter().all(there) && has_leaves_as_they_were(a, self.function)
    }

    /// What it is worth to keep it.
    fn score(&self, born: u64, bytes: usize, now: u64) -> f64 {
        match self {
            Self { done: true, .. } => -1.0,
            Self { needed: false, .. } => 0.0,
            _ => self.cost as f64 / (bytes as f64 * (now.abs_diff(born) + 1) as f64),
        }
    }
}

/// Whether the inputs of `f` that are there are those that it ran on.
pub(super) fn is_as_it_was(a: &Arena, f: Ix) -> bool {
    let slot = &a.functions[f];
    let x = slot.inputs.iter().map(|v| a.cores[a.variables[*v].core].data.as_deref());
    slot.memo.modified(x, std::iter::empty()).is_none()
}

/// As [`is_as_it_was`], of inputs that no function computes. (One that was computed from a leaf that changed differs, and
/// whoever read what it was finds out.)
fn has_leaves_as_they_were(a: &Arena, f: Ix) -> bool {
    let slot = &a.functions[f];
    let leaf = |v: &Ix| a.variables[*v].parent == NONE;
    let x = slot.inputs.iter().map(|v| a.cores[a.variables[*v].core].data.as_deref().filter(|_| leaf(v)));
    slot.memo.modified(x, std::iter::empty()).is_none()
}

/// How many pairs share the memory of `v` by functions in place, itself among them; none where one of them is seen from
/// outside of the graph.
fn sharers(a: &Arena, v: Ix) -> usize {
    let mut all = 0;
    let mut next = vec![v];
    while let Some(v) = next.pop() {
        // Its own count and that of the function that computes it.
        if a.cores[a.variables[v].core].count > 2 {
            return 0;
        }
        all += 1;
        for c in a.consumers(v) {
            let slot = &a.functions[c.function];
            for (i, _) in slot.inputs.iter().enumerate().filter(|(_, input)| **input == v) {
                let op = a.op(c.function);
                if !op.may_clear_inputs() {
                    return 0;
                }
                let Some(alias) = op.alias(i) else { continue };
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
