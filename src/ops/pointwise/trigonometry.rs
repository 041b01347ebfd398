//! Trigonometric and hyperbolic functions and their inverses.

use crate::kernels::{Number, angle_gradients};
use crate::ops::{Binary, Entry, Reads, Unary, op};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[
    Entry::unary::<Sin>(),
    Entry::unary::<Cos>(),
    Entry::unary::<Tan>(),
    Entry::unary::<ASin>(),
    Entry::unary::<ACos>(),
    Entry::unary::<ATan>(),
    Entry::unary::<Sinh>(),
    Entry::unary::<Cosh>(),
    Entry::unary::<ASinh>(),
    Entry::unary::<ACosh>(),
    Entry::unary::<ATanh>(),
    Entry::binary::<ATan2>(),
];

op! {
    /// Sine, elementwise; `x` in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, np.pi / 6, np.pi / 2])
    ///     >>> F.sin(x).data.round(3)
    ///     array([0. , 0.5, 1. ], dtype=float32)
    /// ```
    Sin = sin(x)
}

impl Unary for Sin {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.sin()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        x.cos()
    }

    const IS_OF_ANGLES: bool = true;

    #[inline(always)]
    fn f_small<N: Number>(&self, x: N) -> N {
        x.sin_small()
    }

    #[inline(always)]
    fn df_small<N: Number>(&self, x: N, _: N) -> N {
        x.cos_small()
    }
}

op! {
    /// Cosine, elementwise; `x` in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, np.pi / 3, np.pi])
    ///     >>> F.cos(x).data.round(3)
    ///     array([ 1. ,  0.5, -1. ], dtype=float32)
    /// ```
    Cos = cos(x)
}

impl Unary for Cos {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.cos()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        -x.sin()
    }

    const IS_OF_ANGLES: bool = true;

    #[inline(always)]
    fn f_small<N: Number>(&self, x: N) -> N {
        x.cos_small()
    }

    #[inline(always)]
    fn df_small<N: Number>(&self, x: N, _: N) -> N {
        -x.sin_small()
    }
}

op! {
    /// Tangent, elementwise; `x` in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, np.pi / 4, 1.0])
    ///     >>> F.tan(x).data.round(3)
    ///     array([0.   , 1.   , 1.557], dtype=float32)
    /// ```
    Tan = tan(x)
}

impl Unary for Tan {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.tan()
    }

    const IS_OF_ANGLES: bool = true;

    #[inline(always)]
    fn f_small<N: Number>(&self, x: N) -> N {
        x.tan_small()
    }

    #[inline(always)]
    fn df_small<N: Number>(&self, x: N, _: N) -> N {
        let y = x.tan_small();
        N::all(1.0) + y * y
    }
}

op! {
    /// Inverse sine, elementwise, in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.5, 1.0])
    ///     >>> F.asin(x).data.round(3)
    ///     array([0.   , 0.524, 1.571], dtype=float32)
    /// ```
    ASin = asin(x)
}

impl Unary for ASin {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.asin()
    }
}

op! {
    /// Inverse cosine, elementwise, in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.5, 1.0])
    ///     >>> F.acos(x).data.round(3)
    ///     array([3.142, 1.047, 0.   ], dtype=float32)
    /// ```
    ACos = acos(x)
}

impl Unary for ACos {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.acos()
    }
}

op! {
    /// Inverse tangent, elementwise, in radians.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import numpy as np, kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 1.0, np.inf])
    ///     >>> F.atan(x).data.round(3)
    ///     array([0.   , 0.785, 1.571], dtype=float32)
    /// ```
    ATan = atan(x)
}

impl Unary for ATan {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.atan()
    }
}

op! {
    /// Hyperbolic sine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.sinh(x).data.round(3)
    ///     array([-1.175,  0.   ,  1.175], dtype=float32)
    /// ```
    Sinh = sinh(x)
}

impl Unary for Sinh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.sinh()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        x.cosh()
    }
}

op! {
    /// Hyperbolic cosine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.cosh(x).data.round(3)
    ///     array([1.543, 1.   , 1.543], dtype=float32)
    /// ```
    Cosh = cosh(x)
}

impl Unary for Cosh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.cosh()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, _: N) -> N {
        x.sinh()
    }
}

op! {
    /// Inverse hyperbolic sine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([-1.0, 0.0, 1.0])
    ///     >>> F.asinh(x).data.round(3)
    ///     array([-0.881,  0.   ,  0.881], dtype=float32)
    /// ```
    ASinh = asinh(x)
}

impl Unary for ASinh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.asinh()
    }
}

op! {
    /// Inverse hyperbolic cosine, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
    ///     >>> F.acosh(x).data.round(3)
    ///     array([0.   , 1.317], dtype=float32)
    /// ```
    ACosh = acosh(x)
}

impl Unary for ACosh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.acosh()
    }
}

op! {
    /// Inverse hyperbolic tangent, elementwise.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x = nn.NdArray.from_numpy_array([0.0, 0.5, 1.0])
    ///     >>> F.atanh(x).data.round(3)
    ///     array([0.   , 0.549,   inf], dtype=float32)
    /// ```
    ATanh = atanh(x)
}

impl Unary for ATanh {
    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.atanh()
    }
}

op! {
    /// Derivative of the inverse sine, elementwise: `y = 1 / sqrt(1 - x^2)`, in gradients only.
    ///
    /// One function, so that its own derivative is infinite at 1 and -1, and NaN beyond.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ASinSlope = asin_slope(x)
}

impl Unary for ASinSlope {
    const READS: Reads = Reads::ALL;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.asin_slope()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, y: N) -> N {
        x * (y * y * y)
    }
}

op! {
    /// Derivative of the inverse hyperbolic cosine, elementwise: `y = 1 / sqrt(x^2 - 1)`, in gradients only.
    ///
    /// One function, so that its own derivative is infinite at 1.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ACoshSlope = acosh_slope(x)
}

impl Unary for ACoshSlope {
    const READS: Reads = Reads::ALL;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.acosh_slope()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, y: N) -> N {
        // Far out `x y` is 1, and infinity times zero is not.
        -(N::select(x.gt(N::all(1e9)), N::all(1.0), x * y) * (y * y))
    }
}

op! {
    /// Derivative of the inverse hyperbolic tangent, elementwise: `y = 1 / (1 - x^2)`, in gradients only.
    ///
    /// One function, so that its own derivative is infinite at 1 and -1.
    ///
    /// Args:
    ///     x: Input of any shape.
    ///
    /// Returns:
    ///     Array of the shape of `x`.
    ATanhSlope = atanh_slope(x)
}

impl Unary for ATanhSlope {
    const READS: Reads = Reads::ALL;

    #[inline(always)]
    fn f<N: Number>(&self, x: N) -> N {
        x.atanh_slope()
    }

    #[inline(always)]
    fn df<N: Number>(&self, x: N, y: N) -> N {
        N::all(2.0) * x * (y * y)
    }
}

op! {
    /// Angle of the point (`x1`, `x0`), elementwise, in radians from -pi to pi.
    ///
    /// Args:
    ///     x0: Input of any shape.
    ///     x1: Input whose shape broadcasts with `x0`.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> y = nn.NdArray.from_numpy_array([1.0, 1.0, -1.0])
    ///     >>> x = nn.NdArray.from_numpy_array([1.0, -1.0, 0.0])
    ///     >>> F.atan2(y, x).data.round(3)
    ///     array([ 0.785,  2.356, -1.571], dtype=float32)
    /// ```
    ATan2 = atan2(x0, x1)
}

impl Binary for ATan2 {
    #[inline(always)]
    fn f<N: Number>(&self, a: N, b: N) -> N {
        a.atan2(b)
    }

    #[inline(always)]
    fn gx<N: Number>(&self, gy: N, a: N, b: N, _: N) -> (N, N) {
        angle_gradients(gy, a, b)
    }
}
