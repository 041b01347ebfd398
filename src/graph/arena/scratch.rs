//! Scratch fields of nodes, for one graph traversal at a time. A mark tells which traversal wrote them.

use crate::graph::arena::{Arena, Ix, NONE, flag};

impl Arena {
    /// A new mark, which no slot has.
    pub(crate) fn new_mark(&mut self) -> u32 {
        self.marks += 1;
        self.marks
    }

    /// The newest mark.
    pub(crate) fn newest_mark(&self) -> u32 {
        self.marks
    }

    /// Marks `v`, and resets its scratch bits and visits if it did not have the mark. Returns true in that case.
    #[inline]
    pub(crate) fn enter(&mut self, v: Ix, mark: u32) -> bool {
        let slot = &mut self.variables[v];
        let is_new = slot.mark != mark;
        if is_new {
            (slot.mark, slot.visits) = (mark, 0);
            slot.flags &= !flag::SCRATCH;
        }
        is_new
    }

    /// True if `v` has the mark.
    #[inline]
    pub(crate) fn is_entered(&self, v: Ix, mark: u32) -> bool {
        self.variables[v].mark == mark
    }

    /// Counts a visit of `v` since it was entered.
    #[inline]
    pub(crate) fn count_visit(&mut self, v: Ix) -> u32 {
        let slot = &mut self.variables[v];
        slot.visits += 1;
        slot.visits
    }

    /// Marks `f`.
    #[inline]
    pub(crate) fn mark_function(&mut self, f: Ix, mark: u32) {
        self.functions[f].mark = mark;
    }

    /// True if `f` has the mark.
    #[inline]
    pub(crate) fn is_marked(&self, f: Ix, mark: u32) -> bool {
        self.functions[f].mark == mark
    }

    /// The scratch number of `f`.
    #[inline]
    pub(crate) fn scratch(&self, f: Ix) -> u32 {
        self.functions[f].at
    }

    /// Sets the scratch number of `f`.
    #[inline]
    pub(crate) fn set_scratch(&mut self, f: Ix, number: u32) {
        self.functions[f].at = number;
    }

    /// The scratch number of a tensor, as a leaf or as the output of a function. `NONE` if it has another mark.
    #[inline]
    pub(crate) fn tensor_scratch(&self, tensor: Ix, leaf: bool, mark: u32) -> u32 {
        let slot = &self.tensors[tensor];
        if slot.mark == mark { slot.places[usize::from(leaf)] } else { NONE }
    }

    /// Sets the scratch number of a tensor, as a leaf or as the output of a function, and marks the tensor.
    #[inline]
    pub(crate) fn set_tensor_scratch(&mut self, tensor: Ix, leaf: bool, mark: u32, number: u32) {
        let slot = &mut self.tensors[tensor];
        if slot.mark != mark {
            (slot.mark, slot.places) = (mark, [NONE; 2]);
        }
        slot.places[usize::from(leaf)] = number;
    }
}
