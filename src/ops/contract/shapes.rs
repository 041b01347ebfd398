//! Shapes passed to an operation before it runs.

use smallvec::SmallVec;

use crate::array::Shape;

/// Shapes of the outputs of an operation.
pub type Shapes = SmallVec<[Shape; 1]>;

/// Shapes of the inputs of an operation, numbered as declared.
pub struct InputShapes<'a> {
    /// The shapes of the given inputs.
    pub(crate) x: &'a [&'a Shape],
    /// The inputs that were given, one bit each.
    pub(crate) present: u64,
    /// Elements of the input [`crate::ops::Compute::SHAPED_BY`], if they are known.
    pub(crate) values: Option<&'a [f64]>,
}

impl<'a> InputShapes<'a> {
    /// The number of given inputs.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// The shape of input `i`, which must be given.
    pub fn get(&self, i: usize) -> &'a Shape {
        self.x[position(self.present, i).unwrap_or(usize::MAX)]
    }

    /// The shape of input `i`, if given.
    pub fn find(&self, i: usize) -> Option<&'a Shape> {
        position(self.present, i).and_then(|at| self.x.get(at).copied())
    }

    /// The shapes of the given inputs.
    pub fn iter(&self) -> impl Iterator<Item = &'a Shape> {
        self.x.iter().copied()
    }
}

/// The position of declared input `i` among the given inputs.
#[inline(always)]
pub(crate) fn position(present: u64, i: usize) -> Option<usize> {
    if present == u64::MAX {
        return Some(i);
    }
    (present >> i & 1 == 1).then(|| (present & ((1 << i) - 1)).count_ones() as usize)
}
