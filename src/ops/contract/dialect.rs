//! The dialect of the program: Kinnor's or NNabla's. With the latter, operations repeat quirks of NNabla's kernels.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_NNABLA: AtomicBool = AtomicBool::new(false);

/// True if the program uses NNabla's names. Operations then return NNabla's numbers where Kinnor's differ on purpose.
pub(crate) fn is_nnabla() -> bool {
    IS_NNABLA.load(Ordering::Relaxed)
}

/// Sets [`is_nnabla`], for the process.
pub(crate) fn set_nnabla(on: bool) {
    IS_NNABLA.store(on, Ordering::Relaxed);
}
