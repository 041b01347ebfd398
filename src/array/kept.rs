//! Memory that is kept from call to call for what was made in it of other values, as long as those are the same and nobody
//! clears what is kept. Knows names of values; knows no kernels.

use std::fmt;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};

use super::Storage;
use super::storage::Head;
use super::workspace::{Own, Workspace};

/// Bit in the count of views of a storage that says that someone knows the address, for ever.
const ADDRESSED: u32 = 1 << 31;

impl Storage {
    /// A name under which may be kept what is made of the values. It changes with each view that is given out, and is zero
    /// while there is one, as writes through it are not seen; so it is for parts of arrays, and for what a function computed,
    /// perhaps from values that changed unseen.
    pub fn lasting_name(&self) -> u64 {
        let shown = self.shown.load(Ordering::Relaxed);
        let is_computed = u64::from(self.version() as u16) == self.settled();
        if shown & ADDRESSED != 0 || is_computed || self.is_narrowed() || self.is_exported() {
            return 0;
        }
        self.content() ^ u64::from(shown).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Whether a view in Python shares the memory, so that values may change unseen.
    pub fn is_exported(&self) -> bool {
        matches!(&self.root().lock().head, Head::Ready(b) if b.is_shared())
    }

    /// Says that someone was given the address of the memory: what is written there is never seen.
    pub fn set_addressed(&self) {
        self.root().shown.fetch_or(ADDRESSED, Ordering::Relaxed);
    }
}

/// What a function keeps that it made of a value: from the second time in a row on that the value is the same.
#[derive(Default)]
pub struct Kept {
    /// The value, by its name, and in which way it was taken.
    of: (u64, [usize; 3]),
    own: Option<Own>,
    made: bool,
}

impl Kept {
    /// Memory for `n` elements that are made of the value called `name` (0: it has none) in a certain `way`, and whether
    /// they are in it already; if they are not, [`Kept::made`] says when they are. None where it does not pay to keep
    /// them: they were asked for only once, or there is no room.
    pub(crate) fn lend<T>(&mut self, name: u64, way: [usize; 3], n: usize) -> Option<(Workspace<T>, bool)> {
        if name == 0 || (name, way) != self.of {
            // Memory that was of use goes on to the next value; what then is not asked for twice gives it up.
            let own = self.own.take().filter(|_| self.made && way == self.of.1);
            *self = Self { of: (name, way), own, made: false };
            return None;
        }
        let (workspace, is_there) = self.own.get_or_insert_with(Own::new).lend(n)?;
        self.made &= is_there;
        Some((workspace, self.made))
    }

    /// Says that what was lent holds what is made of the value.
    pub(crate) fn made(&mut self) {
        self.made = true;
    }
}

/// What is kept with an array itself, for all who read it: a matrix in two ways, as it is and transposed.
pub(super) type Forms = [Mutex<Kept>; 2];

/// An array with which may be kept what is made of its values.
#[derive(Clone, Copy)]
pub struct Lasting<'a>(&'a Storage);

impl<'a> Lasting<'a> {
    /// [`Storage::lasting_name`].
    pub fn name(self) -> u64 {
        self.0.lasting_name()
    }

    /// As [`Kept::lend`], of what is kept with the array in one of two forms. None, too, while someone else has it.
    pub(crate) fn lend<T>(self, form: usize, way: [usize; 3], n: usize) -> Option<Lent<'a, T>> {
        let name = Some(self.name()).filter(|name| *name != 0)?;
        let mut kept = self.0.forms.get_or_init(Box::default)[form].try_lock()?;
        let (memory, is_made) = kept.lend(name, way, n)?;
        Some(Lent { memory, is_made, kept })
    }
}

impl<'a> From<&'a Storage> for Lasting<'a> {
    fn from(storage: &'a Storage) -> Self {
        Self(storage)
    }
}

impl fmt::Debug for Lasting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lasting").field(&self.0.len).finish()
    }
}

/// Memory that is kept with an array, while it is looked at.
pub(crate) struct Lent<'a, T> {
    memory: Workspace<T>,
    is_made: bool,
    kept: MutexGuard<'a, Kept>,
}

impl<T> Lent<'_, T> {
    /// The first element.
    pub(crate) fn ptr(&self) -> *mut T {
        self.memory.ptr()
    }

    /// Whether it holds what is made of the values.
    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    /// Says that it does.
    pub(crate) fn made(&mut self) {
        self.kept.made();
    }
}
