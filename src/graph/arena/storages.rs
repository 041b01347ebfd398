//! The storages of a tensor for data and gradient, and the temporary gradient of a run.

use std::sync::Arc;

use crate::array::Storage;
use crate::graph::arena::thread::Thread;
use crate::graph::arena::{Arena, Garbage, Ix};

/// A gradient that a tensor had before a run, to be restored after it.
pub(super) struct OuterGradient {
    /// The thread of the run.
    pub(super) thread: Thread,
    /// The tensor whose gradient was replaced.
    pub(super) tensor: Ix,
    /// The gradient before the run.
    pub(super) grad: Option<Arc<Storage>>,
}

impl Arena {
    /// The data of a tensor, created on first use.
    #[inline]
    pub(crate) fn data(&mut self, tensor: Ix) -> &Arc<Storage> {
        let slot = &mut self.tensors[tensor];
        let (handles, len) = (slot.handles, slot.shape.size());
        slot.data.get_or_insert_with(|| {
            let data = Storage::new(len);
            data.add_users(i64::from(handles));
            data
        })
    }

    /// The gradient of a tensor, created on first use.
    #[inline]
    pub(crate) fn grad(&mut self, tensor: Ix) -> &Arc<Storage> {
        let slot = &mut self.tensors[tensor];
        let len = slot.shape.size();
        slot.grad.get_or_insert_with(|| Storage::new(len))
    }

    /// Replaces the data of a tensor.
    pub(crate) fn set_data(&mut self, tensor: Ix, data: Arc<Storage>) {
        self.moved(tensor);
        let slot = &mut self.tensors[tensor];
        debug_assert_eq!(data.len(), slot.shape.size(), "a tensor has memory for its shape");
        data.add_users(i64::from(slot.handles));
        if let Some(old) = slot.data.replace(data) {
            old.add_users(-i64::from(slot.handles));
            self.garbage.push(Garbage::Storage(old));
        }
    }

    /// Sets the data of a new output, which no plan depends on.
    #[inline]
    pub(crate) fn set_new_data(&mut self, tensor: Ix, data: Arc<Storage>) {
        let slot = &mut self.tensors[tensor];
        debug_assert_eq!(data.len(), slot.shape.size(), "a tensor has memory for its shape");
        debug_assert!(slot.data.is_none(), "the output is new");
        data.add_users(i64::from(slot.handles));
        slot.data = Some(data);
    }

    /// Replaces the gradient of a tensor. Drops a gradient that was set aside if the tensor changed its size
    /// meanwhile.
    pub(crate) fn set_grad(&mut self, tensor: Ix, grad: Option<Arc<Storage>>) {
        self.moved(tensor);
        self.swap_grad(tensor, grad);
    }

    /// Replaces the gradient of a tensor without notice to plans.
    fn swap_grad(&mut self, tensor: Ix, grad: Option<Arc<Storage>>) {
        let slot = &mut self.tensors[tensor];
        let fits = grad.as_ref().is_none_or(|grad| grad.len() == slot.shape.size());
        let (new, unfit) = if fits { (grad, None) } else { (None, grad) };
        let old = std::mem::replace(&mut slot.grad, new);
        self.garbage.extend(old.into_iter().chain(unfit).map(Garbage::Storage));
    }

    /// Replaces the gradient of a tensor for the duration of a run of this thread. Only the plan of that run is
    /// notified.
    pub(crate) fn lend_gradient(&mut self, tensor: Ix, grad: Arc<Storage>) {
        let own = self.tensors[tensor].grad.take();
        self.outer.push(OuterGradient { thread: Thread::current(), tensor, grad: own });
        self.swap_grad(tensor, Some(grad));
    }

    /// Restores the tensor's own gradient and returns the gradient of the run.
    pub(crate) fn give_back_gradient(&mut self, tensor: Ix) -> Option<Arc<Storage>> {
        let of_run = self.tensors[tensor].grad.clone();
        let own = Thread::current();
        if let Some(at) = self.outer.iter().rposition(|outer| outer.tensor == tensor && outer.thread == own) {
            let grad = self.outer.remove(at).grad;
            self.swap_grad(tensor, grad);
        }
        of_run
    }

    /// Records that a run of this thread writes the gradients of these tensors, all or none.
    pub(crate) fn begin_writing(&mut self, tensors: &Arc<[Ix]>) {
        self.written.push((Thread::current(), Arc::clone(tensors)));
    }

    /// Ends what [`Arena::begin_writing`] began.
    pub(crate) fn end_writing(&mut self, tensors: &Arc<[Ix]>) {
        let own = Thread::current();
        let is_own = |run: &(Thread, Arc<[Ix]>)| run.0 == own && Arc::ptr_eq(&run.1, tensors);
        if let Some(at) = self.written.iter().rposition(is_own) {
            self.written.swap_remove(at);
        }
    }
}
