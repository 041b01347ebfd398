//! Graphs in a forked child process. The child has one thread, so runs of other threads are ended wherever they were.

use std::cell::Cell;
use std::sync::Once;

use parking_lot::MutexGuard;

use crate::array::{fork, memory_stats};
use crate::graph::arena::slots::FunctionSlot;
use crate::graph::arena::storages::OuterGradient;
use crate::graph::arena::thread::Thread;
use crate::graph::arena::{self, Arena};

thread_local! {
    /// The arena lock, from just before a fork until just after it.
    static LOCKED: Cell<fork::HeldGuard<MutexGuard<'static, Arena>>> = const { Cell::new(None) };
}

/// Installs fork handlers, so that each child gets a consistent arena and only the runs of its own thread. The caller
/// must hold the arena lock.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        memory_stats(); // memory handlers first: memory is locked under the arena, not vice versa
        fork::around(before, parent, child);
    });
}

/// Before a fork: locks the arena, so that the child gets it in a consistent state.
extern "C" fn before() {
    fork::hold(&LOCKED, arena::lock());
}

/// After a fork, in the parent: unlocks the arena.
extern "C" fn parent() {
    drop(fork::release(&LOCKED));
}

/// After a fork, in the child: unlocks the arena, and ends the runs of threads that it does not have.
extern "C" fn child() {
    if let Some(mut arena) = fork::release(&LOCKED) {
        arena.end_runs_of_others();
        fork::unlock_in_child(arena);
    }
}

impl Arena {
    /// Ends the runs of other threads. Their work may be half done, so their functions forget what they saved and are
    /// set up again before they run.
    fn end_runs_of_others(&mut self) {
        for tensor in self.tensors.iter_mut() {
            [&tensor.data, &tensor.grad].into_iter().flatten().for_each(|storage| storage.abandon_lock());
        }
        let own = Thread::current();
        self.give_back_gradients_of_others(own);
        self.forget_gradients_of_others(own);
        let run_locks = &mut self.run_locks;
        let leased = run_locks.leased.take_if(|(_, thread)| *thread != own);
        let all = run_locks.single.len();
        run_locks.single.retain(|thread| *thread == own);
        if leased.is_none() && run_locks.single.len() == all {
            return;
        }
        self.epoch += 1;
        for f in leased.iter().flat_map(|(functions, _)| functions.iter()) {
            self.functions[*f].abandon();
        }
        for slot in self.functions.iter_mut().filter(|slot| slot.busy.is_some_and(|thread| thread != own)) {
            slot.busy = None;
            slot.count = (slot.count - 1).max(1); // no thread is left to free it
            slot.abandon();
        }
    }
}

impl Arena {
    /// Restores the own gradients of tensors that other threads had replaced for a backward run.
    fn give_back_gradients_of_others(&mut self, own: Thread) {
        while let Some(at) = self.outer.iter().rposition(|outer| outer.thread != own) {
            let OuterGradient { tensor, grad, .. } = self.outer.remove(at);
            // The run's gradient is neither read nor dropped.
            std::mem::forget(std::mem::replace(&mut self.tensors[tensor].grad, grad));
            self.moved(tensor);
        }
    }
}

impl Arena {
    /// Resets gradients that other threads were writing, all or none, to their earlier value: zero.
    fn forget_gradients_of_others(&mut self, own: Thread) {
        while let Some(at) = self.written.iter().rposition(|(thread, _)| *thread != own) {
            let (_, tensors) = self.written.remove(at);
            for tensor in &*tensors {
                // The values that the run wrote are neither read nor dropped.
                std::mem::forget(self.tensors[*tensor].grad.take());
                self.moved(*tensor);
            }
        }
    }
}

impl FunctionSlot {
    /// Forgets the state of a run that does not go on in this process.
    fn abandon(&mut self) {
        self.provenance.abandon();
        self.need_setup = true;
    }
}
