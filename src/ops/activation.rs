//! Activation functions.

use super::{Entry, Reads, Unary, op};
use crate::kernels::Number;

/// The operations of this file.
pub(super) const OPS: &[Entry] = &[Entry::unary::<Sigmoid>(), Entry::unary::<Tanh>(), Entry::unary::<ReLU>()];

op! {
    /// Logistic function, elementwise: `y = 1 / (1 + exp(-x))`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [0, 1].
    Sigmoid = sigmoid(x)
}

impl Unary for Sigmoid {
    const READS: Reads = Reads::OUTPUTS;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.sigmoid()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, y: N) -> N {
        y * (N::all(1.0) - y)
    }
}

op! {
    /// Hyperbolic tangent, elementwise: `y = tanh(x)`.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`, each element within [-1, 1].
    Tanh = tanh(x)
}

impl Unary for Tanh {
    const READS: Reads = Reads::OUTPUTS;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.tanh()
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, y: N) -> N {
        N::all(1.0) - y * y
    }
}

op! {
    /// Rectified linear unit, elementwise: `y = max(x, 0)`. The derivative at zero is zero.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///     inplace: Accepted for NNabla programs and ignored: memory is shared where nobody can tell.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ReLU = relu(x; inplace: bool = false)
}

impl Unary for ReLU {
    const READS: Reads = Reads::OUTPUTS;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        N::select(x.gt(N::all(0.0)), x, N::all(0.0))
    }

    #[inline(always)]
    fn df<N: Number>(&self, _: N, y: N) -> N {
        N::select(y.gt(N::all(0.0)), N::all(1.0), N::all(0.0))
    }
}
