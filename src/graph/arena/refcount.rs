//! Reference counts of nodes. Handles, functions and runs count. Frees a node with its last holder, without
//! recursion.

use smallvec::SmallVec;

use crate::graph::arena::slots::{Consumer, FunctionSlot};
use crate::graph::arena::{Arena, Garbage, Ix, NONE, Saved, flag};
use crate::ops::Op;

impl FunctionSlot {
    /// True if one of the fields is set that [`FunctionSlot::drop_rare_fields`] resets.
    #[inline]
    fn has_rare_fields(&self) -> bool {
        self.evictor.is_some() || self.manual.is_some() || self.all_inputs.is_some() || !self.tags.is_empty()
    }

    /// Resets the fields that few functions have. Afterwards `inputs` holds active and inactive inputs.
    #[cold]
    fn drop_rare_fields(&mut self, garbage: &mut SmallVec<[Garbage; 2]>) {
        (self.evictor, self.tags) = (None, Vec::new());
        garbage.extend(self.manual.take().map(Garbage::ManualRun));
        if let Some(all) = self.all_inputs.take() {
            self.inputs = all.iter().map(|(v, _)| *v).collect();
        }
    }
}

impl Arena {
    /// Adds a count for a new handle on a variable.
    pub(crate) fn add_handle(&mut self, v: Ix) {
        self.variables[v].count += 1;
        self.count_handle(v);
    }

    /// Records that one count of a variable belongs to a handle.
    #[inline]
    pub(crate) fn count_handle(&mut self, v: Ix) {
        let slot = &mut self.variables[v];
        slot.handles += 1;
        let tensor = &mut self.tensors[slot.tensor];
        tensor.handles += 1;
        if let Some(data) = &tensor.data {
            data.add_users(1);
        }
    }

    /// Adds a count for another holder of a variable.
    #[inline]
    pub(crate) fn hold(&mut self, v: Ix) {
        self.variables[v].count += 1;
    }

    /// Adds a count for another holder of a tensor.
    #[inline]
    pub(crate) fn hold_tensor(&mut self, tensor: Ix) {
        self.tensors[tensor].count += 1;
    }

    /// Adds a count for another holder of a function.
    #[inline]
    pub(crate) fn hold_function(&mut self, f: Ix) {
        self.functions[f].count += 1;
    }

    /// Releases a handle, and frees the variable if it was the last holder.
    #[inline]
    pub(crate) fn drop_handle(&mut self, v: Ix) {
        let slot = &mut self.variables[v];
        slot.handles -= 1;
        slot.count -= 1;
        let is_last = slot.count == 0;
        let tensor = &mut self.tensors[slot.tensor];
        tensor.handles -= 1;
        if let Some(data) = &tensor.data {
            data.add_users(-1);
        }
        if is_last {
            self.bury(v);
        }
    }

    /// Releases one count of a function.
    pub(crate) fn release_function(&mut self, f: Ix) {
        if self.functions[f].count > 1 {
            self.functions[f].count -= 1;
            return;
        }
        let mut dying = std::mem::take(&mut self.dying);
        self.release_function_to(f, &mut dying);
        self.bury_all(dying);
    }

    /// Frees a variable without holders, and everything that thereby loses its last holder.
    fn bury(&mut self, v: Ix) {
        let mut dying = std::mem::take(&mut self.dying);
        dying.push(v);
        self.bury_all(dying);
    }

    /// Frees these variables, and functions and variables above them that lose their last owner. Uses an explicit
    /// stack instead of recursion.
    #[inline]
    fn bury_all(&mut self, mut dying: Vec<Ix>) {
        while let Some(v) = dying.pop() {
            let slot = &mut self.variables[v];
            slot.generation = slot.generation.wrapping_add(1);
            slot.consumers.clear();
            let (parent, tensor) = (std::mem::replace(&mut slot.parent, NONE), slot.tensor);
            let planned = slot.flags & flag::PLANNED != 0;
            if let Some(extra) = slot.extra.take() {
                self.garbage.push(Garbage::Extra(extra));
            }
            self.variables.free.push(v);
            if planned {
                self.outdate(tensor);
            }
            self.release_tensor(tensor);
            if parent != NONE {
                self.release_function_to(parent, &mut dying);
            }
        }
        self.dying = dying;
    }

    /// Releases one count of a tensor.
    #[inline]
    pub(crate) fn release_tensor(&mut self, tensor: Ix) {
        let slot = &mut self.tensors[tensor];
        slot.count -= 1;
        if slot.count == 0 {
            self.bury_tensor(tensor);
        }
    }

    /// Frees a tensor without holders.
    fn bury_tensor(&mut self, tensor: Ix) {
        let Self { tensors, garbage, .. } = self;
        let slot = &mut tensors[tensor];
        if let Some(data) = slot.data.take() {
            garbage.push(Garbage::Storage(data));
        }
        if let Some(grad) = slot.grad.take() {
            garbage.push(Garbage::Storage(grad));
        }
        if let Some(state) = slot.gradient_state.take() {
            garbage.push(Garbage::Attachment(state));
        }
        slot.plans.outdate();
        tensors.free.push(tensor);
    }

    /// Drops one count of a function. Frees it at zero, and adds its inputs to `dying` if they lose their last owner.
    fn release_function_to(&mut self, f: Ix, dying: &mut Vec<Ix>) {
        let slot = &mut self.functions[f];
        if slot.planned && slot.count == 1 {
            self.flush(); // a run may use it
        }
        let slot = &mut self.functions[f];
        slot.count -= 1;
        if slot.count > 0 {
            return;
        }
        let as_consumer = Consumer { function: f, generation: slot.generation };
        slot.generation = slot.generation.wrapping_add(1);
        (slot.pending, slot.budgeted, slot.busy, slot.need_setup) = (false, false, None, false);
        slot.may_take_copy = false;
        (slot.saved, slot.ran_eagerly) = (Saved::New, false);
        let planned = std::mem::take(&mut slot.planned);
        if slot.has_rare_fields() {
            slot.drop_rare_fields(&mut self.garbage);
        }
        // A static operation has no destructor, so it can be dropped here.
        if let Some(op @ Op::Shared(_)) = slot.op.take() {
            self.garbage.push(Garbage::Op(op));
        }
        let state = slot.provenance.take_state();
        if !state.is_empty() {
            self.garbage.push(Garbage::State(state));
        }
        let (inputs, outputs) = (std::mem::take(&mut slot.inputs), std::mem::take(&mut slot.outputs));
        self.functions.free.push(f);
        for output in &outputs {
            if planned {
                self.outdate(output.tensor);
            }
            self.release_tensor(output.tensor);
        }
        for input in &inputs {
            if self.release_input(*input, as_consumer) {
                dying.push(*input);
            }
        }
    }

    /// Releases the count of a variable that a freed function held as its consumer. Returns true if it was the last.
    #[inline]
    fn release_input(&mut self, v: Ix, consumer: Consumer) -> bool {
        if self.variables[v].flags & flag::PLANNED != 0 {
            self.consumers_changed(v);
        }
        let slot = &mut self.variables[v];
        // The most recently built consumer is last. Other entries remain until the list is full.
        if slot.consumers.last() == Some(&consumer) {
            slot.consumers.pop();
        }
        slot.count -= 1;
        slot.count == 0
    }
}
