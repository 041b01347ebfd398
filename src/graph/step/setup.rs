//! Setup of functions in forward order: shapes, ranks and need of gradients.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::graph::arena::describe::describe;
use crate::graph::arena::order::depth_first;
use crate::graph::arena::{self, Arena, FunctionSlot, Ix, NONE, Output, aliasing, flag};
use crate::graph::handles::function::Function;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::modes;
use crate::graph::step::{prepare, shapes};
use crate::ops::{self, Shapes};
use crate::{Error, Result};

/// Sets up a function whose shapes depend on user code or values, which must not run under the lock.
pub(crate) fn set_up_outside(f: Ix) -> Result<()> {
    let (held, op, x, asked) = arena::with(|a| {
        let (inputs, _) = arena::tensors(a, f);
        let x: Vec<NdArray> = inputs.into_iter().map(|tensor| prepare::data_array(a, tensor)).collect();
        (Function::counted(a, f), a.op(f).clone(), x, a.reshapes)
    });
    let shapes = shapes::shapes_of(&op, &x)?;
    let done = arena::with(|a| set_up(a, f, shapes, asked));
    drop(held); // the user code may have dropped the graph
    done
}

/// The reason why no order could be made.
pub(crate) enum Stop {
    /// An error of the call.
    Error(Error),
    /// A function must be set up first, outside the lock.
    SetUp(Ix),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The order of a forward run to `roots`. Updates the rank of each function and whether gradients flow through it,
/// and sets up functions again if needed.
pub(crate) fn forward(
    a: &mut Arena,
    roots: &[Ix],
    enter: impl Fn(&Arena, Ix) -> bool,
) -> Result<Vec<Ix>, Stop> {
    let mut order = depth_first(a, roots, &enter);
    let mut copies = false;
    for f in &order {
        renew(a, *f)?;
        if a.functions[*f].may_take_copy && aliasing::verify(a, *f).is_err() {
            take_copies(a, *f)?;
            copies = true;
        } else {
            share(a, *f)?;
        }
    }
    if copies {
        return forward(a, roots, enter);
    }
    // A tensor reached through an unlinked copy may have been reshaped after its consumer was checked.
    if order.iter().any(|f| a.needs_setup(*f)) {
        for f in &order {
            refresh(a, *f)?;
        }
    }
    if !modes::depth_first() {
        order.sort_by_key(|f| a.functions[*f].rank);
    }
    Ok(order)
}

pub(crate) fn refresh(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    renew(a, f)?;
    share(a, f)
}

/// Shares memory in place if allowed.
fn share(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    if (0..a.functions[f].inputs.len()).all(|i| a.facts(f).alias(i).is_none()) {
        return Ok(());
    }
    if !a.functions[f].no_grad {
        for (i, v) in a.functions[f].inputs.iter().enumerate().filter(|(i, _)| a.facts(f).modifies(*i)) {
            aliasing::check_kept(a, a.op(f), i, *v)?;
        }
    }
    aliasing::share_memory(a, f);
    aliasing::verify(a, f)?;
    Ok(())
}

/// Makes a function change copies of the inputs that it would change in place.
fn take_copies(a: &mut Arena, f: Ix) -> Result<()> {
    for i in 0..a.functions[f].inputs.len() {
        if !a.facts(f).modifies(i) {
            continue;
        }
        let entry =
            ops::find("identity").ok_or_else(|| Error::Key("there is no operation 'identity'".into()))?;
        let copy = a.new_function(entry.bind(&[], u64::MAX)?);
        let FunctionSlot { no_grad, context, .. } = a.functions[f];
        let v = a.functions[f].inputs[i];
        let shape = a.tensors[a.variables[v].tensor].shape.clone();
        let tensor = a.new_tensor(&shape);
        a.tensors[tensor].count += 1; // one for the variable, one for the function
        let flags = if no_grad { flag::NEED_GRAD_SET } else { 0 };
        let taken = a.new_variable(tensor, flags, copy, 0);
        let output = Output { variable: taken, generation: a.variables[taken].generation, tensor };
        let slot = &mut a.functions[copy];
        (slot.no_grad, slot.context, slot.count) = (no_grad, context, 1);
        slot.inputs.push(v); // with the count of `f`
        slot.outputs.push(output);
        let use_of_f = a.variables[v].consumers.iter().position(|c| c.function == f);
        if let Some(at) = use_of_f {
            a.variables[v].consumers.remove(at);
        }
        a.add_consumer(v, copy);
        a.functions[f].inputs[i] = taken;
        a.add_consumer(taken, f);
        a.outdate(a.variables[v].tensor);
    }
    let (x, y) = arena::tensors(a, f);
    x.into_iter().chain(y).for_each(|tensor| a.outdate(tensor));
    Ok(())
}

/// Derives the ranks of all functions above the variables `roots`, and whether gradients flow through them.
pub(crate) fn follow_leaves(a: &mut Arena, roots: &[Ix]) {
    for f in depth_first(a, roots, |_, _| true) {
        follow_inputs(a, f);
    }
}

/// Derives the rank of a function, and whether gradients flow through it, from its inputs.
fn follow_inputs(a: &mut Arena, f: Ix) {
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
        rank = rank.max(own_rank);
        need_grad |= a.need_grad(v);
    }
    let slot = &mut a.functions[f];
    let need_grad = need_grad && !slot.no_grad;
    slot.rank = rank + 1;
    if std::mem::replace(&mut slot.need_grad, need_grad) != need_grad {
        // Plans beyond this function depend on whether its gradient will read its inputs.
        let (x, y) = arena::tensors(a, f);
        x.into_iter().chain(y).for_each(|tensor| a.outdate(tensor));
    }
    for o in 0..a.functions[f].outputs.len() {
        if let Some(v) = a.live_output(f, o) {
            let state = if a.functions[f].need_grad { flag::NEED_GRAD_STATE } else { 0 };
            let flags = &mut a.variables[v].flags;
            *flags = *flags & !flag::NEED_GRAD_STATE | state;
        }
    }
}

/// Derives the rank and the shapes of a function, and whether gradients flow through it.
fn renew(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    follow_inputs(a, f);
    if a.needs_setup(f) {
        if a.facts(f).sets_up_outside {
            return Err(Stop::SetUp(f));
        }
        let inputs = &a.functions[f].inputs;
        let x: SmallVec<[&Shape; 4]> =
            inputs.iter().map(|v| &a.tensors[a.variables[*v].tensor].shape).collect();
        let shapes = a.op(f).shapes(&x)?;
        drop(x);
        set_up(a, f, shapes, a.reshapes)?;
    }
    Ok(())
}

/// Sets the outputs of a function to the shapes that the operation returned when [`Arena::reshapes`] was `asked`.
pub(crate) fn set_up(a: &mut Arena, f: Ix, shapes: Shapes, asked: u64) -> Result<()> {
    if shapes.len() != a.functions[f].outputs.len() {
        return Err(Error::Graph(format!(
            "{}: expected {} outputs as before, got {}",
            a.op(f).name(),
            a.functions[f].outputs.len(),
            shapes.len()
        )));
    }
    shapes.iter().try_for_each(|shape| shape.checked_size().map(drop))?;
    let since = |v: &&Ix| a.tensors[a.variables[**v].tensor].reshaped > asked;
    if let Some(v) = a.functions[f].inputs.iter().find(since) {
        return Err(Error::Graph(format!(
            "{}: expected inputs that keep their shapes while it is set up, but {} got that shape meanwhile",
            a.op(f).name(),
            describe(a, *v)
        )));
    }
    for (o, shape) in shapes.into_iter().enumerate() {
        let tensor = a.functions[f].outputs[o].tensor;
        if a.tensors[tensor].shape != shape {
            a.reshape(tensor, shape);
            if let Some(v) = a.live_output(f, o) {
                a.mark_need_setup(v);
            }
        }
    }
    let reshapes = a.reshapes;
    let slot = &mut a.functions[f];
    (slot.need_setup, slot.set_up) = (false, reshapes);
    Ok(())
}
