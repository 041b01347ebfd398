//! Functions that a sum goes through on its way to memory.

use crate::kernels::Float;
use crate::kernels::simd::Vector;

/// What happens to a sum before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// What is not above zero becomes zero, NaN too: as `relu` does.
    Relu,
}

impl Activation {
    /// This, or nothing.
    pub(in crate::kernels) fn only_if(self, applies: bool) -> Self {
        if applies { self } else { Self::Identity }
    }

    /// Of one number.
    #[inline(always)]
    pub(in crate::kernels) fn of<T: Float>(self, v: T) -> T {
        match self {
            Self::Relu if v > T::ZERO => v,
            Self::Relu => T::ZERO,
            Self::Identity => v,
        }
    }

    /// Of a register of numbers.
    ///
    /// # Safety
    /// The instructions of `V` are there.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn on<V: Vector>(self, v: V) -> V {
        match self {
            Self::Identity => v,
            // SAFETY: the caller's promise.
            Self::Relu => unsafe { v.relu() },
        }
    }
}
