//! Creation of a node: a function, its inputs and its outputs in the arena.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Shape;
use crate::graph::arena::{Arena, Ix, Output, aliasing, flag};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::settings::modes::Modes;
use crate::graph::step::anomaly::BUILT_AT;
use crate::ops::{Op, Shapes};
use crate::{Error, Result};

/// Outputs of a function that was just built.
pub type Outputs = SmallVec<[Variable; 1]>;

/// Records the source line that built a function.
pub(crate) fn note_line(a: &mut Arena, outputs: &[Variable], line: Option<String>) {
    if let (Some(first), Some(line)) = (outputs.first(), line) {
        let f = a.variables[first.ix()].parent;
        a.functions[f].tags.push((BUILT_AT.into(), line));
    }
}

pub(crate) fn build(
    a: &mut Arena,
    modes: Modes,
    op: Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: Option<Shapes>,
) -> Result<Outputs> {
    if let Some(shapes) = shapes {
        return build_shaped(a, modes, op, inputs, into, &shapes);
    }
    let mut x: SmallVec<[&Shape; 4]> = SmallVec::new();
    for v in inputs {
        x.push(&a.tensors[a.variables[v.ix()].tensor].shape);
    }
    let shapes = op.shapes(&x)?;
    drop(x);
    build_shaped(a, modes, op, inputs, into, &shapes)
}

/// As `build`, with known output shapes.
#[inline(always)]
pub(crate) fn build_shaped(
    a: &mut Arena,
    modes: Modes,
    op: Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: &Shapes,
) -> Result<Outputs> {
    for (o, shape) in shapes.iter().enumerate() {
        shape.checked_size()?;
        if let Some(Some(given)) = into.get(o)
            && given.shape.size() != shape.size()
        {
            let expected = format!("an array of {} elements to write to", shape.size());
            return Err(Error::shape(op.name(), expected, [&given.shape]));
        }
    }
    let grad = modes.grad;
    let facts = op.facts();
    let mut need_grad = false;
    let (mut rank, mut rooted, mut inplace) = (0, false, false);
    for (i, v) in inputs.iter().enumerate() {
        let v = v.ix();
        need_grad |= a.need_grad(v);
        let slot = &a.variables[v];
        rank = rank.max(slot.rank);
        rooted |= slot.rank == 0 || slot.flags & (flag::PERSISTENT | flag::PROHIBIT_CLEAR) != 0;
        if facts.is_plain {
            continue; // it shares no memory
        }
        let Some(alias) = facts.alias(i) else { continue };
        inplace = true;
        if alias.modifies && grad {
            aliasing::check_kept(a, &op, i, v)?;
        }
    }
    need_grad &= grad;
    let f = a.new_function(op);
    for v in inputs {
        a.variables[v.ix()].count += 1;
        a.add_consumer(v.ix(), f);
    }
    let slot = &mut a.functions[f];
    for v in inputs {
        slot.inputs.push(v.ix());
    }
    (slot.rank, slot.need_grad, slot.no_grad, slot.context) = (rank, need_grad, !grad, modes.context);
    let mut flags = if modes.recompute { flag::RECOMPUTE } else { 0 };
    if rooted && inplace {
        flags |= flag::PROHIBIT_CLEAR;
    }
    flags |= match (grad, need_grad) {
        (false, _) => flag::NEED_GRAD_SET,
        (true, true) => flag::NEED_GRAD_STATE,
        (true, false) => 0,
    };
    let mut outputs = Outputs::new();
    for (o, shape) in shapes.iter().enumerate() {
        let tensor = a.new_tensor(shape);
        a.tensors[tensor].count += 1; // one for the variable, one for the function
        let v = a.new_variable(tensor, flags, f, rank + 1);
        a.functions[f].count += 1;
        let generation = a.variables[v].generation;
        a.functions[f].outputs.push(Output { variable: v, generation, tensor });
        outputs.push(Variable::adopt(a, v));
        if let Some(Some(given)) = into.get(o) {
            given.storage.give_to_leaf(); // a leaf may already share it
            a.set_data(tensor, Arc::clone(&given.storage));
        }
    }
    if !inplace {
        return Ok(outputs);
    }
    aliasing::share_memory(a, f);
    if let Err(error) = aliasing::verify(a, f) {
        let ixs: SmallVec<[Ix; 2]> = outputs.iter().map(Variable::ix).collect();
        std::mem::forget(outputs);
        ixs.into_iter().for_each(|v| a.drop_handle(v));
        return Err(error);
    }
    Ok(outputs)
}
