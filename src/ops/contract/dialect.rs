//! The dialect of the program: Kinnor's or NNabla's.

use std::sync::atomic::{AtomicBool, Ordering};

/// The conventions that a program follows where NNabla differs from Kinnor on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Kinnor's conventions, as documented.
    #[default]
    Native,
    /// NNabla's conventions, for programs that use its names. Operations repeat quirks of NNabla's kernels. Calls that
    /// are certainly mistakes are accepted: the truth value of an array, a backward run before any forward run, an
    /// update of no parameters, fractional indices. Functions may change leaves that need a gradient in place. By
    /// default forward runs go depth first, and backward runs ignore that saved values changed.
    NNabla,
}

/// True if the process follows NNabla's dialect.
static IS_NNABLA: AtomicBool = AtomicBool::new(false);

impl Dialect {
    /// The dialect of the process.
    pub fn current() -> Self {
        if is_nnabla() { Self::NNabla } else { Self::Native }
    }

    /// Sets the dialect of the process.
    pub(crate) fn set(self) {
        IS_NNABLA.store(self == Self::NNabla, Ordering::Relaxed);
    }
}

/// True if the dialect is [`Dialect::NNabla`].
#[inline]
pub fn is_nnabla() -> bool {
    IS_NNABLA.load(Ordering::Relaxed)
}
