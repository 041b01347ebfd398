//! Hooks on gradients during a differentiation.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use crate::array::Storage;
use crate::graph::arena::{self, Arena, Ix};
use crate::graph::autodiff::route::{GradientRoute, GradientSlot, GradientSlotIx};
use crate::graph::handles::gradient_hooks::{self, GradientHook, When};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::settings::modes::Scope;
use crate::{Error, Result};

/// The functions of a run, locked for it until this is dropped.
pub(crate) struct Suspended {
    /// The locked functions.
    pub(crate) functions: Vec<Ix>,
    /// True while the run holds its functions, false while a hook runs.
    pub(crate) busy: Cell<bool>,
}

impl Suspended {
    /// Calls a hook, which may run the graph itself.
    fn at_rest<R>(&self, hook: impl FnOnce() -> Result<R>) -> Result<R> {
        arena::with(|a| a.suspend_run(&self.functions));
        self.busy.set(false);
        let result = hook()?;
        arena::with(|a| {
            if !a.resume_run(&self.functions) {
                let text =
                    "autodiff: expected the graph at rest after a hook, but another run of it is under way";
                return Err(Error::Graph(text.into()));
            }
            self.busy.set(true);
            Ok(result)
        })
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        arena::with(|a| match self.busy.get() {
            true => a.end_run(&self.functions),
            false => a.release_run(&self.functions),
        });
    }
}

/// The hooks on the gradients of a route that were not called yet. Each is called once in a run.
pub(crate) struct RunHooks<'a> {
    /// The hooks on each gradient, by gradient slot.
    by_slot: HashMap<GradientSlotIx, Vec<Arc<dyn GradientHook>>>,
    /// The route on which the hooks are.
    route: &'a GradientRoute,
    /// The functions to unlock while a hook runs, if the run has locked any.
    held: Option<&'a Suspended>,
}

/// True if there are hooks on a gradient of a route.
pub(crate) fn any(a: &Arena, route: &GradientRoute) -> bool {
    let hooked = |slot: &GradientSlot| !a.gradient_hooks(slot.tensor, slot.leaf, When::Gradient).is_empty();
    a.is_hooked() && route.slots.iter().any(hooked)
}

impl<'a> RunHooks<'a> {
    /// No hooks, for a route on which no gradient has one.
    pub(crate) fn none(route: &'a GradientRoute) -> Self {
        Self { by_slot: HashMap::new(), route, held: None }
    }

    /// The gradient hooks of all slots on a route.
    pub(crate) fn of(route: &'a GradientRoute, held: Option<&'a Suspended>) -> Self {
        let by_slot = arena::with(|a| {
            let hooks = |(n, slot): (usize, &GradientSlot)| {
                // The contribution of a part of a graph to an outside variable is not the variable's complete
                // gradient.
                if route.ends_outside(n) {
                    return None;
                }
                let hooks = a.gradient_hooks(slot.tensor, slot.leaf, When::Gradient);
                (!hooks.is_empty()).then_some((n as GradientSlotIx, hooks))
            };
            route.slots.iter().enumerate().filter_map(hooks).collect()
        });
        Self { by_slot, route, held }
    }

    /// True if there is any hook.
    pub(crate) fn any(&self) -> bool {
        !self.by_slot.is_empty()
    }

    /// True if a slot has hooks that were not called yet.
    pub(crate) fn has(&self, slot: GradientSlotIx) -> bool {
        self.by_slot.contains_key(&slot)
    }

    /// Calls the hooks on a slot whose gradient is complete. Returns the replacement, if any.
    pub(crate) fn on_variable(&mut self, slot: GradientSlotIx, g: &Variable) -> Result<Option<Variable>> {
        let Some(hooks) = self.by_slot.remove(&slot) else { return Ok(None) };
        gradient_hooks::call_each(&hooks, g)
    }

    /// Calls the hooks on a slot whose gradient, in memory, is complete. Stores their replacement there, if any.
    pub(crate) fn on_array(
        &mut self,
        slot: GradientSlotIx,
        gradients: &mut [Option<Arc<Storage>>],
    ) -> Result<Option<Arc<Storage>>> {
        if !self.has(slot) {
            return Ok(None);
        }
        let Some(storage) = gradients[slot as usize].clone() else { return Ok(None) };
        let tensor = self.route.slots[slot as usize].tensor;
        let shape = arena::with(|a| a.shape(tensor).clone());
        let g = Variable::over(&NdArray { shape, storage })?;
        let held = self.held;
        let _scope = Scope::at_once(false);
        let mut call = || self.on_variable(slot, &g);
        let changed = match held {
            Some(held) => held.at_rest(call)?,
            None => call()?,
        };
        let changed = changed.map(|v| v.data().storage);
        if let Some(changed) = &changed {
            gradients[slot as usize] = Some(Arc::clone(changed));
        }
        Ok(changed)
    }
}
