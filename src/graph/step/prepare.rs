//! Prepares a function to run: looks up its operands in the arena.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::graph::arena::{Arena, Ix, NONE};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::{Operand, ProvenancePtr};

/// The data of a tensor as an array.
pub(crate) fn data_array(a: &mut Arena, tensor: Ix) -> NdArray {
    NdArray { storage: Arc::clone(a.data(tensor)), shape: a.shape(tensor).clone() }
}

/// Prepares a function to run forward. Its shapes must be those it was set up with, see
/// [`check_shapes`](crate::graph::arena::order::check_shapes).
pub(crate) fn step(a: &mut Arena, f: Ix) -> ForwardStep {
    debug_assert!(!a.has_other_shapes(f), "a function runs on the shapes that it was set up with");
    let provenance = ProvenancePtr::to(a.provenance_mut(f));
    let (op, compute) = (a.op(f).clone(), context::precision(a.context(f)));
    let (mut x, mut y) = (SmallVec::new(), SmallVec::new());
    for i in 0..a.inputs(f).len() {
        let v = a.inputs(f)[i];
        let (tensor, parent) = (a.tensor(v), a.parent(v));
        let mut operand = Operand::input(&op, i, compute, tensor, data_array(a, tensor));
        operand.is_computed = parent != NONE;
        x.push(operand);
    }
    for o in 0..a.n_outputs(f) {
        let tensor = a.output_tensor(f, o);
        y.push(Operand::output(&op, o, compute, tensor, data_array(a, tensor)));
    }
    ForwardStep::new(op, compute, x, y, provenance)
}
