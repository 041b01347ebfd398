//! The memory behind arrays: shared, versioned, and aware of having been cleared. How its elements come to be where and
//! as what they are wanted is in `access`, how all of them change at once in `contents`, how readers know that values are
//! the same in `names`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::contents::discard;
use super::kept::Forms;
use super::names::UNNAMED;
use super::{Access, Buffer, DType};
use crate::Result;

/// What a storage holds at the moment.
pub(super) enum Head {
    /// Nothing was ever written; reads as zeros.
    Empty,
    /// Every element is this number; a buffer to put it in may be at hand.
    Fill(f64, Option<Buffer>),
    /// Elements of the type of [`StorageState::dtype`].
    Ready(Buffer),
    /// Memory was given back. What the engine cleared must not be read; what a user cleared reads as NaN, in types that have
    /// one.
    Cleared { by_engine: bool },
}

/// What [`Storage::place`] says where there is nothing to point to. Otherwise it is an address, of which the low bits are
/// marks: the type of the elements, and whether they may be written as they are.
const NOWHERE: usize = 0;
const OF_TYPE: usize = 15;
pub(super) const WRITABLE: usize = 16;
/// The engine has cleared it and the memory, which is small, was left for the next write.
const ASIDE: usize = 32;
const MARKS: usize = 63;

impl Head {
    pub(super) fn buffer(self) -> Option<Buffer> {
        match self {
            Self::Ready(buffer) | Self::Fill(_, Some(buffer)) => Some(buffer),
            _ => None,
        }
    }

    /// Takes the buffer that is at hand, if it is large enough.
    pub(super) fn spare(&mut self, bytes: usize) -> Option<Buffer> {
        match self {
            Self::Fill(_, spare) if spare.as_ref().is_some_and(|spare| spare.bytes() >= bytes) => {
                spare.take()
            }
            _ => None,
        }
    }
}

/// The elements as another type.
pub(super) struct Cast {
    pub(super) dtype: DType,
    pub(super) buffer: Buffer,
    /// What [`Storage::saved`] was before they were converted; [`STALE`] where they may differ by now.
    pub(super) of: u64,
}

pub(super) struct StorageState {
    pub(super) head: Head,
    /// Type of the head, or of the last one there was.
    pub(super) dtype: Option<DType>,
    /// The same elements as other types, for readers that asked.
    pub(super) casts: SmallVec<[Cast; 1]>,
    pub(super) zeroing: bool,
    /// Whether the head may be what a [`super::View`] shows: then it is not written in place.
    pub(super) is_lent: bool,
    pub(super) modifications: u64,
    pub(super) children: Vec<Weak<Storage>>,
}

impl StorageState {
    /// Whether a view shows the head: whoever writes needs other memory.
    pub(super) fn is_viewed(&self) -> bool {
        self.is_lent && matches!(&self.head, Head::Ready(buffer) if buffer.is_shared())
    }

    pub(super) fn take_casts(&mut self) -> impl Iterator<Item = Buffer> {
        self.casts.drain(..).map(|cast| cast.buffer)
    }
}

/// Elements in memory that arrays, variables and views share.
///
/// Who shares it is not its concern; it knows the type and place of its elements and how often they were written.
pub struct Storage {
    pub(super) len: usize,
    pub(super) version: AtomicU64,
    /// Where the elements are, see [`Storage::at`].
    pub(super) place: AtomicUsize,
    /// How often someone was given the memory itself, as a view.
    pub(super) shown: AtomicU32,
    /// Whether it was ever given memory of someone else, which may be that of other arrays too.
    pub(super) borrowed: AtomicBool,
    /// Whether someone counts on the memory to stay given back, see [`super::Gone`].
    pub(super) watched: AtomicU8,
    /// Whether a leaf was ever given this memory, see [`Storage::give_to_leaf`].
    given: AtomicBool,
    /// Low bits of the version of what a function last computed here.
    pub(super) computed: AtomicU16,
    pub(super) content: AtomicU64,
    users: AtomicU32,
    pub(super) parent: Option<(Arc<Storage>, usize)>,
    /// What is kept of it, once someone asked for that.
    pub(super) forms: OnceLock<Box<Forms>>,
    pub(super) state: Mutex<StorageState>,
}

impl Storage {
    /// Longest array in elements whose memory is not given back when the engine clears it.
    pub const SMALL: usize = 1024;

    /// A storage of `len` elements that read as zero.
    pub fn new(len: usize) -> Arc<Self> {
        Arc::new(Self::with(len, Head::Empty, None, None))
    }

    /// A storage of `len` elements of `dtype` to be written, every one of them, before anyone else gets hold of it.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when there is none.
    pub(crate) fn to_write(len: usize, dtype: DType) -> Result<(Arc<Self>, *mut u8)> {
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
            place: AtomicUsize::new(NOWHERE),
            shown: AtomicU32::new(0),
            borrowed: AtomicBool::new(false),
            watched: AtomicU8::new(0),
            given: AtomicBool::new(false),
            computed: AtomicU16::new(0),
            content: AtomicU64::new(UNNAMED),
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

    /// Where the elements are, if they are there as `dtype` and nothing need be done for this access: no lock is taken.
    ///
    /// The pointer is valid as that of [`Storage::access`] is.
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
    pub(super) fn set_aside(&self) -> bool {
        let place = self.place.load(Ordering::Acquire);
        if place & ASIDE != 0 {
            return true;
        }
        if place & WRITABLE == 0 || self.len > Self::SMALL || self.shown.load(Ordering::Relaxed) > 0 {
            return false;
        }
        self.touch();
        self.place.compare_exchange(place, place | ASIDE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// In a child of a fork: frees the lock if a thread held it at the fork, which the child does not have.
    pub(crate) fn abandon_lock(&self) {
        if self.state.is_locked() {
            // SAFETY: a child has one thread, and that holds no lock of a storage while it forks.
            unsafe { self.state.force_unlock() };
        }
    }

    /// The state, in which memory that was set aside counts as given back, and is.
    pub(super) fn lock(&self) -> MutexGuard<'_, StorageState> {
        let mut state = self.state.lock();
        if self.hide_aside() {
            discard(std::mem::replace(&mut state.head, Head::Cleared { by_engine: true }));
            state.modifications = 0;
        }
        state
    }

    /// As [`Storage::lock`] for who is about to replace every element: memory that was set aside is kept for the new ones.
    pub(super) fn lock_to_replace(&self) -> MutexGuard<'_, StorageState> {
        let state = self.state.lock();
        self.hide_aside();
        state
    }

    /// Has nobody find memory that was set aside; false where there is none.
    fn hide_aside(&self) -> bool {
        let place = self.place.load(Ordering::Acquire);
        place & ASIDE != 0
            && self.place.compare_exchange(place, NOWHERE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Says where the elements are now, for [`Storage::at`]. A part asks the whole each time.
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

    /// Whether someone was ever given the memory itself, as a view.
    pub fn is_shown(&self) -> bool {
        self.root().shown.load(Ordering::Relaxed) > 0
    }

    /// Says that a leaf of a graph gets this memory, which may be that of a function's output too.
    pub(crate) fn give_to_leaf(&self) {
        self.given.store(true, Ordering::Relaxed);
    }

    /// Whether a leaf of a graph may have this memory.
    pub(crate) fn may_be_of_leaf(&self) -> bool {
        self.given.load(Ordering::Relaxed)
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
    pub(super) fn root(&self) -> &Self {
        let mut at = self;
        while let Some((parent, _)) = &at.parent {
            at = parent;
        }
        at
    }

    /// Whether these elements are part of a larger storage.
    pub fn is_part(&self) -> bool {
        self.parent.is_some()
    }

    /// Whether these elements are part of a larger storage, or part of them is a storage of its own.
    pub fn is_narrowed(&self) -> bool {
        let may_have_parts = || self.place.load(Ordering::Acquire) & WRITABLE == 0;
        self.parent.is_some() || may_have_parts() && self.lock().children.iter().any(|c| c.strong_count() > 0)
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

    /// Bytes of that memory, with copies of other types; none for a part of a larger storage.
    pub(crate) fn held_bytes(&self) -> usize {
        let state = self.lock();
        let own = match &state.head {
            Head::Ready(buffer) | Head::Fill(_, Some(buffer)) => buffer.bytes(),
            _ => 0,
        };
        own + state.casts.iter().map(|cast| cast.buffer.bytes()).sum::<usize>()
    }

    /// Whether memory was given back and nothing was written since.
    pub fn is_cleared(&self) -> bool {
        match self.place.load(Ordering::Acquire) {
            NOWHERE => matches!(self.root().lock().head, Head::Cleared { .. }),
            place => place & ASIDE != 0,
        }
    }

    /// Whether the engine gave memory back that is this storage's own, and nothing was written since.
    #[inline(always)]
    pub fn is_given_back(&self) -> bool {
        match self.place.load(Ordering::Acquire) {
            NOWHERE => self.parent.is_none() && matches!(self.lock().head, Head::Cleared { by_engine: true }),
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
}
