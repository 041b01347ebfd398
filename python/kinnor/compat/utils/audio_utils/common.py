"""Scaling of samples between ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["normalize_intensity", "rescale_intensity"]


def normalize_intensity(audio_arr: NDArray[Any], input_low: float, input_high: float) -> NDArray[Any]:
    """Scale samples to [0, 1]: `(x - low) / (high - low)`. If `high == low`, the result is 0 if both are 0, else 1.

    Args:
        audio_arr: The samples.
        input_low: Value that becomes 0.
        input_high: Value that becomes 1.

    Examples:
        >>> normalize_intensity(np.array([0, 5, 10]), 0, 10)
        array([0. , 0.5, 1. ])
    """
    values = np.asarray(audio_arr, np.float64)
    low, high = float(input_low), float(input_high)  # The difference of integers may overflow their type.
    return (values - low) / (high - low) if low != high else np.full_like(values, low != 0)


def rescale_intensity(
    audio_arr: NDArray[Any],
    input_low: float = 0,
    input_high: float = 255,
    output_low: float = 0,
    output_high: float = 255,
    output_type: DTypeLike | None = None,
) -> NDArray[Any]:
    """Scale samples from one range to another.

    Args:
        audio_arr: The samples.
        input_low: Value that becomes `output_low`.
        input_high: Value that becomes `output_high`.
        output_low: Lower end of the result.
        output_high: Upper end of the result.
        output_type: Type of the result; by default the type of `audio_arr`.

    Examples:
        >>> rescale_intensity(np.array([0.0, 127.5, 255.0]), output_low=-1, output_high=1)
        array([-1.,  0.,  1.])
    """
    normal = normalize_intensity(audio_arr, input_low, input_high)
    low, high = float(output_low), float(output_high)
    return np.asarray(normal * (high - low) + low).astype(output_type or np.asarray(audio_arr).dtype)
