//! Hooks on gradients in a run of [`Variable::backward`].
//!
//! The gradient of a function's output is complete before that function runs backward. Its hooks are called then, and
//! their result overwrites the gradient. Gradients of leaves accumulate over runs, so a leaf with hooks gets a
//! separate gradient for the run. After the run the hooks receive it, and it is added to the previous gradient.

use std::sync::Arc;

use crate::Result;
use crate::array::Storage;
use crate::graph::arena::{self, Arena, Ix, NONE};
use crate::graph::handles::gradient_hooks::{self, When};
use crate::graph::handles::ndarray::NdArray;
use crate::graph::handles::variable::Variable;
use crate::graph::settings::modes::Scope;
use crate::graph::step::accumulate::{self, GradientSum};
use crate::graph::step::backward::BackwardStep;

/// An output of a step with hooks on its gradient.
pub(crate) struct HookedOutput {
    /// The number of the step.
    pub(crate) step: u32,
    /// The number of the output.
    number: u32,
    /// The tensor of the output.
    tensor: Ix,
}

/// A leaf with hooks.
#[derive(Clone, Copy)]
struct HookedLeaf {
    /// The tensor of the leaf.
    tensor: Ix,
    /// At least one hook needs the gradient itself, not only a call after accumulation.
    shown: bool,
    /// It has a parent that no gradient flows through, as NNabla allows. Runs overwrite its gradient.
    overwritten: bool,
}

/// The outputs and leaves of a plan that have hooks.
#[derive(Default)]
pub(crate) struct LeafHooks {
    /// The outputs of functions with hooks.
    pub(crate) outputs: Vec<HookedOutput>,
    /// The leaves with hooks.
    leaves: Vec<HookedLeaf>,
}

/// Leaves with hooks, and their gradients from a completed run.
#[derive(Default)]
pub(crate) struct DetachedLeafGrads(Vec<(HookedLeaf, Option<Arc<Storage>>)>);

impl LeafHooks {
    /// Collects the hooks on the functions of a plan. `zeroed` lists outputs without contributions, by step and
    /// number.
    pub(crate) fn of(a: &Arena, root: Ix, functions: &[Ix], zeroed: &[(u32, u32)]) -> Self {
        let mut found = Self::default();
        if !a.is_hooked() {
            return found;
        }
        let has = |tensor, leaf, when| !a.gradient_hooks(tensor, leaf, when).is_empty();
        for (f, step) in functions.iter().zip(0..) {
            for (tensor, number) in a.output_tensors(*f).zip(0..) {
                let reached = match step {
                    0 => tensor == a.tensor(root),
                    _ => zeroed.binary_search(&(step, number)).is_err(),
                };
                if reached && has(tensor, false, When::Gradient) {
                    found.outputs.push(HookedOutput { step, number, tensor });
                }
            }
            for v in a.inputs(*f).iter().filter(|v| a.is_end(**v) && a.need_grad(**v)) {
                let tensor = a.tensor(*v);
                let shown = has(tensor, true, When::Gradient);
                let hooked = shown || has(tensor, true, When::Accumulated);
                if hooked && found.leaves.iter().all(|leaf| leaf.tensor != tensor) {
                    found.leaves.push(HookedLeaf { tensor, shown, overwritten: a.parent(*v) != NONE });
                }
            }
        }
        found
    }

    /// True if there is no hook.
    pub(crate) fn is_empty(&self) -> bool {
        self.outputs.is_empty() && self.leaves.is_empty()
    }

    /// Gives new gradients to leaves whose hooks need the gradient of the run.
    pub(crate) fn set_apart(&self, a: &mut Arena, apart: &mut DetachedLeafGrads) {
        for leaf in &self.leaves {
            apart.0.push((*leaf, None));
            if leaf.shown {
                a.moved(leaf.tensor);
                a.lend_gradient(leaf.tensor, Storage::new(a.shape(leaf.tensor).size()));
            }
        }
    }
}

impl DetachedLeafGrads {
    /// True if no leaf has a separate gradient.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|(leaf, _)| !leaf.shown)
    }

    /// Restores the previous gradients of the leaves, and takes the gradients of the run.
    #[must_use]
    pub(crate) fn given_back(mut self, a: &mut Arena) -> Self {
        for (leaf, grad) in self.0.iter_mut().filter(|(leaf, _)| leaf.shown) {
            a.moved(leaf.tensor);
            *grad = a.give_back_gradient(leaf.tensor);
        }
        self
    }

    /// Calls hooks with the gradients of a run, adds these to the gradients of the leaves, and then calls the hooks
    /// that run after accumulation.
    pub(crate) fn finish(self) -> Result<()> {
        let mut found = Vec::with_capacity(self.0.len());
        for (leaf, own) in &self.0 {
            let Some(storage) = own.clone().filter(|_| leaf.shown) else { continue };
            let (shape, hooks) = arena::with(|a| {
                (a.shape(leaf.tensor).clone(), a.gradient_hooks(leaf.tensor, true, When::Gradient))
            });
            let array = NdArray { shape: shape.clone(), storage: Arc::clone(&storage) };
            let _scope = Scope::at_once(false);
            let changed =
                gradient_hooks::call_each(&hooks, &Variable::over(&array)?)?.map(|v| v.data().storage);
            found.push((leaf, shape, changed.unwrap_or(storage)));
        }
        let mut sums = Vec::with_capacity(found.len());
        for (leaf, shape, more) in &found {
            let storage = arena::with(|a| Arc::clone(a.grad(leaf.tensor)));
            if leaf.overwritten {
                storage.zero()?;
            }
            let to = NdArray { shape: shape.clone(), storage };
            sums.push(GradientSum { to, tensor: leaf.tensor, more, is_ours: Arc::strong_count(more) == 1 });
        }
        accumulate::all(&sums)?;
        self.0.iter().try_for_each(|(leaf, _)| gradient_hooks::tell_accumulated(leaf.tensor))
    }
}

impl HookedOutput {
    /// Calls the hooks with the gradient that a step is about to read.
    pub(crate) fn tell(&self, step: &mut BackwardStep) -> Result<()> {
        let hooks = arena::with(|a| a.gradient_hooks(self.tensor, false, When::Gradient));
        let slot = &step.gy[self.number as usize];
        let array = NdArray { shape: slot.shape.clone(), storage: Arc::clone(&slot.storage) };
        let _scope = Scope::at_once(false);
        let Some(changed) = gradient_hooks::call_each(&hooks, &Variable::over(&array)?)? else {
            return Ok(());
        };
        let changed = changed.data().storage;
        if self.step == 0 {
            // The run must not write to its seed.
            step.start_from(self.number as usize, &changed);
        } else if !Arc::ptr_eq(&changed, &array.storage) {
            array.storage.copy_from(&changed, slot.stored, array.shape.size())?;
        }
        Ok(())
    }
}
