"""Scaling of pixels between ranges and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....._core import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = [
    "check_type_and_cast_if_necessary",
    "normalize_pixel_intensity",
    "rescale_pixel_intensity",
    "upscale_float_image",
    "upscale_pixel_intensity",
    "upscale_uint8_image",
]


def normalize_pixel_intensity(img: NDArray[Any], input_low: float, input_high: float) -> NDArray[Any]:
    """Scale pixels to [0, 1]: `(img - low) / (high - low)`. If `high == low`, the result is 0 if both are 0, else 1.

    Args:
        img: The pixels.
        input_low: Value that becomes 0.
        input_high: Value that becomes 1.

    Examples:
        >>> normalize_pixel_intensity(np.array([1, 2, 3]), 1, 3)
        array([0. , 0.5, 1. ])
    """
    values = np.asarray(img, np.promote_types(np.asarray(img).dtype, np.float32))
    low, high = float(input_low), float(input_high)  # The difference of integers may overflow their type.
    if low == high:
        return np.full_like(values, low != 0)
    return np.asarray((values - low) / (high - low))


def rescale_pixel_intensity(
    img: NDArray[Any],
    input_low: float = 0,
    input_high: float = 255,
    output_low: float = 0,
    output_high: float = 255,
    output_type: DTypeLike | None = None,
) -> NDArray[Any]:
    """Scale pixels from one range to another.

    Args:
        img: The pixels.
        input_low: Value that becomes `output_low`.
        input_high: Value that becomes `output_high`.
        output_low: Lower end of the result.
        output_high: Upper end of the result.
        output_type: Type of the result, by default the type of `img`. Fractions are truncated.

    Examples:
        >>> rescale_pixel_intensity(np.array([0.0, 127.5, 255.0]), output_low=-1, output_high=1)
        array([-1.,  0.,  1.])
    """
    normal = normalize_pixel_intensity(img, input_low, input_high)
    return np.asarray(normal * (output_high - output_low) + output_low).astype(output_type or np.asarray(img).dtype)


def upscale_uint8_image(img: NDArray[Any], as_uint16: bool) -> NDArray[Any]:
    """Multiply 8-bit pixels by 256 for a 16-bit result.

    Args:
        img: The pixels.
        as_uint16: Whether the result has 16 bits.
    """
    return np.asarray(img).astype(np.uint16) * np.uint16(256) if as_uint16 else img


def upscale_float_image(img: NDArray[Any], as_uint16: bool) -> NDArray[Any]:
    """Convert pixels from 0 to 1 to whole numbers up to 255 or 65535, truncating fractions.

    Args:
        img: The pixels.
        as_uint16: Whether the result has 16 bits.
    """
    kind = np.uint16 if as_uint16 else np.uint8
    # Single precision rounds so that pixels divided by the largest value convert back exactly.
    return np.asarray(np.asarray(img, np.float32) * np.float32(np.iinfo(kind).max)).astype(kind)


def upscale_pixel_intensity(img: NDArray[Any], as_uint16: bool) -> NDArray[Any]:
    """Convert pixels to whole numbers of 8 or 16 bits.

    Args:
        img: The pixels: `uint8` or `uint16`, or another type with values from 0 to 1.
        as_uint16: Whether the result has 16 bits.

    Examples:
        >>> upscale_pixel_intensity(np.array([0.0, 0.5, 1.0]), as_uint16=False)
        array([  0, 127, 255], dtype=uint8)
    """
    if img.dtype == np.uint8:
        return upscale_uint8_image(img, as_uint16)
    return img if img.dtype == np.uint16 else upscale_float_image(img, as_uint16)


def check_type_and_cast_if_necessary(img: NDArray[Any], as_uint16: bool) -> NDArray[Any]:
    """Convert pixels to the type to write.

    Args:
        img: The pixels.
        as_uint16: Whether the result has 16 bits.

    Raises:
        ArgumentError: If the pixels have 16 bits and `as_uint16` is False.
    """
    if as_uint16:
        return img.astype(np.uint16)
    if img.dtype == np.uint16:
        raise ArgumentError(
            "imsave: expected pixels of 8 bits, got uint16; pass as_uint16=True, or make them uint8 before"
        )
    return img
