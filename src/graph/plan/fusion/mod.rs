//! Elementwise functions that run one after the other, as one pass over their arrays.
//!
//! Element `i` of what an elementwise function computes depends on element `i` of what it reads alone. So functions that
//! follow each other in a plan, over arrays of one shape, may take a tile of all their arrays through all of them before
//! they take the next: what one writes the next finds in the innermost cache. A value that is given back before the last of
//! them has run need not be anywhere else: it lives in a *room* of one tile, which it leaves to others after its last use.
//! The same for gradients in a backward run.
//!
//! Nobody can tell, but by the clock and the peak of memory. The same kernels compute each element from the same numbers, so
//! that the bits are the same. What stays in a room is what the plan clears anyway, and a fused pass is taken only where that
//! is in the cleared state already, that is from the second run on; where anything else is not as usual (an array of
//! another type, one that was cleared, memory that cannot be had) the functions run one by one instead, and fail where
//! they always did. Hooks, recordings and the search for anomalies, which look at single functions, have them run one by
//! one too.

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
use crate::kernels::threads::{self, Shared};
use crate::kernels::{map, scratch};

/// Bytes of a tile: those that a function reads and writes fit in the innermost cache together.
pub(crate) const TILE: usize = 8 << 10;

/// Elements that a pass computes at most, all functions together.
const WORK: usize = 1 << 25;

/// An array that nothing reads.
pub(crate) const NOTHING: u32 = u32::MAX;

/// Where an array of a fused pass is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    /// In memory of its own, by its number.
    Own(u32),
    /// In a room, by its number.
    Room(u32),
}

/// An array that is repeated over the others: a tile of that is in a room of its own.
struct Repeated {
    /// Number of the array, which has memory of its own, and of the room.
    own: u32,
    room: u32,
    spread: BroadcastCycle,
}

/// The arrays of a fused pass while it is planned: which have memory of their own and which share rooms.
#[derive(Default)]
pub(crate) struct Planner {
    own: Vec<(Arc<Storage>, Access)>,
    gone: Vec<Arc<Storage>>,
    has_left: HashSet<*const Storage>,
    places: HashMap<*const Storage, Location>,
    free: Vec<u32>,
    rooms: u32,
    repeated: Vec<Repeated>,
}

impl Planner {
    fn find(&self, storage: &Arc<Storage>) -> Option<Location> {
        self.places.get(&Arc::as_ptr(storage)).copied()
    }

    /// An array with memory of its own.
    fn own(&mut self, storage: &Arc<Storage>, access: Access) -> Location {
        let place = Location::Own(self.own.len() as u32);
        self.own.push((Arc::clone(storage), access));
        self.places.insert(Arc::as_ptr(storage), place);
        place
    }

    /// An array of shape `x` that is read, perhaps repeated over one of shape `y`; `None` if the pass writes it.
    fn read(&mut self, storage: &Arc<Storage>, x: &Shape, y: &Shape) -> Option<Location> {
        let spread = BroadcastCycle::of(x, y);
        let place = match self.find(storage) {
            None => self.own(storage, Access::Read),
            Some(place) if spread.is_none() || self.access(place) == Some(Access::Read) => place,
            Some(_) => return None,
        };
        let (Some(spread), Location::Own(own)) = (spread, place) else { return Some(place) };
        if let Some(known) = self.repeated.iter().find(|r| r.own == own && r.spread == spread) {
            return Some(Location::Room(known.room));
        }
        self.rooms += 1;
        self.repeated.push(Repeated { own, room: self.rooms - 1, spread });
        Some(Location::Room(self.rooms - 1))
    }

    /// How the array with memory of its own is used, if it is one.
    fn access(&self, place: Location) -> Option<Access> {
        match place {
            Location::Own(n) => Some(self.own[n as usize].1),
            Location::Room(_) => None,
        }
    }

    /// An array that lives in a room.
    fn room(&mut self, storage: &Arc<Storage>) -> Location {
        let room = self.free.pop().unwrap_or_else(|| {
            self.rooms += 1;
            self.rooms - 1
        });
        self.gone.push(Arc::clone(storage));
        self.places.insert(Arc::as_ptr(storage), Location::Room(room));
        Location::Room(room)
    }

    /// After the last use of an array: its room may be another's.
    fn leave(&mut self, storage: &Arc<Storage>) {
        if let Some(Location::Room(room)) = self.find(storage) {
            self.places.remove(&Arc::as_ptr(storage));
            self.has_left.insert(Arc::as_ptr(storage));
            self.free.push(room);
        }
    }

    /// At the last use of an array that lives in a room: the room and what is in it become another's.
    fn rename(&mut self, storage: &Arc<Storage>, to: &Arc<Storage>) {
        if let Some(place) = self.places.remove(&Arc::as_ptr(storage)) {
            self.has_left.insert(Arc::as_ptr(storage));
            self.gone.push(Arc::clone(to));
            self.places.insert(Arc::as_ptr(to), place);
        }
    }

    /// Whether an array lived in a room.
    fn has_left(&self, storage: &Arc<Storage>) -> bool {
        self.has_left.contains(&Arc::as_ptr(storage))
    }

    /// The number of a place among all: those of arrays with memory of their own come first.
    fn number(&self, place: Location) -> u32 {
        match place {
            Location::Own(n) => n,
            Location::Room(n) => self.own.len() as u32 + n,
        }
    }
}

/// What every fused pass has: how long its arrays are, which they are, and where they are in this run.
pub(crate) struct Arrays {
    dtype: DType,
    /// Elements of each array.
    len: usize,
    own: Vec<(Arc<Storage>, Access)>,
    /// Values that live in rooms.
    gone: Gone,
    rooms: usize,
    repeated: Vec<Repeated>,
    /// Where the arrays with memory of their own are, and whether this run adds to what is there.
    at: Vec<Shared<u8>>,
    adds: Vec<bool>,
}

/// Where the arrays of a fused pass are for one tile.
#[derive(Clone, Copy)]
pub(crate) struct TileRange<'a> {
    own: &'a [Shared<u8>],
    /// In bytes from the start of each array.
    offset: usize,
    rooms: *mut u8,
    room: usize,
}

impl TileRange<'_> {
    /// The elements of the array with this number.
    #[inline(always)]
    fn of(&self, number: u32) -> *mut u8 {
        match self.own.get(number as usize) {
            _ if number == NOTHING => std::ptr::null_mut(),
            Some(start) => start.get().wrapping_add(self.offset),
            None => self.rooms.wrapping_add((number as usize - self.own.len()) * self.room),
        }
    }
}

impl Arrays {
    fn new(planner: Planner, dtype: DType, len: usize) -> Self {
        let Planner { own, gone, rooms, repeated, .. } = planner;
        let (at, adds) = (Vec::with_capacity(own.len()), vec![false; own.len()]);
        Self { dtype, len, own, gone: Gone::new(gone), rooms: rooms as usize, repeated, at, adds }
    }

    /// Makes ready for a run, and finds out where the arrays with memory of their own are; false, nothing having been done, if
    /// something is not as usual.
    fn resolve(&mut self) -> bool {
        // Everything that lives in a room was cleared before, as the run would leave it.
        if !self.gone.are_gone() {
            return false;
        }
        let Self { dtype, own, at, adds, .. } = self;
        at.clear();
        for ((storage, access), adds) in own.iter().zip(&mut *adds) {
            *adds = *access == Access::ReadWrite && (storage.is_ready() || !storage.is_zero());
            let place = match access {
                Access::Read => storage.found(*dtype),
                Access::ReadWrite if *adds => storage.at(*dtype, Access::ReadWrite),
                _ => Some(std::ptr::null_mut()), // below
            };
            let Some(place) = place else { return false };
            at.push(Shared::new(place));
        }
        // What is written comes after all that may be refused.
        for n in 0..own.len() {
            let (storage, access) = &own[n];
            if *access == Access::Read || adds[n] {
                continue;
            }
            let Ok(place) = storage.access(*dtype, Access::Write) else {
                // What was to be found zero by the steps is zero again, which has memory by now; they write the rest anew.
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

    /// Clears what a pass that failed was to write or add to, and may have left half done.
    #[cold]
    fn forget(&self) {
        let written = self.own.iter().filter(|(_, access)| *access != Access::Read);
        written.for_each(|(storage, _)| drop(storage.clear(true)));
    }

    /// Bytes of memory that the rooms save.
    fn saved(&self) -> usize {
        self.gone.len() * self.len * self.dtype.size()
    }

    /// Elements of a tile.
    fn tile(&self) -> usize {
        TILE / self.dtype.size()
    }

    /// Whether there is but one tile.
    fn is_one_tile(&self) -> bool {
        self.len <= self.tile()
    }

    /// Takes each tile of a range, and how many elements it has, through `work`.
    fn tiles(&self, range: Range<usize>, mut work: impl FnMut(TileRange<'_>, usize)) {
        let (size, tile) = (self.dtype.size(), self.tile());
        let room = tile.min(self.len).next_multiple_of(64 / size) * size;
        scratch::with(self.rooms * room / size_of::<f32>(), |memory: &mut [f32]| {
            let rooms = memory.as_mut_ptr().cast::<u8>();
            for start in range.clone().step_by(tile) {
                let n = tile.min(range.end - start);
                for Repeated { own, room: to, spread } in &self.repeated {
                    if start == range.start || !spread.is_even(tile) {
                        let (from, to) = (self.at[*own as usize].get(), *to as usize * room);
                        // SAFETY: the array is there, and the room holds a tile.
                        unsafe { spread.gather(from, rooms.add(to), start, n, size) };
                    }
                }
                work(TileRange { own: &self.at, offset: start * size, rooms, room }, n);
            }
        });
    }

    /// As [`Arrays::tiles`] for all of them, on several threads where that pays for so many calls.
    fn pass(&self, calls: usize, work: impl Fn(TileRange<'_>, usize) + Sync) {
        let grain = (map::GRAIN / calls).next_multiple_of(self.tile());
        threads::ranges(self.len, grain, |range| self.tiles(range, &work));
    }
}

/// Whether one of these ranges, which are in order and apart, holds `n`.
pub(crate) fn holds(ranges: &[Range<usize>], n: usize) -> bool {
    let at = ranges.partition_point(|range| range.end <= n);
    ranges.get(at).is_some_and(|range| range.contains(&n))
}

/// The runs of two or more neighbours in `0..n`: of steps over as many elements as `fits` says, if they may be part of one,
/// each joining those from the first on.
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
