//! All elements of a storage at once: zeroed and filled without touching memory, cleared, adopted, given away.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::storage::{Head, Storage};
use super::{Access, Buffer, DType, Element, RunGuard, dtype::with_element, reclaim};
use crate::{Error, Result};

impl Storage {
    /// Makes every element zero without touching memory, and says so ([`Storage::is_zeroing`]).
    ///
    /// # Errors
    /// As [`Storage::access`], for part of a larger storage; never for one of its own.
    pub fn zero(&self) -> Result<()> {
        self.fill_with(0.0, true)
    }

    /// Makes every element `v` without touching memory.
    ///
    /// # Errors
    /// As [`Storage::zero`].
    pub fn fill(&self, v: f64) -> Result<()> {
        self.fill_with(v, false)
    }

    fn fill_with(&self, v: f64, zeroing: bool) -> Result<()> {
        if self.parent.is_some() {
            let dtype = self.dtype().unwrap_or(DType::F32);
            let _run = RunGuard::new();
            let ptr = self.access(dtype, Access::ReadWrite)?;
            // SAFETY: this part of the parent holds `len` elements of the type, and the guard keeps them.
            unsafe { fill(ptr, dtype, self.len, v) };
            self.wrote();
            self.set_zeroing(zeroing);
            return Ok(());
        }
        let mut state = self.lock_to_replace();
        // A view in Python keeps what it shows: only memory that nobody else sees is used again.
        let (spare, old) = match std::mem::replace(&mut state.head, Head::Empty) {
            Head::Ready(b) | Head::Fill(_, Some(b)) if !b.is_shared() => (Some(b), None),
            old => (None, Some(old)),
        };
        state.head = Head::Fill(v, spare);
        self.written(&mut state, Access::Write);
        state.zeroing = zeroing;
        self.publish(&state); // before the old memory is free
        old.into_iter().for_each(discard);
        let has_parts = !state.children.is_empty();
        drop(state);
        if has_parts {
            self.mark_children_written();
            self.set_zeroing(zeroing);
        }
        Ok(())
    }

    /// Gives the memory back. Views in Python keep what they show. Reading what the engine cleared is an error; what
    /// a user cleared reads as NaN, and is an error where the type has none.
    ///
    /// # Errors
    /// [`Error::Graph`] when this is part of a larger storage, or part of it is one.
    pub fn clear(&self, by_engine: bool) -> Result<()> {
        if by_engine && self.set_aside() {
            return Ok(());
        }
        if self.is_narrowed() {
            return Err(Error::Graph(
                "clear: expected an array of its own, got one that shares memory by narrow".into(),
            ));
        }
        let mut state = self.lock();
        let old = std::mem::replace(&mut state.head, Head::Cleared { by_engine });
        let casts: SmallVec<[Buffer; 1]> = state.take_casts().collect();
        state.modifications = 0;
        self.touch();
        self.publish(&state); // before it is free
        old.buffer().into_iter().chain(casts).for_each(reclaim::release_between_steps);
        Ok(())
    }

    /// Gives the memory to `to`, which has none, as [`Storage::clear`] for the engine would give it back: what `to` holds
    /// then are the old elements, to be overwritten. False, nothing having been done, where one of them is part of another,
    /// where someone else may look at the elements (a variable that Python holds, a view), or where they are not as many.
    pub(crate) fn hand_over(&self, to: &Self, dtype: DType) -> bool {
        let unseen = self.users() == 0 && to.users() == 0;
        if std::ptr::eq(self, to) || !unseen || to.holds_memory() || self.dtype() != Some(dtype) {
            return false;
        }
        self.give(to, Head::Cleared { by_engine: true })
    }

    /// Takes a block that already holds `len` elements of `dtype` as its memory; not for parts of a larger storage.
    pub(crate) fn adopt(&self, buffer: Buffer, dtype: DType) {
        assert!(self.len.saturating_mul(dtype.size()) <= buffer.bytes(), "a buffer that is too short");
        self.borrowed.fetch_or(buffer.is_borrowed(), Ordering::Relaxed);
        let mut state = self.lock();
        self.set_head(&mut state, buffer, dtype);
        self.written(&mut state, Access::Write);
        self.publish(&state);
    }

    /// Whether its elements are in memory as `dtype` and are the same, bit by bit, as those at another place: to write these
    /// would change nothing. Not asked of a part of a larger storage, which says no.
    ///
    /// # Safety
    /// At `other` there are as many elements of the type, and a [`RunGuard`] lives.
    pub(crate) unsafe fn equals(&self, dtype: DType, other: *const u8) -> bool {
        let Some(own) = self.at(dtype, Access::Read).filter(|own| own.cast_const() != other) else {
            return false;
        };
        let bytes = self.len * dtype.size();
        // SAFETY: the caller's promise; writers beside are the caller's to keep away, as for any read.
        unsafe { std::slice::from_raw_parts(own, bytes) == std::slice::from_raw_parts(other, bytes) }
    }

    /// Makes its elements, as `dtype`, those of another storage. Where they are the same already, nothing is written.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_if_changed(&self, from: &Self, dtype: DType) -> Result<()> {
        assert!(self.len == from.len, "as many elements");
        let _run = RunGuard::new(); // both may be one, which has its elements elsewhere once it is to be written
        let from = from.access(dtype, Access::Read)?;
        // SAFETY: both hold that many elements of the type while the guard lives; `copy` allows them to be the same memory.
        unsafe {
            if self.equals(dtype, from) {
                return Ok(());
            }
            std::ptr::copy(from, self.access(dtype, Access::Write)?, self.len * dtype.size());
        }
        self.wrote();
        Ok(())
    }

    /// Clears elements that were written half. Where they share memory by narrow, which cannot be cleared, they read as NaN from
    /// now on, and as zero in whole numbers.
    #[cold]
    pub(crate) fn give_up(&self) {
        if self.clear(true).is_err() {
            drop(self.fill(f64::NAN)); // it is in memory already
        }
    }

    /// Gives its memory to another storage of as many elements, unless someone else sees it or part of either is a
    /// storage of its own. Says whether it did; this one reads as zeros then.
    pub(crate) fn give_to(&self, to: &Self) -> bool {
        self.give(to, Head::Empty)
    }

    /// Gives its memory to another storage; what is `left` are zeros, or nothing.
    fn give(&self, to: &Self, left: Head) -> bool {
        if self.is_narrowed() || to.is_narrowed() || self.len != to.len {
            return false;
        }
        let mut state = self.lock();
        if !matches!(&state.head, Head::Ready(buffer) if !buffer.is_shared()) {
            return false;
        }
        let is_cleared = matches!(left, Head::Cleared { .. });
        let (head, dtype) = (std::mem::replace(&mut state.head, left), state.dtype);
        self.written(&mut state, Access::Write);
        state.modifications = u64::from(!is_cleared);
        self.publish(&state);
        drop(state);
        if let (Head::Ready(buffer), Some(dtype)) = (head, dtype) {
            to.adopt(buffer, dtype);
        }
        true
    }

    /// A new storage that reads as zeros, with the buffer that this one, reading as zeros too, has at hand.
    pub(crate) fn zeros_with_spare(&self) -> Arc<Self> {
        let mut state = self.lock();
        match &mut state.head {
            Head::Fill(0.0, spare) => {
                let head = Head::Fill(0.0, spare.take());
                Arc::new(Self::with(self.len, head, state.dtype, None))
            }
            _ => Self::new(self.len),
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let old = std::mem::replace(&mut state.head, Head::Empty);
        old.buffer().into_iter().chain(state.take_casts()).for_each(reclaim::release_between_steps);
    }
}

/// Gives the memory of a head back.
pub(super) fn discard(head: Head) {
    head.buffer().into_iter().for_each(reclaim::release);
}

/// Writes `value` to every element.
///
/// # Safety
/// `ptr` must be valid for writing `n` elements of `dtype`.
pub(super) unsafe fn fill(ptr: *mut u8, dtype: DType, n: usize, value: f64) {
    // All-zero bytes are zero in every type.
    let is_zero = value == 0.0 && value.is_sign_positive();
    let (dtype, n) = if is_zero { (DType::U8, n * dtype.size()) } else { (dtype, n) };
    with_element!(dtype, T => {
        // SAFETY: the caller promises the elements; buffers are aligned for every type.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast::<T>(), n) }.fill(<T as Element>::of(value));
    });
}
