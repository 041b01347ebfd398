//! Elements that are looked at from Rust, as a slice or as an array of the crate `ndarray`: they stay what they are while
//! somebody looks.
//!
//! A view holds the memory, and the storage knows: whoever writes it next writes to other memory and leaves this to the view.
//! Only what cannot be left to anybody (part of a larger storage, memory of someone else, elements of another type, what a run
//! on another thread may be writing) is copied first.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use super::storage::{Head, Storage};
use super::{Access, Buffer, DType, Element, Shape, reclaim};
use crate::Result;

/// The elements of an array as they were when it was asked for them, one after the other in the order of its axes.
///
/// It takes no memory of its own until somebody writes the array while it lives.
pub struct View<T> {
    buffer: Buffer,
    shape: Shape,
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
        // SAFETY: `Storage::view` saw that so many elements of the type are there; nobody writes them while the view lives.
        unsafe { std::slice::from_raw_parts(self.buffer.ptr().cast(), self.shape.size()) }
    }
}

#[cfg(feature = "ndarray")]
impl<T: Element> View<T> {
    /// The elements as an array of the crate `ndarray`.
    ///
    /// # Panics
    /// Never: there are as many elements as the shape says.
    #[allow(clippy::expect_used)]
    pub fn array(&self) -> ndarray::ArrayViewD<'_, T> {
        ndarray::ArrayViewD::from_shape(&self.shape[..], self).expect("as many elements as the shape says")
    }
}

impl Storage {
    /// The first elements as `T`, for as long as the view lives. A shape has no more elements than there are.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn view<T: Element>(&self, shape: &Shape) -> Result<View<T>> {
        assert!(shape.size() <= self.len, "an array has memory for its shape");
        let buffer = self.lent(T::DTYPE, shape.size(), true)?;
        Ok(View { buffer, shape: shape.clone(), element: PhantomData })
    }

    /// Memory with the first `n` elements, for one who may write them: who writes the array next writes to other memory. What
    /// reads it before that reads what was written there.
    ///
    /// # Errors
    /// As [`Storage::access`].
    #[cfg_attr(not(feature = "python"), allow(dead_code))] // Python asks for it
    pub(crate) fn hand_out(&self, dtype: DType, n: usize) -> Result<Buffer> {
        let is_viewed = self.lock().is_viewed(); // then another has it
        self.lent(dtype, n, !is_viewed)
    }

    /// The memory, if it can be left to whoever asks, or a copy of the first `n` elements.
    fn lent(&self, dtype: DType, n: usize, may_be_own: bool) -> Result<Buffer> {
        let (held, from) = self.pin(dtype, Access::Read)?;
        if may_be_own && self.lend(&held) {
            return Ok(held);
        }
        held.copy_of(from.addr() - held.ptr().addr(), n * dtype.size())
    }

    /// Leaves the memory to a view if it is all of this storage's own, and nobody writes or may write it otherwise.
    fn lend(&self, memory: &Buffer) -> bool {
        let mut state = self.lock();
        let is_own = matches!(&state.head, Head::Ready(buffer) if buffer.ptr() == memory.ptr());
        if !is_own || self.parent.is_some() || memory.is_borrowed() || self.shown.load(Ordering::Relaxed) > 0
        {
            return false;
        }
        state.is_lent = true;
        self.publish(&state);
        // A run that begins now finds that it must look before it writes.
        !reclaim::is_anyone_in_a_kernel()
    }
}
