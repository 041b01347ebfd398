//! Memory that is kept from call to call for what was made in it of other values, as long as those are the same and nobody
//! clears what is kept. Knows names of values; knows no kernels.

use std::fmt;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};

use super::Storage;
use super::storage::{Cast, Head};
use super::workspace::{Own, Workspace};

/// Bit in the count of views of a storage that says that someone knows the address, for ever.
const ADDRESSED: u32 = 1 << 31;

impl Storage {
    /// A name under which may be kept what is made of the values at an address. It changes with each view that is given
    /// out, and is zero while there is one, as writes through it are not seen; so it is for parts of arrays, for what a
    /// function computed, perhaps from values that changed unseen, and where other values are meant by now.
    pub fn lasting_name(&self, at: usize) -> u64 {
        let content = self.content(); // before a look at where the values are
        let is_computed = u64::from(self.version() as u16) == self.computed_version();
        if is_computed || self.parent.is_some() || self.is_addressed() {
            return 0;
        }
        let state = self.lock();
        let is_there = match &state.head {
            Head::Ready(own) if !own.is_shared() => {
                let is_cast = |cast: &Cast| cast.buffer.ptr().addr() == at && cast.of == self.saved();
                own.ptr().addr() == at || state.casts.iter().any(is_cast)
            }
            _ => false,
        };
        if !is_there || state.children.iter().any(|part| part.strong_count() > 0) {
            return 0;
        }
        let shown = self.shown.load(Ordering::Relaxed);
        content ^ u64::from(shown).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Whether a view in Python shares the memory, so that values may change unseen.
    pub fn is_exported(&self) -> bool {
        matches!(&self.root().lock().head, Head::Ready(b) if b.is_shared())
    }

    /// Says that someone was given the address of the memory: what is written there is never seen.
    #[cfg_attr(not(feature = "python"), allow(dead_code))] // Python asks for it
    pub(crate) fn set_addressed(&self) {
        self.root().shown.fetch_or(ADDRESSED, Ordering::Relaxed);
    }

    /// Whether someone was.
    pub(super) fn is_addressed(&self) -> bool {
        self.shown.load(Ordering::Relaxed) & ADDRESSED != 0
    }
}

/// What a function keeps that it made of a value: from the second time in a row on that the value is the same.
#[derive(Default)]
pub struct DerivedCache {
    /// The value, by its name, and in which way it was taken.
    of: (u64, [usize; 3]),
    own: Option<Own>,
    made: bool,
}

impl DerivedCache {
    /// Memory for `n` elements that are made of the value called `name` (0: it has none) in a certain `way`, and whether
    /// they are in it already; if they are not, [`DerivedCache::made`] says when they are. None where it does not pay to keep
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
pub(super) type Forms = [Mutex<DerivedCache>; 2];

/// An array with which may be kept what is made of its values.
#[derive(Clone, Copy)]
pub struct Lasting<'a> {
    storage: &'a Storage,
    /// Address of the values that a kernel reads.
    at: usize,
}

impl<'a> Lasting<'a> {
    /// An array whose values are at `ptr`.
    pub fn new(storage: &'a Storage, ptr: *const u8) -> Self {
        Self { storage, at: ptr.addr() }
    }

    /// [`Storage::lasting_name`].
    pub fn name(self) -> u64 {
        self.storage.lasting_name(self.at)
    }

    /// As [`DerivedCache::lend`], of what is kept with the array in one of two forms. None, too, while someone else has it.
    pub(crate) fn lend<T>(self, form: usize, way: [usize; 3], n: usize) -> Option<Lent<'a, T>> {
        let name = Some(self.name()).filter(|name| *name != 0)?;
        let mut kept = self.storage.forms.get_or_init(Box::default)[form].try_lock()?;
        let (memory, is_made) = kept.lend(name, way, n)?;
        Some(Lent { memory, is_made, kept })
    }
}

impl fmt::Debug for Lasting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lasting").field(&self.storage.len).finish()
    }
}

/// Memory that is kept with an array, while it is looked at.
pub(crate) struct Lent<'a, T> {
    memory: Workspace<T>,
    is_made: bool,
    kept: MutexGuard<'a, DerivedCache>,
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

#[cfg(test)]
mod tests {
    use super::Storage;
    use crate::array::{Access, DType};

    fn read(storage: &Storage, dtype: DType) -> f64 {
        let ptr = storage.access(dtype, Access::Read).expect("is there");
        // SAFETY: the storage has an element, and nobody else knows of it.
        unsafe {
            if dtype == DType::F64 { ptr.cast::<f64>().read() } else { ptr.cast::<f32>().read().into() }
        }
    }

    #[test]
    fn what_was_read_half_written_is_not_found_again() {
        let (storage, ptr) = Storage::to_write(1, DType::F32).expect("memory");
        // SAFETY: as above. So below.
        unsafe { ptr.cast::<f32>().write(1.0) };
        for value in [2.0, 3.0] {
            let ptr = storage.access(DType::F32, Access::ReadWrite).expect("is there");
            // Another thread reads now.
            let (name, before) = (storage.lasting_name(ptr.addr()), read(&storage, DType::F64));
            // SAFETY: as above.
            unsafe { ptr.cast::<f32>().write(value) };
            storage.wrote();
            assert!(name != 0 && storage.lasting_name(ptr.addr()) != name);
            assert!(before != read(&storage, DType::F64));
            assert_eq!(read(&storage, DType::F64), f64::from(value));
        }
        let name = storage.lasting_name(ptr.addr());
        assert!(name != 0 && storage.lasting_name(ptr.addr()) == name);
    }

    #[test]
    fn a_part_that_was_written_takes_the_name_of_the_whole_and_of_its_parts() {
        let whole = Storage::new(4);
        let part = whole.narrow(0, 2).expect("is within");
        let inner = part.narrow(1, 1).expect("is within");
        part.fill(1.0).expect("memory");
        part.access(DType::F32, Access::ReadWrite).expect("is there");
        let names = [&whole, &part, &inner].map(|s| s.content());
        part.wrote();
        assert!([&whole, &part, &inner].map(|s| s.content()).iter().zip(names).all(|(a, b)| *a != b));
    }

    #[test]
    fn a_name_is_that_of_the_values_that_a_kernel_reads() {
        let (storage, ptr) = Storage::to_write(5000, DType::F32).expect("memory");
        assert!(storage.lasting_name(ptr.addr()) != 0);
        let cast = storage.access(DType::F64, Access::Read).expect("memory");
        assert!(storage.lasting_name(cast.addr()) == storage.lasting_name(ptr.addr()));
        let (shown, _) = storage.buffer(DType::F32, Access::Show).expect("is there");
        assert_eq!(storage.lasting_name(ptr.addr()), 0);
        drop(shown);
        assert!(storage.lasting_name(ptr.addr()) != 0);
        storage.access(DType::F64, Access::ReadWrite).expect("memory");
        assert_eq!(storage.lasting_name(ptr.addr()), 0);
    }

    #[test]
    fn a_copy_in_another_type_is_made_once_more_when_a_view_has_gone() {
        let (storage, ptr) = Storage::to_write(1, DType::F32).expect("memory");
        let write = |v: f32| {
            // SAFETY: as above.
            unsafe { ptr.cast::<f32>().write(v) };
        };
        write(1.0);
        let (view, _) = storage.buffer(DType::F32, Access::Show).expect("is there");
        assert_eq!(read(&storage, DType::F64), 1.0);
        write(2.0);
        drop(view);
        assert_eq!(read(&storage, DType::F64), 2.0);
        // Nobody looks: it is not made anew.
        write(3.0);
        assert_eq!(read(&storage, DType::F64), 2.0);
        storage.set_addressed();
        for v in [4.0, 5.0] {
            write(v);
            assert_eq!(read(&storage, DType::F64), f64::from(v));
        }
    }
}
