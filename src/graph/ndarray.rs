//! Arrays outside of a graph, by reference.

use std::sync::Arc;

use crate::array::{Access, DType, RunGuard, Shape, Storage};
use crate::{Error, Result};

/// An array by reference: a shape over elements that others may share.
#[derive(Clone)]
pub struct NdArray {
    /// Its shape.
    pub shape: Shape,
    /// Its elements.
    pub storage: Arc<Storage>,
}

impl NdArray {
    /// An array that reads as zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] when no machine could hold it.
    pub fn new(shape: Shape) -> Result<Self> {
        let storage = Storage::new(shape.checked_size()?);
        Ok(Self { shape, storage })
    }

    /// Copies of its elements as `f64`.
    ///
    /// # Errors
    /// [`Error::Cleared`] when the engine cleared them.
    pub fn to_vec(&self) -> Result<Vec<f64>> {
        let (n, mut copies) = (self.shape.size(), Vec::new());
        copies
            .try_reserve_exact(n)
            .map_err(|_| Error::Memory { bytes: n.saturating_mul(size_of::<f64>()) })?;
        let (_held, ptr) = self.storage.hold(DType::F64, Access::Read)?;
        // SAFETY: so many elements of this type are held here.
        copies.extend_from_slice(unsafe { std::slice::from_raw_parts(ptr.cast::<f64>(), n) });
        Ok(copies)
    }

    /// Overwrites its elements, in the type that they have (`f32` at first).
    ///
    /// # Errors
    /// [`Error::Shape`] when the count differs.
    pub fn copy_from_slice(&self, values: &[f64]) -> Result<()> {
        if values.len() != self.shape.size() {
            let expected = format!("{} values", self.shape.size());
            return Err(Error::shape("copy_from_slice", expected, [&Shape::from([values.len()])]));
        }
        let dtype = self.storage.dtype().unwrap_or(DType::F32);
        let _run = RunGuard::new();
        let to = self.storage.access(dtype, Access::Write)?;
        // SAFETY: both hold that many elements of their types.
        unsafe { crate::array::convert(values.as_ptr().cast(), DType::F64, to, dtype, values.len()) };
        self.storage.wrote();
        Ok(())
    }
}

/// The same elements under the same shape.
impl PartialEq for NdArray {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.storage, &other.storage) && self.shape == other.shape
    }
}
