//! Fusion of consecutive elementwise functions into one pass over their arrays.
//!
//! Element `i` of an elementwise result depends only on element `i` of each input. So consecutive functions of a plan
//! over arrays of one shape can process one tile of all arrays through all functions before the next tile. Each
//! function then finds its input in the L1 cache. A value that is cleared before the last function has run needs no
//! memory of its own: it uses a *tile buffer* (`Location::Buffer`), which is reused after the last use of the value.
//! The same holds for gradients in a backward run.
//!
//! Fusion changes only time and peak memory. The same kernels compute each element from the same numbers, so results
//! are identical to the bit. Values in tile buffers are values that the plan clears anyway. A fused pass runs only if
//! they are already cleared, that is from the second run on. In any unusual state (an array of another type, a
//! cleared input, failed allocation) the functions run separately and report their usual errors. Hooks, clear records
//! and anomaly detection inspect single functions, so they also disable fusion.

pub(crate) mod backward;
pub(crate) mod broadcast;
pub(crate) mod epilogue;
pub(crate) mod forward;
pub(crate) mod tile_chain;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use crate::array::{Access, DType, Gone, Shape, Storage};
use crate::graph::plan::fusion::broadcast::BroadcastCycle;
use crate::graph::settings::context::Precision;
use crate::kernels::scratch::{self, List};
use crate::kernels::threads::{self, Shared};
use crate::kernels::{map, sixteen_bits};

/// Bytes of a tile. The tiles that a function reads and writes fit together in the L1 cache.
pub(crate) const TILE: usize = 8 << 10;

/// The largest number of elements that a pass computes, over all functions.
const WORK: usize = 1 << 25;

/// Stands for an array that is never read.
pub(crate) const NOTHING: u32 = u32::MAX;

/// The location of an array of a fused pass.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// In its own memory, by number.
    Own(u32),
    /// In a tile buffer, by number.
    Buffer(u32),
}

/// An array that is broadcast over the others. Tiles of the broadcast values are gathered in a tile buffer.
struct Repeated {
    /// The number of the array, which has its own memory.
    own: u32,
    /// The number of the tile buffer in which its values are gathered.
    buffer: u32,
    /// How its elements are repeated.
    spread: BroadcastCycle,
}

/// The planning state of a fused pass: the arrays with their own memory, and the arrays in tile buffers.
#[derive(Default)]
pub(crate) struct Planner {
    /// The arrays with their own memory, and the access to each.
    own: Vec<(Arc<Storage>, Access)>,
    /// The values in tile buffers, which get no memory of their own.
    gone: Vec<Arc<Storage>>,
    /// Arrays that were in a tile buffer, and are no longer.
    has_left: HashSet<*const Storage>,
    /// The current location of each array.
    locations: HashMap<*const Storage, Location>,
    /// Tile buffers not in use.
    free: Vec<u32>,
    /// The number of tile buffers.
    n_buffers: u32,
    /// Arrays that are broadcast.
    repeated: Vec<Repeated>,
}

impl Planner {
    /// The location of a storage in the pass, if it has one.
    fn find(&self, storage: &Arc<Storage>) -> Option<Location> {
        self.locations.get(&Arc::as_ptr(storage)).copied()
    }

    /// Adds an array with its own memory.
    fn own(&mut self, storage: &Arc<Storage>, access: Access) -> Location {
        let place = Location::Own(self.own.len() as u32);
        self.own.push((Arc::clone(storage), access));
        self.locations.insert(Arc::as_ptr(storage), place);
        place
    }

    /// Adds an array of shape `x` that is read, and possibly broadcast over one of shape `y`. `None` if the pass
    /// writes it.
    fn read(&mut self, storage: &Arc<Storage>, x: &Shape, y: &Shape) -> Option<Location> {
        let spread = BroadcastCycle::of(x, y);
        let place = match self.find(storage) {
            None => self.own(storage, Access::Read),
            Some(place) if spread.is_none() || self.access(place) == Some(Access::Read) => place,
            Some(_) => return None,
        };
        let (Some(spread), Location::Own(own)) = (spread, place) else { return Some(place) };
        if let Some(known) = self.repeated.iter().find(|r| r.own == own && r.spread == spread) {
            return Some(Location::Buffer(known.buffer));
        }
        self.n_buffers += 1;
        self.repeated.push(Repeated { own, buffer: self.n_buffers - 1, spread });
        Some(Location::Buffer(self.n_buffers - 1))
    }

    /// The access to an array that has its own memory, otherwise None.
    fn access(&self, place: Location) -> Option<Access> {
        match place {
            Location::Own(n) => Some(self.own[n as usize].1),
            Location::Buffer(_) => None,
        }
    }

    /// Assigns a tile buffer to an array.
    fn assign_buffer(&mut self, storage: &Arc<Storage>) -> Location {
        let buffer = self.free.pop().unwrap_or_else(|| {
            self.n_buffers += 1;
            self.n_buffers - 1
        });
        self.gone.push(Arc::clone(storage));
        self.locations.insert(Arc::as_ptr(storage), Location::Buffer(buffer));
        Location::Buffer(buffer)
    }

    /// Frees the tile buffer of an array after its last use.
    fn leave(&mut self, storage: &Arc<Storage>) {
        if let Some(Location::Buffer(buffer)) = self.find(storage) {
            self.locations.remove(&Arc::as_ptr(storage));
            self.has_left.insert(Arc::as_ptr(storage));
            self.free.push(buffer);
        }
    }

    /// Passes the tile buffer of an array, with its content, to another array at the last use of the first.
    fn rename(&mut self, storage: &Arc<Storage>, to: &Arc<Storage>) {
        if let Some(place) = self.locations.remove(&Arc::as_ptr(storage)) {
            self.has_left.insert(Arc::as_ptr(storage));
            self.gone.push(Arc::clone(to));
            self.locations.insert(Arc::as_ptr(to), place);
        }
    }

    /// True if an array was in a tile buffer that was freed.
    fn has_left(&self, storage: &Arc<Storage>) -> bool {
        self.has_left.contains(&Arc::as_ptr(storage))
    }

    /// The number of a location among all. Arrays with their own memory come first.
    fn number(&self, place: Location) -> u32 {
        match place {
            Location::Own(n) => n,
            Location::Buffer(n) => self.own.len() as u32 + n,
        }
    }
}

/// The arrays common to all fused passes: their length, storages, and addresses in this run.
pub(crate) struct Arrays {
    /// The type in which loops compute.
    dtype: DType,
    /// The type of 16 bits to which each result is rounded, because functions store their results in it.
    rounds: Option<DType>,
    /// Elements of each array.
    len: usize,
    /// The arrays with their own memory, and the access to each.
    own: Vec<(Arc<Storage>, Access)>,
    /// Values in tile buffers.
    gone: Gone,
    /// The number of tile buffers.
    n_buffers: usize,
    /// Arrays that are broadcast.
    repeated: Vec<Repeated>,
    /// Addresses of the arrays with their own memory.
    at: Vec<Shared<u8>>,
    /// For each array with its own memory, true if this run adds to it.
    adds: Vec<bool>,
    /// For each array with its own memory, the type of its elements if loops get them converted in a tile buffer.
    converted: Vec<Option<DType>>,
}

/// Addresses of the arrays of a fused pass for one tile.
#[derive(Clone, Copy)]
pub(crate) struct TileRange<'a> {
    /// Addresses of the arrays with their own memory. If elements are converted in a tile buffer, it is the address of
    /// the buffer less the offset. So the elements of each array are at its address plus the offset.
    own: &'a [Shared<u8>],
    /// Offset in bytes from the start of each array.
    offset: usize,
    /// The first tile buffer.
    buffers: *mut u8,
    /// Bytes of a tile buffer.
    buffer_bytes: usize,
    /// The type of 16 bits to which each result is rounded, if functions store their results in it.
    rounds: Option<DType>,
}

impl TileRange<'_> {
    /// The elements of the array with this number.
    #[inline(always)]
    fn of(&self, number: u32) -> *mut u8 {
        match self.own.get(number as usize) {
            _ if number == NOTHING => std::ptr::null_mut(),
            Some(start) => start.get().wrapping_add(self.offset),
            None => self.buffers.wrapping_add((number as usize - self.own.len()) * self.buffer_bytes),
        }
    }
}

impl Arrays {
    /// The arrays of a finished planner, each of `len` elements, for functions of one precision.
    fn new(planner: Planner, compute: Precision, len: usize) -> Self {
        let Planner { own, gone, n_buffers, repeated, .. } = planner;
        let (at, adds) = (Vec::with_capacity(own.len()), vec![false; own.len()]);
        let dtype = compute.dtype();
        let rounds = Some(compute.stored()).filter(|stored| *stored != dtype);
        let converted = vec![None; own.len()];
        let (gone, n_buffers) = (Gone::new(gone), n_buffers as usize);
        Self { dtype, rounds, len, own, gone, n_buffers, repeated, at, adds, converted }
    }

    /// Prepares a run, and resolves the addresses of the arrays with their own memory. Returns false without side
    /// effects in an unusual state.
    fn resolve(&mut self) -> bool {
        if self.rounds.is_some() { self.resolve_as::<true>() } else { self.resolve_as::<false>() }
    }

    /// As [`Arrays::resolve`]. Arrays may be converted only if `CONVERTS`.
    fn resolve_as<const CONVERTS: bool>(&mut self) -> bool {
        // All values in tile buffers must be cleared already, as the run would leave them.
        if !self.gone.are_gone() {
            return false;
        }
        let Self { dtype, rounds, own, at, adds, converted, .. } = self;
        at.clear();
        for (((storage, access), adds), converted) in own.iter().zip(&mut *adds).zip(&mut *converted) {
            *adds = *access == Access::ReadWrite && (storage.is_ready() || !storage.is_zero());
            let reads = *access == Access::Read || *adds;
            if CONVERTS {
                let is_narrow = |own: &DType| matches!(own, DType::F16 | DType::BF16);
                *converted = if reads { storage.dtype().filter(is_narrow) } else { *rounds };
            }
            let dtype = if CONVERTS { converted.unwrap_or(*dtype) } else { *dtype };
            let place = match access {
                Access::Read => storage.found(dtype),
                Access::ReadWrite if *adds => storage.at(dtype, Access::ReadWrite),
                _ => Some(std::ptr::null_mut()), // set below
            };
            let Some(place) = place else { return false };
            at.push(Shared::new(place));
        }
        // Arrays to write are resolved last, after everything that may be refused.
        for n in 0..own.len() {
            let (storage, access) = &own[n];
            if *access == Access::Read || adds[n] {
                continue;
            }
            let dtype = if CONVERTS { converted[n].unwrap_or(*dtype) } else { *dtype };
            let Ok(place) = storage.access(dtype, Access::Write) else {
                // Arrays that the steps expect to be zero are zeroed again, since they now have memory. The steps
                // overwrite the rest.
                let before = own[..n].iter().zip(&*adds);
                before
                    .filter(|((_, a), adds)| *a == Access::ReadWrite && !**adds)
                    .for_each(|((s, _), _)| drop(s.zero()));
                return false;
            };
            at[n] = Shared::new(place);
        }
        true
    }

    /// Clears the arrays that a failed pass was to write or add to, since they may be half done.
    #[cold]
    fn forget(&self) {
        let written = self.own.iter().filter(|(_, access)| *access != Access::Read);
        written.for_each(|(storage, _)| drop(storage.clear(true)));
    }

    /// Bytes of memory that tile buffers save.
    fn saved(&self) -> usize {
        self.gone.len() * self.len * self.dtype.size()
    }

    /// Elements of a tile.
    fn tile(&self) -> usize {
        TILE / self.dtype.size()
    }

    /// True if there is only one tile.
    fn is_one_tile(&self) -> bool {
        self.len <= self.tile()
    }

    /// Calls `work` for each tile of a range, with the number of its elements.
    fn tiles(&self, range: Range<usize>, mut work: impl FnMut(TileRange<'_>, usize)) {
        let (size, tile) = (self.dtype.size(), self.tile());
        let buffer_bytes = tile.min(self.len).next_multiple_of(64 / size) * size;
        let conversions = if self.rounds.is_some() { self.own.len() } else { 0 };
        scratch::with(
            (self.n_buffers + conversions) * buffer_bytes / size_of::<f32>(),
            |memory: &mut [f32]| {
                let buffers = memory.as_mut_ptr().cast::<u8>();
                let converts = buffers.wrapping_add(self.n_buffers * buffer_bytes);
                let mut places: Option<List<Shared<u8>>> =
                    self.rounds.map(|_| self.at.iter().copied().collect());
                for start in range.clone().step_by(tile) {
                    let n = tile.min(range.end - start);
                    let converts_to = |array: usize| converts.wrapping_add(array * buffer_bytes);
                    let converted =
                        || self.converted.iter().enumerate().filter_map(|(n, to)| Some((n, (*to)?)));
                    let memory = |array: usize| self.at[array].get().wrapping_add(start * size_of::<u16>());
                    // SAFETY: the arrays are valid, tile buffers hold a tile, and tiles of other threads are others.
                    unsafe {
                        for Repeated { own, buffer: to, spread } in &self.repeated {
                            if start != range.start && spread.is_even(tile) {
                                continue;
                            }
                            let (from, to) =
                                (self.at[*own as usize].get(), buffers.add(*to as usize * buffer_bytes));
                            if let Some(dtype) = self.converted[*own as usize] {
                                let mut narrow = [0_u16; TILE / size_of::<f32>()];
                                spread.gather(from, narrow.as_mut_ptr().cast(), start, n, size_of::<u16>());
                                sixteen_bits::widen_here(narrow.as_ptr().cast(), dtype, to.cast(), n);
                            } else {
                                spread.gather(from, to, start, n, size);
                            }
                        }
                        for (array, dtype) in converted() {
                            let is_whole = || !self.repeated.iter().any(|r| r.own as usize == array);
                            if (self.own[array].1 == Access::Read || self.adds[array]) && is_whole() {
                                sixteen_bits::widen_here(memory(array), dtype, converts_to(array).cast(), n);
                            }
                            if let Some(places) = &mut places {
                                places[array] = Shared::new(converts_to(array).wrapping_sub(start * size));
                            }
                        }
                        let own = places.as_deref().unwrap_or(&self.at);
                        work(
                            TileRange {
                                own,
                                offset: start * size,
                                buffers,
                                buffer_bytes,
                                rounds: self.rounds,
                            },
                            n,
                        );
                        for (array, dtype) in
                            converted().filter(|(array, _)| self.own[*array].1 != Access::Read)
                        {
                            let from = converts_to(array).cast_const().cast();
                            sixteen_bits::narrow_here(from, memory(array), dtype, n);
                        }
                    }
                }
            },
        );
    }

    /// Calls `work` for every tile, on several threads if that pays for this number of calls. See [`Arrays::tiles`].
    fn pass(&self, calls: usize, work: impl Fn(TileRange<'_>, usize) + Sync) {
        let grain = (map::GRAIN / calls).next_multiple_of(self.tile());
        threads::ranges(self.len, grain, |range| self.tiles(range, &work));
    }
}

/// True if one of these ranges, which are ascending and disjoint, contains `n`.
pub(crate) fn holds(ranges: &[Range<usize>], n: usize) -> bool {
    let at = ranges.partition_point(|range| range.end <= n);
    ranges.get(at).is_some_and(|range| range.contains(&n))
}

/// The maximal runs of two or more adjacent steps in `0..n`. `fits` gives the length of a step, which is the same for
/// all steps of a run. `joins` decides whether a step joins the steps from the start of the run.
pub(crate) fn runs(
    n: usize,
    fits: impl Fn(usize) -> Option<usize>,
    joins: impl Fn(usize, usize) -> bool,
) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < n {
        let mut end = start + 1;
        if let Some(len) = fits(start) {
            let most = (WORK / len).max(2);
            while end < n && end - start < most && fits(end) == Some(len) && joins(start, end) {
                end += 1;
            }
            if end - start > 1 {
                found.push(start..end);
            }
        }
        start = end;
    }
    found
}
