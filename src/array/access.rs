//! Access to the elements of a storage: fills lazy storages, converts element types and copies shared memory on
//! demand.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::contents::{discard, fill};
use super::fingerprint::VersionedFingerprint;
use super::storage::{Access, Cast, Head, Storage, StorageState};
use super::{Buffer, DType, convert, reclaim};
use crate::{Error, Result};

impl Storage {
    /// Returns a pointer to the elements as `dtype`, ready for `access`.
    ///
    /// The pointer is valid until the storage is filled, cleared or written as another type. Within a run of a graph
    /// ([`super::RunGuard`]) it is valid until the run ends.
    ///
    /// # Errors
    /// [`Error::Cleared`] if the storage was cleared, [`Error::Memory`] if allocation fails, and [`Error::Graph`] if
    /// part of a larger storage would have to change its type.
    #[inline(always)]
    #[doc(hidden)] // for `Write` the memory is uninitialized
    pub fn access(&self, dtype: DType, access: Access) -> Result<*mut u8> {
        match self.at(dtype, access) {
            Some(ptr) => Ok(ptr),
            None => self.make_ready(dtype, access),
        }
    }

    /// Like [`Storage::at`] for reading, but also finds borrowed memory whose address is not aligned to a cache line.
    #[inline(always)]
    pub(crate) fn found(&self, dtype: DType) -> Option<*mut u8> {
        self.at(dtype, Access::Read).or_else(|| self.found_elsewhere(dtype))
    }

    /// The elements in borrowed memory of type `dtype`, whose address is not published.
    #[cold]
    fn found_elsewhere(&self, dtype: DType) -> Option<*mut u8> {
        let state = self.lock();
        match &state.head {
            Head::Ready(buffer) if buffer.is_borrowed() && state.dtype == Some(dtype) => Some(buffer.ptr()),
            _ => None,
        }
    }

    /// Slow path of [`Storage::access`]: allocates, converts or moves elements as `access` needs.
    #[cold]
    fn make_ready(&self, dtype: DType, access: Access) -> Result<*mut u8> {
        if let Some((parent, offset)) = &self.parent {
            return self.access_part(parent, *offset, dtype, access);
        }
        let mut state = self.lock();
        let ptr = match access {
            Access::Read => self.read(&mut state, dtype)?,
            Access::ReadWrite | Access::Show => {
                self.make_head(&mut state, dtype)?;
                self.written(&mut state, access)
            }
            Access::Write => {
                let reusable =
                    matches!(state.head, Head::Ready(_)) && state.dtype == Some(dtype) && !state.is_viewed();
                if !reusable {
                    // Allocate before freeing, so that a failure changes nothing.
                    let buffer = match state.head.spare(self.len * dtype.size()) {
                        Some(spare) => spare,
                        None => Buffer::new(self.len * dtype.size())?,
                    };
                    self.set_head(&mut state, buffer, dtype);
                }
                self.written(&mut state, access)
            }
        };
        self.publish(&state);
        let children = if access == Access::Read { Vec::new() } else { state.children.clone() };
        drop(state);
        for child in children.iter().filter_map(Weak::upgrade) {
            child.mark_written(access);
        }
        Ok(ptr)
    }

    /// Notes that the elements are in memory and may be written: drops casts, and marks a write if `access` writes.
    pub(super) fn written(&self, state: &mut StorageState, access: Access) -> *mut u8 {
        (state.zeroing, state.is_lent) = (false, false);
        state.modifications = 1;
        if access.writes() {
            self.touch();
        }
        state.take_casts().for_each(reclaim::release);
        match &state.head {
            Head::Ready(buffer) => buffer.ptr(),
            _ => std::ptr::null_mut(),
        }
    }

    /// Returns the elements in this type: fills memory and converts from the stored type where needed.
    fn read(&self, state: &mut StorageState, dtype: DType) -> Result<*mut u8> {
        if !matches!(state.head, Head::Ready(_)) {
            let own = state.dtype.unwrap_or(dtype);
            self.make_head(state, own)?;
        }
        let own = state.dtype.unwrap_or(dtype);
        let Head::Ready(buffer) = &state.head else { return Err(nothing_to_read()) };
        if own == dtype {
            return Ok(buffer.ptr());
        }
        // If unobserved writes are possible, a cached copy may be stale, so convert again.
        let of = if buffer.is_shared() || self.is_addressed() {
            VersionedFingerprint::NONE
        } else {
            self.versioned_fingerprint()
        };
        let source = buffer.ptr();
        let at = match state.casts.iter().position(|cast| cast.dtype == dtype) {
            Some(at) => at,
            None => {
                let buffer = Buffer::new(self.len * dtype.size())?;
                state.casts.push(Cast { dtype, buffer, of: VersionedFingerprint::NONE });
                self.publish(state); // concurrent writers must take the slow path and drop this copy
                state.casts.len() - 1
            }
        };
        let cast = &mut state.casts[at];
        if of == VersionedFingerprint::NONE || of != cast.of {
            // SAFETY: both buffers hold `len` elements of their types and do not overlap.
            unsafe { convert(source, own, cast.buffer.ptr(), dtype, self.len) };
            cast.of = of;
        }
        Ok(cast.buffer.ptr())
    }

    /// Converts the head to `dtype`, keeping its values.
    pub(super) fn make_head(&self, state: &mut StorageState, dtype: DType) -> Result<()> {
        match &mut state.head {
            Head::Cleared { by_engine: true } => return Err(nothing_to_read()),
            Head::Ready(_) if state.dtype == Some(dtype) => return self.leave_to_views(state, dtype),
            Head::Ready(_) => {
                // Promote the cached copy to be the head.
                self.read(state, dtype)?;
                if let Some(at) = state.casts.iter().position(|cast| cast.dtype == dtype) {
                    let cast = state.casts.remove(at);
                    self.set_head(state, cast.buffer, dtype);
                }
            }
            lazy => {
                let has_nan = dtype.is_float() && state.dtype.is_none_or(DType::is_float);
                let value = match lazy {
                    Head::Fill(v, _) => *v,
                    Head::Cleared { .. } if has_nan => f64::NAN,
                    Head::Cleared { .. } if self.len > 0 => return Err(nothing_to_read()),
                    _ => 0.0,
                };
                let buffer = match lazy.spare(self.len * dtype.size()) {
                    Some(spare) => spare,
                    None => Buffer::new(self.len * dtype.size())?,
                };
                // SAFETY: the buffer holds `len` elements of this type and is not shared yet.
                unsafe { fill(buffer.ptr(), dtype, self.len, value) };
                self.set_head(state, buffer, dtype);
            }
        }
        Ok(())
    }

    /// Moves the elements to new memory if a view shows them, so that they may be written.
    fn leave_to_views(&self, state: &mut StorageState, dtype: DType) -> Result<()> {
        let (true, Head::Ready(shown)) = (state.is_viewed(), &state.head) else { return Ok(()) };
        let buffer = shown.copy_of(0, self.len * dtype.size())?;
        self.set_head(state, buffer, dtype);
        Ok(())
    }

    /// Replaces the memory of the elements and publishes its address.
    pub(super) fn set_head(&self, state: &mut StorageState, buffer: Buffer, dtype: DType) {
        let old = std::mem::replace(&mut state.head, Head::Ready(buffer));
        (state.dtype, state.is_lent) = (Some(dtype), false);
        self.publish(state); // before the old memory is freed
        discard(old);
    }

    /// Does the fallible part of [`Storage::access`] for [`Access::ReadWrite`] without visible effects. A following
    /// access does not allocate.
    ///
    /// # Errors
    /// As [`Storage::access`].
    #[inline(always)]
    pub(crate) fn prepare(&self, dtype: DType) -> Result<()> {
        match self.at(dtype, Access::Read) {
            Some(_) => Ok(()),
            None => self.prepare_slowly(dtype),
        }
    }

    /// Brings the elements into memory in this type, to be read.
    #[cold]
    fn prepare_slowly(&self, dtype: DType) -> Result<()> {
        if self.parent.is_some() {
            self.check_type_of_part(dtype)?;
        }
        self.access(dtype, Access::Read).map(drop)
    }

    /// Returns a handle on the memory for a view. The memory is shared with the storage until the storage is filled
    /// or cleared.
    ///
    /// # Errors
    /// As [`Storage::access`].
    #[cfg_attr(not(feature = "python"), allow(dead_code))] // used by the Python bindings
    pub(crate) fn buffer(&self, dtype: DType, access: Access) -> Result<(Buffer, *mut u8)> {
        self.find(dtype, access, |root, state| {
            // A concurrent reader between `access` and this point does not know of the view.
            root.shown.fetch_add(1, Ordering::Relaxed);
            if access != Access::Read {
                state.casts.iter_mut().for_each(|cast| cast.of = VersionedFingerprint::NONE);
            }
        })
    }

    /// Like [`Storage::access`], and returns a handle that keeps the memory allocated.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn pin(&self, dtype: DType, access: Access) -> Result<(Buffer, *mut u8)> {
        self.find(dtype, access, |_, _| {})
    }

    /// Like [`Storage::access`], with a handle. Calls `found` under the lock, before another thread can see that the
    /// memory is shared.
    fn find(
        &self,
        dtype: DType,
        access: Access,
        found: impl Fn(&Self, &mut StorageState),
    ) -> Result<(Buffer, *mut u8)> {
        loop {
            let ptr = self.access(dtype, access)?;
            let root = self.root();
            let mut state = root.lock();
            // Match by type: memory of another type may have been replaced since.
            let own = if let Head::Ready(own) = &state.head { Some(own) } else { None };
            let own = own.filter(|_| state.dtype == Some(dtype));
            let casts = state.casts.iter().filter(|cast| cast.dtype == dtype).map(|cast| &cast.buffer);
            if let Some(buffer) = own.into_iter().chain(casts).find(|buffer| buffer.contains(ptr)).cloned() {
                found(root, &mut state);
                return Ok((buffer, ptr));
            }
            // Another thread replaced the memory. Try again.
        }
    }
}

/// The error of a read of memory that the engine cleared.
fn nothing_to_read() -> Error {
    Error::Cleared("array: expected values to read, got memory that was cleared".into())
}
