//! Setup of functions in forward order: shapes, ranks and need of gradients.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::graph::arena::describe::describe;
use crate::graph::arena::order::depth_first;
use crate::graph::arena::{self, Arena, Ix, aliasing};
use crate::graph::handles::function::Function;
use crate::graph::handles::ndarray::NdArray;
use crate::graph::settings::context;
use crate::graph::settings::modes::{self, ExecutionOrder};
use crate::graph::step::{prepare, shapes};
use crate::ops::{self, Shapes};
use crate::{Error, Result};

/// Sets up a function whose shapes depend on user code or values, which must not run under the lock.
pub(crate) fn set_up_outside(f: Ix) -> Result<()> {
    let (held, op, x, compute, asked) = arena::with(|a| {
        let (inputs, _) = arena::tensors(a, f);
        let x: Vec<NdArray> = inputs.into_iter().map(|tensor| prepare::data_array(a, tensor)).collect();
        (Function::counted(a, f), a.op(f).clone(), x, context::precision(a.context(f)), a.reshapes())
    });
    let shapes = shapes::shapes_of(&op, &x, compute)?;
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
        if a.may_take_copy(*f) && aliasing::verify(a, *f).is_err() {
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
    if modes::execution_order() == ExecutionOrder::Rank {
        order.sort_by_key(|f| a.function_rank(*f));
    }
    Ok(order)
}

/// Brings a function's shapes and in-place sharing up to date.
pub(crate) fn refresh(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    renew(a, f)?;
    share(a, f)
}

/// Shares memory in place if allowed.
fn share(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    if (0..a.inputs(f).len()).all(|i| a.facts(f).alias(i).is_none()) {
        return Ok(());
    }
    if !a.is_no_grad(f) {
        for (i, v) in a.inputs(f).iter().enumerate().filter(|(i, _)| a.facts(f).modifies(*i)) {
            aliasing::check_kept(a, a.op(f), i, *v)?;
        }
    }
    aliasing::share_memory(a, f);
    aliasing::verify(a, f)?;
    Ok(())
}

/// Makes a function change copies of the inputs that it would change in place.
fn take_copies(a: &mut Arena, f: Ix) -> Result<()> {
    for i in 0..a.inputs(f).len() {
        if !a.facts(f).modifies(i) {
            continue;
        }
        let entry =
            ops::find("identity").ok_or_else(|| Error::Key("there is no operation 'identity'".into()))?;
        a.insert_before(f, i, entry.bind(&[], u64::MAX)?);
    }
    a.outdate_around(f);
    Ok(())
}

/// Derives the ranks of all functions above the variables `roots`, and whether gradients flow through them.
pub(crate) fn follow_leaves(a: &mut Arena, roots: &[Ix]) {
    for f in depth_first(a, roots, |_, _| true) {
        a.follow_inputs(f);
    }
}

/// Derives the rank and the shapes of a function, and whether gradients flow through it.
fn renew(a: &mut Arena, f: Ix) -> Result<(), Stop> {
    a.follow_inputs(f);
    if a.needs_setup(f) {
        if a.facts(f).sets_up_outside {
            return Err(Stop::SetUp(f));
        }
        let inputs = a.inputs(f);
        let x: SmallVec<[&Shape; 4]> = inputs.iter().map(|v| a.shape(a.tensor(*v))).collect();
        let shapes = a.op(f).shapes(&x)?;
        drop(x);
        set_up(a, f, shapes, a.reshapes())?;
    }
    Ok(())
}

/// Sets the outputs of a function to the shapes that the operation returned when [`Arena::reshapes`] was `asked`.
pub(crate) fn set_up(a: &mut Arena, f: Ix, shapes: Shapes, asked: u64) -> Result<()> {
    if shapes.len() != a.n_outputs(f) {
        return Err(Error::Graph(format!(
            "{}: expected {} outputs as before, got {}",
            a.op(f).name(),
            a.n_outputs(f),
            shapes.len()
        )));
    }
    shapes.iter().try_for_each(|shape| shape.checked_size().map(drop))?;
    let since = |v: &&Ix| a.is_reshaped_since(a.tensor(**v), asked);
    if let Some(v) = a.inputs(f).iter().find(since) {
        return Err(Error::Graph(format!(
            "{}: expected inputs that keep their shapes while it is set up, but {} got that shape meanwhile",
            a.op(f).name(),
            describe(a, *v)
        )));
    }
    for (o, shape) in shapes.into_iter().enumerate() {
        let tensor = a.output_tensor(f, o);
        if *a.shape(tensor) != shape {
            a.reshape(tensor, shape);
            if let Some(v) = a.live_output(f, o) {
                a.mark_need_setup(v);
            }
        }
    }
    a.note_set_up(f);
    Ok(())
}
