//! The memory behind arrays: shared, versioned, and aware of being cleared. `access` prepares elements for a reader
//! or writer, `contents` changes all elements together, `versions` tells readers whether values changed.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::contents::discard;
use super::fingerprint::{Fingerprint, VersionedFingerprint};
use super::kept::Forms;
use super::{Buffer, DType, barrier};
use crate::Result;

/// How the caller will use the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read. A request for another type makes a cached copy in that type.
    Read,
    /// Read and write. The requested type becomes the only one.
    ReadWrite,
    /// Overwrite every element. The previous contents are lost.
    Write,
    /// Lend to a caller who may write unobserved. Like `ReadWrite`, but does not count as a write yet.
    Show,
}

impl Access {
    /// True if the access counts as a write.
    #[inline(always)]
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::ReadWrite | Self::Write)
    }
}

/// The contents of a storage.
pub(super) enum Head {
    /// Never written. Reads as zeros.
    Empty,
    /// All elements equal this number. A spare buffer for the elements may be attached.
    Fill(f64, Option<Buffer>),
    /// Elements of type [`StorageState::dtype`].
    Ready(Buffer),
    /// Freed. A storage cleared by the engine must not be read. One cleared by the user reads as NaN, in types that
    /// have it.
    Cleared { by_engine: bool },
}

/// Value of [`Storage::place`] if there is no pointer. Otherwise it is an address whose low bits are flags: the
/// element type, and whether the elements may be written in place.
const NOWHERE: usize = 0;
/// Mask of the element type: its position in [`DType::ALL`], plus 1.
const OF_TYPE: usize = 15;
/// Flag: the elements may be written in place.
pub(super) const WRITABLE: usize = 16;
/// Flag: cleared by the engine, but the small memory is reserved for the next write.
const ASIDE: usize = 32;
/// Mask of all flags. Addresses with one of these bits are not published.
const MARKS: usize = 63;

impl Head {
    /// The memory in this state, if any.
    pub(super) fn buffer(self) -> Option<Buffer> {
        match self {
            Self::Ready(buffer) | Self::Fill(_, Some(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// Takes the spare buffer, if it is large enough.
    pub(super) fn spare(&mut self, bytes: usize) -> Option<Buffer> {
        match self {
            Self::Fill(_, spare) if spare.as_ref().is_some_and(|spare| spare.bytes() >= bytes) => {
                spare.take()
            }
            _ => None,
        }
    }
}

/// A copy of the elements in another type.
pub(super) struct Cast {
    /// The type of the copy.
    pub(super) dtype: DType,
    /// The copied elements.
    pub(super) buffer: Buffer,
    /// The fingerprint of the elements before the conversion. None if the copy may be outdated.
    pub(super) of: VersionedFingerprint,
}

/// The elements of a storage and what is known of them, behind its lock.
pub(super) struct StorageState {
    /// Where the elements are: in memory, as one number, or nowhere.
    pub(super) head: Head,
    /// Type of the head, or of the last one there was.
    pub(super) dtype: Option<DType>,
    /// Copies in other types, made on request.
    pub(super) casts: SmallVec<[Cast; 1]>,
    /// True if [`Storage::zero`] was the last write.
    pub(super) zeroing: bool,
    /// True if a [`super::View`] may show the head, which then must not be written in place.
    pub(super) is_lent: bool,
    /// See [`Storage::modification_count`].
    pub(super) modifications: u64,
    /// Parts of this storage, made by narrowing, that may still be alive.
    pub(super) children: Vec<Weak<Storage>>,
}

impl StorageState {
    /// True if a view shows the head, so that a writer needs new memory.
    pub(super) fn is_viewed(&self) -> bool {
        self.is_lent && matches!(&self.head, Head::Ready(buffer) if buffer.is_shared())
    }

    /// Removes the copies in other types and yields their memory.
    pub(super) fn take_casts(&mut self) -> impl Iterator<Item = Buffer> {
        self.casts.drain(..).map(|cast| cast.buffer)
    }
}

/// Elements in memory, shared by arrays, variables and views.
///
/// A storage knows the type and address of its elements and counts writes. It does not know its owners.
pub struct Storage {
    /// The number of elements.
    pub(super) len: usize,
    /// Incremented when elements may have changed.
    pub(super) version: AtomicU64,
    /// The version after the last [`Storage::zero`]; zero if there was none.
    pub(super) zeroed: AtomicU64,
    /// Address and flags of the elements, see [`Storage::at`].
    pub(super) place: AtomicUsize,
    /// Number of views handed out so far.
    pub(super) shown: AtomicU32,
    /// True if it ever held borrowed memory, which other arrays may share.
    pub(super) borrowed: AtomicBool,
    /// Bookkeeping of [`super::Gone`], which expects the memory to stay freed.
    pub(super) watched: AtomicU8,
    /// True if a leaf was ever given this memory, see [`Storage::give_to_leaf`].
    given: AtomicBool,
    /// Low bits of the version that a function last computed here.
    pub(super) computed: AtomicU16,
    /// The [`Fingerprint`] of the values, if there is one.
    pub(super) fingerprint: AtomicU64,
    /// The number of Python variables that reach the elements, see [`Storage::users`].
    users: AtomicU32,
    /// The storage that this one is part of, and the element at which it begins.
    pub(super) parent: Option<(Arc<Storage>, usize)>,
    /// Derived data cached with the storage, allocated on first use.
    pub(super) forms: OnceLock<Box<Forms>>,
    /// The contents, and copies in other types.
    pub(super) state: Mutex<StorageState>,
}

impl Storage {
    /// Largest number of elements whose memory is retained when the engine clears the storage.
    pub const SMALL: usize = 1024;

    /// Creates a storage of `len` elements that read as zero.
    pub fn new(len: usize) -> Arc<Self> {
        Arc::new(Self::with(len, Head::Empty, None, None))
    }

    /// Creates a storage of `len` uninitialized elements of `dtype`. The caller must write all of them before it
    /// shares the storage.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) if allocation fails.
    pub(crate) fn to_write(len: usize, dtype: DType) -> Result<(Arc<Self>, *mut u8)> {
        let buffer = Buffer::new(len * dtype.size())?;
        let ptr = buffer.ptr();
        let mut storage = Self::with(len, Head::Ready(buffer), Some(dtype), None);
        storage.state.get_mut().modifications = 1;
        *storage.place.get_mut() = ptr.expose_provenance() | (dtype as usize + 1) | WRITABLE;
        *storage.version.get_mut() = 1;
        Ok((Arc::new(storage), ptr))
    }

    /// A storage of `len` elements in this state, with its parent and the offset if it is a part.
    pub(super) fn with(
        len: usize,
        head: Head,
        dtype: Option<DType>,
        parent: Option<(Arc<Self>, usize)>,
    ) -> Self {
        let state = StorageState {
            head,
            dtype,
            casts: SmallVec::new(),
            zeroing: false,
            is_lent: false,
            modifications: 0,
            children: Vec::new(),
        };
        Self {
            len,
            version: AtomicU64::new(0),
            zeroed: AtomicU64::new(0),
            place: AtomicUsize::new(NOWHERE),
            shown: AtomicU32::new(0),
            borrowed: AtomicBool::new(false),
            watched: AtomicU8::new(0),
            given: AtomicBool::new(false),
            computed: AtomicU16::new(0),
            fingerprint: AtomicU64::new(Fingerprint::NONE.number()),
            users: AtomicU32::new(0),
            parent,
            forms: OnceLock::new(),
            state: Mutex::new(state),
        }
    }

    /// Number of elements.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns a pointer to the elements without taking the lock, if they are in memory as `dtype` and the access
    /// needs no preparation.
    ///
    /// The pointer is valid as long as a pointer from [`Storage::access`].
    #[inline(always)]
    pub(crate) fn at(&self, dtype: DType, access: Access) -> Option<*mut u8> {
        let place = self.place.load(Ordering::Acquire);
        let wanted = dtype as usize + 1;
        let here = match access {
            Access::Read => place & (OF_TYPE | ASIDE) == wanted,
            Access::ReadWrite | Access::Show => place & MARKS == wanted | WRITABLE,
            Access::Write => place & (OF_TYPE | WRITABLE) == wanted | WRITABLE && self.take_back(place),
        };
        if here && access.writes() {
            self.touch();
        }
        here.then(|| std::ptr::with_exposed_provenance_mut(place & !MARKS))
    }

    /// True if its own elements are in memory.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        let place = self.place.load(Ordering::Relaxed);
        place != NOWHERE && place & ASIDE == 0
    }

    /// Claims reserved memory for a write. False if another thread has just released it.
    #[inline(always)]
    fn take_back(&self, place: usize) -> bool {
        if place & ASIDE == 0 {
            return true;
        }
        let new = place & !ASIDE;
        let is_taken = self.place.compare_exchange(place, new, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // Before `touch` looks at `watched`. Model: `a_write_to_watched_memory_is_noticed`.
        barrier::after_exchange();
        is_taken
    }

    /// Clears the storage for the engine but reserves the memory, if it is small and not shared.
    pub(super) fn set_aside(&self) -> bool {
        let place = self.place.load(Ordering::Acquire);
        if place & ASIDE != 0 {
            return true;
        }
        let is_shown = || self.shown.load(Ordering::Relaxed) > 0;
        if place & WRITABLE == 0 || self.len > Self::SMALL || is_shown() {
            return false;
        }
        self.touch();
        let aside = place | ASIDE;
        if self.place.compare_exchange(place, aside, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        // Another thread may have taken a view meanwhile. Model: `memory_set_aside_has_no_view`.
        barrier::after_exchange();
        if !is_shown() {
            return true;
        }
        let _ = self.place.compare_exchange(aside, place, Ordering::AcqRel, Ordering::Relaxed);
        false
    }

    /// Counts a view of this memory. False if the engine has just cleared the storage but reserved the memory: the
    /// view would show what the next run writes. Model: `memory_set_aside_has_no_view`.
    pub(super) fn show(&self) -> bool {
        self.shown.fetch_add(1, Ordering::Relaxed);
        barrier::after_exchange();
        self.place.load(Ordering::Acquire) & ASIDE == 0
    }

    /// In the child of a fork: releases the lock if a thread of the parent held it.
    pub(crate) fn abandon_lock(&self) {
        if self.state.is_locked() {
            // SAFETY: a child has one thread, which does not hold a storage lock while it forks.
            unsafe { self.state.force_unlock() };
        }
    }

    /// Locks the state. Reserved memory is released first.
    pub(super) fn lock(&self) -> MutexGuard<'_, StorageState> {
        let mut state = self.state.lock();
        if self.hide_aside() {
            discard(std::mem::replace(&mut state.head, Head::Cleared { by_engine: true }));
            state.modifications = 0;
        }
        state
    }

    /// As [`Storage::lock`], for a caller that replaces every element and may reuse reserved memory.
    pub(super) fn lock_to_replace(&self) -> MutexGuard<'_, StorageState> {
        let state = self.state.lock();
        self.hide_aside();
        state
    }

    /// Hides reserved memory from other threads. False if there is none.
    fn hide_aside(&self) -> bool {
        let place = self.place.load(Ordering::Acquire);
        place & ASIDE != 0
            && self.place.compare_exchange(place, NOWHERE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Publishes where the elements are, for [`Storage::at`]. Parts have no address of their own. Models:
    /// `an_address_is_published_after_the_elements`, and `freed_memory_waits_for_runs` where memory is replaced.
    pub(super) fn publish(&self, state: &StorageState) {
        let place = match (&state.head, state.dtype) {
            (Head::Ready(buffer), Some(dtype))
                if self.parent.is_none() && buffer.ptr().addr() & MARKS == 0 =>
            {
                let alone = state.casts.is_empty() && state.children.is_empty();
                let writable = alone && !state.zeroing && !state.is_lent && state.modifications == 1;
                buffer.ptr().expose_provenance() | (dtype as usize + 1) | if writable { WRITABLE } else { 0 }
            }
            _ => NOWHERE,
        };
        self.place.store(place, Ordering::Release);
    }

    /// True if a view was ever handed out.
    pub fn is_shown(&self) -> bool {
        self.root().shown.load(Ordering::Relaxed) > 0
    }

    /// Marks that a leaf of a graph gets this memory, which a function's output may share.
    pub(crate) fn give_to_leaf(&self) {
        self.given.store(true, Ordering::Relaxed);
    }

    /// True if a leaf of a graph may have this memory.
    pub(crate) fn may_be_of_leaf(&self) -> bool {
        self.given.load(Ordering::Relaxed)
    }

    /// Number of Python variables that reach these elements.
    pub fn users(&self) -> u32 {
        self.root().users.load(Ordering::Relaxed)
    }

    /// Changes the count of [`Storage::users`]. Requires the lock of the graph.
    pub(crate) fn add_users(&self, n: i64) {
        let users = &self.root().users;
        users.store((i64::from(users.load(Ordering::Relaxed)) + n) as u32, Ordering::Relaxed);
    }

    /// The whole storage that these elements are part of.
    #[inline(always)]
    pub(super) fn root(&self) -> &Self {
        let mut at = self;
        while let Some((parent, _)) = &at.parent {
            at = parent;
        }
        at
    }

    /// True if these elements are part of a larger storage.
    pub fn is_part(&self) -> bool {
        self.parent.is_some()
    }

    /// True if these elements are part of a larger storage, or have parts.
    pub fn is_narrowed(&self) -> bool {
        let may_have_parts = || self.place.load(Ordering::Acquire) & WRITABLE == 0;
        self.parent.is_some() || may_have_parts() && self.lock().children.iter().any(|c| c.strong_count() > 0)
    }

    /// Type of the elements, or of the last ones there were.
    pub fn dtype(&self) -> Option<DType> {
        match self.place.load(Ordering::Acquire) & OF_TYPE {
            0 => self.root_dtype(),
            known => Some(DType::ALL[known - 1]),
        }
    }

    /// The element type of the storage at the root of the parts.
    fn root_dtype(&self) -> Option<DType> {
        self.root().state.lock().dtype
    }

    /// True if memory is allocated for the elements.
    pub fn holds_memory(&self) -> bool {
        self.place.load(Ordering::Relaxed) != NOWHERE
            || matches!(&self.root().lock().head, Head::Ready(_) | Head::Fill(_, Some(_)))
    }

    /// Bytes of that memory, including copies in other types. Zero for part of a larger storage.
    pub(crate) fn held_bytes(&self) -> usize {
        let state = self.lock();
        let own = match &state.head {
            Head::Ready(buffer) | Head::Fill(_, Some(buffer)) => buffer.bytes(),
            _ => 0,
        };
        own + state.casts.iter().map(|cast| cast.buffer.bytes()).sum::<usize>()
    }

    /// True if the memory was freed and nothing was written since.
    pub fn is_cleared(&self) -> bool {
        match self.place.load(Ordering::Acquire) {
            NOWHERE => matches!(self.root().lock().head, Head::Cleared { .. }),
            place => place & ASIDE != 0,
        }
    }

    /// True if the engine freed memory of this storage's own and nothing was written since.
    #[inline(always)]
    pub fn is_given_back(&self) -> bool {
        match self.place.load(Ordering::Acquire) {
            NOWHERE => self.parent.is_none() && matches!(self.lock().head, Head::Cleared { by_engine: true }),
            place => place & ASIDE != 0,
        }
    }

    /// True if [`Storage::zero`] was the last write.
    pub fn is_zeroing(&self) -> bool {
        // A write to a zeroed storage clears the flag first.
        self.place.load(Ordering::Acquire) & (WRITABLE | ASIDE) != WRITABLE && self.lock().zeroing
    }

    /// True if nothing was ever written: it reads as zeros.
    pub fn is_unwritten(&self) -> bool {
        !self.is_ready() && matches!(self.root().lock().head, Head::Empty)
    }

    /// True if the elements are known to be zero without reading them: never written, or zeroed.
    pub fn is_zero(&self) -> bool {
        let state = self.root().lock();
        match state.head {
            Head::Empty => true,
            Head::Fill(v, _) => v == 0.0,
            _ => false,
        }
    }

    /// NNabla's count of writes: 0 or 1 since the memory was allocated or cleared. A part counts its own writes since
    /// the whole was filled.
    pub fn modification_count(&self) -> u64 {
        self.lock().modifications
    }
}
