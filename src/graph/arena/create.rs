//! Creation of nodes: a function, its inputs and its outputs.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::graph::arena::slots::{Consumer, FunctionSlot, Output, TensorSlot, VariableSlot};
use crate::graph::arena::{Arena, Ix, NONE, flag};
use crate::graph::settings::modes;
use crate::ops::Op;

/// The properties of a new function.
#[derive(Clone, Copy)]
pub(crate) struct NewFunction {
    /// Created under `no_grad`: gradients never flow through it.
    pub(crate) no_grad: bool,
    /// The number of its context.
    pub(crate) context: u16,
}

impl Arena {
    /// A new tensor with a count of one.
    pub(crate) fn new_tensor(&mut self, shape: &Shape) -> Ix {
        let (ix, slot) = self.tensors.take(TensorSlot::blank);
        slot.count = 1;
        slot.shape.clone_from(shape);
        ix
    }

    /// A new variable on a tensor. Takes over the caller's count of the tensor, and has a count of one itself.
    pub(crate) fn new_variable(&mut self, tensor: Ix, flags: u16, parent: Ix, rank: u32) -> Ix {
        let (ix, slot) = self.variables.take(VariableSlot::blank);
        (slot.count, slot.tensor, slot.flags) = (1, tensor, flags);
        (slot.parent, slot.rank) = (parent, rank);
        ix
    }

    /// A new function of these inputs, which it holds, and whether a gradient flows through it. Each output that is
    /// added holds it.
    #[inline(always)]
    pub(crate) fn new_function(
        &mut self,
        op: Op,
        inputs: impl Iterator<Item = Ix>,
        new: NewFunction,
    ) -> (Ix, bool) {
        let (f, slot) = self.functions.take(FunctionSlot::blank);
        let as_consumer = Consumer { function: f, generation: slot.generation };
        let (mut own, mut rank, mut need_grad) = (SmallVec::new(), 0, false);
        for v in inputs {
            let input = self.add_consumer(v, as_consumer);
            input.count += 1;
            (rank, need_grad) = (rank.max(input.rank), need_grad | input.need_grad());
            own.push(v);
        }
        need_grad &= !new.no_grad;
        let slot = &mut self.functions[f];
        (slot.op, slot.inputs, slot.born, slot.set_up) = (Some(op), own, self.births, self.reshapes);
        (slot.rank, slot.need_grad, slot.no_grad, slot.context) = (rank, need_grad, new.no_grad, new.context);
        slot.provenance.identify(slot.generation, f);
        self.births += 1;
        (f, need_grad)
    }

    /// Appends an output to a new function. Returns its variable with a count for the caller, which is one of these
    /// handles or, if there are none, another holder.
    #[inline(always)]
    pub(crate) fn add_output(&mut self, f: Ix, shape: &Shape, flags: u16, handles: u32) -> Ix {
        let (tensor, slot) = self.tensors.take(TensorSlot::blank);
        (slot.count, slot.handles) = (2, handles); // the variable and the function hold it
        slot.shape.clone_from(shape);
        let (v, variable) = self.variables.take(VariableSlot::blank);
        let function = &mut self.functions[f];
        (variable.count, variable.handles, variable.tensor, variable.flags) = (1, handles, tensor, flags);
        (variable.parent, variable.rank) = (f, function.rank + 1);
        function.outputs.push(Output { variable: v, generation: variable.generation, tensor });
        function.count += 1;
        v
    }

    /// Inserts a function of one input and one output between `f` and its input `i`.
    pub(crate) fn insert_before(&mut self, f: Ix, i: usize, op: Op) {
        let FunctionSlot { no_grad, context, .. } = self.functions[f];
        let v = self.functions[f].inputs[i];
        let (new, _) = self.new_function(op, [].into_iter(), NewFunction { no_grad, context });
        let shape = self.shape(self.tensor(v)).clone();
        let output = self.add_output(new, &shape, if no_grad { flag::NEED_GRAD_SET } else { 0 }, 0);
        // The new function takes over the count of `v` that belonged to `f`.
        self.functions[new].inputs.push(v);
        self.remove_consumer(v, f);
        self.add_consumer(v, self.as_consumer(new));
        self.functions[f].inputs[i] = output;
        self.add_consumer(output, self.as_consumer(f));
        self.outdate(self.tensor(v));
    }

    /// The variable of output `o` of `f`, counted for the caller. If the variable in the graph was freed, returns a
    /// new one on the same tensor that is not in the graph.
    pub(crate) fn output(&mut self, f: Ix, o: usize) -> Ix {
        if let Some(v) = self.live_output(f, o) {
            self.variables[v].count += 1;
            return v;
        }
        let tensor = self.functions[f].outputs[o].tensor;
        self.tensors[tensor].count += 1;
        let flags = if modes::recompute() { flag::RECOMPUTE } else { 0 };
        self.new_variable(tensor, flags, NONE, 0)
    }

    /// The variable of output `o` of `f`, counted for the caller. Makes a new one in the graph if it was freed.
    pub(crate) fn revived(&mut self, f: Ix, o: usize) -> Ix {
        let v = self.output(f, o);
        if self.live_output(f, o).is_none() {
            let need_grad = self.functions[f].need_grad;
            self.functions[f].count += 1;
            self.put_output(f, o, v);
            self.variables[v].flags |= if need_grad { flag::NEED_GRAD_STATE } else { 0 };
        }
        v
    }
}
