//! What a function remembers of its last forward run: what its operation keeps, and which values it read and made, so that
//! one that changes before a gradient reads it is noticed.

use smallvec::SmallVec;

use crate::array::{Shape, Storage, name_of};
use crate::graph::arena::Ix;
use crate::ops::State;

/// Which array of a function is spoken of.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Input(usize),
    Output(usize),
}

/// What a function remembers of its last forward run.
#[derive(Default)]
pub(crate) struct Provenance {
    /// What the operation keeps: a mask, statistics.
    pub(crate) state: State,
    /// Tells this function from others; a name, which is that of what a function without inputs computes.
    id: u64,
    /// The contents of its inputs, as [`Storage::saved`] names and counts them; zero for one that the run changed.
    seen: SmallVec<[u64; 3]>,
}

/// What the runs by hand of a function remember, on arrays that are not those of its graph.
#[derive(Default)]
pub(crate) struct ByHand {
    pub(crate) memo: Provenance,
    /// Shapes of the inputs of the last forward run, if that succeeded.
    pub(crate) x: Option<SmallVec<[Shape; 3]>>,
    /// The random numbers that the function's last run in its graph had drawn by then, as [`State::drawn`] names them.
    pub(crate) drawn_in_graph: u64,
}

/// Joins two names to one that no other pair has, but by a chance of one in 2^47.
#[inline(always)]
fn join(a: u64, b: u64) -> u64 {
    let x = (a ^ b.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    name_of((x ^ (x >> 29)).wrapping_add(b).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1 << 63)
}

impl Provenance {
    /// Gives the function in a slot of the arena a name of its own.
    pub(crate) fn tell_apart(&mut self, generation: u32, slot: Ix) {
        self.id = join(generation.into(), slot.into());
    }

    /// Forgets everything; what the operation kept is the caller's to drop.
    pub(crate) fn take_state(&mut self) -> State {
        self.seen.clear();
        std::mem::take(&mut self.state)
    }

    /// Whether it remembers the inputs of a run.
    pub(crate) fn has_run(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Forgets everything that somebody was in the middle of changing: it is not looked at, and not dropped.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.seen));
        std::mem::forget(std::mem::take(&mut self.state));
    }

    /// Notes what a run reads, before it does, and names it all together. A run that computes again only names it.
    #[inline(always)]
    pub(crate) fn note(&mut self, inputs: impl Iterator<Item = u64>, recompute: bool) -> u64 {
        if recompute {
            return inputs.map(name_of).fold(self.id, join);
        }
        self.seen.clear();
        let seen = &mut self.seen;
        inputs.inspect(|saved| seen.push(*saved)).map(name_of).fold(self.id, join)
    }

    /// Names what a run has made of what `note` named, but for the first outputs, which went on to somewhere else.
    #[inline(always)]
    pub(crate) fn stamp_outputs<'a>(&self, noted: u64, gone: usize, y: impl Iterator<Item = &'a Storage>) {
        y.enumerate().skip(gone).for_each(|(o, y)| y.set_content(self.name(noted, o)));
    }

    /// The name of output `o` of a run on what `note` named.
    #[inline(always)]
    pub(crate) fn name(&self, noted: u64, o: usize) -> u64 {
        let named = match self.state.drawn() {
            0 => noted,
            drawn => join(noted, drawn),
        };
        if o == 0 { named } else { join(named, o as u64) }
    }

    /// Which value that a gradient reads is not what the forward run saw or made: an input or an output.
    pub(crate) fn modified<'a>(
        &self,
        x: impl Iterator<Item = Option<&'a Storage>>,
        y: impl Iterator<Item = Option<&'a Storage>>,
    ) -> Option<Modified> {
        self.changed(x, y, |storage| !storage.is_cleared())
    }

    /// As [`Provenance::modified`], of values that are not what they were and that `counts`.
    pub(crate) fn changed<'a>(
        &self,
        x: impl Iterator<Item = Option<&'a Storage>>,
        y: impl Iterator<Item = Option<&'a Storage>>,
        counts: impl Fn(&Storage) -> bool,
    ) -> Option<Modified> {
        if self.seen.is_empty() {
            return None; // it never ran
        }
        let differs = |storage: &Storage, expected: u64| storage.content() != expected && counts(storage);
        for (i, (x, seen)) in x.zip(&self.seen).enumerate() {
            if let Some(x) = x.filter(|x| *seen != 0 && differs(x, name_of(*seen))) {
                return Some(Modified { value: Side::Input(i), versions: x.versions_since(*seen) });
            }
        }
        let noted = self.seen.iter().copied().map(name_of).fold(self.id, join);
        for (o, y) in y.enumerate() {
            if let Some(y) = y.filter(|y| differs(y, self.name(noted, o))) {
                return Some(Modified {
                    value: Side::Output(o),
                    versions: y.versions_since(y.computed_version()),
                });
            }
        }
        None
    }
}

/// A value that changed since the function ran that saved it.
pub(crate) struct Modified {
    pub(crate) value: Side,
    /// How often its memory was written when it was saved, and by now; none where it is in other memory.
    pub(crate) versions: Option<(u64, u64)>,
}
