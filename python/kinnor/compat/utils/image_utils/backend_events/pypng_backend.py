"""The image backend with Pillow, and with pypng for 16-bit PNG files."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .....files.atomic import replacing
from .....files.images import ImageError, opened_image, write_image
from .....files.packages import needed
from .pil_backend import PilBackend

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PngBackend"]

DEPTH = slice(24, 25)
"""Offset of the bit depth in a PNG file."""

GREY_OF_COLOURS = (0.299, 0.587, 0.114)


class PngBackend(PilBackend):
    """Extends `PilBackend` to 16 bits: pypng reads and writes .png, Pillow grey images in .tif and .pgm."""

    def _read_wide(self, path: str | os.PathLike[str] | IO[bytes], grayscale: bool, num_channels: int) -> NDArray[Any]:
        """Read an image as 16-bit pixels."""
        if isinstance(path, (str, os.PathLike)):
            with Path(path).open("rb") as file:
                return self._read_wide(file, grayscale, num_channels)
        with opened_image("imread", path) as found:
            is_png = found.format == "PNG"
        path.seek(0)
        source = path.read() if is_png else b""
        path.seek(0)
        if source[DEPTH] != b"\x10":  # Pillow does not report the bit depth
            return super()._read_wide(path, grayscale, num_channels)
        png = pypng("imread")
        try:
            width, height, rows, _ = png.Reader(bytes=source).asDirect()
            pixels = np.stack([np.asarray(row, np.uint16) for row in rows]).reshape(height, width, -1)
        except (png.Error, zlib.error, EOFError, ValueError) as error:
            shown = getattr(path, "name", path)
            raise ImageError(f"imread: expected an image, got {shown}: {error}") from error
        return _with_channels(pixels, grayscale, num_channels)

    def _write_wide(self, path: str | os.PathLike[str], pixels: NDArray[Any]) -> None:
        """Write 16-bit pixels."""
        ending = Path(path).suffix.lower()
        if ending in (".tif", ".tiff", ".pgm"):
            write_image(path, pixels)
            return
        if ending != ".png":
            raise ImageError(f"imsave: expected .png, .tif or .pgm for 16 bits, got {os.fspath(path)!r}")
        planes = pixels.reshape(*pixels.shape[:2], -1)
        height, width, channels = planes.shape
        kinds = {"greyscale": channels < 3, "alpha": channels in (2, 4)}
        writer = pypng("imsave").Writer(width, height, bitdepth=16, **kinds)
        with replacing(path, durable=False) as temporary, temporary.open("wb") as file:
            writer.write(file, planes.reshape(height, -1).tolist())


def pypng(op: str) -> Any:
    """The module `png` of the package pypng.

    Args:
        op: Name of the caller, for the error text.

    Raises:
        ImportError: If pypng is not installed.
    """
    return needed(op, "png", "images of 16 bits", "image")


def _with_channels(pixels: NDArray[Any], grayscale: bool, num_channels: int) -> NDArray[Any]:
    """Convert pixels of shape (height, width, channels) to the requested channels: see `image_utils.imread`."""
    is_grey = pixels.shape[2] < 3
    if grayscale and not is_grey:
        pixels = (pixels[..., :3] @ np.array(GREY_OF_COLOURS)).astype(np.uint16)[..., np.newaxis]
    elif grayscale:
        pixels = pixels[..., :1]
    if grayscale or (is_grey and pixels.shape[2] == 1):
        return np.repeat(pixels, num_channels, axis=2) if num_channels > 0 else pixels[..., 0]
    if num_channels < 0 or num_channels == pixels.shape[2]:
        return pixels
    opacity = pixels[..., -1:] if pixels.shape[2] in (2, 4) else np.full_like(pixels[..., :1], np.iinfo(np.uint16).max)
    colours = np.repeat(pixels[..., :1], 3, axis=2) if is_grey else pixels[..., :3]
    return colours if num_channels == 3 else np.concatenate([colours, opacity], axis=2)
