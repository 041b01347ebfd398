"""Preparation of images for detectors, and conversion and drawing of their boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import ShapeError
from ....logger import logger
from ...utils.image_utils import imresize
from .draw_utils import DrawBoundingBoxes, checked_image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "LetterBoxTransform",
    "apply_inverse_letterbox_coordinate_transform",
    "draw_bounding_boxes",
    "letterbox",
]

GREY = 127
"""Fill colour of a letterbox."""


def draw_bounding_boxes(
    img: NDArray[Any],
    bboxes: NDArray[Any],
    names: Sequence[str],
    colors: Sequence[tuple[int, int, int]] | None = None,
    thresh: float = 0.5,
) -> NDArray[Any]:
    """Draw the boxes whose scores reach a threshold.

    Args:
        img: Array of `uint8`, shape (height, width, 3).
        bboxes: A row for each box: center, width and height in pixels, objectness, and a score for each class.
        names: Names of the classes.
        colors: Three numbers for each class; by default a built-in palette.
        thresh: Lowest score to draw.

    Returns:
        A copy of `img` with the boxes. The drawn classes are logged.

    Raises:
        ArgumentError: If the image has another type or shape.
        ShapeError: If a row does not have five numbers and one for each class.
    """
    rows = np.asarray(bboxes)
    if rows.ndim != 2 or rows.shape[1] != 5 + len(names):
        raise ShapeError(f"draw_bounding_boxes: expected boxes of shape (n, {5 + len(names)}), got shape {rows.shape}")
    if colors is None:
        found = np.random.RandomState(1223).randint(0, 256, (len(names), 3))
        colors = [(int(r), int(g), int(b)) for r, g, b in found]
    draw = DrawBoundingBoxes(img, colors)
    height, width = img.shape[:2]
    for row in rows:
        shown = np.flatnonzero(row[5:] > thresh).tolist()
        if not shown:
            continue
        corners = np.concatenate([row[:2] - row[2:4] / 2, row[:2] + row[2:4] / 2])
        box = np.clip(corners, 0, [width, height, width, height]).astype(int).tolist()
        label = ", ".join(f"{names[place]}: {100 * row[5 + place]:.2f}%" for place in shown)
        logger.info(f"draw_bounding_boxes: {label}")
        draw.draw(box, shown[0], label)
    return draw.get()


def apply_inverse_letterbox_coordinate_transform(
    bboxes: NDArray[Any], im_w: int, im_h: int, letterbox_w: float, letterbox_h: float
) -> NDArray[Any]:
    """Convert boxes from letterbox coordinates to image coordinates.

    Args:
        bboxes: A row for each box. It begins with center, width and height relative to the letterbox.
        im_w: Width of the image.
        im_h: Height of the image.
        letterbox_w: Width of the image inside the letterbox, relative to the letterbox.
        letterbox_h: Height of the image inside the letterbox, relative to the letterbox.

    Returns:
        The rows with these four numbers in pixels of the image.

    Raises:
        ShapeError: If a row has less than four numbers.

    Examples:
        >>> import numpy as np
        >>> from kinnor.models.object_detection.utils import apply_inverse_letterbox_coordinate_transform
        >>> apply_inverse_letterbox_coordinate_transform(np.array([[0.5, 0.5, 0.5, 1.0]]), 100, 60, 0.5, 1.0).tolist()
        [[50.0, 30.0, 100.0, 60.0]]
    """
    found = np.array(bboxes)
    if found.ndim != 2 or found.shape[1] < 4:
        raise ShapeError(
            f"apply_inverse_letterbox_coordinate_transform: expected boxes of shape (n, 4 or more), got {found.shape}"
        )
    share, size = np.array([letterbox_w, letterbox_h]), np.array([im_w, im_h])
    found[:, :2] = (found[:, :2] - (1 - share) / 2) / share * size
    found[:, 2:4] = found[:, 2:4] * size / share
    return found


def letterbox(img_orig: NDArray[Any], h: int, w: int) -> tuple[NDArray[Any], int, int]:
    """Resize an image to fit into a frame, with grey bars at its sides.

    Args:
        img_orig: Array of `uint8`, shape (height, width, 3).
        h: Height of the frame.
        w: Width of the frame.

    Returns:
        Array of shape (h, w, 3), and the width and height of the image inside the frame.

    Raises:
        ArgumentError: If the image has another type or shape.
        ImportError: If Pillow is not installed.
    """
    image = checked_image("letterbox", img_orig)
    height, width = image.shape[:2]
    new_w, new_h = (w, height * w // width) if w * height < h * width else (width * h // height, h)
    framed = np.full((h, w, 3), GREY, np.uint8)
    top, left = (h - new_h) // 2, (w - new_w) // 2
    framed[top : top + new_h, left : left + new_w] = imresize(image, (new_w, new_h))
    return framed, new_w, new_h


class LetterBoxTransform:
    """An image resized into a letterbox, with the inverse transform for boxes.

    Args:
        image: Array of `uint8`, shape (height, width, 3).
        height: Height of the frame.
        width: Width of the frame.

    Attributes:
        image: The letterboxed image.
        new_w: Width of the image inside the frame.
        new_h: Height of the image inside the frame.

    Raises:
        ArgumentError: If the image has another type or shape.
        ImportError: If Pillow is not installed.
    """

    def __init__(self, image: NDArray[Any], height: int, width: int) -> None:
        self.height, self.width = height, width
        self.image, self.new_w, self.new_h = letterbox(image, height, width)
        self.im_h, self.im_w = image.shape[:2]

    def inverse_coordinate_transform(self, coords: NDArray[Any]) -> NDArray[Any]:
        """Convert boxes to image coordinates; see `apply_inverse_letterbox_coordinate_transform`.

        Args:
            coords: A row for each box. It begins with center, width and height relative to the frame.

        Returns:
            The rows with these four numbers in pixels of the image.

        Raises:
            ShapeError: If a row has less than four numbers.
        """
        return apply_inverse_letterbox_coordinate_transform(
            coords, self.im_w, self.im_h, self.new_w / self.width, self.new_h / self.height
        )
