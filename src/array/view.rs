//! Read-only views of elements for Rust programs, as slices or as arrays of the crate `ndarray`. The elements do not
//! change while a view lives.
//!
//! A view holds the memory, and the storage knows it: the next writer moves to new memory and leaves this one to the
//! view. Memory that cannot be left to a view is copied first: part of a larger storage, borrowed memory, elements of
//! another type, and memory that a run on another thread may be writing.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use super::storage::{Head, Storage};
use super::{Access, Buffer, DType, Element, Shape, reclaim};
use crate::Result;

/// The elements of an array at the time of the call, in row-major order.
///
/// Takes no memory of its own until the array is written while the view lives.
pub struct View<T> {
    /// The elements.
    buffer: Buffer,
    /// The shape of the array.
    shape: Shape,
    /// The element type of the view.
    element: PhantomData<T>,
}

impl<T> View<T> {
    /// The shape of the array.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
}

impl<T: Element> Deref for View<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `Storage::view` checked the number and type of elements. They are not written while the view lives.
        unsafe { std::slice::from_raw_parts(self.buffer.ptr().cast(), self.shape.size()) }
    }
}

#[cfg(feature = "ndarray")]
impl<T: Element> View<T> {
    /// The elements as an array of the crate `ndarray`.
    ///
    /// # Panics
    /// Never: the number of elements matches the shape.
    #[allow(clippy::expect_used)]
    pub fn array(&self) -> ndarray::ArrayViewD<'_, T> {
        ndarray::ArrayViewD::from_shape(&self.shape[..], self).expect("as many elements as the shape says")
    }
}

impl Storage {
    /// A view of the first elements as `T`.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn view<T: Element>(&self, shape: &Shape) -> Result<View<T>> {
        assert!(shape.size() <= self.len, "an array has memory for its shape");
        let buffer = self.lent(T::DTYPE, shape.size(), true)?;
        Ok(View { buffer, shape: shape.clone(), element: PhantomData })
    }

    /// Returns memory with the first `n` elements for a caller that may write it. The next writer of the array moves
    /// to new memory. Readers before that see what the caller writes.
    ///
    /// # Errors
    /// As [`Storage::access`].
    #[cfg_attr(not(feature = "python"), allow(dead_code))] // used by the Python bindings
    pub(crate) fn hand_out(&self, dtype: DType, n: usize) -> Result<Buffer> {
        let is_viewed = self.lock().is_viewed(); // then another view has the memory
        self.lent(dtype, n, !is_viewed)
    }

    /// Returns the memory itself, if the storage can leave it to the caller, or a copy of the first `n` elements.
    fn lent(&self, dtype: DType, n: usize, may_be_own: bool) -> Result<Buffer> {
        let (held, from) = self.pin(dtype, Access::Read)?;
        if may_be_own && self.lend(&held) {
            return Ok(held);
        }
        held.copy_of(from.addr() - held.ptr().addr(), n * dtype.size())
    }

    /// Leaves the memory to a view, if it is a whole, unshared storage that is not being written.
    fn lend(&self, memory: &Buffer) -> bool {
        let mut state = self.lock();
        let is_own = matches!(&state.head, Head::Ready(buffer) if buffer.ptr() == memory.ptr());
        if !is_own || self.parent.is_some() || memory.is_borrowed() || self.shown.load(Ordering::Relaxed) > 0
        {
            return false;
        }
        state.is_lent = true;
        self.publish(&state);
        // A run that begins now must check before it writes.
        !reclaim::is_anyone_in_a_kernel()
    }
}
