//! The memory behind arrays: lazily zero or filled, shared, versioned, and aware of having been cleared.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::{Buffer, DType, Element, convert, dtype::with_element, reclaim};
use crate::{Error, Result};

/// What a storage holds at the moment.
pub(super) enum Head {
    /// Nothing was ever written; reads as zeros.
    Empty,
    /// Every element is this number; a buffer to put it in may be at hand.
    Fill(f64, Option<Buffer>),
    /// Elements of the type of [`State::dtype`].
    Ready(Buffer),
    /// Memory was given back. What the engine cleared must not be read; what a user cleared reads as NaN.
    Cleared { by_engine: bool },
}

/// The name of values that nobody asked for the name of since they were written.
const UNNAMED: u64 = 0;

/// What [`Storage::place`] says where there is nothing to point to. Otherwise it is an address, of which the low bits are
/// marks: the type of the elements, and whether they may be written as they are.
const NOWHERE: usize = 0;
const OF_TYPE: usize = 15;
const WRITABLE: usize = 16;
/// The engine has cleared it and the memory, which is small, was left for the next write.
const ASIDE: usize = 32;
const MARKS: usize = 63;

/// Longest array in elements whose memory is not given back when the engine clears it.
const SMALL: usize = 1024;

impl Head {
    fn buffer(self) -> Option<Buffer> {
        match self {
            Self::Ready(buffer) | Self::Fill(_, Some(buffer)) => Some(buffer),
            _ => None,
        }
    }
}

pub(super) struct State {
    pub(super) head: Head,
    /// Type of the head, or of the last one there was.
    pub(super) dtype: Option<DType>,
    /// The same elements as other types, for readers that asked.
    casts: SmallVec<[(DType, Buffer); 1]>,
    pub(super) zeroing: bool,
    pub(super) modifications: u64,
    pub(super) children: Vec<Weak<Storage>>,
}

impl State {
    fn take_casts(&mut self) -> impl Iterator<Item = Buffer> {
        self.casts.drain(..).map(|(_, cast)| cast)
    }
}

/// Elements in memory that arrays, variables and views share.
///
/// Who shares it is not its concern; it knows the type and place of its elements and how often they were written.
pub struct Storage {
    pub(super) len: usize,
    version: AtomicU64,
    /// Where the elements are, see [`Storage::at`].
    place: AtomicUsize,
    /// Whether someone was given the memory itself, as a view.
    shown: AtomicBool,
    content: AtomicU64,
    users: AtomicU32,
    pub(super) parent: Option<(Arc<Storage>, usize)>,
    pub(super) state: Mutex<State>,
}

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
    /// A storage of `len` elements that read as zero.
    pub fn new(len: usize) -> Arc<Self> {
        Arc::new(Self::with(len, Head::Empty, None, None))
    }

    /// A storage of `len` elements of `dtype` to be written, every one of them, before anyone else gets hold of it.
    ///
    /// # Errors
    /// [`Error::Memory`] when there is none.
    pub fn to_write(len: usize, dtype: DType) -> Result<(Arc<Self>, *mut u8)> {
        let buffer = Buffer::new(len * dtype.size())?;
        let ptr = buffer.ptr();
        let mut storage = Self::with(len, Head::Ready(buffer), Some(dtype), None);
        storage.state.get_mut().modifications = 1;
        *storage.place.get_mut() = ptr.expose_provenance() | (dtype as usize + 1) | WRITABLE;
        *storage.version.get_mut() = 1;
        Ok((Arc::new(storage), ptr))
    }

    pub(super) fn with(
        len: usize,
        head: Head,
        dtype: Option<DType>,
        parent: Option<(Arc<Self>, usize)>,
    ) -> Self {
        let state = State {
            head,
            dtype,
            casts: SmallVec::new(),
            zeroing: false,
            modifications: 0,
            children: Vec::new(),
        };
        Self {
            len,
            version: AtomicU64::new(0),
            place: AtomicUsize::new(NOWHERE),
            shown: AtomicBool::new(false),
            content: AtomicU64::new(UNNAMED),
            users: AtomicU32::new(0),
            parent,
            state: Mutex::new(state),
        }
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Raised by each write; unequal versions mean that values may have changed.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Where the elements are, if they are there as `dtype` and nothing need be done for this access: no lock is taken.
    ///
    /// The pointer is valid as that of [`Storage::access`] is.
    #[inline(always)]
    pub fn at(&self, dtype: DType, access: Access) -> Option<*mut u8> {
        let place = self.place.load(Ordering::Acquire);
        let wanted = dtype as usize + 1;
        let here = match access {
            Access::Read => place & (OF_TYPE | ASIDE) == wanted,
            Access::ReadWrite => place & MARKS == wanted | WRITABLE,
            Access::Write => place & (OF_TYPE | WRITABLE) == wanted | WRITABLE && self.take_back(place),
        };
        if here && access != Access::Read {
            self.touch();
        }
        here.then(|| std::ptr::with_exposed_provenance_mut(place & !MARKS))
    }

    /// Whether its own elements are in memory.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        let place = self.place.load(Ordering::Relaxed);
        place != NOWHERE && place & ASIDE == 0
    }

    /// Takes memory that was set aside back to write to it; false where another thread has just given it away.
    #[inline(always)]
    fn take_back(&self, place: usize) -> bool {
        place & ASIDE == 0
            || self.place.compare_exchange(place, place & !ASIDE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Clears for the engine without giving the memory back, where that is small and nobody looks at it.
    fn set_aside(&self) -> bool {
        let place = self.place.load(Ordering::Acquire);
        if place & WRITABLE == 0 || self.len > SMALL || self.shown.load(Ordering::Relaxed) {
            return false;
        }
        self.touch();
        self.place.compare_exchange(place, place | ASIDE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The state, in which memory that was set aside counts as given back, and is.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let place = self.place.load(Ordering::Acquire);
        let aside = place & ASIDE != 0
            && self.place.compare_exchange(place, NOWHERE, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if aside {
            discard(std::mem::replace(&mut state.head, Head::Cleared { by_engine: true }));
            state.modifications = 0;
        }
        state
    }

    /// Says where the elements are now, for [`Storage::at`]. A part asks the whole each time.
    pub(super) fn publish(&self, state: &State) {
        let place = match (&state.head, state.dtype) {
            (Head::Ready(buffer), Some(dtype))
                if self.parent.is_none() && buffer.ptr().addr() & MARKS == 0 =>
            {
                let alone = state.casts.is_empty() && state.children.is_empty();
                let writable = alone && !state.zeroing && state.modifications == 1;
                buffer.ptr().expose_provenance() | (dtype as usize + 1) | if writable { WRITABLE } else { 0 }
            }
            _ => NOWHERE,
        };
        self.place.store(place, Ordering::Release);
    }

    /// Says that a kernel wrote the elements in place.
    #[inline(always)]
    pub fn touch(&self) {
        self.version.store(self.version() + 1, Ordering::Relaxed);
        self.content.store(UNNAMED, Ordering::Relaxed);
    }

    /// A name for the values: as long as it is the same, so are they. Writes through a view in Python are not seen.
    #[inline(always)]
    pub fn content(&self) -> u64 {
        match self.content.load(Ordering::Relaxed) {
            UNNAMED => self.name_content(),
            name => name,
        }
    }

    #[cold]
    fn name_content(&self) -> u64 {
        static NAMES: AtomicU64 = AtomicU64::new(UNNAMED + 1);
        let name = NAMES.fetch_add(1, Ordering::Relaxed);
        // Another thread may have named it meanwhile.
        match self.content.compare_exchange(UNNAMED, name, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => name,
            Err(named) => named,
        }
    }

    /// Names the values that were just written after what they were computed from: whoever computes them again from the
    /// same finds the same name.
    #[inline(always)]
    pub fn settle(&self, content: u64) {
        self.content.store(content, Ordering::Relaxed);
    }

    /// Number of Python variables that reach these elements.
    pub fn users(&self) -> u32 {
        self.root().users.load(Ordering::Relaxed)
    }

    /// Adds to the count of [`Storage::users`] (under the lock of the graph).
    pub(crate) fn add_users(&self, n: i64) {
        let users = &self.root().users;
        users.store((i64::from(users.load(Ordering::Relaxed)) + n) as u32, Ordering::Relaxed);
    }

    #[inline(always)]
    fn root(&self) -> &Self {
        let mut at = self;
        while let Some((parent, _)) = &at.parent {
            at = parent;
        }
        at
    }

    /// Whether these elements are part of a larger storage, or part of them is a storage of its own.
    pub fn is_narrowed(&self) -> bool {
        self.parent.is_some() || self.lock().children.iter().any(|c| c.strong_count() > 0)
    }

    /// Type of the elements, if there are or were any.
    pub fn dtype(&self) -> Option<DType> {
        match self.place.load(Ordering::Acquire) & OF_TYPE {
            0 => self.root_dtype(),
            known => Some(DType::ALL[known - 1]),
        }
    }

    fn root_dtype(&self) -> Option<DType> {
        self.root().state.lock().dtype
    }

    /// Whether there is memory behind the elements at the moment.
    pub fn holds_memory(&self) -> bool {
        self.place.load(Ordering::Relaxed) != NOWHERE
            || matches!(&self.root().lock().head, Head::Ready(_) | Head::Fill(_, Some(_)))
    }

    /// Whether memory was given back and nothing was written since.
    pub fn is_cleared(&self) -> bool {
        match self.place.load(Ordering::Acquire) {
            NOWHERE => matches!(self.root().lock().head, Head::Cleared { .. }),
            place => place & ASIDE != 0,
        }
    }

    /// Whether [`Storage::zero`] was the last write.
    pub fn is_zeroing(&self) -> bool {
        // What was zeroed has to be marked as written first.
        self.place.load(Ordering::Acquire) & (WRITABLE | ASIDE) != WRITABLE && self.lock().zeroing
    }

    /// Whether the elements are known to be zero without looking: never written, or zeroed.
    pub fn is_zero(&self) -> bool {
        let state = self.root().lock();
        match state.head {
            Head::Empty => true,
            Head::Fill(v, _) => v == 0.0,
            _ => false,
        }
    }

    /// Whether it was written since its memory was allocated or cleared, as NNabla counts: 0 or 1; a part counts the
    /// writes to itself since the whole was filled.
    pub fn modification_count(&self) -> u64 {
        self.lock().modifications
    }

    /// Whether a view in Python shares the memory, so that values may change unseen.
    pub fn is_exported(&self) -> bool {
        matches!(&self.root().lock().head, Head::Ready(b) if b.is_shared())
    }

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

    fn set_head(&self, state: &mut State, buffer: Buffer, dtype: DType) {
        discard(std::mem::replace(&mut state.head, Head::Ready(buffer)));
        state.dtype = Some(dtype);
        self.publish(state);
    }

    /// Makes every element zero without touching memory, and says so ([`Storage::is_zeroing`]).
    pub fn zero(&self) {
        self.fill_with(0.0, true);
    }

    /// Makes every element `v` without touching memory.
    pub fn fill(&self, v: f64) {
        self.fill_with(v, false);
    }

    fn fill_with(&self, v: f64, zeroing: bool) {
        if self.parent.is_some() {
            let dtype = self.dtype().unwrap_or(DType::F32);
            if let Ok(ptr) = self.access(dtype, Access::ReadWrite) {
                // SAFETY: this part of the parent holds `len` elements of the type.
                unsafe { fill(ptr, dtype, self.len, v) };
            }
            self.set_zeroing(zeroing);
            return;
        }
        let mut state = self.lock();
        // A view in Python keeps what it shows: only memory that nobody else sees is used again.
        let spare = match std::mem::replace(&mut state.head, Head::Empty) {
            Head::Ready(b) | Head::Fill(_, Some(b)) if !b.is_shared() => Some(b),
            old => {
                discard(old);
                None
            }
        };
        self.written(&mut state);
        state.head = Head::Fill(v, spare);
        self.publish(&state);
        drop(state);
        self.mark_children_written();
        self.set_zeroing(zeroing);
    }

    /// Gives the memory back. Views in Python keep what they show. Reading what the engine cleared is an error; what
    /// a user cleared reads as NaN (zero for integers).
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

    /// The memory itself, for a view: shared with the storage until it is filled or cleared.
    ///
    /// # Errors
    /// As [`Storage::access`] for [`Access::ReadWrite`] or [`Access::Read`].
    pub fn buffer(&self, dtype: DType, access: Access) -> Result<(Buffer, *mut u8)> {
        self.root().shown.store(true, Ordering::Relaxed);
        let ptr = self.access(dtype, access)?;
        let root = self.root();
        let state = root.lock();
        let buffer = match &state.head {
            Head::Ready(b) if state.dtype == Some(dtype) => b.clone(),
            _ => match state.casts.iter().find(|(d, _)| *d == dtype) {
                Some((_, cast)) => cast.clone(),
                None => return Err(nothing_to_read()),
            },
        };
        Ok((buffer, ptr))
    }

    /// Takes a block that already holds `len` elements of `dtype` as its memory; not for parts of a larger storage.
    pub fn adopt(&self, buffer: Buffer, dtype: DType) {
        let mut state = self.lock();
        self.set_head(&mut state, buffer, dtype);
        self.written(&mut state);
        self.publish(&state);
    }

    /// Gives its memory to another storage of as many elements, unless someone else sees it or part of either is a
    /// storage of its own. Says whether it did; this one reads as zeros then.
    pub fn give_to(&self, to: &Self) -> bool {
        if self.is_narrowed() || to.is_narrowed() || self.len != to.len {
            return false;
        }
        let mut state = self.lock();
        if !matches!(&state.head, Head::Ready(buffer) if !buffer.is_shared()) {
            return false;
        }
        let (head, dtype) = (std::mem::replace(&mut state.head, Head::Empty), state.dtype);
        self.written(&mut state);
        self.publish(&state);
        drop(state);
        if let (Head::Ready(buffer), Some(dtype)) = (head, dtype) {
            to.adopt(buffer, dtype);
        }
        true
    }

    /// A new storage that reads as zeros, with the buffer that this one, reading as zeros too, has at hand.
    pub fn zeros_with_spare(&self) -> Arc<Self> {
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

fn discard(head: Head) {
    head.buffer().into_iter().for_each(reclaim::release);
}

fn nothing_to_read() -> Error {
    Error::Cleared("array: expected values to read, got memory that was cleared".into())
}

/// # Safety
/// `ptr` must be valid for writing `n` elements of `dtype`.
unsafe fn fill(ptr: *mut u8, dtype: DType, n: usize, value: f64) {
    if value == 0.0 && value.is_sign_positive() {
        // SAFETY: all-zero bytes are zero in every type.
        unsafe { std::ptr::write_bytes(ptr, 0, n * dtype.size()) };
        return;
    }
    with_element!(dtype, T => {
        // SAFETY: the caller promises the elements; buffers are aligned for every type.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast::<T>(), n) }.fill(<T as Element>::of(value));
    });
}
