//! The weight of a convolution, and what is cached with it.

pub use crate::array::DerivedCache;
use crate::array::Lasting;

/// What a function keeps of its weight for the sum that gives its output, and for the gradient of its input.
#[derive(Default)]
pub struct CachedWeight {
    /// For the output.
    pub forward: DerivedCache,
    /// For the gradient.
    pub backward: DerivedCache,
}

/// The weight of a convolution.
pub struct Weight<'a, T> {
    pub(super) values: &'a [T],
    pub(super) known: WeightCache<'a>,
    pub(super) lasting: Option<Lasting<'a>>,
}

/// The name of the values of a weight, and what its function keeps of them.
pub(super) type WeightCache<'a> = Option<(u64, &'a mut DerivedCache)>;

impl<'a, T> Weight<'a, T> {
    /// A weight by name, of which the function may keep what it makes of it.
    pub fn cached(values: &'a [T], name: u64, kept: &'a mut DerivedCache) -> Self {
        Self { values, known: Some((name, kept)), lasting: None }
    }

    /// The same weight, which is all of an array: it may be kept packed with the array.
    pub fn of(self, lasting: Option<Lasting<'a>>) -> Self {
        Self { lasting, ..self }
    }
}

impl<'a, T> From<&'a [T]> for Weight<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self { values, known: None, lasting: None }
    }
}

impl<'a, T> From<&'a Vec<T>> for Weight<'a, T> {
    fn from(values: &'a Vec<T>) -> Self {
        Self::from(&values[..])
    }
}
