//! Operations on a whole storage: lazy zeroing and filling, clearing, adopting and handing over memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::storage::{Head, Storage};
use super::{Access, Buffer, DType, Element, Odd, RunGuard, dtype::with_element, reclaim};
use crate::{Error, Result};

impl Storage {
    /// Sets every element to zero lazily, and marks the storage as zeroed ([`Storage::is_zeroing`]).
    ///
    /// # Errors
    /// As [`Storage::access`] for part of a larger storage. Never fails otherwise.
    pub fn zero(&self) -> Result<()> {
        self.fill_with(0.0, true)?;
        self.zeroed.store(self.version(), Ordering::Relaxed);
        Ok(())
    }

    /// True if all elements are zero since [`Storage::zero`] and the engine wrote none of them. Unlike
    /// [`Storage::is_zeroing`], this holds after a view was handed out, unless the view's owner wrote to it.
    pub(crate) fn is_still_zeroed(&self) -> bool {
        if self.is_zeroing() {
            return true;
        }
        let zeroed = self.zeroed.load(Ordering::Relaxed);
        zeroed != 0
            && zeroed == self.version()
            && self.is_shown()
            && self.first_odd(Odd::NotZero).is_ok_and(|odd| odd.is_none())
    }

    /// Sets every element to `v` lazily.
    ///
    /// # Errors
    /// As [`Storage::zero`].
    pub fn fill(&self, v: f64) -> Result<()> {
        self.fill_with(v, false)
    }

    /// Fills with a value. Without a parent it is only noted, and memory is written at the first access.
    fn fill_with(&self, v: f64, zeroing: bool) -> Result<()> {
        if self.parent.is_some() {
            let dtype = self.dtype().unwrap_or(DType::F32);
            let _run = RunGuard::new();
            let ptr = self.access(dtype, Access::ReadWrite)?;
            // SAFETY: this part of the parent holds `len` elements of the type, and the guard keeps them allocated.
            unsafe { fill(ptr, dtype, self.len, v) };
            self.wrote();
            self.set_zeroing(zeroing);
            return Ok(());
        }
        let mut state = self.lock_to_replace();
        // A Python view keeps what it shows, so only unshared memory is reused.
        let (spare, old) = match std::mem::replace(&mut state.head, Head::Empty) {
            Head::Ready(b) | Head::Fill(_, Some(b)) if !b.is_shared() => (Some(b), None),
            old => (None, Some(old)),
        };
        state.head = Head::Fill(v, spare);
        self.written(&mut state, Access::Write);
        state.zeroing = zeroing;
        self.publish(&state); // before the old memory is freed
        old.into_iter().for_each(discard);
        let has_parts = !state.children.is_empty();
        drop(state);
        if has_parts {
            self.mark_children_written();
            self.set_zeroing(zeroing);
        }
        Ok(())
    }

    /// Frees the memory. Python views keep theirs. Reading a storage that the engine cleared is an error. A storage
    /// that the user cleared reads as NaN; in types without NaN reading it is an error.
    ///
    /// # Errors
    /// [`Error::Graph`] if this is part of a larger storage, or has parts.
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
        self.publish(&state); // before the memory is freed
        old.buffer().into_iter().chain(casts).for_each(reclaim::release_between_steps);
        Ok(())
    }

    /// Moves the memory to `to`, which has none, and leaves this storage cleared by the engine. `to` then holds the old
    /// elements, to be overwritten. Returns false and changes nothing if a storage is part of another one or the
    /// lengths differ. The same holds if a Python variable or a view may read the elements.
    pub(crate) fn hand_over(&self, to: &Self, dtype: DType) -> bool {
        let unseen = self.users() == 0 && to.users() == 0;
        if std::ptr::eq(self, to) || !unseen || to.holds_memory() || self.dtype() != Some(dtype) {
            return false;
        }
        self.give(to, Head::Cleared { by_engine: true })
    }

    /// Takes ownership of a buffer that holds `len` elements of `dtype`. Must not be called for part of a larger
    /// storage.
    pub(crate) fn adopt(&self, buffer: Buffer, dtype: DType) {
        assert!(self.len.saturating_mul(dtype.size()) <= buffer.bytes(), "a buffer that is too short");
        self.borrowed.fetch_or(buffer.is_borrowed(), Ordering::Relaxed);
        let mut state = self.lock();
        self.set_head(&mut state, buffer, dtype);
        self.written(&mut state, Access::Write);
        self.publish(&state);
    }

    /// True if the elements are in memory as `dtype` and equal those at `other` bit by bit. Always false for part of
    /// a larger storage.
    ///
    /// # Safety
    /// `other` must be valid for as many elements of the type, and a [`RunGuard`] must be alive.
    pub(crate) unsafe fn equals(&self, dtype: DType, other: *const u8) -> bool {
        let Some(own) = self.at(dtype, Access::Read).filter(|own| own.cast_const() != other) else {
            return false;
        };
        let bytes = self.len * dtype.size();
        // SAFETY: guaranteed by the caller, who also excludes concurrent writers.
        unsafe { std::slice::from_raw_parts(own, bytes) == std::slice::from_raw_parts(other, bytes) }
    }

    /// Copies the elements of another storage as `dtype`. Writes nothing if they are equal already.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn copy_if_changed(&self, from: &Self, dtype: DType) -> Result<()> {
        assert!(self.len == from.len, "as many elements");
        let _run = RunGuard::new(); // both may be the same storage, whose elements move when it is written
        let from = from.access(dtype, Access::Read)?;
        // SAFETY: both hold that many elements of the type while the guard lives. `copy` allows overlap.
        unsafe {
            if self.equals(dtype, from) {
                return Ok(());
            }
            std::ptr::copy(from, self.access(dtype, Access::Write)?, self.len * dtype.size());
        }
        self.wrote();
        Ok(())
    }

    /// Clears elements that were only partly written. Parts of a larger storage cannot be cleared and read as NaN
    /// instead, or zero for integers.
    #[cold]
    pub(crate) fn give_up(&self) {
        if self.clear(true).is_err() {
            drop(self.fill(f64::NAN)); // the memory exists already
        }
    }

    /// Moves its memory to another storage of the same length, and reads as zeros afterwards. Returns false if the
    /// memory is shared or either is part of another storage.
    pub(crate) fn give_to(&self, to: &Self) -> bool {
        self.give(to, Head::Empty)
    }

    /// Moves its memory to another storage and becomes `left`.
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

    /// Returns a new storage of zeros that takes the spare buffer of this one, which also reads as zeros.
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
        if let Some(buffer) = std::mem::replace(&mut state.head, Head::Empty).buffer() {
            reclaim::release_of_dropped(buffer);
        }
        state.take_casts().for_each(reclaim::release_of_dropped);
    }
}

/// Frees the memory of a head.
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
        // SAFETY: guaranteed by the caller. Buffers are aligned for every type.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast::<T>(), n) }.fill(<T as Element>::of(value));
    });
}
