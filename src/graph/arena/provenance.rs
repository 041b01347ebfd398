//! State that a function saves from its last forward run: the state of its operation, and the fingerprints of its
//! inputs, so that a change before the backward run is detected.

use smallvec::SmallVec;

use crate::array::{Fingerprint, Shape, Storage, VersionedFingerprint};
use crate::graph::arena::{Arena, Ix};
use crate::ops::State;

/// Selects an input or an output of a function.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// Input of this number.
    Input(usize),
    /// Output of this number.
    Output(usize),
}

/// State that a function saves from its last forward run.
#[derive(Default)]
pub(crate) struct Provenance {
    /// State saved by the operation, such as a mask or statistics.
    pub(crate) state: State,
    /// Identifies the function. Also the fingerprint of the output of a function without inputs.
    id: Fingerprint,
    /// Fingerprints of its inputs. None for an input that the run changed.
    inputs: SmallVec<[VersionedFingerprint; 3]>,
}

/// State saved by manual runs of a function, on arrays outside its graph.
#[derive(Default)]
pub(crate) struct ManualRun {
    /// The state and the fingerprints of the direct run.
    provenance: Provenance,
    /// Shapes of the inputs of the last forward run, if it succeeded.
    x: Option<SmallVec<[Shape; 3]>>,
    /// The random numbers drawn by the function's last run in its graph at that time, see [`State::drawn`].
    drawn_in_graph: u64,
}

/// Manual runs on arrays outside the graph.
impl Arena {
    /// Begins a manual forward run of `f`. Returns its provenance, and a replaced state to drop after unlocking. If
    /// `again` is set, the provenance has the state of the latest run, manual or in the graph.
    pub(crate) fn begin_manual(&mut self, f: Ix, again: bool) -> (&mut Provenance, Option<State>) {
        let slot = &mut self.functions[f];
        let manual = slot.manual.get_or_insert_default();
        manual.x = None;
        let in_graph = slot.provenance.state.drawn();
        let later = in_graph != 0 && in_graph != manual.drawn_in_graph;
        manual.drawn_in_graph = in_graph;
        let state = &mut manual.provenance.state;
        let before = (again && (state.is_empty() || later))
            .then(|| std::mem::replace(state, slot.provenance.state.same_numbers()));
        (&mut manual.provenance, before)
    }

    /// Records the shapes of the inputs of a manual forward run that succeeded.
    pub(crate) fn note_manual(&mut self, f: Ix, x: SmallVec<[Shape; 3]>) {
        if let Some(manual) = &mut self.functions[f].manual {
            manual.x = Some(x);
        }
    }

    /// The provenance of the last manual forward run of `f`, if it had inputs of these shapes.
    pub(crate) fn manual_provenance(&mut self, f: Ix, x: &[Shape]) -> Option<&mut Provenance> {
        let manual = self.functions[f].manual.as_deref_mut()?;
        (manual.x.as_deref() == Some(x)).then_some(&mut manual.provenance)
    }
}

/// The combined fingerprint of all inputs of a function. It determines the fingerprints of the outputs.
#[derive(Clone, Copy)]
pub(crate) struct InputsFingerprint(Fingerprint);

impl Provenance {
    /// Assigns a unique fingerprint to the function in an arena slot.
    pub(crate) fn identify(&mut self, generation: u32, slot: Ix) {
        self.id = Fingerprint::from_number(generation.into()).join(slot.into());
    }

    /// Resets all state. The caller must drop the returned state of the operation.
    pub(crate) fn take_state(&mut self) -> State {
        self.inputs.clear();
        std::mem::take(&mut self.state)
    }

    /// True if it has the inputs of a run.
    pub(crate) fn has_run(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Resets all state that another thread was changing, without reading or dropping it.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.inputs));
        std::mem::forget(std::mem::take(&mut self.state));
    }

    /// Saves the fingerprints of the inputs before a run reads them, and returns them combined. A recompute run only
    /// returns them.
    #[inline(always)]
    pub(crate) fn save_inputs(
        &mut self,
        inputs: impl Iterator<Item = VersionedFingerprint>,
        recompute: bool,
    ) -> InputsFingerprint {
        if recompute {
            return Self::combine(self.id, inputs);
        }
        self.inputs.clear();
        let own = &mut self.inputs;
        Self::combine(self.id, inputs.inspect(|input| own.push(*input)))
    }

    /// Joins the fingerprints of the inputs with the identity of the operation.
    #[inline(always)]
    fn combine(id: Fingerprint, inputs: impl Iterator<Item = VersionedFingerprint>) -> InputsFingerprint {
        InputsFingerprint(inputs.fold(id, |all, input| all.join(input.fingerprint().number())))
    }

    /// Assigns fingerprints to the outputs of a run. Skips the first `gone` outputs, which were consumed by a later
    /// step.
    #[inline(always)]
    pub(crate) fn stamp_outputs<'a>(
        &self,
        inputs: InputsFingerprint,
        gone: usize,
        y: impl Iterator<Item = &'a Storage>,
    ) {
        y.enumerate().skip(gone).for_each(|(o, y)| y.set_fingerprint(self.of_output(inputs, o)));
    }

    /// The fingerprint of output `o`.
    #[inline(always)]
    pub(crate) fn of_output(&self, inputs: InputsFingerprint, o: usize) -> Fingerprint {
        let first = match self.state.drawn() {
            0 => inputs.0,
            drawn => inputs.0.join(drawn),
        };
        if o == 0 { first } else { first.join(o as u64) }
    }

    /// Returns an input or output that the gradient reads and that changed since the forward run.
    pub(crate) fn modified<'a>(
        &self,
        x: impl Iterator<Item = Option<&'a Storage>>,
        y: impl Iterator<Item = Option<&'a Storage>>,
    ) -> Option<Modified> {
        self.changed(x, y, |storage| !storage.is_cleared())
    }

    /// Returns a value that the gradient reads and that changed since the forward run, if `counts` is true for it.
    pub(crate) fn changed<'a>(
        &self,
        x: impl Iterator<Item = Option<&'a Storage>>,
        y: impl Iterator<Item = Option<&'a Storage>>,
        counts: impl Fn(&Storage) -> bool,
    ) -> Option<Modified> {
        if self.inputs.is_empty() {
            return None; // it never ran
        }
        let differs =
            |storage: &Storage, expected: Fingerprint| storage.fingerprint() != expected && counts(storage);
        for (i, (x, saved)) in x.zip(&self.inputs).enumerate() {
            let read = |x: &&Storage| *saved != VersionedFingerprint::NONE && differs(x, saved.fingerprint());
            if let Some(x) = x.filter(read) {
                return Some(Modified { value: Side::Input(i), versions: x.versions_since(*saved) });
            }
        }
        let inputs = Self::combine(self.id, self.inputs.iter().copied());
        for (o, y) in y.enumerate() {
            if let Some(y) = y.filter(|y| differs(y, self.of_output(inputs, o))) {
                return Some(Modified { value: Side::Output(o), versions: y.versions_since_computed() });
            }
        }
        None
    }
}

/// A value that changed after the function that saved it ran.
pub(crate) struct Modified {
    /// The input or output that holds it.
    pub(crate) value: Side,
    /// The version of its memory when it was saved, and now. None if its memory was replaced.
    pub(crate) versions: Option<(u64, u64)>,
}
