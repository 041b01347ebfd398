"""Draws bounding boxes on images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import ArgumentError
from ....files.packages import needed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["DrawBoundingBoxes", "checked_image"]

LINE = 15
"""Height of a label in pixels."""


def checked_image(op: object, img: Any) -> NDArray[Any]:
    """Check that an image is an array of bytes with three channels.

    Args:
        op: The caller or its name, for the error text.
        img: The image to check.

    Returns:
        Array of `uint8`, shape (height, width, 3).

    Raises:
        ArgumentError: If `img` is something else.
    """
    found = np.asarray(img)
    if found.dtype != np.uint8 or found.ndim != 3 or found.shape[2] != 3:
        name = op if isinstance(op, str) else type(op).__name__
        given = f"{found.dtype} of shape {found.shape}"
        raise ArgumentError(f"{name}: expected an image of uint8 of shape (height, width, 3), got {given}")
    return found


class DrawBoundingBoxes:
    """Draws labelled boxes on a copy of an image.

    Args:
        img: Array of `uint8`, shape (height, width, 3).
        colors: Three numbers for each class: red, green, blue.

    Raises:
        ArgumentError: If the image has another type or shape.
        ImportError: If Pillow is not installed.
    """

    def __init__(self, img: NDArray[Any], colors: Sequence[tuple[int, int, int]]) -> None:
        self._image = needed("DrawBoundingBoxes", "PIL.Image", "images", "image").fromarray(checked_image(self, img))
        self._pen = needed("DrawBoundingBoxes", "PIL.ImageDraw", "images", "image").Draw(self._image)
        self._colors = colors

    def draw(self, bbox: Sequence[int], det_ind: int, label: str) -> None:
        """Draw a box with its label.

        Args:
            bbox: Left, top, right and bottom in pixels.
            det_ind: The class, which selects the colour.
            label: Text above the box, or inside it at the top of the image.
        """
        color, (left, top) = self._colors[det_ind], bbox[:2]
        self._pen.rectangle(tuple(bbox), outline=color)
        self._pen.text((left, top - LINE if top > 2 * LINE else top + LINE), label, fill=color)

    def get(self) -> NDArray[Any]:
        """The image with the boxes."""
        return np.array(self._image)
