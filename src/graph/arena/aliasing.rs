//! In-place functions: shares the memory of inputs with outputs, and refuses unsafe in-place changes.

use std::sync::Arc;

use crate::graph::arena::describe::describe;
use crate::graph::arena::{Arena, Ix, NONE};
use crate::graph::settings::modes;
use crate::ops::Op;
use crate::{Error, Result};

/// Makes outputs of in-place functions share the memory of their inputs.
pub(crate) fn share_memory(a: &mut Arena, f: Ix) {
    for i in 0..a.functions[f].inputs.len() {
        let Some(alias) = a.facts(f).alias(i) else { continue };
        let (input, output) = (a.functions[f].inputs[i], a.functions[f].outputs[alias.output].tensor);
        let data = Arc::clone(a.data(a.variables[input].tensor));
        if a.tensors[output].data.as_ref().is_none_or(|own| !Arc::ptr_eq(own, &data)) {
            a.set_data(output, data);
        }
    }
}

/// Returns an error if the function would change a value in place that another function or the user needs.
pub(crate) fn verify(a: &Arena, f: Ix) -> Result<()> {
    for (i, v) in a.functions[f].inputs.iter().copied().enumerate() {
        if !a.facts(f).modifies(i) {
            continue;
        }
        let name = a.op(f).name();
        if !may_modify(a, v) {
            let parent = a.variables[v].parent;
            let by = if parent == NONE { "someone" } else { a.op(parent).name() };
            return Err(Error::Graph(format!(
                "{name}: expected to change input {i} in place, but {} is needed by the gradient of {by}",
                describe(a, v)
            )));
        }
        if a.consumers(v).count() > 1 {
            return Err(Error::Graph(format!(
                "{name}: expected to change input {i} in place, but {} feeds other functions too",
                describe(a, v)
            )));
        }
    }
    Ok(())
}

/// Returns an error if input `i` is changed in place and is a leaf that needs a gradient.
pub(crate) fn check_kept(a: &Arena, op: &Op, i: usize, v: Ix) -> Result<()> {
    if !a.need_grad(v) || !a.is_end(v) || modes::is_nnabla() {
        return Ok(());
    }
    Err(Error::Graph(format!(
        "{}: expected to change input {i} in place, got a leaf that requires grad; use no_grad()",
        op.name()
    )))
}

/// True if an in-place function may change the data of `v`. The gradient of its parent must not read the data. If the
/// parent shares memory with an input, that input must have one consumer and need no gradient.
pub(crate) fn may_modify(a: &Arena, v: Ix) -> bool {
    let f = a.variables[v].parent;
    if f == NONE {
        return true;
    }
    let Some(o) = (0..a.functions[f].outputs.len()).find(|o| a.live_output(f, *o) == Some(v)) else {
        return true;
    };
    a.functions[f].inputs.iter().copied().enumerate().all(|(i, input)| {
        let need_grad = a.need_grad(input);
        let shared = a.facts(f).alias(i).is_some_and(|alias| alias.output == o && !alias.modifies);
        !(need_grad && a.facts(f).backward_reads(i).output(o))
            && !(shared && (need_grad || a.consumers(input).count() > 1))
    })
}
