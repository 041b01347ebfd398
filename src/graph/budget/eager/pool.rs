//! The pool of values that eager functions may evict under a budget, and the choice among them.
//!
//! The allocator reports how much memory is in use. All arrays of the process count, except arrays that other threads
//! created under their own budgets.
//!
//! The future of an eager program is unknown, so the choice is greedy. When more memory is needed, values are evicted
//! that are cheap to recompute for their size and far away in the order of the graph. A backward run returns to them
//! last. This follows Kirisame et al., Dynamic Tensor Rematerialization, ICLR 2021. Distance replaces the time
//! since the last use, because the order of the backward run is known. The cost of a value includes evicted values
//! above it, so the remaining values are spread over the graph.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::array::{Account, DType, Paying, Storage, pay_from};
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::budget::eager::score::{EvictionCandidate, ValueId, sharers, work};
use crate::graph::lifetime::liveness::{self, is_cleared, is_repeatable};
use crate::graph::settings::modes;

/// Values of at most this many elements are never evicted: their memory is not worth it.
const SMALL: usize = 1024;

/// The memory of the graphs that one thread builds under a budget.
pub(crate) struct EvictionPool {
    /// The values and the limit.
    state: Mutex<PoolState>,
    /// Bytes of the thread's graphs that are in use.
    account: Arc<Account>,
}

thread_local! {
    /// The pool of this thread.
    static OWN: Arc<EvictionPool> = Arc::default();
}

/// True once a thread built a function under a budget.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Charges allocations of this thread to its own account, or to none.
fn charge_own_account(on: bool) {
    pay_from(on.then(|| OWN.with(|own| Arc::clone(&own.account))));
}

/// Registers the thread-local with a destructor.
#[cfg(feature = "python")]
pub(crate) fn begin_thread() {
    let _ = OWN.try_with(|_| ());
}

/// True if any function was ever built under a budget.
pub(crate) fn in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Storages that must not be evicted now, with the number of users of each.
#[derive(Default)]
pub(crate) struct Pins(HashMap<*const Storage, u32>);

// SAFETY: the pointers are compared, never dereferenced.
unsafe impl Send for Pins {}

impl Pins {
    /// Pins a storage, so that it is not evicted. Pins are counted.
    pub(crate) fn add(&mut self, storage: &Arc<Storage>) {
        *self.0.entry(Arc::as_ptr(storage)).or_default() += 1;
    }

    /// Removes one pin. Returns true if it was the last one.
    pub(crate) fn take(&mut self, storage: &Arc<Storage>) -> bool {
        let Some(n) = self.0.get_mut(&Arc::as_ptr(storage)) else { return true };
        *n -= 1;
        let last = *n == 0;
        if last {
            self.0.remove(&Arc::as_ptr(storage));
        }
        last
    }

    /// Removes all pins.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// True if the storage is pinned.
    fn contains(&self, storage: &Arc<Storage>) -> bool {
        self.0.contains_key(&Arc::as_ptr(storage))
    }
}

/// The values that may be evicted to stay within a limit of bytes.
pub(crate) struct PoolState {
    /// The budget in bytes.
    pub(crate) limit: usize,
    /// Bytes of the thread's graphs that are in use.
    account: Arc<Account>,
    /// Values in memory, by the creation time of their function.
    values: BTreeMap<ValueId, EvictionCandidate>,
    /// The number of values at which the pool is swept for values that are no longer in memory.
    many: usize,
    /// Variables without parent, with their generations.
    leaves: BTreeSet<(Ix, u32)>,
    /// The number of active backward runs. They hold all values.
    pub(crate) runs: u32,
}

impl Default for EvictionPool {
    fn default() -> Self {
        let account = Account::open();
        let state = PoolState {
            limit: 0,
            account: Arc::clone(&account),
            values: BTreeMap::new(),
            many: 0,
            leaves: BTreeSet::new(),
            runs: 0,
        };
        Self { state: Mutex::new(state), account }
    }
}

impl Drop for EvictionPool {
    fn drop(&mut self) {
        self.account.close();
    }
}

/// Sets the memory budget, in bytes, for eager functions of this thread. Returns the previous one.
pub fn set_memory_budget(bytes: Option<usize>) -> Option<usize> {
    charge_own_account(bytes.is_some());
    modes::swap_memory_budget(bytes)
}

impl EvictionPool {
    /// The pool of the values that `f` computed, if it ran eagerly under a budget.
    pub(crate) fn of(a: &Arena, f: Ix) -> Option<Arc<Self>> {
        Arc::clone(a.evictor(f)?).downcast().ok()
    }

    /// The pool of this thread, with the current budget.
    pub(crate) fn of_thread(limit: usize) -> Arc<Self> {
        IN_USE.store(true, Ordering::Relaxed);
        let own = OWN.with(Arc::clone);
        own.state.lock().limit = limit;
        own
    }

    /// Locks the state. Must be locked after the arena.
    pub(crate) fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock()
    }

    /// Charges allocations of this thread to the account of the pool.
    pub(crate) fn pay(&self) -> Paying {
        self.account.pay()
    }
}

impl PoolState {
    /// Adds the values that `f` has just computed, and its inputs from outside.
    pub(crate) fn add(&mut self, a: &mut Arena, f: Ix) {
        for i in 0..a.inputs(f).len() {
            let v = a.inputs(f)[i];
            if a.parent(v) == NONE && a.shape(a.tensor(v)).size() > SMALL {
                self.leaves.insert((v, a.generation(v)));
            }
        }
        if self.values.len() > self.many {
            self.sweep(a);
            self.many = 2 * self.values.len() + 100;
        }
        let repeatable = is_repeatable(a, f);
        let cost = work(a, f);
        for o in 0..a.n_outputs(f) {
            let shared = a.facts(f).shares_output(o, a.inputs(f).len());
            if let (Some(v), true) = (a.live_output(f, o), repeatable) {
                a.set_flags(v, flag::DROPPED, true);
            }
            let data = a.existing_data(a.output_tensor(f, o)).filter(|d| !shared && d.len() > SMALL);
            let Some(data) = data else { continue };
            let storage = Arc::downgrade(data);
            let (function, generation) = (f, a.function_generation(f));
            let value = EvictionCandidate {
                storage,
                function,
                generation,
                cost,
                needed: !repeatable,
                held: false,
                done: false,
            };
            self.values.insert((a.birth(f), o as u32), value);
        }
    }

    /// Records which values have other holders. This cannot be determined once a run holds all values.
    pub(crate) fn note_holders(&mut self, a: &Arena) {
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

    /// Replaces the budget by the budget of the calling thread, if it has one.
    pub(crate) fn renew_limit(&mut self) {
        self.limit = modes::memory_budget().unwrap_or(self.limit);
    }

    /// Records that the active run no longer needs the outputs of `f`.
    pub(crate) fn finish(&mut self, a: &Arena, f: Ix) {
        let born = a.birth(f);
        self.values.range_mut((born, 0)..=(born, u32::MAX)).for_each(|(_, value)| value.done = true);
    }

    /// Removes leaves that no graph reads any more.
    fn forget_leaves(&mut self, a: &Arena) {
        let is_read = |leaf: &(Ix, u32)| a.is_alive(*leaf) && a.consumers(leaf.0).next().is_some();
        self.leaves.retain(is_read);
    }

    /// Removes values that are no longer in memory.
    fn sweep(&mut self, a: &Arena) {
        self.forget_leaves(a);
        let mut lost = Vec::new();
        self.values.retain(|(_, o), value| {
            let there = value.storage.upgrade().is_some_and(|s| s.held_bytes() > 0);
            if !there && value.variable(a, *o).is_some() {
                lost.push((value.function, *o, value.cost));
            }
            there
        });
        for (f, o, cost) in lost {
            self.spread(a, f, o, cost);
        }
    }

    /// A lower bound, in bytes, on the memory of a backward run: all leaves and their gradients, plus `beside` bytes
    /// at the function that is about to be built. Missing gradients have the type `grad`. Excludes gradients of
    /// leaves that only functions above it read, since they are computed later.
    pub(crate) fn backward_least(&mut self, a: &Arena, inputs: &[Ix], grad: DType, beside: usize) -> usize {
        self.forget_leaves(a);
        let mut tensors: BTreeMap<Ix, (bool, bool)> = BTreeMap::new();
        let own = inputs.iter().copied().filter(|v| a.parent(*v) == NONE);
        let all = self.leaves.iter().map(|(v, _)| (*v, false)).chain(own.map(|v| (v, true)));
        for (v, own) in all {
            let known = tensors.entry(a.tensor(v)).or_default();
            *known = (known.0 | a.need_grad(v), known.1 | own);
        }
        let held = |storage: Option<&Arc<Storage>>| storage.map_or(0, |s| s.held_bytes());
        let (mut there, mut missing, mut missing_here) = (0, 0, 0);
        for (tensor, (wanted, own)) in tensors {
            let grad_bytes = held(a.existing_grad(tensor));
            there += held(a.existing_data(tensor)) + grad_bytes;
            if wanted {
                let new = (a.shape(tensor).size() * grad.size()).saturating_sub(grad_bytes);
                missing += new;
                missing_here += if own { new } else { 0 };
            }
        }
        there + missing.max(missing_here + beside)
    }

    /// Evicts values until `need` more bytes fit, for a function created at time `now`. Evicts nothing if that is
    /// impossible.
    ///
    /// # Errors
    /// The number of bytes that would suffice.
    pub(crate) fn evict_for(&mut self, a: &Arena, need: usize, pins: &Pins, now: u64) -> Result<(), usize> {
        let mut live = self.account.seen();
        if live.saturating_add(need) <= self.limit {
            return Ok(());
        }
        self.sweep(a);
        let mut candidates = Vec::new();
        let mut most = 0;
        for (key, value) in &mut self.values {
            let Some(storage) = value.storage.upgrade().filter(|s| !pins.contains(s)) else { continue };
            if !value.may_go(a, key.1, &storage, self.runs > 0) {
                continue;
            }
            value.needed =
                value.needed || value.variable(a, key.1).is_some_and(|v| liveness::is_read_backward(a, v));
            most += storage.held_bytes();
            candidates.push((*key, storage.held_bytes()));
        }
        let least = live.saturating_sub(most).saturating_add(need);
        if least > self.limit {
            return Err(least);
        }
        while live.saturating_add(need) > self.limit {
            let score = |(key, bytes): &(ValueId, usize)| {
                self.values.get(key).map_or(0.0, |v| v.score(key.0, *bytes, now))
            };
            let scores: Vec<f64> = candidates.iter().map(score).collect();
            let Some(at) = (0..scores.len()).min_by(|i, j| scores[*i].total_cmp(&scores[*j])) else { break };
            let (key, bytes) = candidates.remove(at);
            if self.give_up(a, key) {
                live = live.saturating_sub(bytes);
            }
        }
        Ok(())
    }

    /// Clears output `o` of `f` if nothing can see it and no gradient reads it.
    pub(crate) fn drop_idle(&mut self, a: &Arena, f: Ix, o: usize) {
        let key = (a.birth(f), o as u32);
        let Some(value) = self.values.get(&key) else { return };
        let Some(storage) = value.storage.upgrade() else { return };
        let read = value.variable(a, key.1).is_none_or(|v| liveness::is_read_backward(a, v));
        if !read && value.may_go(a, key.1, &storage, self.runs > 0) {
            drop(storage);
            self.give_up(a, key);
        }
    }

    /// Evicts a value: clears its memory, and adds the cost of recomputing it to its neighbours. False if it is
    /// unknown.
    fn give_up(&mut self, a: &Arena, key: ValueId) -> bool {
        let Some(value) = self.values.remove(&key) else { return false };
        let cleared = value.storage.upgrade().is_some_and(|s| s.clear(true).is_ok());
        self.spread(a, value.function, key.1, value.cost);
        cleared
    }

    /// Adds the cost of an evicted value to the values computed from it.
    fn spread(&mut self, a: &Arena, f: Ix, o: u32, cost: u64) {
        let mut seen = HashSet::new();
        let mut gone: Vec<Ix> = a.live_output(f, o as usize).into_iter().collect();
        while let Some(v) = gone.pop() {
            for f in a.consumers(v).filter(|f| seen.insert(*f)) {
                for (o, tensor) in a.output_tensors(f).enumerate() {
                    if is_cleared(a, tensor) {
                        gone.extend(a.live_output(f, o));
                    } else if let Some(below) = self.values.get_mut(&(a.birth(f), o as u32)) {
                        below.cost = below.cost.saturating_add(cost);
                    }
                }
            }
        }
    }
}
