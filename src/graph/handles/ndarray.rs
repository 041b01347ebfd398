//! Arrays outside of a graph, by reference.

use crate::Error;
use crate::Result;
use crate::array::Access;
use crate::array::DType;
use crate::array::RunGuard;
use crate::array::Shape;
use crate::array::Storage;
use crate::array::convert;
use std::sync::Arc;

/// A new array with the same elements in the same type.
///
/// # Errors
/// [`Error::Cleared`] when there is nothing to copy, [`Error::Memory`].
pub fn copied(array: &NdArray) -> Result<NdArray> {
    let n = array.shape.size();
    let storage = Storage::new(n);
    let dtype = array.storage.dtype().unwrap_or(DType::F32);
    let _run = RunGuard::new(); // the address of one may be gone before the other is there
    let (from, to) = (array.storage.access(dtype, Access::Read)?, storage.access(dtype, Access::Write)?);
    // SAFETY: both hold `n` elements of the type, and the target is new.
    unsafe { convert(from, dtype, to, dtype, n) };
    Ok(NdArray { shape: array.shape.clone(), storage })
}

/// An array by reference: a shape over elements that others may share.
///
/// Its elements are as many as its shape says: nobody can make one that is not so.
///
/// ```compile_fail
/// use kinnor::array::{Shape, Storage};
/// use kinnor::graph::NdArray;
/// let array = NdArray { shape: Shape::from([1 << 20]), storage: Storage::new(1) };
/// ```
#[derive(Clone)]
pub struct NdArray {
    /// Its shape.
    pub(crate) shape: Shape,
    /// Its elements.
    pub(crate) storage: Arc<Storage>,
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

    /// Its shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of its elements, once they have one.
    pub fn dtype(&self) -> Option<DType> {
        self.storage.dtype()
    }

    /// Makes its elements those of another type, each rounded to that.
    ///
    /// # Errors
    /// [`Error::Cleared`] when the engine cleared them, [`Error::Memory`].
    pub fn cast(&self, dtype: DType) -> Result<()> {
        self.storage.access(dtype, Access::ReadWrite).map(drop)
    }

    /// Makes all elements zero, when they are looked at.
    ///
    /// # Errors
    /// [`Error::Memory`] when it is a part of an array that has no memory yet, and there is none.
    pub fn zero(&self) -> Result<()> {
        self.storage.zero()
    }

    /// Gives its memory back: there is nothing to read until it is written.
    ///
    /// # Errors
    /// [`Error::Graph`] when it is a part of another array.
    pub fn clear(&self) -> Result<()> {
        self.storage.clear(false)
    }

    /// Whether its memory was given back and nothing was written since.
    pub fn is_cleared(&self) -> bool {
        self.storage.is_cleared()
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
        let (_held, to) = self.storage.hold(dtype, Access::Write)?;
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
