//! Anomaly detection: finds the first function with a non-finite result. See
//! [`set_detect_anomaly`](crate::graph::settings::modes::set_detect_anomaly).

use parking_lot::RwLock;

use crate::array::{Odd, Storage};
use crate::graph::arena::{self, Arena, Ix};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::step::backward::BackwardStep;
use crate::graph::step::forward::ForwardStep;
use crate::graph::step::operand::Operand;
use crate::{Error, Result};

/// Returns the line of the user's program that is building a function.
type SourceLine = fn() -> Option<String>;

/// The function that returns the user's source line, set by [`set_source_line`].
static SOURCE: RwLock<Option<SourceLine>> = RwLock::new(None);

/// The tag key for the source line that built a function.
pub(crate) const BUILT_AT: &str = "built at";

/// Sets the callback that returns the line of the user's program that is building a function.
pub fn set_source_line(source: fn() -> Option<String>) {
    *SOURCE.write() = Some(source);
}

/// The line of the user's program that is building a function, if available.
pub(crate) fn source_line() -> Option<String> {
    let source = *SOURCE.read();
    source.and_then(|source| source())
}

/// The kind of non-finite number in an array, if any.
fn unusual(storage: &Storage) -> Option<&'static str> {
    let holds = |what: Odd| !storage.is_cleared() && matches!(storage.first_odd(what), Ok(Some(_)));
    if holds(Odd::Nan) { Some("NaN") } else { holds(Odd::NotFinite).then_some("Inf") }
}

/// The first array with an unusual value, and what it is.
fn first(slots: &[Operand]) -> Option<(usize, &'static str)> {
    slots.iter().enumerate().find_map(|(i, slot)| Some((i, unusual(&slot.storage)?)))
}

/// Returns an error if an output is not finite.
pub(crate) fn after_forward(f: Ix, step: &ForwardStep) -> Result<()> {
    let Some((o, what)) = first(&step.y) else { return Ok(()) };
    let input = first(&step.x).map(|(i, what)| format!("; its input {i} held {what} already"));
    Err(found(f, &format!("forward: expected finite numbers, got {what} in output {o} of"), input))
}

/// Returns an error if a gradient of an input is not finite.
pub(crate) fn after_backward(f: Ix, step: &BackwardStep) -> Result<()> {
    let mut sinks = step.gx.iter().enumerate();
    let gradient = sinks.find_map(|(i, sink)| Some((i, unusual(&sink.as_ref()?.slot.storage)?)));
    let Some((i, what)) = gradient else { return Ok(()) };
    let given =
        first(&step.gy).map(|(o, what)| format!("; the gradient of its output {o} held {what} already"));
    Err(found(
        f,
        &format!("backward: expected finite numbers, got {what} as the gradient of input {i} of"),
        given,
    ))
}

/// Returns an error if an output of function `name` is not finite. For runs without a graph; callers check the mode.
pub(crate) fn after_evaluation(name: &str, y: &[NdArray]) -> Result<()> {
    let Some((o, what)) = y.iter().enumerate().find_map(|(o, y)| Some((o, unusual(&y.storage)?))) else {
        return Ok(());
    };
    let at = source_line().map_or_else(String::new, |line| format!(", built at {line}"));
    Err(Error::Graph(format!("forward: expected finite numbers, got {what} in output {o} of {name}{at}")))
}

/// Adds to an error in a gradient function the name of the function that is being differentiated.
pub(crate) fn in_gradient_of(f: Ix, error: Error) -> Error {
    let Error::Graph(text) = error else { return error };
    let (name, line) = arena::with(|a| (a.op(f).name().to_string(), line(a, f)));
    let line = line.map_or_else(String::new, |line| format!(", built at {line}"));
    Error::Graph(format!("{text}; this is in the gradient of {name}{line}"))
}

/// The line of the program that built a function, if it was noted.
fn line(a: &Arena, f: Ix) -> Option<String> {
    a.tags(f).iter().find(|(key, _)| key == BUILT_AT).map(|(_, line)| line.clone())
}

/// The error for an unusual value of a function, with the line that built it.
fn found(f: Ix, what: &str, cause: Option<String>) -> Error {
    let (name, line, output) = arena::with(|a| {
        let line = line(a, f);
        let (_, outputs) = arena::tensors(a, f);
        let shape = outputs.first().map_or_else(String::new, |tensor| a.shape(*tensor).to_string());
        (a.op(f).name().to_string(), line, shape)
    });
    let line = line.map_or_else(
        || "; build the graph inside of detect_anomaly() to be told the line".into(),
        |line| format!(", built at {line}"),
    );
    Error::Graph(format!("{what} {name}, which computes shape {output}{line}{}", cause.unwrap_or_default()))
}
