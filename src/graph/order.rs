//! Orders of functions: of a forward run, each after those that feed it, by ascending rank; of a backward run, by
//! descending rank.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use smallvec::SmallVec;

use super::arena::{Arena, Ix, NONE, flag};
use super::{execute, inplace, mode};
use crate::array::{Shape, Storage};
use crate::ops::Shapes;
use crate::{Error, Result};

/// Why an order could not be made.
pub(super) enum Stop {
    /// The call is at fault.
    Error(Error),
    /// A function must set itself up first, without the lock.
    SetUp(Ix),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The functions above `roots`, each after those that feed it, depth first with inputs from left to right.
///
/// Only functions that `enter` admits are visited. A list on the heap stands in for recursion.
pub(super) fn depth_first(a: &mut Arena, roots: &[Ix], enter: impl Fn(&Arena, Ix) -> bool) -> Vec<Ix> {
    let ends: SmallVec<[Ix; 2]> = roots.iter().map(|root| a.variables[*root].parent).collect();
    up_to(a, &ends, enter)
}

/// The functions above `ends` and these themselves, as [`depth_first`]. (`NONE` ends nothing.)
pub(super) fn up_to(a: &mut Arena, ends: &[Ix], enter: impl Fn(&Arena, Ix) -> bool) -> Vec<Ix> {
    let mark = a.new_mark();
    let mut order = Vec::new();
    let mut path: Vec<(Ix, u32)> = Vec::new();
    for end in ends {
        let mut next = *end;
        loop {
            if next != NONE && a.functions[next].mark != mark && enter(a, next) {
                a.functions[next].mark = mark;
                path.push((next, 0));
            }
            let Some((f, i)) = path.last_mut() else { break };
            let slot = &a.functions[*f];
            if let Some(input) = slot.inputs.get(*i as usize) {
                *i += 1;
                next = a.variables[*input].parent;
            } else {
                order.push(*f);
                path.pop();
                next = NONE;
            }
        }
    }
    order
}

/// Counts the ranks of functions anew into their scratch numbers (stored ones may be stale after an edit). Each must come
/// after those that feed it.
pub(super) fn rank(a: &mut Arena, functions: &[Ix]) {
    for f in functions {
        let inputs = &a.functions[*f].inputs;
        let rank = |v: &Ix| match a.variables[*v].parent {
            NONE => 0,
            p => a.functions[p].at,
        };
        a.functions[*f].at = inputs.iter().map(rank).max().unwrap_or(0) + 1;
    }
}

/// In which order functions run backward from `ends`: those with higher scratch numbers first, earlier found ones first
/// among equals. Only functions that `enter` admits are visited, and only through variables that need a gradient.
pub(super) fn descending(a: &mut Arena, ends: &[Ix], enter: impl Fn(&Arena, Ix) -> bool) -> Vec<Ix> {
    let mark = a.new_mark();
    let mut heap = BinaryHeap::new();
    let mut order = Vec::new();
    let mut found = 0_u32;
    let mut push = |a: &mut Arena, heap: &mut BinaryHeap<(u32, Reverse<u32>, Ix)>, f: Ix| {
        if a.functions[f].mark != mark && enter(a, f) {
            a.functions[f].mark = mark;
            heap.push((a.functions[f].at, Reverse(found), f));
            found += 1;
        }
    };
    ends.iter().filter(|f| **f != NONE).for_each(|f| push(a, &mut heap, *f));
    while let Some((_, _, f)) = heap.pop() {
        order.push(f);
        for i in 0..a.functions[f].inputs.len() {
            let v = a.functions[f].inputs[i];
            let parent = a.variables[v].parent;
            if parent != NONE && a.need_grad(v) {
                push(a, &mut heap, parent);
            }
        }
    }
    order
}

/// The order of a forward run to `roots`. On the way every function learns its rank and whether gradients flow through
/// it, and those that must are set up again.
pub(super) fn forward(
    a: &mut Arena,
    roots: &[Ix],
    enter: impl Fn(&Arena, Ix) -> bool,
) -> Result<Vec<Ix>, Stop> {
    let mut order = depth_first(a, roots, enter);
    for f in &order {
        refresh(a, *f)?;
    }
    if !mode::depth_first() {
        order.sort_by_key(|f| a.functions[*f].rank);
    }
    Ok(order)
}

pub(super) fn refresh(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    let (mut rank, mut need_grad) = (0, false);
    for i in 0..a.functions[f].inputs.len() {
        let v = a.functions[f].inputs[i];
        let parent = a.variables[v].parent;
        let (own_rank, state) = match parent {
            NONE => (0, false),
            p => (a.functions[p].rank, a.functions[p].need_grad),
        };
        let slot = &mut a.variables[v];
        slot.rank = own_rank;
        slot.flags = slot.flags & !flag::NEED_GRAD_STATE | if state { flag::NEED_GRAD_STATE } else { 0 };
        slot.flags |= flag::PLANNED;
        rank = rank.max(own_rank);
        need_grad |= a.need_grad(v);
    }
    let slot = &mut a.functions[f];
    (slot.rank, slot.need_grad, slot.planned) = (rank + 1, need_grad && !slot.no_grad, true);
    for o in 0..a.functions[f].outputs.len() {
        if let Some(v) = a.live_output(f, o) {
            let state = if a.functions[f].need_grad { flag::NEED_GRAD_STATE } else { 0 };
            let flags = &mut a.variables[v].flags;
            *flags = *flags & !flag::NEED_GRAD_STATE | state | flag::PLANNED;
        }
    }
    if a.functions[f].need_setup {
        if execute::sets_up_outside(a.op(f)) {
            return Err(Stop::SetUp(f));
        }
        let inputs = &a.functions[f].inputs;
        let x: SmallVec<[&Shape; 4]> = inputs.iter().map(|v| &a.cores[a.variables[*v].core].shape).collect();
        let shapes = a.op(f).shapes(&x)?;
        drop(x);
        set_up(a, f, shapes)?;
    }
    if (0..a.functions[f].inputs.len()).any(|i| a.op(f).alias(i).is_some()) {
        inplace::share_memory(a, f);
        inplace::verify(a, f)?;
    }
    Ok(())
}

/// Gives the outputs of a function the shapes that it says they have now.
pub(super) fn set_up(a: &mut Arena, f: Ix, shapes: Shapes) -> Result<()> {
    if shapes.len() != a.functions[f].outputs.len() {
        return Err(Error::Graph(format!(
            "{}: expected {} outputs as before, got {}",
            a.op(f).name(),
            a.functions[f].outputs.len(),
            shapes.len()
        )));
    }
    for (o, shape) in shapes.into_iter().enumerate() {
        let core = a.functions[f].outputs[o].core;
        if a.cores[core].shape.size() != shape.checked_size()? {
            a.set_data(core, Storage::new(shape.size()));
            a.set_grad(core, None);
        }
        a.cores[core].shape = shape;
        if let Some(v) = a.live_output(f, o) {
            a.mark_need_setup(v);
        }
    }
    a.functions[f].need_setup = false;
    Ok(())
}
