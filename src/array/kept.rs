//! Memory that is kept from call to call for what was made in it of other values, as long as those are the same and nobody
//! clears what is kept. Knows names of values; knows no kernels.

use std::sync::atomic::Ordering;

use super::Storage;
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
            *self = Self { of: (name, way), ..Self::default() };
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
