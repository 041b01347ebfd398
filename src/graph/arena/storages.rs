//! Which storages a tensor has for its data and its gradient, and which gradient it has for the time of a run.

use std::sync::Arc;

use crate::array::Storage;
use crate::graph::arena::run_lock::Thread;
use crate::graph::arena::{Arena, Garbage, Ix};

/// A gradient that a pair had before a run, and gets back after it.
pub(crate) struct OuterGradient {
    pub(crate) thread: Thread,
    pub(crate) core: Ix,
    pub(crate) grad: Option<Arc<Storage>>,
}

impl Arena {
    /// The data of a pair, made if it was never touched.
    #[inline]
    pub(crate) fn data(&mut self, core: Ix) -> &Arc<Storage> {
        let slot = &mut self.cores[core];
        let (handles, len) = (slot.handles, slot.shape.size());
        slot.data.get_or_insert_with(|| {
            let data = Storage::new(len);
            data.add_users(i64::from(handles));
            data
        })
    }

    /// The gradient of a pair, made if it was never touched.
    #[inline]
    pub(crate) fn grad(&mut self, core: Ix) -> &Arc<Storage> {
        let slot = &mut self.cores[core];
        let len = slot.shape.size();
        slot.grad.get_or_insert_with(|| Storage::new(len))
    }

    /// Gives a pair other data.
    pub(crate) fn set_data(&mut self, core: Ix, data: Arc<Storage>) {
        self.moved(core);
        let slot = &mut self.cores[core];
        debug_assert_eq!(data.len(), slot.shape.size(), "a pair has memory for its shape");
        data.add_users(i64::from(slot.handles));
        if let Some(old) = slot.data.replace(data) {
            old.add_users(-i64::from(slot.handles));
            self.garbage.push(Garbage::Storage(old));
        }
    }

    /// Gives a pair another gradient. One that was laid aside while the pair got another size is none any more.
    pub(crate) fn set_grad(&mut self, core: Ix, grad: Option<Arc<Storage>>) {
        self.moved(core);
        self.swap_grad(core, grad);
    }

    /// As [`Arena::set_grad`], of which no plan hears.
    fn swap_grad(&mut self, core: Ix, grad: Option<Arc<Storage>>) {
        let slot = &mut self.cores[core];
        let fits = grad.as_ref().is_none_or(|grad| grad.len() == slot.shape.size());
        let (new, unfit) = if fits { (grad, None) } else { (None, grad) };
        let old = std::mem::replace(&mut slot.grad, new);
        self.garbage.extend(old.into_iter().chain(unfit).map(Garbage::Storage));
    }

    /// Gives a pair another gradient for the time of a run of this thread, of which no plan but that of the run hears.
    pub(crate) fn lend_gradient(&mut self, core: Ix, grad: Arc<Storage>) {
        let own = self.cores[core].grad.take();
        self.outer.push(OuterGradient { thread: Thread::current(), core, grad: own });
        self.swap_grad(core, Some(grad));
    }

    /// Gives a pair its own gradient back, and returns that of the run.
    pub(crate) fn give_back_gradient(&mut self, core: Ix) -> Option<Arc<Storage>> {
        let of_run = self.cores[core].grad.clone();
        let own = Thread::current();
        if let Some(at) = self.outer.iter().rposition(|outer| outer.core == core && outer.thread == own) {
            let grad = self.outer.remove(at).grad;
            self.swap_grad(core, grad);
        }
        of_run
    }
}
