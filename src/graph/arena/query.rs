//! Queries on nodes. None of them changes the graph. Fields that runs defer are read through [`Outcomes`] or
//! [`Arena::is_busy`], which flush them first.

use std::any::Any;
use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::array::{Shape, Storage};
use crate::graph::arena::provenance::Provenance;
use crate::graph::arena::{Arena, Attached, Ix, NONE, Saved, flag};
use crate::ops::{Facts, Op};

/// Queries on variables.
impl Arena {
    /// The function that computes `v`, `NONE` for a leaf.
    #[inline]
    pub(crate) fn parent(&self, v: Ix) -> Ix {
        self.variables[v].parent
    }

    /// The tensor of `v`.
    #[inline]
    pub(crate) fn tensor(&self, v: Ix) -> Ix {
        self.variables[v].tensor
    }

    /// The generation of `v`, which distinguishes it from earlier and later variables in its slot.
    #[inline]
    pub(crate) fn generation(&self, v: Ix) -> u32 {
        self.variables[v].generation
    }

    /// True if the variable with this number and generation was not freed.
    #[inline]
    pub(crate) fn is_alive(&self, (v, generation): (Ix, u32)) -> bool {
        self.variables[v].generation == generation
    }

    /// The length of the longest path to `v` from a variable without parent.
    #[inline]
    pub(crate) fn rank(&self, v: Ix) -> u32 {
        self.variables[v].rank
    }

    /// The flags of `v`, see [`flag`].
    #[inline]
    pub(crate) fn flags(&self, v: Ix) -> u16 {
        self.variables[v].flags
    }

    /// True if `v` has one of these flags.
    #[inline]
    pub(crate) fn has_flag(&self, v: Ix, bits: u16) -> bool {
        self.variables[v].flags & bits != 0
    }

    /// The name of `v`, if any.
    pub(crate) fn name(&self, v: Ix) -> Option<&str> {
        self.variables[v].extra.as_ref()?.name.as_deref()
    }

    /// The plans of runs that end at `v`, if it ever had one.
    pub(crate) fn plans(&self, v: Ix) -> Option<&Attached> {
        self.variables[v].extra.as_ref().map(|extra| &extra.plans)
    }

    /// The other destinations of the forward run under a budget that ended at `v`.
    pub(crate) fn partners(&self, v: Ix) -> &[(Ix, u32)] {
        self.variables[v].extra.as_ref().map_or(&[], |extra| &extra.partners)
    }

    /// The live functions that take `v`, once for each time that a function takes it.
    pub(crate) fn consumers(&self, v: Ix) -> impl Iterator<Item = Ix> {
        let live = self.variables[v].consumers.iter();
        live.filter(|c| self.functions[c.function].generation == c.generation).map(|c| c.function)
    }

    /// True if `v` needs a gradient: as the user set it, otherwise as its parent determines.
    #[inline]
    pub(crate) fn need_grad(&self, v: Ix) -> bool {
        self.variables[v].need_grad()
    }

    /// True if no gradient flows on from `v`: it has no parent, or its parent needs no gradient.
    #[inline]
    pub(crate) fn is_end(&self, v: Ix) -> bool {
        let parent = self.variables[v].parent;
        parent == NONE || !self.functions[parent].need_grad
    }

    /// True if `v` is a leaf with values of its own, or its parent has run.
    pub(crate) fn is_computed(&self, v: Ix) -> bool {
        let parent = self.variables[v].parent;
        if parent == NONE {
            return self.variables[v].flags & flag::OF_OUTPUT == 0;
        }
        // A run whose outcome is deferred has a provenance.
        let slot = &self.functions[parent];
        slot.saved != Saved::New || slot.provenance.has_run()
    }

    /// True if a leaf that `v` depends on changed since the function that reads it ran.
    pub(crate) fn is_stale(&self, v: Ix) -> bool {
        let (mut open, mut seen) = (vec![self.variables[v].parent], HashSet::new());
        while let Some(f) = open.pop() {
            if f == NONE || !seen.insert(f) {
                continue;
            }
            let slot = &self.functions[f];
            let leaf = |v: &Ix| {
                let slot = &self.variables[*v];
                (slot.parent == NONE).then(|| self.tensors[slot.tensor].data.as_deref()).flatten()
            };
            let leaves = slot.inputs.iter().map(leaf);
            if slot.provenance.modified(leaves, [].into_iter()).is_some() {
                return true;
            }
            open.extend(slot.inputs.iter().map(|v| self.variables[*v].parent));
        }
        false
    }

    /// True if `v` has a parent that may have to recompute its data.
    #[inline]
    pub(crate) fn is_restorable(&self, v: Ix) -> bool {
        let slot = &self.variables[v];
        slot.parent != NONE && slot.flags & flag::RESTORED != 0
    }

    /// True if a handle or a function holds `v` besides the caller.
    #[inline]
    pub(crate) fn has_other_holders(&self, v: Ix) -> bool {
        self.variables[v].count > 1
    }

    /// True if a single handle keeps `v`, its parent and its tensor alive.
    pub(crate) fn has_one_holder(&self, v: Ix) -> bool {
        let slot = &self.variables[v];
        let held = self.tensors[slot.tensor].count;
        slot.count == 1
            && match slot.parent {
                NONE => held == 1,
                f => held == 2 && self.functions[f].count == 1 && !self.run_locks.leases(f),
            }
    }

    /// The number of live variables, in graphs or held by handles.
    pub(crate) fn live_variables(&self) -> usize {
        self.variables.in_use()
    }
}

/// Queries on tensors.
impl Arena {
    /// The shape of a tensor.
    #[inline]
    pub(crate) fn shape(&self, tensor: Ix) -> &Shape {
        &self.tensors[tensor].shape
    }

    /// The data of a tensor, if it was created.
    #[inline]
    pub(crate) fn existing_data(&self, tensor: Ix) -> Option<&Arc<Storage>> {
        self.tensors[tensor].data.as_ref()
    }

    /// The gradient of a tensor, if it was created.
    #[inline]
    pub(crate) fn existing_grad(&self, tensor: Ix) -> Option<&Arc<Storage>> {
        self.tensors[tensor].grad.as_ref()
    }

    /// The number of handles that reach the data of a tensor.
    pub(crate) fn users(&self, tensor: Ix) -> usize {
        let slot = &self.tensors[tensor];
        slot.data.as_ref().map_or(slot.handles as usize, |data| data.users() as usize)
    }

    /// True if only one variable and the function that computes it hold the tensor.
    pub(crate) fn is_only_in_graph(&self, tensor: Ix) -> bool {
        self.tensors[tensor].count <= 2
    }

    /// The state for the gradient of a tensor.
    #[inline]
    pub(crate) fn gradient_attachment(&self, tensor: Ix) -> &Attached {
        &self.tensors[tensor].gradient_state
    }

    /// True if a tensor changed its shape after [`Arena::reshapes`] had this value.
    #[inline]
    pub(crate) fn is_reshaped_since(&self, tensor: Ix, reshapes: u64) -> bool {
        self.tensors[tensor].reshaped > reshapes
    }
}

/// Queries on functions.
impl Arena {
    /// The operation of a live function.
    #[inline]
    pub(crate) fn op(&self, f: Ix) -> &Op {
        self.functions[f].op.as_ref().unwrap_or_else(|| unreachable!("a live function has an operation"))
    }

    /// The facts of the operation of a live function.
    #[inline]
    pub(crate) fn facts(&self, f: Ix) -> &Facts {
        self.op(f).facts()
    }

    /// The generation of `f`, which distinguishes it from earlier and later functions in its slot.
    #[inline]
    pub(crate) fn function_generation(&self, f: Ix) -> u32 {
        self.functions[f].generation
    }

    /// True if the function with this number and generation was not freed.
    #[inline]
    pub(crate) fn is_alive_function(&self, (f, generation): (Ix, u32)) -> bool {
        self.functions[f].generation == generation
    }

    /// The active inputs of `f`.
    #[inline]
    pub(crate) fn inputs(&self, f: Ix) -> &[Ix] {
        &self.functions[f].inputs
    }

    /// The tensors of the active inputs of `f`.
    #[inline]
    pub(crate) fn input_tensors(&self, f: Ix) -> impl ExactSizeIterator<Item = Ix> {
        self.functions[f].inputs.iter().map(|v| self.variables[*v].tensor)
    }

    /// The data of the active inputs of `f`, as far as it was created.
    pub(crate) fn input_data(&self, f: Ix) -> impl Iterator<Item = Option<&Storage>> {
        self.input_tensors(f).map(|tensor| self.tensors[tensor].data.as_deref())
    }

    /// The inputs that `f` was built with, and whether each is active.
    pub(crate) fn all_inputs(&self, f: Ix) -> Vec<(Ix, bool)> {
        let slot = &self.functions[f];
        match &slot.all_inputs {
            Some(all) => all.to_vec(),
            None => slot.inputs.iter().map(|v| (*v, true)).collect(),
        }
    }

    /// The number of outputs of `f`.
    #[inline]
    pub(crate) fn n_outputs(&self, f: Ix) -> usize {
        self.functions[f].outputs.len()
    }

    /// The tensor of output `o` of `f`.
    #[inline]
    pub(crate) fn output_tensor(&self, f: Ix, o: usize) -> Ix {
        self.functions[f].outputs[o].tensor
    }

    /// The tensors of the outputs of `f`.
    #[inline]
    pub(crate) fn output_tensors(&self, f: Ix) -> impl ExactSizeIterator<Item = Ix> {
        self.functions[f].outputs.iter().map(|output| output.tensor)
    }

    /// The variable of output `o` of `f` if it is alive, without counting it.
    #[inline]
    pub(crate) fn live_output(&self, f: Ix, o: usize) -> Option<Ix> {
        self.functions[f].outputs[o].live(&self.variables)
    }

    /// The live variables of the outputs of `f`.
    pub(crate) fn live_outputs(&self, f: Ix) -> impl Iterator<Item = Ix> {
        self.functions[f].outputs.iter().filter_map(|output| output.live(&self.variables))
    }

    /// The numbers of the outputs of `f` that `v` is the variable of.
    pub(crate) fn outputs_that_are(&self, f: Ix, v: Ix) -> impl Iterator<Item = usize> {
        (0..self.n_outputs(f)).filter(move |o| self.live_output(f, *o) == Some(v))
    }

    /// True if gradients flow through `f`, as of its creation or the last forward run.
    #[inline]
    pub(crate) fn passes_gradients(&self, f: Ix) -> bool {
        self.functions[f].need_grad
    }

    /// True if `f` was created under `no_grad`: gradients never flow through it.
    #[inline]
    pub(crate) fn is_no_grad(&self, f: Ix) -> bool {
        self.functions[f].no_grad
    }

    /// The length of the longest path to `f` from a variable without parent.
    #[inline]
    pub(crate) fn function_rank(&self, f: Ix) -> u32 {
        self.functions[f].rank
    }

    /// The number of functions that were created before `f`.
    #[inline]
    pub(crate) fn birth(&self, f: Ix) -> u64 {
        self.functions[f].born
    }

    /// The number of functions created so far.
    pub(crate) fn births(&self) -> u64 {
        self.births
    }

    /// The number of the context of `f`.
    #[inline]
    pub(crate) fn context(&self, f: Ix) -> u16 {
        self.functions[f].context
    }

    /// True if `f` ran eagerly when it was built.
    #[inline]
    pub(crate) fn ran_eagerly(&self, f: Ix) -> bool {
        self.functions[f].ran_eagerly
    }

    /// True if the last forward run of `f` had a memory budget, which also applies to its backward run.
    #[inline]
    pub(crate) fn ran_under_budget(&self, f: Ix) -> bool {
        self.functions[f].budgeted
    }

    /// True if `f` may work on copies of the inputs that it changes in place.
    #[inline]
    pub(crate) fn may_take_copy(&self, f: Ix) -> bool {
        self.functions[f].may_take_copy
    }

    /// The pool of the values that `f` computed, if it ran eagerly under a budget.
    pub(crate) fn evictor(&self, f: Ix) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.functions[f].evictor.as_ref()
    }

    /// The user tags of `f`, by key.
    pub(crate) fn tags(&self, f: Ix) -> &[(String, String)] {
        &self.functions[f].tags
    }

    /// The state that `f` saved from its last forward run in its graph.
    #[inline]
    pub(crate) fn provenance(&self, f: Ix) -> &Provenance {
        &self.functions[f].provenance
    }

    /// The state that `f` saved from its last forward run in its graph, for a run to write.
    #[inline]
    pub(crate) fn provenance_mut(&mut self, f: Ix) -> &mut Provenance {
        &mut self.functions[f].provenance
    }

    /// True if the shape of a tensor changed after `f` was set up.
    #[inline]
    pub(crate) fn is_reshaped(&self, f: Ix, tensor: Ix) -> bool {
        self.is_reshaped_since(tensor, self.functions[f].set_up)
    }

    /// True if the shape of an input or output of `f` changed after it was set up.
    #[inline]
    pub(crate) fn has_other_shapes(&self, f: Ix) -> bool {
        let is_reshaped = |tensor| self.is_reshaped(f, tensor);
        self.reshapes > self.functions[f].set_up
            && (self.input_tensors(f).any(is_reshaped) || self.output_tensors(f).any(is_reshaped))
    }

    /// True if `f` must be set up before it runs forward.
    #[inline]
    pub(crate) fn needs_setup(&self, f: Ix) -> bool {
        self.functions[f].need_setup || self.has_other_shapes(f)
    }

    /// True if `f` was set up when [`Arena::reshapes`] was `since` or more, and is still set up.
    #[inline]
    pub(crate) fn is_set_up_since(&self, f: Ix, since: u64) -> bool {
        self.functions[f].set_up >= since && !self.needs_setup(f)
    }

    /// Incremented when a tensor changes its shape.
    #[inline]
    pub(crate) fn reshapes(&self) -> u64 {
        self.reshapes
    }

    /// True once a hook on a gradient was registered.
    #[inline]
    pub(crate) fn is_hooked(&self) -> bool {
        self.hooked
    }

    /// True if a run uses `f`.
    pub(crate) fn is_busy(&mut self, f: Ix) -> bool {
        self.flush();
        self.functions[f].busy.is_some()
    }

    /// The arena with the outcomes of all completed runs written to the functions.
    #[inline]
    pub(crate) fn outcomes(&mut self) -> Outcomes<'_> {
        self.flush_outcomes();
        Outcomes(self)
    }
}

/// The arena while no outcome of a run is deferred. Only here can outcomes be read.
pub(crate) struct Outcomes<'a>(&'a Arena);

impl Outcomes<'_> {
    /// The state of the values that `f` saved for its backward run.
    #[inline]
    pub(crate) fn saved(&self, f: Ix) -> Saved {
        self.0.functions[f].saved
    }

    /// True if `f` has run forward, and a backward run through it may follow.
    #[inline]
    pub(crate) fn awaits_backward(&self, f: Ix) -> bool {
        let slot = &self.0.functions[f];
        slot.pending && slot.need_grad
    }
}

impl Deref for Outcomes<'_> {
    type Target = Arena;

    #[inline]
    fn deref(&self) -> &Arena {
        self.0
    }
}

/// The tensors of the inputs and outputs of a function.
pub(crate) fn tensors(a: &Arena, f: Ix) -> (SmallVec<[Ix; 4]>, SmallVec<[Ix; 2]>) {
    (a.input_tensors(f).collect(), a.output_tensors(f).collect())
}
