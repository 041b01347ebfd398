//! Shapes as an operation sees them before it runs.

use smallvec::SmallVec;

use crate::array::Shape;
use crate::ops::contract::run::position;

/// Shapes of the outputs of an operation.
pub type Shapes = SmallVec<[Shape; 1]>;

/// Shapes of the inputs of an operation, numbered as declared.
pub struct InputShapes<'a> {
    pub(crate) x: &'a [&'a Shape],
    pub(crate) present: u64,
    /// Elements of the input that [`crate::ops::Compute::SHAPED_BY`] names, if they are known.
    pub(crate) values: Option<&'a [f64]>,
}

impl<'a> InputShapes<'a> {
    /// Number of inputs that were given.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// Shape of input `i`, which must be given.
    pub fn get(&self, i: usize) -> &'a Shape {
        self.x[position(self.present, i).unwrap_or(usize::MAX)]
    }

    /// Shape of input `i`, if it was given.
    pub fn find(&self, i: usize) -> Option<&'a Shape> {
        position(self.present, i).and_then(|at| self.x.get(at).copied())
    }

    /// Shapes of the inputs that were given.
    pub fn iter(&self) -> impl Iterator<Item = &'a Shape> {
        self.x.iter().copied()
    }
}
