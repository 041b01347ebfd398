//! User-defined operations, and their gradients as rules on variables.

use std::any::Any;

use crate::Result;
use crate::graph::handles::variable::Variable;

/// The gradient rule of a user-defined operation, on variables instead of symbols.
pub trait UserRule: Send + Sync {
    /// Builds the gradients of the inputs that are `wanted` from inputs, outputs and the gradients of the outputs.
    ///
    /// # Errors
    /// Errors of the user code.
    fn gradient(
        &self,
        x: &[Variable],
        y: &[Variable],
        gy: &[Variable],
        wanted: &[bool],
    ) -> Result<Vec<Option<Variable>>>;
    /// The operation as an object of the language it is written in.
    fn object(&self) -> &(dyn Any + Send + Sync);
}

/// The return value of [`crate::ops::Operation::user`] for a user-defined operation.
pub struct User(pub Box<dyn UserRule>);
