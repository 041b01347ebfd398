//! Caches data derived from a storage (packed weights, casts) until the storage changes. Knows fingerprints of
//! values, not kernels.

use std::fmt;
use std::sync::atomic::Ordering;

use parking_lot::{Mutex, MutexGuard};

use super::storage::{Cast, Head};
use super::workspace::{Own, Workspace};
use super::{Fingerprint, Storage, barrier};

/// Bit in the count of views: the address was given out, so writes can never be observed again.
const ADDRESSED: u32 = 1 << 31;

impl Storage {
    /// The fingerprint under which data derived from the values at an address may be cached. It changes with each
    /// view that is handed out. None while a view exists, for parts of larger storages, for values that a function
    /// computed, and if the address is outdated.
    pub fn cacheable_fingerprint(&self, at: usize) -> Fingerprint {
        let own = self.fingerprint(); // before the address is compared
        if self.is_computed() || self.parent.is_some() || self.is_addressed() {
            return Fingerprint::NONE;
        }
        let state = self.lock();
        let is_there = match &state.head {
            Head::Ready(own) if !own.is_shared() => {
                let is_cast =
                    |cast: &Cast| cast.buffer.ptr().addr() == at && cast.of == self.versioned_fingerprint();
                own.ptr().addr() == at || state.casts.iter().any(is_cast)
            }
            _ => false,
        };
        if !is_there || state.children.iter().any(|part| part.strong_count() > 0) {
            return Fingerprint::NONE;
        }
        let shown = self.shown.load(Ordering::Relaxed);
        Fingerprint::from_number(own.number() ^ u64::from(shown).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// True if a Python view shares the memory, so that writes may be unobserved.
    pub fn is_exported(&self) -> bool {
        matches!(&self.root().lock().head, Head::Ready(b) if b.is_shared())
    }

    /// Marks that the address of the memory is given out: writes to it are never observed. Comes before the access, so
    /// that the engine does not reserve memory whose address it gives out (`memory_set_aside_has_no_view`).
    #[cfg_attr(not(feature = "python"), allow(dead_code))] // used by the Python bindings
    pub(crate) fn set_addressed(&self) {
        self.root().shown.fetch_or(ADDRESSED, Ordering::Relaxed);
        barrier::after_exchange();
    }

    /// True if the address was given out.
    pub(super) fn is_addressed(&self) -> bool {
        self.shown.load(Ordering::Relaxed) & ADDRESSED != 0
    }
}

/// Data that a function derived from a value. It is kept if the same value comes twice in a row.
#[derive(Default)]
pub struct DerivedCache {
    /// Fingerprint of the value, and parameters of the derivation.
    of: (Fingerprint, [usize; 3]),
    /// The memory, once a value came twice in a row.
    own: Option<Own>,
    /// True if the memory holds the data derived from `of`.
    made: bool,
}

impl DerivedCache {
    /// Lends memory for `n` elements derived from a value with this fingerprint, if any, in a certain `way`. The flag
    /// is true if the memory holds them already. Otherwise the caller writes them and calls [`DerivedCache::made`].
    /// None if caching does not pay: the value came only once, or memory is short.
    pub(crate) fn lend<T>(
        &mut self,
        of: Fingerprint,
        way: [usize; 3],
        n: usize,
    ) -> Option<(Workspace<T>, bool)> {
        if !of.is_some() || (of, way) != self.of {
            // Useful memory is reused for the next value. If that value does not come twice, it is freed.
            let own = self.own.take().filter(|_| self.made && way == self.of.1);
            *self = Self { of: (of, way), own, made: false };
            return None;
        }
        let (workspace, is_there) = self.own.get_or_insert_with(Own::new).lend(n)?;
        self.made &= is_there;
        Some((workspace, self.made))
    }

    /// Marks the lent memory as filled.
    pub(crate) fn made(&mut self) {
        self.made = true;
    }
}

/// Derived data stored with an array, shared by all readers: a packed matrix, and its transpose or its parameters.
pub(super) type Forms = [Mutex<DerivedCache>; 2];

/// An array whose derived data may be cached with it.
#[derive(Clone, Copy)]
pub struct InputCache<'a> {
    /// The storage of the array.
    storage: &'a Storage,
    /// Address of the values that a kernel reads.
    at: usize,
    /// Fingerprint of the parameters that belong to the array. None if data derived from them may not be cached.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // see `lend_of_parameters`
    parameters: Fingerprint,
}

impl<'a> InputCache<'a> {
    /// An array whose values are at `ptr`.
    pub fn new(storage: &'a Storage, ptr: *const u8) -> Self {
        Self { storage, at: ptr.addr(), parameters: Fingerprint::NONE }
    }

    /// The array with parameters that have this fingerprint, see [`InputCache::parameters`].
    pub fn with_parameters(self, parameters: Fingerprint) -> Self {
        Self { parameters, ..self }
    }

    /// The fingerprint of arrays, each with the address of its values. None if data derived from one of them may not
    /// be cached.
    pub fn parameters<'b>(arrays: impl Iterator<Item = (&'b Storage, *const u8)>) -> Fingerprint {
        let mut all = Fingerprint::NONE;
        for (storage, ptr) in arrays {
            let own = storage.cacheable_fingerprint(ptr.addr());
            if !own.is_some() {
                return Fingerprint::NONE;
            }
            all = if all.is_some() { all.join(own.number()) } else { own };
        }
        all
    }

    /// The fingerprint of the values, none if derived data may not be cached. See [`Storage::cacheable_fingerprint`].
    pub fn fingerprint(self) -> Fingerprint {
        self.storage.cacheable_fingerprint(self.at)
    }

    /// Lends the memory of one of the two forms stored with the array, see [`DerivedCache::lend`]. Also None while
    /// another thread uses it.
    pub(crate) fn lend<T>(self, form: usize, way: [usize; 3], n: usize) -> Option<Lent<'a, T>> {
        self.lend_for(self.fingerprint(), form, way, n)
    }

    /// As [`InputCache::lend`], for data derived from the parameters of the array.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // kernels of other processors cache no parameters
    pub(crate) fn lend_of_parameters<T>(self, form: usize, way: [usize; 3], n: usize) -> Option<Lent<'a, T>> {
        self.lend_for(self.parameters, form, way, n)
    }

    /// Lends memory for data derived from values with this fingerprint.
    fn lend_for<T>(self, of: Fingerprint, form: usize, way: [usize; 3], n: usize) -> Option<Lent<'a, T>> {
        if !of.is_some() {
            return None;
        }
        let mut kept = self.storage.forms.get_or_init(Box::default)[form].try_lock()?;
        let (memory, is_made) = kept.lend(of, way, n)?;
        Some(Lent { memory, is_made, kept })
    }
}

impl fmt::Debug for InputCache<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InputCache").field(&self.storage.len).finish()
    }
}

/// Cached memory of an array, locked while it is in use.
pub(crate) struct Lent<'a, T> {
    /// The cached memory.
    memory: Workspace<T>,
    /// True if the memory already held the derived data when it was lent.
    is_made: bool,
    /// Keeps the cache locked.
    kept: MutexGuard<'a, DerivedCache>,
}

impl<T> Lent<'_, T> {
    /// The first element.
    pub(crate) fn ptr(&self) -> *mut T {
        self.memory.ptr()
    }

    /// True if the memory holds the derived data.
    pub(crate) fn is_made(&self) -> bool {
        self.is_made
    }

    /// Marks the memory as filled.
    pub(crate) fn made(&mut self) {
        self.kept.made();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Fingerprint, InputCache, Storage};
    use crate::array::{Access, DType};

    /// Reads the only element in `dtype`, which is `F64` or `F32`.
    fn read(storage: &Storage, dtype: DType) -> f64 {
        let ptr = storage.access(dtype, Access::Read).expect("is there");
        // SAFETY: the storage has an element, and no other thread knows of it.
        unsafe {
            if dtype == DType::F64 { ptr.cast::<f64>().read() } else { ptr.cast::<f32>().read().into() }
        }
    }

    #[test]
    fn a_cast_made_during_a_write_is_not_reused() {
        let (storage, ptr) = Storage::to_write(1, DType::F32).expect("memory");
        // SAFETY: as above. Also below.
        unsafe { ptr.cast::<f32>().write(1.0) };
        for value in [2.0, 3.0] {
            let ptr = storage.access(DType::F32, Access::ReadWrite).expect("is there");
            // Another thread reads now.
            let (name, before) = (storage.cacheable_fingerprint(ptr.addr()), read(&storage, DType::F64));
            // SAFETY: as above.
            unsafe { ptr.cast::<f32>().write(value) };
            storage.wrote();
            assert!(name.is_some() && storage.cacheable_fingerprint(ptr.addr()) != name);
            assert!(before != read(&storage, DType::F64));
            assert_eq!(read(&storage, DType::F64), f64::from(value));
        }
        let name = storage.cacheable_fingerprint(ptr.addr());
        assert!(name.is_some() && storage.cacheable_fingerprint(ptr.addr()) == name);
    }

    #[test]
    fn data_of_parameters_is_lent_until_one_of_them_changes() {
        let [own, scales, zeros] = [(); 3]
            .map(|()| Storage::to_write(1, DType::F32).expect("memory"))
            .map(|(own, at)| (own, at.cast_const()));
        let lend = |parameters: &[&(Arc<Storage>, *const u8)]| {
            let parameters = InputCache::parameters(parameters.iter().map(|(storage, at)| (&**storage, *at)));
            let array = InputCache::new(&own.0, own.1).with_parameters(parameters);
            let mut lent = array.lend_of_parameters::<f32>(1, [0; 3], 4)?;
            let is_made = lent.is_made();
            lent.made();
            Some(is_made)
        };
        assert_eq!(lend(&[]), None);
        assert_eq!([(); 3].map(|()| lend(&[&scales, &zeros])), [None, Some(false), Some(true)]);
        zeros.0.access(DType::F32, Access::ReadWrite).expect("is there");
        zeros.0.wrote();
        assert_eq!([(); 3].map(|()| lend(&[&scales, &zeros])), [None, Some(false), Some(true)]);
        assert_eq!(lend(&[&scales]), None);
        let (shown, _) = scales.0.buffer(DType::F32, Access::Show).expect("is there");
        assert_eq!([(); 2].map(|()| lend(&[&scales, &zeros])), [None; 2]);
        drop(shown);
    }

    #[test]
    fn a_write_to_a_part_changes_the_fingerprints_of_all_storages_that_overlap() {
        let whole = Storage::new(4);
        let part = whole.narrow(0, 2).expect("is within");
        let inner = part.narrow(1, 1).expect("is within");
        part.fill(1.0).expect("memory");
        part.access(DType::F32, Access::ReadWrite).expect("is there");
        let names = [&whole, &part, &inner].map(|s| s.fingerprint());
        part.wrote();
        assert!([&whole, &part, &inner].map(|s| s.fingerprint()).iter().zip(names).all(|(a, b)| *a != b));
    }

    #[test]
    fn a_fingerprint_is_that_of_the_values_that_a_kernel_reads() {
        let (storage, ptr) = Storage::to_write(5000, DType::F32).expect("memory");
        assert!(storage.cacheable_fingerprint(ptr.addr()).is_some());
        let cast = storage.access(DType::F64, Access::Read).expect("memory");
        assert!(storage.cacheable_fingerprint(cast.addr()) == storage.cacheable_fingerprint(ptr.addr()));
        let (shown, _) = storage.buffer(DType::F32, Access::Show).expect("is there");
        assert_eq!(storage.cacheable_fingerprint(ptr.addr()), Fingerprint::NONE);
        drop(shown);
        assert!(storage.cacheable_fingerprint(ptr.addr()).is_some());
        storage.access(DType::F64, Access::ReadWrite).expect("memory");
        assert_eq!(storage.cacheable_fingerprint(ptr.addr()), Fingerprint::NONE);
    }

    #[test]
    fn a_cast_is_made_again_after_a_view_is_dropped() {
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
        // Unobserved: the copy is not renewed.
        write(3.0);
        assert_eq!(read(&storage, DType::F64), 2.0);
        storage.set_addressed();
        for v in [4.0, 5.0] {
            write(v);
            assert_eq!(read(&storage, DType::F64), f64::from(v));
        }
    }
}
