//! Copies of elements between storages, buffers and slices, with type conversion.

use std::marker::PhantomData;

use super::{Access, Buffer, DType, Element, Storage, convert};
use crate::Result;

/// Source or target of a copy. Keeps the elements allocated.
struct Place<'a> {
    /// The first element.
    at: *mut u8,
    /// The type of the elements.
    dtype: DType,
    /// The number of elements.
    n: usize,
    /// Keeps the elements of a storage allocated.
    _held: Option<Buffer>,
    /// The lifetime of the storage, buffer or slice.
    of: PhantomData<&'a ()>,
}

impl<'a> Place<'a> {
    /// The pinned elements of a storage in this type.
    fn of(storage: &'a Storage, dtype: DType, access: Access) -> Result<Self> {
        let (held, at) = storage.pin(dtype, access)?;
        Ok(Self { at, dtype, n: storage.len(), _held: Some(held), of: PhantomData })
    }

    /// The elements of a buffer of this type.
    fn of_buffer(buffer: &'a Buffer, dtype: DType) -> Self {
        let n = buffer.bytes() / dtype.size();
        Self { at: buffer.ptr(), dtype, n, _held: None, of: PhantomData }
    }

    /// A read-only slice.
    fn of_slice<T: Element>(values: &'a [T]) -> Self {
        let at = values.as_ptr().cast_mut().cast();
        Self { at, dtype: T::DTYPE, n: values.len(), _held: None, of: PhantomData }
    }

    /// Overwrites the first `n` elements with the first `n` elements of `from`.
    fn copy_from(&self, from: &Self, n: usize) {
        assert!(n <= self.n && n <= from.n, "elements that are not there");
        if self.at != from.at {
            // SAFETY: both hold at least `n` elements of their types, and different arrays do not overlap.
            unsafe { convert(from.at, from.dtype, self.at, self.dtype, n) };
        }
    }
}

impl Storage {
    /// Overwrites its first `n` elements with the first `n` elements of another storage, both as `dtype`.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_from(&self, from: &Self, dtype: DType, n: usize) -> Result<()> {
        let from = Place::of(from, dtype, Access::Read)?;
        Place::of(self, dtype, Access::Write)?.copy_from(&from, n);
        self.wrote();
        Ok(())
    }

    /// Overwrites its first elements with a slice. Keeps the element type, `f32` if there is none yet.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_from_slice<T: Element>(&self, values: &[T]) -> Result<()> {
        let dtype = self.dtype().unwrap_or(DType::F32);
        Place::of(self, dtype, Access::Write)?.copy_from(&Place::of_slice(values), values.len());
        self.wrote();
        Ok(())
    }

    /// Overwrites its first `n` elements, as `own`, with the elements of a buffer of type `dtype`.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_from_buffer(&self, own: DType, from: &Buffer, dtype: DType, n: usize) -> Result<()> {
        Place::of(self, own, Access::Write)?.copy_from(&Place::of_buffer(from, dtype), n);
        self.wrote();
        Ok(())
    }

    /// Copies its first `n` elements to a buffer, as `dtype`.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_to_buffer(&self, to: &Buffer, dtype: DType, n: usize) -> Result<()> {
        Place::of_buffer(to, dtype).copy_from(&Place::of(self, dtype, Access::Read)?, n);
        Ok(())
    }

    /// Copies its first `n` elements to a block, as `dtype`, rounded to the type `by`.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_rounded_to_buffer(
        &self,
        to: &Buffer,
        dtype: DType,
        n: usize,
        by: DType,
    ) -> Result<()> {
        Place::of_buffer(to, dtype).copy_from(&Place::of(self, by, Access::Read)?, n);
        Ok(())
    }
}
