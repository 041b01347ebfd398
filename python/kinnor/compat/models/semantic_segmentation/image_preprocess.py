"""Preprocessing of images for semantic segmentation networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import ShapeError
from ...utils.image_utils import imresize

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cast", "pad", "preprocess_image_and_label", "resize", "zero_mean_unit_range"]


def _checked(what: str, image: NDArray[Any]) -> NDArray[Any]:
    """Raise ShapeError if an image does not have three axes."""
    if np.ndim(image) != 3:
        raise ShapeError(f"{what}: expected an image of shape (height, width, channels), got shape {np.shape(image)}")
    return np.asarray(image)


def resize(image: NDArray[Any], desired_size: tuple[int, int]) -> NDArray[Any]:
    """Resize an image to the largest size that fits into a frame. The aspect ratio is kept.

    Args:
        image: Array of shape (height, width, channels). An image with one channel holds class numbers: it is resized
            without interpolation.
        desired_size: Height and width of the frame.

    Returns:
        Array of shape (height, width, channels).

    Raises:
        ShapeError: If `image` has another shape.
        ImportError: If Pillow is not installed.
    """
    image = _checked("resize", image)
    share = min(np.divide(desired_size, image.shape[:2]))
    height, width = (int(length * share) for length in image.shape[:2])
    how = "nearest" if image.shape[2] == 1 else "bilinear"
    return imresize(image, (width, height), interpolate=how)


def zero_mean_unit_range(image: NDArray[Any]) -> NDArray[Any]:
    """Scale values from the range 0 to 255 to the range -1 to 1.

    Args:
        image: Array of any shape.

    Examples:
        >>> import numpy as np
        >>> from kinnor.models.semantic_segmentation.image_preprocess import zero_mean_unit_range
        >>> zero_mean_unit_range(np.array([0.0, 127.5, 255.0])).tolist()
        [-1.0, 0.0, 1.0]
    """
    return (2.0 / 255.0) * np.asarray(image) - 1.0


def cast(image: NDArray[Any]) -> NDArray[Any]:
    """Convert an array to `float32`.

    Args:
        image: Array of any shape.
    """
    return np.asarray(image).astype(np.float32)


def pad(image: NDArray[Any], desired_size: tuple[int, int] = (513, 513), value: float | None = None) -> NDArray[Any]:
    """Pad an image at the bottom and at the right.

    Args:
        image: Array of shape (height, width, channels).
        desired_size: Minimum height and width of the result.
        value: Padding value; 127.5 by default.

    Returns:
        Array of shape (height, width, channels).

    Raises:
        ShapeError: If `image` has another shape.
    """
    image = _checked("pad", image)
    below, right = (max(wanted - length, 0) for wanted, length in zip(desired_size, image.shape[:2], strict=True))
    return np.pad(image, ((0, below), (0, right), (0, 0)), constant_values=127.5 if value is None else value)


def preprocess_image_and_label(image: NDArray[Any], target_width: int = 513, target_height: int = 513) -> NDArray[Any]:
    """Resize an image into a frame, pad it, and scale its values to the range -1 to 1.

    Args:
        image: Array of shape (height, width, channels), elements 0 to 255.
        target_width: Width of the frame.
        target_height: Height of the frame.

    Returns:
        Array of shape (target_height, target_width, channels).

    Raises:
        ShapeError: If `image` has another shape.
        ImportError: If Pillow is not installed.
    """
    size = target_height, target_width
    return zero_mean_unit_range(pad(resize(cast(_checked("preprocess_image_and_label", image)), size), size))
