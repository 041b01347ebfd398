//! A record of what runs clear, for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::array::Storage;
use crate::graph::arena::{Arena, Ix};

/// True for data and for gradient of an array if it was cleared.
pub type ClearFlags = (bool, bool);

/// The arrays cleared after one function ran: its inputs and outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearRecord {
    /// One entry for each input.
    pub inputs: Vec<ClearFlags>,
    /// One entry for each output.
    pub outputs: Vec<ClearFlags>,
}

/// True while runs record what they clear.
static RECORDING: AtomicBool = AtomicBool::new(false);

/// The record so far: one entry for each function that ran, in order.
static RECORDS: Mutex<Vec<ClearRecord>> = Mutex::new(Vec::new());

/// Starts (with an empty record) or stops recording what is cleared after each function.
pub fn record_clear_flags(on: bool) {
    RECORDS.lock().clear();
    RECORDING.store(on, Ordering::Relaxed);
}

/// The record so far.
pub fn recorded_clear_flags() -> Vec<ClearRecord> {
    RECORDS.lock().clone()
}

/// True if runs must call [`record`].
pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Records which arrays of a function are cleared after it has run.
pub(crate) fn record(a: &Arena, f: Ix) {
    let flags = |tensor: Ix| {
        let cleared = |storage: Option<&Arc<Storage>>| storage.is_some_and(|s| s.is_cleared());
        (cleared(a.existing_data(tensor)), cleared(a.existing_grad(tensor)))
    };
    let inputs = a.input_tensors(f).map(flags).collect();
    let outputs = a.output_tensors(f).map(flags).collect();
    RECORDS.lock().push(ClearRecord { inputs, outputs });
}
