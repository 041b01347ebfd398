//! Storages that are part of a larger one, and how writes propagate between whole and parts.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::storage::{Head, Storage};
use super::{Access, DType};
use crate::{Error, Result};

impl Storage {
    /// Returns a storage for elements `start .. start + len` of this one.
    ///
    /// # Errors
    /// [`Error::Value`] if the range is out of bounds, or overlaps another part.
    pub fn narrow(self: &Arc<Self>, start: usize, len: usize) -> Result<Arc<Self>> {
        let end = start.checked_add(len).filter(|end| *end <= self.len);
        let Some(end) = end else {
            return Err(Error::Value(format!(
                "narrow: expected a part of {} elements, got {len} from {start} on",
                self.len
            )));
        };
        let mut state = self.lock();
        state.children.retain(|c| c.strong_count() > 0);
        for other in state.children.iter().filter_map(Weak::upgrade) {
            let from = other.parent.as_ref().map_or(0, |(_, at)| *at);
            if start < from + other.len && from < end {
                return Err(Error::Value(format!(
                    "narrow: expected elements that belong to no other part, got {start}..{end} beside {from}..{}",
                    from + other.len
                )));
            }
        }
        let part = Self::with(len, Head::Empty, None, Some((Arc::clone(self), start)));
        part.lock().zeroing = state.zeroing;
        let part = Arc::new(part);
        state.children.push(Arc::downgrade(&part));
        self.publish(&state);
        Ok(part)
    }

    /// True if the two may share elements: they are, or belong to, the same storage, or hold borrowed memory.
    pub fn may_meet(&self, other: &Self) -> bool {
        let (a, b) = (self.root(), other.root());
        std::ptr::eq(a, b) || (a.is_borrowed() && b.is_known()) || (b.is_borrowed() && a.is_known())
    }

    /// As [`Storage::may_meet`] for many storages: true if a written one may share elements with another, or appears
    /// twice. Each comes with a flag for writes.
    pub fn any_may_meet(all: &mut [(&Self, bool)]) -> bool {
        let address = |storage: &Self| std::ptr::from_ref(storage);
        all.sort_unstable_by_key(|(storage, written)| (address(storage.root()), address(storage), *written));
        let meet = |two: &[(&Self, bool)]| match two {
            [(a, true), (b, true)] => !std::ptr::eq(*a, *b) && std::ptr::eq(a.root(), b.root()),
            [(a, writes_a), (b, writes_b)] => (*writes_a || *writes_b) && std::ptr::eq(a.root(), b.root()),
            _ => false,
        };
        let known = || all.iter().filter(|(storage, _)| storage.root().is_known());
        let lent = || {
            known().any(|(_, written)| *written)
                && known().any(|(s, _)| s.root().is_borrowed())
                && known().count() > 1
        };
        all.windows(2).any(meet) || lent()
    }

    /// True if the storage ever held borrowed memory, which other arrays may share.
    fn is_borrowed(&self) -> bool {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// True if other arrays or views may use the memory, because it was borrowed or shown.
    fn is_known(&self) -> bool {
        self.is_borrowed() || self.shown.load(Ordering::Relaxed) > 0
    }

    /// True if another storage may overlap this one: it is a part of a larger storage, or its memory is borrowed.
    pub fn may_be_met(&self) -> bool {
        self.parent.is_some() || self.is_borrowed()
    }

    /// Returns the elements of a part, whose memory is at `offset` in its parent.
    pub(super) fn access_part(
        &self,
        parent: &Arc<Self>,
        offset: usize,
        dtype: DType,
        access: Access,
    ) -> Result<*mut u8> {
        if access == Access::Read {
            let start = parent.access(dtype, Access::Read)?;
            return Ok(start.wrapping_add(offset * dtype.size()));
        }
        self.check_type_of_part(dtype)?;
        let start = parent.access_for_part(dtype, access)?;
        self.lock().modifications += 1;
        self.mark_written(access);
        Ok(start.wrapping_add(offset * dtype.size()))
    }

    /// Refuses to write a part in another type than the whole has.
    pub(super) fn check_type_of_part(&self, dtype: DType) -> Result<()> {
        match self.dtype().filter(|whole| *whole != dtype) {
            None => Ok(()),
            Some(whole) => Err(Error::Graph(format!(
                "narrow: expected writing as {whole}, the type of the whole array, got {dtype}; cast the whole instead"
            ))),
        }
    }

    /// Like `ReadWrite` on behalf of a part: marks this storage and its parents as written, but not the other parts.
    fn access_for_part(&self, dtype: DType, access: Access) -> Result<*mut u8> {
        if let Some((parent, offset)) = &self.parent {
            let start = parent.access_for_part(dtype, access)?;
            let mut state = self.lock();
            state.zeroing = false;
            if access.writes() {
                self.touch();
            }
            return Ok(start.wrapping_add(offset * dtype.size()));
        }
        let mut state = self.lock();
        self.make_head(&mut state, dtype)?;
        let start = self.written(&mut state, access);
        self.publish(&state);
        Ok(start)
    }

    /// Marks this storage and its parts as written.
    pub(super) fn mark_written(&self, access: Access) {
        let children = {
            let mut state = self.lock();
            state.zeroing = false;
            if access.writes() {
                self.touch();
            }
            state.children.clone()
        };
        for child in children.iter().filter_map(Weak::upgrade) {
            child.mark_written(access);
        }
    }

    /// Marks the parts of this storage as written.
    pub(super) fn mark_children_written(&self) {
        let children = self.lock().children.clone();
        for child in children.iter().filter_map(Weak::upgrade) {
            child.mark_written(Access::Write);
        }
    }

    /// Drops the fingerprints of all parents and parts after a write.
    #[cold]
    pub(super) fn wrote_together(&self) {
        let mut above = self.parent.as_ref();
        while let Some((parent, _)) = above {
            parent.drop_fingerprint();
            above = parent.parent.as_ref();
        }
        let mut below = self.lock().children.clone();
        while let Some(part) = below.pop() {
            if let Some(part) = part.upgrade() {
                part.drop_fingerprint();
                below.extend_from_slice(&part.lock().children);
            }
        }
    }

    /// Sets for this storage and its parts whether the next gradient replaces the values.
    pub(super) fn set_zeroing(&self, zeroing: bool) {
        let children = {
            let mut state = self.lock();
            state.zeroing = zeroing;
            state.children.clone()
        };
        for child in children.iter().filter_map(Weak::upgrade) {
            child.lock().modifications = 0;
            child.set_zeroing(zeroing);
        }
    }
}
