//! Creation of nodes: a function, its inputs and its outputs.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::graph::arena::provenance::Provenance;
use crate::graph::arena::slots::{FunctionSlot, Output, TensorSlot, VariableSlot};
use crate::graph::arena::validity::PlanMarks;
use crate::graph::arena::{Arena, Attached, Ix, NONE, Saved, flag};
use crate::graph::settings::modes;
use crate::ops::Op;

/// The properties of a new function.
#[derive(Clone, Copy, Default)]
pub(crate) struct NewFunction {
    /// The length of the longest path to it from a variable without parent.
    pub(crate) rank: u32,
    /// Gradients flow through it.
    pub(crate) need_grad: bool,
    /// Created under `no_grad`: gradients never flow through it.
    pub(crate) no_grad: bool,
    /// The number of its context.
    pub(crate) context: u16,
}

impl Arena {
    /// A new tensor with a count of one.
    #[inline(always)]
    pub(crate) fn new_tensor(&mut self, shape: &Shape) -> Ix {
        let ix = self.tensors.take(|| TensorSlot {
            count: 0,
            handles: 0,
            shape: Shape::default(),
            reshaped: 0,
            data: None,
            grad: None,
            mark: 0,
            places: [NONE; 2],
            gradient_state: Attached::NONE,
            plans: PlanMarks::NONE,
        });
        let slot = &mut self.tensors[ix];
        slot.count = 1;
        slot.shape.clone_from(shape);
        ix
    }

    /// A new variable on a tensor. Takes over the caller's count of the tensor, and has a count of one itself.
    #[inline(always)]
    pub(crate) fn new_variable(&mut self, tensor: Ix, flags: u16, parent: Ix, rank: u32) -> Ix {
        let ix = self.variables.take(|| VariableSlot {
            generation: 0,
            count: 0,
            handles: 0,
            tensor: NONE,
            parent: NONE,
            rank: 0,
            flags: 0,
            mark: 0,
            visits: 0,
            consumers: SmallVec::new(),
            extra: None,
        });
        let slot = &mut self.variables[ix];
        slot.count = 1;
        slot.tensor = tensor;
        slot.flags = flags;
        slot.parent = parent;
        slot.rank = rank;
        ix
    }

    /// A new function without inputs and outputs. Each output that is added holds it.
    #[inline(always)]
    pub(crate) fn new_function(&mut self, op: Op, new: NewFunction) -> Ix {
        let ix = self.functions.take(|| FunctionSlot {
            generation: 0,
            born: 0,
            count: 0,
            op: None,
            inputs: SmallVec::new(),
            all_inputs: None,
            outputs: SmallVec::new(),
            rank: 0,
            need_grad: false,
            no_grad: false,
            may_take_copy: false,
            pending: false,
            saved: Saved::New,
            ran_eagerly: false,
            budgeted: false,
            evictor: None,
            planned: false,
            busy: None,
            need_setup: false,
            set_up: 0,
            context: 0,
            mark: 0,
            at: 0,
            provenance: Provenance::default(),
            manual: None,
            tags: Vec::new(),
        });
        let slot = &mut self.functions[ix];
        (slot.op, slot.born, slot.set_up) = (Some(op), self.births, self.reshapes);
        let NewFunction { rank, need_grad, no_grad, context } = new;
        (slot.rank, slot.need_grad, slot.no_grad, slot.context) = (rank, need_grad, no_grad, context);
        self.births += 1;
        slot.provenance.identify(slot.generation, ix);
        ix
    }

    /// Makes variables the inputs of a new function, which holds them.
    #[inline]
    pub(crate) fn add_inputs(&mut self, f: Ix, inputs: impl Iterator<Item = Ix>) {
        for v in inputs {
            self.variables[v].count += 1;
            self.add_consumer(v, f);
            self.functions[f].inputs.push(v);
        }
    }

    /// Appends an output to a new function. Returns its tensor, and its variable with a count for the caller.
    #[inline(always)]
    pub(crate) fn add_output(&mut self, f: Ix, shape: &Shape, flags: u16) -> (Ix, Ix) {
        let tensor = self.new_tensor(shape);
        self.tensors[tensor].count = 2; // one for the variable, one for the function
        let slot = &mut self.functions[f];
        slot.count += 1;
        let rank = slot.rank + 1;
        let v = self.new_variable(tensor, flags, f, rank);
        let generation = self.variables[v].generation;
        self.functions[f].outputs.push(Output { variable: v, generation, tensor });
        (tensor, v)
    }

    /// Inserts a function of one input and one output between `f` and its input `i`.
    pub(crate) fn insert_before(&mut self, f: Ix, i: usize, op: Op) {
        let FunctionSlot { no_grad, context, .. } = self.functions[f];
        let v = self.functions[f].inputs[i];
        let new = self.new_function(op, NewFunction { no_grad, context, ..NewFunction::default() });
        let shape = self.shape(self.tensor(v)).clone();
        let (_, output) = self.add_output(new, &shape, if no_grad { flag::NEED_GRAD_SET } else { 0 });
        // The new function takes over the count of `v` that belonged to `f`.
        self.functions[new].inputs.push(v);
        self.remove_consumer(v, f);
        self.add_consumer(v, new);
        self.functions[f].inputs[i] = output;
        self.add_consumer(output, f);
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
