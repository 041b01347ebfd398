"""Functions of quantization with arguments beside those of the operation: whether to quantize, and NumPy's types."""

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
"""The numbers that NumPy gives to the types of levels."""


def fixed_point_quantize(
    x: T,
    sign: bool = True,
    n: int = 8,
    delta: float = 0.0625,
    quantize: bool = True,
    ste_fine_grained: bool = True,
    outputs: Sequence[NdArray | None] | None = None,
) -> T:
    """Quantization to a fixed point, elementwise: the nearest multiple of `delta` within a range.

    Halves go away from zero. The range ends at `-(2 ** (n - 1) - 1) * delta` and `(2 ** (n - 1) - 1) * delta`; if not
    `sign`, at 0 and `(2 ** n - 1) * delta`. The values stay floating-point numbers: quantization is simulated.

    Args:
        x: Input of any shape.
        sign: Negative numbers are represented too, which takes one bit.
        n: Number of bits, 1 to 64.
        delta: Distance of two neighbours, positive.
        quantize: If false, `x` itself is returned.
        ste_fine_grained: No gradient flows where `x` is out of range; else it passes everywhere. Within the range it
            passes straight through.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `n` or `delta` is out of range.
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

    The largest value is `2 ** m`, the smallest `2 ** (m - (2 ** bits - 1))`, where `bits` is `n` less one for `sign`
    and one for `with_zero`. If not `sign`, negative numbers become the smallest value. The values stay floating-point
    numbers: quantization is simulated.

    Args:
        x: Input of any shape.
        sign: Negative numbers are represented too.
        with_zero: Zero is represented too: it is what numbers become that are smaller than the smallest power of two by
            more than a factor of `sqrt(2)`.
        n: Number of bits, such that at least one is left for the exponent; at most 64.
        m: Exponent of the largest value.
        quantize: If false, `x` itself is returned.
        ste_fine_grained: No gradient flows where `x` is out of range; else it passes everywhere. Within the range it
            passes straight through.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `n` leaves no bits.

    Source:
        Miyashita, Lee and Murmann, Convolutional Neural Networks using Logarithmic Data Representation, 2016,
        arXiv:1603.01025.
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
    """Quantization to equally distant levels between two numbers `m` and `M`.

    `y = round((min(max(x, m), M) - m) / scale) * scale + m`, with `scale = (qr_max - qr_min) / (ql_max - ql_min)`.
    `m` and `M` are `qr_min` and `qr_max`, moved such that zero is a level. The range is at least `eps` wide. The
    values stay floating-point numbers: quantization is simulated.

    With `x_min_max` each forward run writes the range of `x` into `qr_min` and `qr_max`, or with `ema` also moves them
    towards it: `qr_min = decay * qr_min + (1 - decay) * min(x)`. With neither, `qr_min` and `qr_max` have gradients:
    what `x` would get where it is below `m` or above `M`.

    Args:
        x: Input of any shape.
        qr_min: Smallest number, of the shape of `x` but for axes of length one, along which it is shared.
        qr_max: Largest number, of the same shape.
        ql_min: Smallest level, of the same shape, usually 0.
        ql_max: Largest level, of the same shape, usually 255.
        decay: Share of `qr_min` and `qr_max` that stays in each run, from 0 to 1.
        x_min_max: Take the range from `x`.
        ema: Follow the range of `x` by moving averages; without `x_min_max`, use what was found so.
        ste_fine_grained: No gradient flows to `x` where it is out of range; else it passes everywhere. Within the
            range it passes straight through.
        eps: Least width of the range, positive.
        quantize: If false, `x` itself is returned.
        outputs: Array to write to.

    Returns:
        Array of the shape of `x`.

    Raises:
        ArgumentError: If `decay` or `eps` is out of range.
        ShapeError: If the other inputs do not have one shape, or neither the length of `x` nor one along an axis.

    Source:
        Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference,
        2017, arXiv:1712.05877.
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

    `zero_point` is rounded and saturated too. The gradient by `x` is that of `x / scale`, everywhere; the others are
    zero.

    Args:
        x: Input of any shape.
        scale: Distance of two levels, positive; of the shape of `x` but for axes of length one.
        zero_point: Level of the number zero, likewise.
        round_mode: `HALF_AWAY_FROM_ZERO` or `HALF_TO_EVEN`.
        narrow_range: The smallest level is not used.
        dtype: `numpy.int8` or `numpy.uint8`: which levels there are.

    Returns:
        Array of the shape of `x`: whole numbers, as floating-point numbers.

    Raises:
        ArgumentError: If `round_mode` or `dtype` is unknown.
        ShapeError: If `scale` or `zero_point` has neither the length of `x` nor one along an axis.
    """
    try:
        levels = DTYPES[np.dtype(dtype).name]
    except (KeyError, TypeError):
        raise ArgumentError(
            f"quantize_linear: expected `dtype` to be numpy.int8 or numpy.uint8, got {dtype!r}"
        ) from None
    result: T = f.quantize_linear(x, scale, zero_point, round_mode, narrow_range, levels)
    return result
