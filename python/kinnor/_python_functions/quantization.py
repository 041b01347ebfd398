"""Quantization functions with an argument `quantize`, or with NumPy types as arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .. import _core
from .._core import ArgumentError, NdArray, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

__all__ = ["fixed_point_quantize", "min_max_quantize", "pow2_quantize", "quantize_linear"]

T = TypeVar("T", Variable, NdArray)

f = _core.functions

DTYPES = {"int8": 1, "uint8": 2}
"""Numbers of the element types that levels may have."""


def fixed_point_quantize(
    x: T,
    sign: bool = True,
    n: int = 8,
    delta: float = 0.0625,
    quantize: bool = True,
    ste_fine_grained: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Fixed-point quantization, elementwise: the nearest multiple of `delta` within a range.

    Halves are rounded away from zero. The range is from `-(2 ** (n - 1) - 1) * delta` to
    `(2 ** (n - 1) - 1) * delta`; without `sign`, from 0 to `(2 ** n - 1) * delta`. Quantization is simulated: results
    are floating-point numbers.

    Args:
        x: Input of any shape.
        sign: Whether the range includes negative numbers; the sign takes one bit.
        n: Number of bits, 1 to 64.
        delta: Step between quantized numbers, positive.
        quantize: If False, `x` itself is returned.
        ste_fine_grained: Whether the gradient is zero where `x` is out of range. Otherwise it is passed unchanged, as
            it always is within the range.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `n` or `delta` is out of range.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([-9.0, 0.3, 0.4])
        >>> F.fixed_point_quantize(x, n=4, delta=0.25).data
        array([-1.75,  0.25,  0.5 ], dtype=float32)
    """
    if not quantize:
        return x
    result: T = f.fixed_point_quantize(x, sign, n, delta, ste_fine_grained, outputs=outputs)
    return result


def pow2_quantize(
    x: T,
    sign: bool = True,
    with_zero: bool = True,
    n: int = 8,
    m: int = 1,
    quantize: bool = True,
    ste_fine_grained: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quantization to powers of two, elementwise: `sign(x) * 2 ** round(log2(|x|))` within a range.

    The largest magnitude is `2 ** m`, the smallest `2 ** (m - (2 ** bits - 1))`, where `bits` is `n` minus one for
    `sign` and minus one for `with_zero`. Without `sign`, negative numbers become the smallest value. Quantization is
    simulated: results are floating-point numbers.

    Args:
        x: Input of any shape.
        sign: Whether negative powers of two are allowed.
        with_zero: Whether zero is allowed. Numbers below the smallest power of two by more than a factor of `sqrt(2)`
            become zero.
        n: Number of bits, at most 64, with at least one left for the exponent.
        m: Exponent of the largest value.
        quantize: If False, `x` itself is returned.
        ste_fine_grained: Whether the gradient is zero where `x` is out of range. Otherwise it is passed unchanged, as
            it always is within the range.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `n` leaves no bits.

    Source:
        Miyashita, Lee and Murmann, Convolutional Neural Networks using Logarithmic Data Representation, 2016,
        arXiv:1603.01025.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([-9.0, 0.3, 0.4])
        >>> F.pow2_quantize(x).data
        array([-2.  ,  0.25,  0.5 ], dtype=float32)
    """
    if not quantize:
        return x
    result: T = f.pow2_quantize(x, sign, with_zero, n, m, ste_fine_grained, outputs=outputs)
    return result


def min_max_quantize(
    x: T,
    qr_min: T,
    qr_max: T,
    ql_min: T,
    ql_max: T,
    decay: float = 0.999,
    x_min_max: bool = False,
    ema: bool = False,
    ste_fine_grained: bool = True,
    eps: float = 0.01,
    quantize: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quantization to evenly spaced numbers between two bounds `m` and `M`.

    `y = round((min(max(x, m), M) - m) / scale) * scale + m`, with `scale = (qr_max - qr_min) / (ql_max - ql_min)`.
    `m` and `M` are `qr_min` and `qr_max`, shifted so that zero is representable. The range is at least `eps` wide.
    Quantization is simulated: results are floating-point numbers.

    With `x_min_max` each forward run writes the range of `x` to `qr_min` and `qr_max`. With `ema` as well, it updates a
    moving average: `qr_min = decay * qr_min + (1 - decay) * min(x)`. With neither, `qr_min` and `qr_max` have
    gradients: sums of the output's gradient where `x` is below `m`, and above `M`.

    Args:
        x: Input of any shape.
        qr_min: Smallest number, of the shape of `x` or of length 1 along shared axes.
        qr_max: Largest number, of the same shape.
        ql_min: Smallest level, of the same shape, usually 0.
        ql_max: Largest level, of the same shape, usually 255.
        decay: Weight of the old `qr_min` and `qr_max` in an update, from 0 to 1.
        x_min_max: Whether to take the range from `x`.
        ema: Whether to use moving averages of the range; without `x_min_max`, they are used but not updated.
        ste_fine_grained: Whether the gradient of `x` is zero where `x` is out of range. Otherwise it is passed
            unchanged, as it always is within the range.
        eps: Smallest width of the range, positive.
        quantize: If False, `x` itself is returned.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `decay` or `eps` is out of range.
        ShapeError: If the other inputs have different shapes, or a length other than 1 or the length of `x`.

    Source:
        Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
        2017, arXiv:1712.05877.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([-1.0, 0.2, 0.3, 2.0])
        >>> low = nn.NdArray.from_numpy_array([0.0])
        >>> high = nn.NdArray.from_numpy_array([1.0])
        >>> first = nn.NdArray.from_numpy_array([0.0])
        >>> last = nn.NdArray.from_numpy_array([4.0])
        >>> F.min_max_quantize(x, low, high, first, last).data
        array([0.  , 0.25, 0.25, 1.  ], dtype=float32)
    """
    if not quantize:
        return x
    result: T = f.min_max_quantize(
        x, qr_min, qr_max, ql_min, ql_max, decay, x_min_max, ema, ste_fine_grained, eps, outputs=outputs
    )
    return result


def quantize_linear(
    x: T,
    scale: T,
    zero_point: T,
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    narrow_range: bool = False,
    dtype: DTypeLike = np.int8,
) -> T:
    """Linear quantization: `y = saturate(round(x / scale) + zero_point)`.

    `zero_point` is rounded and saturated as well. The gradient of `x` equals the gradient of `x / scale` everywhere.
    Other gradients are zero.

    Args:
        x: Input of any shape.
        scale: Step between levels, positive, of the shape of `x` or of length 1 along shared axes.
        zero_point: Level of the number zero, of such a shape as well.
        round_mode: `HALF_AWAY_FROM_ZERO` or `HALF_TO_EVEN`.
        narrow_range: Whether to leave out the smallest level.
        dtype: Type of the levels: `numpy.int8` or `numpy.uint8`.

    Returns:
        Array of the shape of `x`: integers as floating-point numbers.

    Raises:
        ArgumentError: If `round_mode` or `dtype` is unknown.
        ShapeError: If `scale` or `zero_point` has a length other than 1 or the length of `x`.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array([-1.0, 0.2, 1000.0])
        >>> scale = nn.NdArray.from_numpy_array([0.5])
        >>> zero = nn.NdArray.from_numpy_array([0])
        >>> F.quantize_linear(x, scale, zero).data
        array([ -2.,   0., 127.], dtype=float32)
    """
    try:
        levels = DTYPES[np.dtype(dtype).name]
    except (KeyError, TypeError):
        raise ArgumentError(
            f"quantize_linear: expected `dtype` to be numpy.int8 or numpy.uint8, got {dtype!r}"
        ) from None
    result: T = f.quantize_linear(x, scale, zero_point, round_mode, narrow_range, levels)
    return result
