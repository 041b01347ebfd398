//! A function that a user wrote, and its gradient as a rule on variables.

use std::any::Any;

use crate::Result;
use crate::graph::handles::variable::Variable;

/// A rule of a user's operation for its gradient, made of variables rather than symbols.
pub trait UserRule: Send + Sync {
    /// The gradients of the inputs that are `wanted`, built from inputs, outputs and the gradients of the outputs.
    ///
    /// # Errors
    /// Whatever the user's code raises.
    fn gradient(
        &self,
        x: &[Variable],
        y: &[Variable],
        gy: &[Variable],
        wanted: &[bool],
    ) -> Result<Vec<Option<Variable>>>;
    /// What the operation is in the language that it is written in.
    fn object(&self) -> &(dyn Any + Send + Sync);
}

/// What [`crate::ops::Operation::user`] returns for an operation of a user.
pub struct User(pub Box<dyn UserRule>);
