//! Changes to nodes. Each verb writes all fields that belong together, and outdates the plans that depend on them.

use std::any::Any;
use std::sync::Arc;

use crate::array::{Shape, Storage};
use crate::graph::arena::provenance::Provenance;
use crate::graph::arena::slots::{Consumer, Extra, VariableSlot};
use crate::graph::arena::{Arena, Attached, Attachment, Garbage, Ix, NONE, Partners, Saved, flag};

/// Changes to connections.
impl Arena {
    /// A use by `function`, to add to the consumers of a variable.
    pub(super) fn as_consumer(&self, function: Ix) -> Consumer {
        Consumer { function, generation: self.functions[function].generation }
    }

    /// Adds a use to the consumers of `v`, and returns `v`.
    #[inline(always)]
    pub(super) fn add_consumer(&mut self, v: Ix, consumer: Consumer) -> &mut VariableSlot {
        let slot = &self.variables[v];
        if slot.flags & flag::PLANNED != 0 || slot.consumers.len() == slot.consumers.capacity() {
            self.expect_consumer(v);
        }
        let slot = &mut self.variables[v];
        slot.consumers.push(consumer);
        slot
    }

    /// Outdates plans before `v` gets a consumer. Removes the functions that were freed from a full list of consumers.
    #[inline(never)]
    fn expect_consumer(&mut self, v: Ix) {
        self.consumers_changed(v);
        let Self { variables, functions, .. } = self;
        let consumers = &mut variables[v].consumers;
        if consumers.len() == consumers.capacity() {
            consumers.retain(|c| functions[c.function].generation == c.generation);
        }
    }

    /// Removes one use by `function` from the consumers of `v`.
    pub(crate) fn remove_consumer(&mut self, v: Ix, function: Ix) {
        self.consumers_changed(v);
        let generation = self.functions[function].generation;
        let consumers = &mut self.variables[v].consumers;
        let found = consumers.iter().position(|c| c.function == function && c.generation == generation);
        if let Some(at) = found {
            consumers.remove(at);
        }
    }

    /// Enters `v` as output `o` of `f`, on the same tensor. The caller counts `f`.
    pub(super) fn put_output(&mut self, f: Ix, o: usize, v: Ix) {
        let rank = self.functions[f].rank;
        let slot = &mut self.variables[v];
        (slot.parent, slot.rank) = (f, rank + 1);
        let generation = slot.generation;
        let output = &mut self.functions[f].outputs[o];
        (output.variable, output.generation) = (v, generation);
    }

    /// Replaces `from` by `to` among the outputs of `f`.
    fn rename_output(&mut self, f: Ix, from: Ix, to: Ix) {
        let generation = self.variables[to].generation;
        for output in self.functions[f].outputs.iter_mut().filter(|output| output.variable == from) {
            (output.variable, output.generation) = (to, generation);
        }
    }

    /// Makes `v` output `o` of `f`, which has the same tensor. Releases the former parent of `v`.
    pub(crate) fn set_parent(&mut self, v: Ix, f: Ix, o: usize) {
        self.outdate(self.variables[v].tensor);
        self.functions[f].count += 1;
        let old = self.variables[v].parent;
        self.put_output(f, o, v);
        self.set_flags(v, flag::NEED_GRAD_STATE, self.functions[f].need_grad);
        self.mark_need_setup(v);
        if old != NONE {
            self.release_function(old);
        }
    }

    /// Makes `to` the output that `from` is now, on the same tensor and with the same need of a gradient. `from` loses
    /// its parent, and `to` releases its former one.
    pub(crate) fn take_place_of(&mut self, to: Ix, from: Ix) {
        let f = self.variables[from].parent;
        self.outdate(self.variables[to].tensor);
        self.outdate(self.variables[from].tensor);
        self.rename_output(f, from, to);
        self.variables[from].parent = NONE;
        self.variables[from].rank = 0;
        let old = std::mem::replace(&mut self.variables[to].parent, f);
        self.variables[to].rank = self.functions[f].rank + 1;
        self.move_to_tensor(to, self.variables[from].tensor);
        let need_grad = flag::NEED_GRAD_SET | flag::NEED_GRAD | flag::NEED_GRAD_STATE;
        let taken = flag::PROHIBIT_CLEAR | need_grad;
        let flags = self.variables[from].flags & taken;
        self.variables[to].flags = self.variables[to].flags & !taken | flags;
        self.mark_need_setup(to);
        if old != NONE {
            self.release_function(old);
        }
    }

    /// A new variable on the tensor of `v`, counted for the caller, which takes over its parent and consumers. It
    /// gets `flags`, and the flags of `v` for gradients and clearing.
    pub(crate) fn split_off(&mut self, v: Ix, flags: u16) -> Ix {
        let VariableSlot { tensor, parent, rank, flags: own, .. } = self.variables[v];
        self.outdate(tensor);
        self.tensors[tensor].count += 1;
        let taken = flag::NEED_GRAD_SET | flag::NEED_GRAD | flag::NEED_GRAD_STATE | flag::PROHIBIT_CLEAR;
        let copy = self.new_variable(tensor, flags | own & taken, parent, rank);
        if parent != NONE {
            self.rename_output(parent, v, copy);
        }
        self.variables[v].parent = NONE;
        self.variables[v].rank = 0;
        self.move_consumers(v, copy);
        copy
    }

    /// Moves all consumers of `from`, which other holders keep alive, to `to`, which has none.
    fn move_consumers(&mut self, from: Ix, to: Ix) {
        let Self { variables, functions, .. } = self;
        let mut consumers = std::mem::take(&mut variables[from].consumers);
        consumers.retain(|c| functions[c.function].generation == c.generation);
        for c in &consumers {
            for input in functions[c.function].inputs.iter_mut().filter(|input| **input == from) {
                *input = to;
            }
        }
        // One for each time that a function takes it.
        let uses = consumers.len() as u32;
        variables[from].count -= uses;
        variables[to].count += uses;
        variables[to].consumers = consumers;
    }

    /// Moves a variable to another tensor.
    fn move_to_tensor(&mut self, v: Ix, tensor: Ix) {
        let old = self.variables[v].tensor;
        if old == tensor {
            return;
        }
        let handles = self.variables[v].handles;
        for (c, sign) in [(old, -1_i64), (tensor, 1)] {
            let slot = &mut self.tensors[c];
            slot.handles = (i64::from(slot.handles) + sign * i64::from(handles)) as u32;
            if let Some(data) = &slot.data {
                data.add_users(sign * i64::from(handles));
            }
        }
        self.tensors[tensor].count += 1;
        self.variables[v].tensor = tensor;
        self.release_tensor(old);
    }

    /// Detaches `v` from its parent: it becomes a leaf with its current values.
    pub(crate) fn detach(&mut self, v: Ix) {
        let f = std::mem::replace(&mut self.variables[v].parent, NONE);
        if f == NONE {
            return;
        }
        self.outdate(self.variables[v].tensor);
        self.variables[v].rank = 0;
        self.release_function(f);
    }

    /// Sets which of the inputs that `f` was built with are active. It must run forward again.
    pub(crate) fn set_active_inputs(&mut self, f: Ix, mask: &[bool]) {
        self.flush();
        let all = self.all_inputs(f);
        for ((v, was), is) in all.iter().zip(mask) {
            self.outdate(self.variables[*v].tensor);
            match (was, is) {
                (true, false) => self.remove_consumer(*v, f),
                (false, true) => _ = self.add_consumer(*v, self.as_consumer(f)),
                _ => {}
            }
        }
        for o in 0..self.functions[f].outputs.len() {
            self.outdate(self.functions[f].outputs[o].tensor);
        }
        let chosen: Vec<(Ix, bool)> = all.iter().zip(mask).map(|((v, _), is)| (*v, *is)).collect();
        let slot = &mut self.functions[f];
        slot.inputs = chosen.iter().filter(|(_, is)| *is).map(|(v, _)| *v).collect();
        slot.all_inputs = mask.contains(&false).then(|| chosen.into());
        (slot.need_setup, slot.pending, slot.saved) = (true, false, Saved::New);
    }
}

/// Changes to properties.
impl Arena {
    /// Sets or resets flags of `v`, without notice to plans.
    #[inline]
    pub(crate) fn set_flags(&mut self, v: Ix, bits: u16, on: bool) {
        let flags = &mut self.variables[v].flags;
        *flags = if on { *flags | bits } else { *flags & !bits };
    }

    /// Sets or resets flags of `v`. Outdates the plans that visited `v` if a flag changed.
    pub(crate) fn change_flags(&mut self, v: Ix, bits: u16, on: bool) {
        let old = self.variables[v].flags;
        self.set_flags(v, bits, on);
        if old != self.variables[v].flags {
            self.changed(v);
        }
    }

    /// Sets the name of `v`.
    pub(crate) fn set_name(&mut self, v: Ix, name: Option<String>) {
        self.extra(v).name = name;
    }

    /// The rarely used fields of a variable, created on first use.
    fn extra(&mut self, v: Ix) -> &mut Extra {
        self.variables[v].extra.get_or_insert_default()
    }

    /// The plans of runs that end at `v`, to add one.
    pub(crate) fn plans_mut(&mut self, v: Ix) -> &mut Attached {
        &mut self.extra(v).plans
    }

    /// The plans of runs that end at `v`, to take one, if it ever had one.
    #[inline]
    pub(crate) fn existing_plans_mut(&mut self, v: Ix) -> Option<&mut Attached> {
        Some(&mut self.variables[v].extra.as_mut()?.plans)
    }

    /// The prepared differentiations that start at `v`, to add one.
    pub(crate) fn prepared_mut(&mut self, v: Ix) -> &mut Attached {
        &mut self.extra(v).prepared
    }

    /// The prepared differentiations that start at `v`, to take one, if it ever had one.
    #[inline]
    pub(crate) fn existing_prepared_mut(&mut self, v: Ix) -> Option<&mut Attached> {
        Some(&mut self.variables[v].extra.as_mut()?.prepared)
    }

    /// Sets the other destinations of the forward run under a budget that ended at `v`.
    pub(crate) fn set_partners(&mut self, v: Ix, partners: Partners) {
        if *self.partners(v) != partners[..] {
            self.extra(v).partners = partners;
            self.outdate(self.variables[v].tensor); // plans of backward runs depend on it
        }
    }

    /// Records that a hook on a gradient was registered.
    pub(crate) fn note_hook(&mut self) {
        self.hooked = true;
    }

    /// The state for the gradient of a tensor.
    pub(crate) fn gradient_attachment_mut(&mut self, tensor: Ix) -> &mut Attached {
        &mut self.tensors[tensor].gradient_state
    }

    /// Allows `f` to work on copies of the inputs that it changes in place. It changes them only because nothing
    /// needs them now.
    pub(crate) fn let_take_copy(&mut self, f: Ix) {
        self.functions[f].may_take_copy = true;
    }

    /// Sets the pool of the values that `f` computed.
    pub(crate) fn set_evictor(&mut self, f: Ix, evictor: Arc<dyn Any + Send + Sync>) {
        self.functions[f].evictor = Some(evictor);
    }

    /// Replaces the user tags of `f`.
    pub(crate) fn set_tags(&mut self, f: Ix, tags: Vec<(String, String)>) {
        self.functions[f].tags = tags;
    }

    /// Adds a user tag to `f`.
    pub(crate) fn add_tag(&mut self, f: Ix, key: &str, value: String) {
        self.functions[f].tags.push((key.into(), value));
    }

    /// Records that the function was built to run immediately. Returns its provenance for that run.
    #[inline]
    pub(crate) fn begin_eager(&mut self, f: Ix) -> &mut Provenance {
        let slot = &mut self.functions[f];
        (slot.pending, slot.saved, slot.ran_eagerly) = (true, Saved::Ready, true);
        &mut slot.provenance
    }

    /// Records that a backward plan through `f` was made. Returns true if it is worth caching: for a static graph, or
    /// from the second run on.
    pub(crate) fn note_backward_plan(&mut self, f: Ix) -> bool {
        let slot = &mut self.functions[f];
        !slot.ran_eagerly || std::mem::replace(&mut slot.planned, true)
    }

    /// Marks every function that takes `v` for another setup.
    pub(crate) fn mark_need_setup(&mut self, v: Ix) {
        self.changed(v);
        let Self { variables, functions, .. } = self;
        for c in &variables[v].consumers {
            let f = &mut functions[c.function];
            f.need_setup |= f.generation == c.generation;
        }
    }

    /// Records that the outputs of `f` have the shapes that follow from its inputs.
    pub(crate) fn note_set_up(&mut self, f: Ix) {
        let slot = &mut self.functions[f];
        (slot.need_setup, slot.set_up) = (false, self.reshapes);
    }

    /// Changes the shape of a tensor, and its memory if the size changes. Functions that use the tensor through any
    /// variable notice the change when they are prepared to run.
    pub(crate) fn reshape(&mut self, tensor: Ix, shape: Shape) {
        let resized = self.tensors[tensor].shape.size() != shape.size();
        self.outdate(tensor);
        self.reshapes += 1;
        let slot = &mut self.tensors[tensor];
        (slot.shape, slot.reshaped) = (shape, self.reshapes);
        if resized {
            let data = Storage::new(self.tensors[tensor].shape.size());
            if self.tensors[tensor].data.as_ref().is_some_and(|old| old.may_be_of_leaf()) {
                data.give_to_leaf(); // an unlinked copy has the tensor too
            }
            self.set_data(tensor, data);
            self.set_grad(tensor, None);
        }
    }

    /// Derives the rank of a function, and whether gradients flow through it, from its inputs.
    pub(crate) fn follow_inputs(&mut self, f: Ix) {
        let (mut rank, mut need_grad) = (0, false);
        for i in 0..self.functions[f].inputs.len() {
            let v = self.functions[f].inputs[i];
            let (own_rank, state) = match self.variables[v].parent {
                NONE => (0, false),
                p => (self.functions[p].rank, self.functions[p].need_grad),
            };
            self.variables[v].rank = own_rank;
            self.set_flags(v, flag::NEED_GRAD_STATE, state);
            rank = rank.max(own_rank);
            need_grad |= self.need_grad(v);
        }
        let slot = &mut self.functions[f];
        let need_grad = need_grad && !slot.no_grad;
        slot.rank = rank + 1;
        if std::mem::replace(&mut slot.need_grad, need_grad) != need_grad {
            // Plans beyond this function depend on whether its gradient will read its inputs.
            self.outdate_around(f);
        }
        for o in 0..self.functions[f].outputs.len() {
            if let Some(v) = self.live_output(f, o) {
                self.set_flags(v, flag::NEED_GRAD_STATE, need_grad);
            }
        }
    }

    /// Makes the functions above `v` follow a change of its need of a gradient. Functions in a run of another thread
    /// follow in their next run.
    pub(crate) fn tell_consumers(&mut self, v: Ix) {
        let mut changed = if self.variables[v].consumers.is_empty() { vec![] } else { vec![v] };
        while let Some(v) = changed.pop() {
            let consumers: Vec<Ix> = self.consumers(v).collect();
            for f in consumers {
                let before = self.functions[f].need_grad;
                if self.is_busy(f) {
                    continue;
                }
                self.follow_inputs(f);
                if self.functions[f].need_grad != before {
                    changed
                        .extend((0..self.functions[f].outputs.len()).filter_map(|o| self.live_output(f, o)));
                }
            }
        }
    }

    /// Enqueues an attachment to be dropped after unlocking.
    pub(crate) fn discard(&mut self, attachment: Box<dyn Attachment>) {
        self.garbage.push(Garbage::Attachment(attachment));
    }
}
