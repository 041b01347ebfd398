//! The route of a differentiation: its functions, their order, and which of their gradients are summed.
//!
//! Gradients that are summed share a *gradient slot*. A tensor has up to two: one for all leaves on it, and one for
//! the output of the function that computes it. They are separate because an unlinked copy is a leaf on the tensor of
//! an output. The gradient of the copy must not flow into that function.

use crate::graph::arena::describe::{describe, freed_graph};
use crate::graph::arena::{self, Arena, Ix, NONE, Outcomes, Saved, order};
use crate::graph::handles::function::Function;
use crate::graph::handles::variable::Variable;
use crate::{Error, Result};

/// A value to differentiate, or to differentiate by.
#[derive(Clone)]
pub enum Edge {
    /// A variable.
    Variable(Variable),
    /// An output of a function. Its variable may have been freed.
    Output(Function, usize),
}

/// The number of a gradient slot.
pub(crate) type GradientSlotIx = u32;

/// A slot in which gradients are summed.
#[derive(Clone, Copy)]
pub(crate) struct GradientSlot {
    /// The tensor whose gradient it is.
    pub(crate) tensor: Ix,
    /// It is the gradient of the tensor as a leaf, not as the output of a function.
    pub(crate) leaf: bool,
}

/// A function on the route, and where the slots of its outputs and inputs begin in the lists.
#[derive(Clone, Copy)]
struct RouteNode {
    /// Position of its first slot in [`GradientRoute::outputs`].
    outputs: u32,
    /// Position of its first slot in [`GradientRoute::inputs`].
    inputs: u32,
}

/// The functions that a differentiation runs through, and a slot for the sum of the gradients of each tensor.
pub(crate) struct GradientRoute {
    /// The functions, by descending rank.
    pub(crate) order: Vec<Ix>,
    /// All slots. Slots of targets come first.
    pub(crate) slots: Vec<GradientSlot>,
    /// One for each function of `order`.
    nodes: Vec<RouteNode>,
    /// Slots of the outputs of all functions, function by function.
    outputs: Vec<GradientSlotIx>,
    /// Slots of the inputs of all functions, function by function. `NONE` for an input whose gradient is not requested.
    inputs: Vec<GradientSlotIx>,
    /// Slots of the roots.
    pub(crate) roots: Vec<GradientSlotIx>,
    /// Slots of the targets. Empty if all leaves are targets.
    pub(crate) targets: Vec<GradientSlotIx>,
    /// Slots below this number belong to targets.
    pub(crate) n_targets: u32,
    /// Functions created before this one are not entered.
    since: u64,
    /// The mark of its functions.
    mark: u32,
}

impl Edge {
    /// The function that computes it, its tensor, and whether gradients end there.
    pub(crate) fn resolve(&self, a: &Arena) -> (Ix, Ix, bool) {
        match self {
            Self::Variable(v) => (a.parent(v.ix()), a.tensor(v.ix()), a.is_end(v.ix())),
            Self::Output(f, o) => (f.ix(), a.output_tensor(f.ix(), *o), false),
        }
    }

    /// The shape.
    pub fn shape(&self) -> crate::array::Shape {
        arena::with(|a| a.shape(self.resolve(a).1).clone())
    }

    /// True if gradients flow to it.
    pub fn need_grad(&self) -> bool {
        arena::with(|a| match self {
            Self::Variable(v) => a.need_grad(v.ix()),
            Self::Output(f, o) => {
                let output = a.live_output(f.ix(), *o);
                output.map_or(a.passes_gradients(f.ix()), |v| a.need_grad(v))
            }
        })
    }
}

impl GradientRoute {
    /// The route from `roots` back to `targets`, or to every leaf, through functions created at `since` or later.
    pub(crate) fn make(a: &mut Arena, roots: &[&Edge], targets: Option<&[Edge]>, since: u64) -> Self {
        let mark = a.new_mark();
        let mut route = Self {
            order: Vec::new(),
            slots: Vec::new(),
            nodes: Vec::new(),
            outputs: Vec::new(),
            inputs: Vec::new(),
            roots: Vec::new(),
            targets: Vec::new(),
            n_targets: 0,
            since,
            mark,
        };
        for target in targets.into_iter().flatten() {
            let (_, tensor, leaf) = target.resolve(a);
            let slot = route.slot(a, tensor, leaf);
            route.targets.push(slot);
        }
        route.n_targets = route.slots.len() as u32;
        let ends: Vec<Ix> = roots.iter().map(|root| root.resolve(a).0).collect();
        let above = order::up_to(a, &ends, |a, f| a.birth(f) >= since);
        let pruned = targets.is_some();
        if pruned {
            route.take_for_outputs(a, &above);
        }
        route.mark_paths(a, &above, pruned);
        route.order = order::descending(a, &ends, |a, f| route.goes_through(a, f));
        for root in roots {
            let (_, tensor, leaf) = root.resolve(a);
            let slot = route.slot(a, tensor, leaf);
            route.roots.push(slot);
        }
        route.list_slots(a, pruned);
        route
    }

    /// The slot of a tensor, as a leaf or as an output.
    fn slot(&mut self, a: &mut Arena, tensor: Ix, leaf: bool) -> GradientSlotIx {
        let found = self.find(a, tensor, leaf);
        if found != NONE {
            return found;
        }
        let new = self.slots.len() as GradientSlotIx;
        a.set_tensor_scratch(tensor, leaf, self.mark, new);
        self.slots.push(GradientSlot { tensor, leaf });
        new
    }

    /// The gradient slot of a tensor on this route.
    fn find(&self, a: &Arena, tensor: Ix, leaf: bool) -> GradientSlotIx {
        a.tensor_scratch(tensor, leaf, self.mark)
    }

    /// Treats a target without parent that is not a leaf of this graph as the output on the same tensor. Such a
    /// target is an unlinked copy, or a new handle on an output whose variable was freed.
    fn take_for_outputs(&mut self, a: &mut Arena, above: &[Ix]) {
        let mut met = vec![false; self.slots.len()];
        for f in above {
            for leaf in a.inputs(*f).iter().filter(|v| a.is_end(**v)) {
                if let Some(met) = met.get_mut(self.find(a, a.tensor(*leaf), true) as usize) {
                    *met = true;
                }
            }
        }
        let strangers = self.slots.iter().zip(&met).any(|(p, met)| p.leaf && !met);
        for f in above.iter().filter(|_| strangers) {
            for o in 0..a.n_outputs(*f) {
                let tensor = a.output_tensor(*f, o);
                let slot = self.find(a, tensor, true);
                if slot != NONE && !met[slot as usize] && self.find(a, tensor, false) == NONE {
                    a.set_tensor_scratch(tensor, false, self.mark, slot);
                    self.slots[slot as usize].leaf = false;
                }
            }
        }
    }

    /// True if the gradient of `v` itself is requested.
    fn ends_at(&self, a: &Arena, v: Ix, pruned: bool) -> bool {
        let tensor = a.tensor(v);
        match pruned {
            true => self.find(a, tensor, a.is_end(v)) < self.n_targets,
            false => a.is_end(v) || a.is_watched(tensor),
        }
    }

    /// True if gradients flow through `f`. Must be called after [`GradientRoute::mark_paths`] has visited it.
    fn goes_through(&self, a: &Arena, f: Ix) -> bool {
        a.birth(f) >= self.since && a.scratch(f) & 1 == 1
    }

    /// True if the gradient by input `i` of a function is needed for the targets or for functions above.
    fn is_wanted(&self, a: &Arena, f: Ix, i: usize, pruned: bool) -> bool {
        let v = a.inputs(f)[i];
        let parent = a.parent(v);
        let goes_on = parent != NONE && self.goes_through(a, parent);
        a.need_grad(v) && (goes_on || self.ends_at(a, v, pruned)) && !a.op(f).kind(i).is_whole()
    }

    /// Marks the functions on a path from the outputs to a requested gradient, in the lowest bit of their scratch
    /// numbers. The other bits keep the rank of the function. `above` is sorted with inputs first.
    fn mark_paths(&self, a: &mut Arena, above: &[Ix], pruned: bool) {
        for f in above {
            a.set_scratch(*f, a.scratch(*f) << 1);
        }
        for f in above {
            let n = a.inputs(*f).len();
            let flows = a.passes_gradients(*f) && !a.facts(*f).keeps_gradients;
            let is_on_path = flows && (0..n).any(|i| self.is_wanted(a, *f, i, pruned));
            a.set_scratch(*f, a.scratch(*f) | u32::from(is_on_path));
        }
    }

    /// Gives a gradient slot to every output and needed input of the functions.
    fn list_slots(&mut self, a: &mut Arena, pruned: bool) {
        for n in 0..self.order.len() {
            let f = self.order[n];
            self.nodes
                .push(RouteNode { outputs: self.outputs.len() as u32, inputs: self.inputs.len() as u32 });
            for o in 0..a.n_outputs(f) {
                let slot = self.slot(a, a.output_tensor(f, o), false);
                self.outputs.push(slot);
            }
            for i in 0..a.inputs(f).len() {
                let v = a.inputs(f)[i];
                let (tensor, leaf) = (a.tensor(v), a.is_end(v));
                let wanted = self.is_wanted(a, f, i, pruned);
                let slot = if wanted { self.slot(a, tensor, leaf) } else { NONE };
                self.inputs.push(slot);
            }
        }
    }

    /// The end of the n-th function's slots in the lists of outputs and of inputs.
    fn ends_of(&self, n: usize) -> RouteNode {
        let end = RouteNode { outputs: self.outputs.len() as u32, inputs: self.inputs.len() as u32 };
        self.nodes.get(n + 1).copied().unwrap_or(end)
    }

    /// The slots of the outputs of function number `n`.
    pub(crate) fn outputs(&self, n: usize) -> &[GradientSlotIx] {
        &self.outputs[self.nodes[n].outputs as usize..self.ends_of(n).outputs as usize]
    }

    /// The slots of its inputs. `NONE` if the gradient is not requested.
    pub(crate) fn inputs(&self, n: usize) -> &[GradientSlotIx] {
        &self.inputs[self.nodes[n].inputs as usize..self.ends_of(n).inputs as usize]
    }

    /// True if a run must keep the gradient of a slot to its end, or pass it to a hook.
    pub(crate) fn keeps(&self, a: &Arena, slot: GradientSlotIx) -> bool {
        let GradientSlot { tensor, leaf } = self.slots[slot as usize];
        leaf || slot < self.n_targets || self.roots.contains(&slot) || a.is_watched(tensor)
    }

    /// The slots whose gradients are added to the gradients of their tensors: of leaves (of all, or only of targets),
    /// and of variables that retain their gradient.
    pub(crate) fn sinks(&self, a: &Arena, all: bool) -> Vec<GradientSlotIx> {
        let is_sink = |(n, slot): (GradientSlotIx, &GradientSlot)| match slot.leaf {
            true => (all || n < self.n_targets).then_some(n),
            false => a.is_retained(slot.tensor).then_some(n),
        };
        (0..).zip(&self.slots).filter_map(is_sink).collect()
    }

    /// True if a slot belongs to a target, and only a part of the graph is differentiated.
    pub(crate) fn ends_outside(&self, slot: usize) -> bool {
        self.since > 0 && slot < self.n_targets as usize
    }

    /// True if this is the tensor of a root.
    pub(crate) fn is_root(&self, tensor: Ix) -> bool {
        self.roots.iter().any(|slot| self.slots[*slot as usize].tensor == tensor)
    }

    /// For each target, true if it is on the route.
    pub(crate) fn used(&self) -> Vec<bool> {
        let mut used = vec![false; self.slots.len()];
        for slot in self.inputs.iter().chain(&self.roots).filter(|slot| **slot != NONE) {
            used[*slot as usize] = true;
        }
        self.targets.iter().map(|slot| used[*slot as usize]).collect()
    }

    /// Returns an error if a target is not on the route and `refuse` is set.
    pub(crate) fn check_used(&self, refuse: bool) -> Result<()> {
        if !refuse {
            return Ok(());
        }
        self.used().iter().position(|used| !used).map_or(Ok(()), |i| {
            Err(Error::Graph(format!(
                "grad: expected inputs that the outputs depend on, but the Variable at index {i} appears to not have \
                 been used in the graph. Set allow_unused=True to get None for it"
            )))
        })
    }

    /// Returns an error if a function on the route has no values from a forward run.
    pub(crate) fn check(&self, a: &Outcomes<'_>) -> Result<()> {
        for f in &self.order {
            let by = || {
                let output = a.live_outputs(*f).next();
                let of = output.map_or_else(String::new, |v| format!(", which computes {}", describe(a, v)));
                format!("{}{of}", a.op(*f).name())
            };
            let changed = a.needs_setup(*f);
            if a.saved(*f) == Saved::New || changed {
                let since = if changed { " since its inputs changed" } else { "" };
                return Err(Error::Graph(format!(
                    "autodiff: expected a graph that has run, but {} has not{since}; call forward() first",
                    by()
                )));
            }
            if a.saved(*f) == Saved::Freed {
                return Err(freed_graph(&by()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Variable, apply};

    /// Applies an operation without arguments and returns its first output.
    fn one(name: &str, x: &[&Variable]) -> Variable {
        apply(name, x, &[]).expect("builds").remove(0)
    }

    /// A variable of two values.
    fn leaf(need_grad: bool) -> Variable {
        Variable::from_values([2], &[0.5, 1.0]).expect("fits").with_need_grad(need_grad)
    }

    /// The route from a root to a target, or to all leaves.
    fn route(root: &Variable, target: Option<&Variable>) -> GradientRoute {
        // Handles lock the arena.
        let root = Edge::Variable(root.clone());
        let target = target.map(|v| [Edge::Variable(v.clone())]);
        arena::with(|a| GradientRoute::make(a, &[&root], target.as_ref().map(<[Edge; 1]>::as_slice), 0))
    }

    /// The function that computes a variable.
    fn parent(v: &Variable) -> Ix {
        arena::with(|a| a.parent(v.ix()))
    }

    #[test]
    fn a_route_has_functions_with_gradients_by_descending_rank() {
        let (x, fixed) = (leaf(true), leaf(false));
        let (h, still) = (one("sin", &[&x]), one("exp", &[&fixed]));
        let y = one("mul2", &[&h, &still]);
        let route = route(&y, None);
        assert_eq!(route.order, [parent(&y), parent(&h)]);
        assert_eq!(route.inputs(0)[1], NONE);
        assert_eq!(route.inputs(0)[0], route.outputs(1)[0]);
    }

    #[test]
    fn gradients_of_one_leaf_share_a_slot() {
        let x = leaf(true);
        let y = one("mul2", &[&one("sin", &[&x]), &one("exp", &[&x])]);
        let route = route(&y, None);
        assert_eq!(route.order.len(), 3);
        assert_eq!(route.inputs(1), route.inputs(2));
        let slot = route.slots[route.inputs(1)[0] as usize];
        assert!(slot.leaf && slot.tensor == arena::with(|a| a.tensor(x.ix())));
    }

    #[test]
    fn a_route_to_targets_skips_other_branches() {
        let (x, other) = (leaf(true), leaf(true));
        let (a, b) = (one("sin", &[&x]), one("exp", &[&other]));
        let y = one("mul2", &[&a, &b]);
        let route = route(&y, Some(&x));
        assert_eq!(route.order, [parent(&y), parent(&a)]);
        assert_eq!((route.n_targets, route.targets.as_slice()), (1, &[0][..]));
    }
}
