//! The order of a forward run: each function after those that feed it, by ascending rank.

use smallvec::SmallVec;

use super::arena::{Arena, Ix, NONE, flag};
use super::{connect, execute, mode};
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
    let mark = a.new_mark();
    let mut order = Vec::new();
    let mut path: Vec<(Ix, u32)> = Vec::new();
    for root in roots {
        let mut next = a.variables[*root].parent;
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
            a.variables[v].flags |= flag::PLANNED;
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
        connect::share_memory(a, f);
        connect::verify_inplace(a, f)?;
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
