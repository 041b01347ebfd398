//! State that a function saves from its last forward run: that of its operation, and the fingerprints of its inputs,
//! so that a change before the backward run is detected.

use smallvec::SmallVec;

use crate::array::{Shape, Storage, name_of};
use crate::graph::arena::{Arena, Ix};
use crate::ops::State;

/// Selects an array of a function.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Input(usize),
    Output(usize),
}

/// State that a function saves from its last forward run.
#[derive(Default)]
pub(crate) struct Provenance {
    /// State saved by the operation, such as a mask or statistics.
    pub(crate) state: State,
    /// Identifies the function. Also the fingerprint of the output of a function without inputs.
    id: u64,
    /// Fingerprints of its inputs, see [`Storage::saved`]. Zero for an input that the run changed.
    seen: SmallVec<[u64; 3]>,
}

/// State saved by manual runs of a function, on arrays outside its graph.
#[derive(Default)]
pub(crate) struct ByHand {
    provenance: Provenance,
    /// Shapes of the inputs of the last forward run, if it succeeded.
    x: Option<SmallVec<[Shape; 3]>>,
    /// The random numbers drawn by the function's last run in its graph at that time, see [`State::drawn`].
    drawn_in_graph: u64,
}

/// Manual runs on arrays outside the graph.
impl Arena {
    /// Begins a manual forward run of `f`. Returns its provenance, and a replaced state to drop after unlocking. If
    /// `again` is set, the provenance has the state of the last run, manual or in the graph, whichever was later.
    pub(crate) fn begin_manual(&mut self, f: Ix, again: bool) -> (&mut Provenance, Option<State>) {
        let slot = &mut self.functions[f];
        let by_hand = slot.by_hand.get_or_insert_default();
        by_hand.x = None;
        let in_graph = slot.provenance.state.drawn();
        let later = in_graph != 0 && in_graph != by_hand.drawn_in_graph;
        by_hand.drawn_in_graph = in_graph;
        let state = &mut by_hand.provenance.state;
        let before = (again && (state.is_empty() || later))
            .then(|| std::mem::replace(state, slot.provenance.state.same_numbers()));
        (&mut by_hand.provenance, before)
    }

    /// Records the shapes of the inputs of a manual forward run that succeeded.
    pub(crate) fn note_manual(&mut self, f: Ix, x: SmallVec<[Shape; 3]>) {
        if let Some(by_hand) = &mut self.functions[f].by_hand {
            by_hand.x = Some(x);
        }
    }

    /// The provenance of the last manual forward run of `f`, if it had inputs of these shapes.
    pub(crate) fn manual_provenance(&mut self, f: Ix, x: &[Shape]) -> Option<&mut Provenance> {
        let by_hand = self.functions[f].by_hand.as_deref_mut()?;
        (by_hand.x.as_deref() == Some(x)).then_some(&mut by_hand.provenance)
    }
}

/// Combines two fingerprints. Two different pairs collide with a probability of 2^-47.
#[inline(always)]
fn join(a: u64, b: u64) -> u64 {
    let x = (a ^ b.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    name_of((x ^ (x >> 29)).wrapping_add(b).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 1 << 63)
}

impl Provenance {
    /// Assigns a unique fingerprint to the function in an arena slot.
    pub(crate) fn tell_apart(&mut self, generation: u32, slot: Ix) {
        self.id = join(generation.into(), slot.into());
    }

    /// Resets all state. The caller must drop the returned state of the operation.
    pub(crate) fn take_state(&mut self) -> State {
        self.seen.clear();
        std::mem::take(&mut self.state)
    }

    /// True if it has the inputs of a run.
    pub(crate) fn has_run(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Resets all state that another thread was changing, without reading or dropping it.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.seen));
        std::mem::forget(std::mem::take(&mut self.state));
    }

    /// Saves the fingerprints of the inputs before a run reads them, and returns their combination. A recompute run
    /// only returns it.
    #[inline(always)]
    pub(crate) fn note(&mut self, inputs: impl Iterator<Item = u64>, recompute: bool) -> u64 {
        if recompute {
            return inputs.map(name_of).fold(self.id, join);
        }
        self.seen.clear();
        let seen = &mut self.seen;
        inputs.inspect(|saved| seen.push(*saved)).map(name_of).fold(self.id, join)
    }

    /// Assigns fingerprints to the outputs of a run, derived from the result of `note`. Skips the first `gone`
    /// outputs, which were consumed by a later step.
    #[inline(always)]
    pub(crate) fn stamp_outputs<'a>(&self, noted: u64, gone: usize, y: impl Iterator<Item = &'a Storage>) {
        y.enumerate().skip(gone).for_each(|(o, y)| y.set_content(self.name(noted, o)));
    }

    /// The fingerprint of output `o`, derived from the result of `note`.
    #[inline(always)]
    pub(crate) fn name(&self, noted: u64, o: usize) -> u64 {
        let named = match self.state.drawn() {
            0 => noted,
            drawn => join(noted, drawn),
        };
        if o == 0 { named } else { join(named, o as u64) }
    }

    /// Returns an input or output that the gradient reads and that changed since the forward run.
    pub(crate) fn modified<'a>(
        &self,
        x: impl Iterator<Item = Option<&'a Storage>>,
        y: impl Iterator<Item = Option<&'a Storage>>,
    ) -> Option<Modified> {
        self.changed(x, y, |storage| !storage.is_cleared())
    }

    /// As [`Provenance::modified`], but considers only changed values for which `counts` returns true.
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

/// A value that changed after the function that saved it ran.
pub(crate) struct Modified {
    pub(crate) value: Side,
    /// The version of its memory when it was saved, and now. None if its memory was replaced.
    pub(crate) versions: Option<(u64, u64)>,
}
