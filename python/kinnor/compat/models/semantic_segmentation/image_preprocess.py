"""Images as networks take them that divide images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import ShapeError
from ...utils.image_utils import imresize

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cast", "pad", "preprocess_image_and_label", "resize", "zero_mean_unit_range"]


def _checked(what: str, image: NDArray[Any]) -> NDArray[Any]:
    if np.ndim(image) != 3:
        raise ShapeError(f"{what}: expected an image of shape (height, width, channels), got shape {np.shape(image)}")
    return np.asarray(image)


def resize(image: NDArray[Any], desired_size: tuple[int, int]) -> NDArray[Any]:
    """An image as large as fits into a frame, in its own proportions.

    Args:
        image: Array of shape (height, width, channels). One channel is taken for classes, between which there is
            nothing.
        desired_size: Height and width of the frame.

    Returns:
        Array of shape (height, width, channels).

    Raises:
        ShapeError: If it is no such array.
        ImportError: If Pillow is not installed.
    """
    image = _checked("resize", image)
    share = min(np.divide(desired_size, image.shape[:2]))
    height, width = (int(length * share) for length in image.shape[:2])
    how = "nearest" if image.shape[2] == 1 else "bilinear"
    return imresize(image, (width, height), interpolate=how)


def zero_mean_unit_range(image: NDArray[Any]) -> NDArray[Any]:
    """Elements from 0 to 255 as elements from -1 to 1.

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
    """An array of `float32`.

    Args:
        image: Array of any shape.
    """
    return np.asarray(image).astype(np.float32)


def pad(image: NDArray[Any], desired_size: tuple[int, int] = (513, 513), value: float | None = None) -> NDArray[Any]:
    """An image with a border below and to the right.

    Args:
        image: Array of shape (height, width, channels).
        desired_size: The least height and width of the result.
        value: What the border has; 127.5 by default.

    Returns:
        Array of shape (height, width, channels).

    Raises:
        ShapeError: If it is no such array.
    """
    image = _checked("pad", image)
    below, right = (max(wanted - length, 0) for wanted, length in zip(desired_size, image.shape[:2], strict=True))
    return np.pad(image, ((0, below), (0, right), (0, 0)), constant_values=127.5 if value is None else value)


def preprocess_image_and_label(image: NDArray[Any], target_width: int = 513, target_height: int = 513) -> NDArray[Any]:
    """An image that fills a frame as far as its proportions allow, with elements from -1 to 1.

    Args:
        image: Array of shape (height, width, channels), elements 0 to 255.
        target_width: Width of the frame.
        target_height: Height of the frame.

    Returns:
        Array of shape (target_height, target_width, channels).

    Raises:
        ShapeError: If it is no such array.
        ImportError: If Pillow is not installed.
    """
    size = target_height, target_width
    return zero_mean_unit_range(pad(resize(cast(_checked("preprocess_image_and_label", image)), size), size))
