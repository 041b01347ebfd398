//! Temporary gradients of tensors during a run of [`Variable::backward`](crate::graph::Variable::backward): the seed,
//! and gradients of leaves whose hooks receive only the gradient of this run.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::Storage;
use crate::graph::arena::{self, Arena, Ix};
use crate::graph::plan::backward::BackwardPlan;
use crate::graph::plan::leaf_hooks::DetachedLeafGrads;
use crate::graph::run::backward::Seed;

/// Tensors with a temporary gradient. Their own gradients are restored after the run, or when this is dropped. Must
/// be created before the arena is locked, since its destructor locks the arena.
#[derive(Default)]
pub(crate) struct LentGradients {
    /// The root, and the other outputs of its parent.
    roots: SmallVec<[Ix; 2]>,
    /// Leaves with hooks, and their gradients.
    pub(crate) leaves: DetachedLeafGrads,
}

impl LentGradients {
    /// Sets the gradient of the variable to the seed, and the gradients of other outputs of its parent to zeros.
    pub(crate) fn swap_in(&mut self, a: &mut Arena, root: Ix, plan: &mut BackwardPlan, seed: &Seed) {
        let (own, parent) = (a.tensor(root), a.parent(root));
        let outputs: SmallVec<[Ix; 2]> = a.output_tensors(parent).collect();
        let seed = plan.seed(seed);
        for (o, tensor) in outputs.into_iter().enumerate() {
            let inner = if tensor == own { seed.clone() } else { Some(Storage::new(a.shape(tensor).size())) };
            if let Some(inner) = inner {
                if let Some(step) = plan.steps.first_mut() {
                    step.start_from(o, &inner);
                }
                self.roots.push(tensor);
                a.lend_gradient(tensor, inner);
            } else if let Some(step) = plan.steps.first_mut() {
                step.start_from(o, a.grad(tensor));
            }
            for clear in
                plan.clears.iter_mut().take_while(|c| c.step == 0).filter(|c| c.place.tensor == tensor)
            {
                if clear.place.is_grad {
                    clear.place.storage = Arc::clone(a.grad(tensor));
                }
            }
        }
    }

    /// Restores all gradients. Returns the gradients of leaves that the run computed.
    pub(crate) fn give_back(&mut self, a: &mut Arena) -> DetachedLeafGrads {
        while let Some(tensor) = self.roots.pop() {
            drop(a.give_back_gradient(tensor));
        }
        std::mem::take(&mut self.leaves).given_back(a)
    }
}

impl BackwardPlan {
    /// The storage of the seed.
    fn seed(&mut self, seed: &Seed) -> Option<Arc<Storage>> {
        match seed {
            Seed::Own => None,
            Seed::Shared(array) | Seed::Temporary(array) => Some(Arc::clone(&array.storage)),
            Seed::Fill(value) => Some(self.filled(*value)),
        }
    }
}

impl Drop for LentGradients {
    fn drop(&mut self) {
        if !self.roots.is_empty() || !self.leaves.is_empty() {
            drop(arena::with(|a| self.give_back(a)));
        }
    }
}
