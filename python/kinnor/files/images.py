"""Images from files, by the package Pillow.

Knows pixels and sizes; knows no data sets.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._core import Error
from .packages import needed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["ImageError", "read_image", "resized"]


class ImageError(Error, ValueError):
    """A file is no image, or not one that can be read."""


def read_image(source: str | os.PathLike[str] | IO[bytes]) -> NDArray[Any]:
    """The pixels of an image.

    Args:
        source: Path, or a file open for reading bytes.

    Returns:
        Array of shape (height, width) of grey, or (height, width, colours); `uint8`, or `uint16` of 16 bits of grey.

    Raises:
        ImageError: If the file is no image, or if it has too many pixels for memory.
        OSError: If it cannot be opened.
        ImportError: If Pillow is not installed.
    """
    image = needed("read_image", "PIL.Image", "images", "image")
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file:
            return read_image(file)
    with warnings.catch_warnings():
        warnings.simplefilter("error", image.DecompressionBombWarning)
        try:
            with image.open(source) as found:
                if found.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV"):
                    found = found.convert("RGBA" if "transparency" in found.info else "RGB")
                elif found.mode == "1":
                    found = found.convert("L")
                pixels = np.asarray(found)
        except (OSError, ValueError, SyntaxError, EOFError, image.DecompressionBombError, Warning) as error:
            shown = getattr(source, "name", source)
            raise ImageError(f"read_image: expected an image, got {shown}: {error}") from error
    if pixels.dtype.kind in "iu" and pixels.dtype.itemsize > 1:
        pixels = pixels.astype(np.uint16)
    return pixels


def resized(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """An image in another size, between whose pixels values are interpolated linearly.

    Args:
        pixels: Array of shape (height, width) or (height, width, colours).
        height: New height, above 0.
        width: New width, above 0.

    Returns:
        Array of the same type.
    """
    image = needed("resized", "PIL.Image", "images", "image")
    if pixels.dtype == np.uint8:
        return np.asarray(image.fromarray(pixels).resize((width, height), image.Resampling.BILINEAR))
    planes = pixels.reshape(*pixels.shape[:2], -1).astype(np.float32)
    made = [
        np.asarray(image.fromarray(planes[..., i]).resize((width, height), image.Resampling.BILINEAR))
        for i in range(planes.shape[2])
    ]
    return np.stack(made, -1).reshape(height, width, *pixels.shape[2:]).astype(pixels.dtype)
