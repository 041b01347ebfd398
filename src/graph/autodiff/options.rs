//! Options and roots of a differentiation.

use crate::graph::autodiff::route::Edge;
use crate::graph::handles::callbacks::{Detach, FunctionHook};
use crate::graph::handles::variable::Variable;

/// A starting point of a differentiation.
#[derive(Clone)]
pub struct Root {
    /// The value to differentiate.
    pub edge: Edge,
    /// The gradient to start from. Ones if None.
    pub seed: Option<Variable>,
}

/// Options of a differentiation.
#[derive(Clone, Copy, Default)]
pub struct DifferentiateOptions<'a> {
    /// Keeps the values that the functions need to be differentiated again.
    pub retain_graph: bool,
    /// Creates gradients that can be differentiated themselves.
    pub create_graph: bool,
    /// Enter only functions created at this time of [`crate::graph::births`] or later.
    pub since: u64,
    /// Return an error for inputs that no root depends on.
    pub refuse_unused: bool,
    /// Called before each function.
    pub pre_hook: Option<FunctionHook<'a>>,
    /// A hook that is called after each function.
    pub post_hook: Option<FunctionHook<'a>>,
    /// Wraps a run with much work, to release a lock of the caller such as Python's.
    pub detach: Option<Detach<'a>>,
}
