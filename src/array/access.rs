//! Elements of a storage, made ready where and as what they are wanted: filled in, converted, or copied on the side.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use super::contents::{discard, fill};
use super::storage::{Head, State, Storage};
use super::{Buffer, DType, convert, reclaim};
use crate::{Error, Result};

/// What the caller means to do with the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read them: other types become copies on the side.
    Read,
    /// Read and write them: the type asked for becomes the only one.
    ReadWrite,
    /// Write every one of them: contents before are lost.
    Write,
}

impl Storage {
    /// Where the elements are as `dtype`, made ready for `access`.
    ///
    /// The pointer stays valid until the storage is written as another type, filled or cleared; during a run
    /// of a graph ([`super::RunGuard`]) it stays valid in any case.
    ///
    /// # Errors
    /// [`Error::Cleared`] when there is nothing to read, [`Error::Memory`], and [`Error::Graph`] when part of
    /// a larger storage would have to change its type.
    #[inline(always)]
    pub fn access(&self, dtype: DType, access: Access) -> Result<*mut u8> {
        match self.at(dtype, access) {
            Some(ptr) => Ok(ptr),
            None => self.make_ready(dtype, access),
        }
    }

    #[cold]
    fn make_ready(&self, dtype: DType, access: Access) -> Result<*mut u8> {
        if let Some((parent, offset)) = &self.parent {
            return self.access_part(parent, *offset, dtype, access);
        }
        let mut state = self.lock();
        let ptr = match access {
            Access::Read => self.read(&mut state, dtype)?,
            Access::ReadWrite => {
                self.make_head(&mut state, dtype)?;
                self.written(&mut state)
            }
            Access::Write => {
                let reusable = matches!(state.head, Head::Ready(_)) && state.dtype == Some(dtype);
                if !reusable {
                    let spare = match std::mem::replace(&mut state.head, Head::Empty) {
                        Head::Fill(_, Some(spare)) if spare.bytes() >= self.len * dtype.size() => Some(spare),
                        old => {
                            discard(old);
                            None
                        }
                    };
                    let buffer = match spare {
                        Some(spare) => spare,
                        None => Buffer::new(self.len * dtype.size())?,
                    };
                    self.set_head(&mut state, buffer, dtype);
                }
                self.written(&mut state)
            }
        };
        self.publish(&state);
        let children = if access == Access::Read { Vec::new() } else { state.children.clone() };
        drop(state);
        for child in children.iter().filter_map(Weak::upgrade) {
            child.mark_written();
        }
        Ok(ptr)
    }

    pub(super) fn written(&self, state: &mut State) -> *mut u8 {
        state.zeroing = false;
        state.modifications = 1;
        self.touch();
        state.take_casts().for_each(reclaim::release);
        match &state.head {
            Head::Ready(buffer) => buffer.ptr(),
            _ => std::ptr::null_mut(),
        }
    }

    fn read(&self, state: &mut State, dtype: DType) -> Result<*mut u8> {
        if !matches!(state.head, Head::Ready(_)) {
            let own = state.dtype.unwrap_or(dtype);
            self.make_head(state, own)?;
        }
        let own = state.dtype.unwrap_or(dtype);
        let Head::Ready(buffer) = &state.head else { return Err(nothing_to_read()) };
        if own == dtype {
            return Ok(buffer.ptr());
        }
        let (source, exported) = (buffer.ptr(), buffer.is_shared());
        if let Some((_, cast)) = state.casts.iter().find(|(d, _)| *d == dtype) {
            if exported {
                // SAFETY: both hold `len` elements of their types and are different blocks.
                unsafe { convert(source, own, cast.ptr(), dtype, self.len) };
            }
            return Ok(cast.ptr());
        }
        let cast = Buffer::new(self.len * dtype.size())?;
        let ptr = cast.ptr();
        // SAFETY: both hold `len` elements of their types and are different blocks.
        unsafe { convert(source, own, ptr, dtype, self.len) };
        state.casts.push((dtype, cast));
        self.publish(state); // whoever writes in place must look again, and drop this copy
        Ok(ptr)
    }

    /// Makes `dtype` the type of the head, keeping its values.
    pub(super) fn make_head(&self, state: &mut State, dtype: DType) -> Result<()> {
        let bytes = self.len * dtype.size();
        match &mut state.head {
            Head::Cleared { by_engine: true } => return Err(nothing_to_read()),
            Head::Ready(_) if state.dtype == Some(dtype) => return Ok(()),
            Head::Ready(old) => {
                let buffer = Buffer::new(bytes)?;
                let from = old.ptr();
                // SAFETY: both hold `len` elements of their types and are different blocks.
                unsafe { convert(from, state.dtype.unwrap_or(dtype), buffer.ptr(), dtype, self.len) };
                self.set_head(state, buffer, dtype);
            }
            lazy => {
                let (value, spare) = match lazy {
                    Head::Fill(v, spare) => (*v, spare.take().filter(|s| s.bytes() >= bytes)),
                    Head::Cleared { .. } if dtype.is_float() => (f64::NAN, None),
                    _ => (0.0, None),
                };
                let buffer = match spare {
                    Some(spare) => spare,
                    None => Buffer::new(bytes)?,
                };
                // SAFETY: the buffer holds `len` elements of this type, and nobody else has it yet.
                unsafe { fill(buffer.ptr(), dtype, self.len, value) };
                self.set_head(state, buffer, dtype);
            }
        }
        Ok(())
    }

    pub(super) fn set_head(&self, state: &mut State, buffer: Buffer, dtype: DType) {
        discard(std::mem::replace(&mut state.head, Head::Ready(buffer)));
        state.dtype = Some(dtype);
        self.publish(state);
    }

    /// The memory itself, for a view: shared with the storage until it is filled or cleared.
    ///
    /// # Errors
    /// As [`Storage::access`] for [`Access::ReadWrite`] or [`Access::Read`].
    pub fn buffer(&self, dtype: DType, access: Access) -> Result<(Buffer, *mut u8)> {
        self.root().shown.fetch_add(1, Ordering::Relaxed);
        self.hold(dtype, access)
    }

    /// As [`Storage::access`], with a handle on the memory that the pointer leads to: it stays as long as that lives.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn hold(&self, dtype: DType, access: Access) -> Result<(Buffer, *mut u8)> {
        loop {
            let ptr = self.access(dtype, access)?;
            let state = self.root().lock();
            let own = if let Head::Ready(own) = &state.head { Some(own) } else { None };
            let casts = state.casts.iter().map(|(_, cast)| cast);
            if let Some(buffer) = own.into_iter().chain(casts).find(|buffer| buffer.contains(ptr)) {
                return Ok((buffer.clone(), ptr));
            }
            // Another thread has put other memory there meanwhile.
        }
    }
}

fn nothing_to_read() -> Error {
    Error::Cleared("array: expected values to read, got memory that was cleared".into())
}
