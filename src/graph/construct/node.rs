//! Creation of a node: a function, its inputs and its outputs in the arena.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Shape;
use crate::graph::arena::{Arena, Ix, NewFunction, aliasing, flag};
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
        let f = a.parent(first.ix());
        a.add_tag(f, BUILT_AT, line);
    }
}

/// Adds a function with its outputs to the graph. Computes the output shapes unless they are given.
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
        x.push(a.shape(a.tensor(v.ix())));
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
        rank = rank.max(a.rank(v));
        rooted |= a.rank(v) == 0 || a.has_flag(v, flag::PERSISTENT | flag::PROHIBIT_CLEAR);
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
    let f = a.new_function(op, NewFunction { rank, need_grad, no_grad: !grad, context: modes.context });
    for v in inputs {
        a.add_input(f, v.ix());
    }
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
        let (tensor, v) = a.add_output(f, shape, flags);
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
