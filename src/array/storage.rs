//! The memory behind arrays: shared, versioned, and aware of having been cleared. How its elements come to be where and
//! as what they are wanted is in `access`, how all of them change at once in `contents`.
//!
//! What is made of values (a copy in another type, a packed weight) is used as long as their name stays the same. Threads
//! may write them meanwhile, so that a name holds by this protocol: a write takes the name away before its first element
//! ([`Storage::touch`]) and again after its last ([`Storage::wrote`], or [`Storage::settle`] with a name of its own); a
//! reader takes the name before it looks where the values are, and reads them after that. A name that was given while a
//! write was under way is gone when that is over, and what was made of values half written is never found again. Memory
//! is replaced, and its place published, under the lock. A view in Python writes unseen: there is no name while one
//! lives, and each changes the name ([`Storage::lasting_name`]).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::contents::discard;
use super::gone::WATCHED;
use super::kept::Forms;
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
    /// Memory was given back. What the engine cleared must not be read; what a user cleared reads as NaN.
    Cleared { by_engine: bool },
}

/// The name of values that nobody asked for the name of since they were written.
const UNNAMED: u64 = 0;

/// Low bits that are zero in a name, where [`Storage::saved`] puts those of the number of writes.
const COUNT: u64 = 0xFFFF;

/// The name alone in what [`Storage::saved`] returned.
#[inline(always)]
pub fn name_of(saved: u64) -> u64 {
    saved & !COUNT
}

/// What [`Storage::place`] says where there is nothing to point to. Otherwise it is an address, of which the low bits are
/// marks: the type of the elements, and whether they may be written as they are.
const NOWHERE: usize = 0;
const OF_TYPE: usize = 15;
const WRITABLE: usize = 16;
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

/// Never what [`Storage::saved`] returns.
pub(super) const STALE: u64 = 0;

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
    version: AtomicU64,
    /// Where the elements are, see [`Storage::at`].
    place: AtomicUsize,
    /// How often someone was given the memory itself, as a view.
    pub(super) shown: AtomicU32,
    /// Whether it was ever given memory of someone else, which may be that of other arrays too.
    pub(super) borrowed: AtomicBool,
    /// Whether someone counts on the memory to stay given back, see [`super::Gone`].
    pub(super) watched: AtomicU8,
    /// Whether a leaf was ever given this memory, see [`Storage::give_to_leaf`].
    given: AtomicBool,
    /// Low bits of the version of what a function last computed here.
    computed: AtomicU16,
    content: AtomicU64,
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

    /// The number of writes; unequal versions mean that values may have changed. Those through a view are not seen.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
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

    /// Says that the elements are about to be written in place.
    #[inline(always)]
    pub(crate) fn touch(&self) {
        self.version.store(self.version() + 1, Ordering::Relaxed);
        self.content.store(UNNAMED, Ordering::Relaxed);
        if self.watched.load(Ordering::Relaxed) & WATCHED != 0 {
            self.disturb();
        }
    }

    /// Says that what was to be written in place is there: whoever named the values meanwhile has read them half written.
    #[inline(always)]
    #[doc(hidden)]
    pub fn wrote(&self) {
        self.unname();
        if self.place.load(Ordering::Relaxed) & WRITABLE == 0 {
            self.wrote_together();
        }
    }

    #[inline(always)]
    pub(super) fn unname(&self) {
        self.content.store(UNNAMED, Ordering::Release);
    }

    /// A name for the values: as long as it is the same, so are they. Writes through a view in Python are not seen.
    #[inline(always)]
    pub fn content(&self) -> u64 {
        match self.content.load(Ordering::Acquire) {
            UNNAMED => self.name_content(),
            name => name,
        }
    }

    #[cold]
    fn name_content(&self) -> u64 {
        static NAMES: AtomicU64 = AtomicU64::new(COUNT + 1);
        let name = NAMES.fetch_add(COUNT + 1, Ordering::Relaxed);
        // Another thread may have named it meanwhile.
        match self.content.compare_exchange(UNNAMED, name, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => name,
            Err(named) => named,
        }
    }

    /// Names the values that were just written after what they were computed from: whoever computes them again from the
    /// same finds the same name.
    #[inline(always)]
    pub(crate) fn set_content(&self, content: u64) {
        self.computed.store(self.version() as u16, Ordering::Relaxed);
        self.content.store(content, Ordering::Release);
    }

    /// [`Storage::content`] and, in its low bits, how often the elements were written: for one that saves them.
    #[inline(always)]
    pub fn saved(&self) -> u64 {
        self.content() | self.version() & COUNT
    }

    /// What [`Storage::saved`] will be once the elements, which are being written, have their name.
    #[inline(always)]
    pub(crate) fn saved_as(&self, name: u64) -> u64 {
        name | self.version() & COUNT
    }

    /// The low bits of the version of what a function last computed here.
    pub(crate) fn computed_version(&self) -> u64 {
        u64::from(self.computed.load(Ordering::Relaxed))
    }

    /// The version whose low bits are those of `saved`, and the one of now; none where there was none, or it is the same:
    /// then other elements were saved.
    pub(crate) fn versions_since(&self, saved: u64) -> Option<(u64, u64)> {
        let now = self.version();
        let since = now.wrapping_sub(saved) & COUNT;
        (since > 0 && since <= now).then(|| (now - since, now))
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
        self.parent.is_some()
            || may_have_parts() && self.lock().children.iter().any(|c| c.strong_count() > 0)
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
