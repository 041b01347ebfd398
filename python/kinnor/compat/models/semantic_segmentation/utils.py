"""Preprocessing of images, and postprocessing of predicted classes into pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...._core import IndexRangeError, ShapeError
from ...utils.image_utils import imresize, imsave
from .image_preprocess import preprocess_image_and_label

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["ProcessImage", "get_color", "post_process_image", "pre_process_image", "save_image"]

BEYOND = ((224, 224, 192), (0, 0, 0))
"""Colours for values beyond the classes: borders and void."""


def get_color() -> NDArray[Any]:
    """The colours of the 21 classes of Pascal VOC, and two more.

    Returns:
        Array of shape (23, 3), elements 0 to 255.

    Examples:
        >>> from kinnor.models.semantic_segmentation.utils import get_color
        >>> get_color()[[0, 1, 15]].tolist()
        [[0, 0, 0], [128, 0, 0], [192, 128, 128]]
    """
    # Bits 0, 1 and 2 of a class are the highest bits of red, green and blue. Bits 3 and above are the next lower ones.
    classes = np.arange(21)[:, None] >> np.arange(3)
    return np.concatenate([(classes & 1) * 128 + (classes >> 3 & 1) * 64, BEYOND])


def pre_process_image(image: NDArray[Any], target_h: int, target_w: int) -> NDArray[Any]:
    """Prepare an image as the input of a network.

    Args:
        image: Array of shape (height, width, channels), elements 0 to 255.
        target_h: Height of the network's input.
        target_w: Width of the network's input.

    Returns:
        Array of shape (1, channels, target_h, target_w).

    Raises:
        ShapeError: If `image` has another shape.
        ImportError: If Pillow is not installed.
    """
    return np.transpose(preprocess_image_and_label(image, target_w, target_h), (2, 0, 1))[None]


def post_process_image(output: NDArray[Any], image: NDArray[Any], target_size: tuple[int, int]) -> NDArray[Any]:
    """Convert the predicted classes of the network's input to classes of the image's pixels.

    Args:
        output: Array of shape (target height, target width).
        image: The image, shape (height, width, channels).
        target_size: Height and width of the network's input.

    Returns:
        Array of shape (height, width).

    Raises:
        ShapeError: If `output` has another shape.
        ImportError: If Pillow is not installed.
    """
    if np.shape(output) != tuple(target_size):
        raise ShapeError(f"post_process_image: expected classes of shape {target_size}, got shape {np.shape(output)}")
    size = image.shape[:2]
    share = min(np.divide(target_size, size))
    height, width = (int(length * share) for length in size)
    return imresize(output[:height, :width], (size[1], size[0]), interpolate="nearest")


def save_image(image_path: str | os.PathLike[str], label: NDArray[Any], color_map: NDArray[Any] | None = None) -> None:
    """Write class numbers as a coloured picture.

    Args:
        image_path: The file. Its extension selects the format.
        label: The class of each pixel, shape (height, width).
        color_map: A colour for each class, shape (classes, 3); by default `get_color()`.

    Raises:
        ShapeError: If `label` does not have two axes.
        IndexRangeError: If a class has no colour.
        OSError: If the file cannot be written.
        ImportError: If Pillow is not installed.
    """
    if np.ndim(label) != 2:
        raise ShapeError(f"save_image: expected classes of shape (height, width), got shape {np.shape(label)}")
    colors, classes = get_color() if color_map is None else np.asarray(color_map), np.asarray(label).astype(int)
    if classes.size and not 0 <= classes.min() <= classes.max() < len(colors):
        found = f"{classes.min()} to {classes.max()}"
        raise IndexRangeError(f"save_image: expected classes 0 to {len(colors) - 1}, got {found}")
    pixels = colors[classes]
    imsave(image_path, pixels / max(pixels.max(initial=0), 1))


class ProcessImage:
    """Pre- and postprocessing of one image.

    Args:
        image: Array of shape (height, width, channels), elements 0 to 255.
        target_h: Height of the network's input.
        target_w: Width of the network's input.
    """

    def __init__(self, image: NDArray[Any], target_h: int, target_w: int) -> None:
        self.image, self.target_h, self.target_w = image, target_h, target_w
        self.target_size = (target_h, target_w)

    def pre_process(self) -> NDArray[Any]:
        """The image as the network's input; see `pre_process_image`."""
        return pre_process_image(self.image, self.target_h, self.target_w)

    def post_process(self, output: NDArray[Any]) -> NDArray[Any]:
        """Convert the predicted classes to the image's pixels; see `post_process_image`.

        Args:
            output: Array of shape (target_h, target_w).

        Returns:
            Array of the image's height and width.
        """
        self.post_proc = post_process_image(output, self.image, self.target_size)
        return self.post_proc

    def save_segmentation_image(self, path: str | os.PathLike[str], color_map: NDArray[Any] | None = None) -> None:
        """Write the predicted classes as a picture; see `save_image`.

        Args:
            path: The file. Its extension selects the format.
            color_map: A colour for each class, shape (classes, 3).
        """
        save_image(path, self.post_proc, color_map)
