//! Graphs in a forked child, which has one thread: the runs of the others are over, wherever they were.

use std::cell::Cell;
use std::sync::Once;

use parking_lot::MutexGuard;

use crate::array::{fork, memory_stats};
use crate::graph::arena::run_lock::Thread;
use crate::graph::arena::{self, Arena, FunctionSlot, OuterGradient};

thread_local! {
    static LOCKED: Cell<fork::HeldGuard<MutexGuard<'static, Arena>>> = const { Cell::new(None) };
}

/// Has the arena whole in each child from now on, and its runs those of the thread that is there. Called under the lock of
/// the arena.
pub(crate) fn guard() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        memory_stats(); // memory has set its handlers then: whoever has the arena may want memory, not the other way round
        fork::around(before, parent, child);
    });
}

extern "C" fn before() {
    fork::hold(&LOCKED, arena::lock());
}

extern "C" fn parent() {
    drop(fork::release(&LOCKED));
}

extern "C" fn child() {
    if let Some(mut arena) = fork::release(&LOCKED) {
        arena.end_runs_of_others();
    }
}

impl Arena {
    /// What the runs had in hand may be half done: what their functions remember is lost, and they are set up before they
    /// run again.
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
            slot.count = (slot.count - 1).max(1); // nobody is there to bury it
            slot.abandon();
        }
    }
}

impl Arena {
    /// Pairs from which other threads ran backward have their own gradients again.
    fn give_back_gradients_of_others(&mut self, own: Thread) {
        while let Some(at) = self.outer.iter().rposition(|outer| outer.thread != own) {
            let OuterGradient { tensor, grad, .. } = self.outer.remove(at);
            // The gradient of the run is not looked at, and not dropped.
            std::mem::forget(std::mem::replace(&mut self.tensors[tensor].grad, grad));
            self.moved(tensor);
        }
    }
}

impl Arena {
    /// Gradients that other threads were writing, all or none, are as they were before: zero.
    fn forget_gradients_of_others(&mut self, own: Thread) {
        while let Some(at) = self.written.iter().rposition(|(thread, _)| *thread != own) {
            let (_, tensors) = self.written.remove(at);
            for tensor in &*tensors {
                // What the run wrote is not looked at, and not dropped.
                std::mem::forget(self.tensors[*tensor].grad.take());
                self.moved(*tensor);
            }
        }
    }
}

impl FunctionSlot {
    fn abandon(&mut self) {
        self.memo.abandon();
        self.need_setup = true;
    }
}
