//! The weight of a convolution, and data derived from it that are cached.

use crate::array::InputCache;
pub use crate::array::{DerivedCache, Fingerprint};

/// Transformed weights that a function caches.
#[derive(Default)]
pub struct CachedWeight {
    /// The form that the forward run reads.
    pub forward: DerivedCache,
    /// The form that the gradient of the input reads.
    pub backward: DerivedCache,
}

/// The weight of a convolution.
pub struct Weight<'a, T> {
    /// The elements of the weight.
    pub(super) values: &'a [T],
    /// Data derived from the weight that the function caches.
    pub(super) known: WeightCache<'a>,
    /// Data derived from the weight that is cached with its array.
    pub(super) input_cache: Option<InputCache<'a>>,
}

/// The fingerprint of a weight, and the data that its function derived from it.
pub(super) type WeightCache<'a> = Option<(Fingerprint, &'a mut DerivedCache)>;

impl<'a, T> Weight<'a, T> {
    /// A weight with its fingerprint. Its transformed form is cached in `kept`.
    pub fn cached(values: &'a [T], fingerprint: Fingerprint, kept: &'a mut DerivedCache) -> Self {
        Self { values, known: Some((fingerprint, kept)), input_cache: None }
    }

    /// The same weight as a whole array, with which its packed form is cached.
    pub fn of(self, input_cache: Option<InputCache<'a>>) -> Self {
        Self { input_cache, ..self }
    }
}

impl<'a, T> From<&'a [T]> for Weight<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self { values, known: None, input_cache: None }
    }
}

impl<'a, T> From<&'a Vec<T>> for Weight<'a, T> {
    fn from(values: &'a Vec<T>) -> Self {
        Self::from(&values[..])
    }
}
