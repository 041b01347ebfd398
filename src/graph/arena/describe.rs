//! Descriptions of nodes in error messages.

use crate::Error;
use crate::array::Shape;
use crate::graph::arena::provenance::{Modified, Side};
use crate::graph::arena::{self, Arena, Ix, NONE};

/// The error for a function whose saved values were freed.
pub(crate) fn freed_graph(by: &str) -> Error {
    Error::Freed(format!(
        "autodiff: expected a graph that has its values, but this is the second time that it goes through {by}, and \
         the first gave them back; pass retain_graph=True the first time, or call forward() again"
    ))
}

/// Adds to an error about a cleared value which function read it, and which value it was.
pub(crate) fn explain(error: Error, f: Ix, what: &str) -> Error {
    let Error::Cleared(_) = error else { return error };
    arena::with(|a| {
        let name = a.op(f).name().to_string();
        let cleared = |tensor: Ix| a.tensors[tensor].data.as_ref().is_some_and(|s| s.is_cleared());
        let (inputs, outputs) = arena::tensors(a, f);
        let found = inputs
            .iter()
            .position(|c| cleared(*c))
            .map(|i| format!("its input {i}, {}", describe(a, a.functions[f].inputs[i])));
        let found =
            found.or_else(|| outputs.iter().position(|c| cleared(*c)).map(|o| format!("its output {o}")));
        let adds_to = |i: &usize| {
            let v = &a.variables[a.functions[f].inputs[*i]];
            v.parent == NONE && a.tensors[v.tensor].grad.as_ref().is_some_and(|s| s.is_cleared())
        };
        if let (None, Some(i)) = (&found, (0..inputs.len()).find(adds_to)) {
            let variable = describe(a, a.functions[f].inputs[i]);
            return cleared_gradient(&format!("{what} of {name}"), &format!("its input {i}, {variable},"));
        }
        let found = found.unwrap_or_else(|| "a value".into());
        Error::Cleared(format!(
            "{what} of {name}: expected to read {found}, but its memory was cleared; run forward() again without \
             clear_buffer, or set persistent on it"
        ))
    })
}

/// The error for a run that was to add to the gradient of `of`, which was cleared.
fn cleared_gradient(by: &str, of: &str) -> Error {
    Error::Cleared(format!(
        "{by}: expected a gradient of {of} to add to, but its memory was cleared; zero it first"
    ))
}

/// Adds to an error about a cleared gradient of a tensor, to which a run was to add, which variable it belongs to.
pub(crate) fn explain_sum(error: Error, tensor: Ix) -> Error {
    let Error::Cleared(_) = error else { return error };
    arena::with(|a| {
        let mut own = a.variables.iter_mut().filter(|v| v.count > 0 && v.tensor == tensor);
        let name = own.find_map(|v| v.extra.as_ref()?.name.clone());
        cleared_gradient("backward", &described(name.as_deref(), &a.tensors[tensor].shape))
    })
}

impl Modified {
    /// Describes the function `f` and a value of it that was cleared.
    pub(crate) fn describe(&self, f: Ix) -> String {
        arena::with(|a| {
            let name = a.op(f).name();
            let value = match self.value {
                Side::Input(i) => format!("input {i}, {},", describe(a, a.functions[f].inputs[i])),
                Side::Output(o) => format!("output {o}"),
            };
            let versions = match self.versions {
                Some((then, now)) => format!("is at version {now}; expected version {then}"),
                None => "is in other memory".into(),
            };
            format!(
                "backward of {name}: expected the values of its forward run, but {value} was changed since: it \
                 {versions}; run forward() again, or change it after backward()"
            )
        })
    }
}

/// Describes a variable in a message, by its name if it has one.
pub(crate) fn describe(a: &Arena, v: Ix) -> String {
    let slot = &a.variables[v];
    let name = slot.extra.as_ref().and_then(|e| e.name.as_deref());
    described(name, &a.tensors[slot.tensor].shape)
}

/// Describes a variable of this name, if any, and shape.
fn described(name: Option<&str>, shape: &Shape) -> String {
    match name {
        Some(name) => format!("variable '{name}' of shape {shape}"),
        None => format!("a variable of shape {shape}"),
    }
}
