//! Recomputes values that were dropped after the forward run, just before a gradient reads them.

use crate::Result;
use crate::graph::arena::order;
use crate::graph::arena::{self, Ix};
use crate::graph::budget::eager::evictor;
use crate::graph::lifetime::clear_record;
use crate::graph::lifetime::forward::Clearing;
use crate::graph::lifetime::liveness;
use crate::graph::settings::modes::Scope;
use crate::graph::step::prepare;

/// Recomputes the data of `v` and of all cleared values it depends on. Immediately clears again what no gradient
/// reads.
pub(crate) fn restore(v: Ix, clearing: &Clearing) -> Result<()> {
    if let Some(evictor) = arena::with(|a| evictor::of(a, a.parent(v))) {
        return evictor.restore(v);
    }
    let steps = arena::with(|a| {
        let functions = liveness::to_restore(a, &[v]);
        let ready = |f: Ix| {
            order::check_shapes(a, f, "recomputation")?;
            Ok((f, prepare::step(a, f), clearing.after(a, f)))
        };
        functions.into_iter().map(ready).collect::<Result<Vec<_>>>()
    })?;
    let _recomputing = Scope::recomputing(true);
    let recording = clear_record::is_recording();
    steps.into_iter().try_for_each(|(f, mut step, cleared)| {
        step.count(true); // this run may be one without a run guard
        step.forward(true)?;
        cleared.into_iter().try_for_each(|i| step.x[i].storage.clear(true))?;
        if recording {
            arena::with(|a| clear_record::record(a, f));
        }
        Ok(())
    })
}
