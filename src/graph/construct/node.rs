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

/// Adds a function to the graph, and its outputs to an empty list. Computes the output shapes unless they are given.
#[inline]
pub(crate) fn build(
    outputs: &mut Outputs,
    a: &mut Arena,
    modes: &Modes,
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: Option<Shapes>,
) -> Result<()> {
    let mut x: SmallVec<[&Shape; 4]> = SmallVec::new();
    for v in inputs {
        x.push(a.shape(a.tensor(v.ix())));
    }
    if let Some(shape) = op.kept_shape(&x) {
        let shape = shape.clone();
        drop(x);
        return build_shaped(outputs, a, modes, op, inputs, into, std::slice::from_ref(&shape));
    }
    // The shapes are read where the call has put them, because moving them takes time.
    let made = shapes.map_or_else(|| op.shapes(&x), Ok);
    drop(x);
    let Ok(shapes) = &made else { return made.map(drop) };
    build_checked(outputs, a, modes, op, inputs, into, shapes)
}

/// As [`build_shaped`], for shapes that need a check.
#[inline(never)]
fn build_checked(
    outputs: &mut Outputs,
    a: &mut Arena,
    modes: &Modes,
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: &[Shape],
) -> Result<()> {
    for shape in shapes {
        shape.checked_size()?;
    }
    build_shaped(outputs, a, modes, op, inputs, into, shapes)
}

/// Adds a function with outputs of these checked shapes to the graph, and the outputs to an empty list.
#[inline(always)]
pub(crate) fn build_shaped(
    outputs: &mut Outputs,
    a: &mut Arena,
    modes: &Modes,
    op: &Op,
    inputs: &[&Variable],
    into: &[Option<NdArray>],
    shapes: &[Shape],
) -> Result<()> {
    if !into.is_empty() {
        check_given(op, into, shapes)?;
    }
    // A plain function shares no memory.
    let is_plain = op.facts().is_plain;
    let shared = if is_plain { SharedInputs::default() } else { shared_memory(a, op, inputs, modes.grad)? };
    let new = NewFunction { no_grad: !modes.grad, context: modes.context };
    let (f, need_grad) = a.new_function(op.clone(), inputs.iter().map(|v| v.ix()), new);
    let mut flags = if modes.recompute { flag::RECOMPUTE } else { 0 };
    if shared.with_kept {
        flags |= flag::PROHIBIT_CLEAR;
    }
    flags |= match (modes.grad, need_grad) {
        (false, _) => flag::NEED_GRAD_SET,
        (true, true) => flag::NEED_GRAD_STATE,
        (true, false) => 0,
    };
    for shape in shapes {
        outputs.push(Variable::of_counted(a.add_output(f, shape, flags, 1)));
    }
    if into.is_empty() && !shared.any {
        return Ok(());
    }
    finish(a, f, outputs, into, shared)
}

/// Returns an error if an array to write to has another size than its output.
#[cold]
fn check_given(op: &Op, into: &[Option<NdArray>], shapes: &[Shape]) -> Result<()> {
    for (shape, given) in shapes.iter().zip(into) {
        if let Some(given) = given
            && given.shape.size() != shape.size()
        {
            let expected = format!("an array of {} elements to write to", shape.size());
            return Err(Error::shape(op.name(), expected, [&given.shape]));
        }
    }
    Ok(())
}

/// The memory that a function will share with its inputs.
#[derive(Clone, Copy, Default)]
struct SharedInputs {
    /// True if an output shares memory with an input.
    any: bool,
    /// True if moreover an input must not be cleared.
    with_kept: bool,
}

/// The memory that an operation shares with these inputs. Returns an error if it would change one that must not change.
#[inline(never)]
fn shared_memory(a: &Arena, op: &Op, inputs: &[&Variable], grad: bool) -> Result<SharedInputs> {
    let (facts, mut any, mut kept) = (op.facts(), false, false);
    for (i, v) in inputs.iter().enumerate() {
        let v = v.ix();
        kept |= a.rank(v) == 0 || a.has_flag(v, flag::PERSISTENT | flag::PROHIBIT_CLEAR);
        let Some(alias) = facts.alias(i) else { continue };
        any = true;
        if alias.modifies && grad {
            aliasing::check_kept(a, op, i, v)?;
        }
    }
    Ok(SharedInputs { any, with_kept: any && kept })
}

/// Gives the outputs of a new function the arrays to write to, and the memory that they share with inputs. If that is
/// refused, drops the outputs.
#[inline(never)]
fn finish(
    a: &mut Arena,
    f: Ix,
    outputs: &mut Outputs,
    into: &[Option<NdArray>],
    shared: SharedInputs,
) -> Result<()> {
    for (output, given) in outputs.iter().zip(into) {
        if let Some(given) = given {
            given.storage.give_to_leaf(); // a leaf may already share it
            a.set_data(a.tensor(output.ix()), Arc::clone(&given.storage));
        }
    }
    if !shared.any {
        return Ok(());
    }
    aliasing::share_memory(a, f);
    aliasing::verify(a, f).inspect_err(|_| {
        let ixs: SmallVec<[Ix; 2]> = outputs.iter().map(Variable::ix).collect();
        std::mem::forget(std::mem::take(outputs));
        ixs.into_iter().for_each(|v| a.drop_handle(v));
    })
}
