//! How to differentiate, and from where.

use crate::graph::autodiff::route::Edge;
use crate::graph::handles::callbacks::{Detach, FunctionHook};
use crate::graph::handles::variable::Variable;

/// Where a differentiation starts.
#[derive(Clone)]
pub struct Root {
    /// What to differentiate.
    pub edge: Edge,
    /// The gradient to start from; ones where none is given.
    pub seed: Option<Variable>,
}

/// How to differentiate.
#[derive(Clone, Copy, Default)]
pub struct DifferentiateOptions<'a> {
    /// Keep what the functions need to be differentiated again.
    pub retain_graph: bool,
    /// Make gradients that can be differentiated themselves.
    pub create_graph: bool,
    /// Go through functions only that were made at this time of [`crate::graph::births`] or later.
    pub since: u64,
    /// Refuse inputs that no root depends on.
    pub refuse_unused: bool,
    /// Called before each function.
    pub pre_hook: Option<FunctionHook<'a>>,
    /// Called after each function.
    pub post_hook: Option<FunctionHook<'a>>,
    /// Wraps the run where it is worth releasing a lock for.
    pub detach: Option<Detach<'a>>,
}
