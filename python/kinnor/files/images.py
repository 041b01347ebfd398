"""Reading, writing, resizing and tiling of images, by the package Pillow."""

from __future__ import annotations

import os
import warnings
from contextlib import contextmanager
from math import ceil, sqrt
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._core import ArgumentError, Error
from .atomic import replacing
from .packages import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "ImageError",
    "channels_of",
    "check_channels",
    "converted",
    "opened_image",
    "pillow",
    "read_channels",
    "read_image",
    "resized",
    "tile_images",
    "write_image",
]


class ImageError(Error, ValueError):
    """A file is not an image, or an image cannot be read or written."""


def pillow(op: str) -> Any:
    """The module `PIL.Image`.

    Args:
        op: Name of the calling operation, for errors.

    Raises:
        ImportError: If Pillow is not installed.
    """
    return needed(op, "PIL.Image", "images", "image")


@contextmanager
def opened_image(op: str, source: str | os.PathLike[str] | IO[bytes]) -> Iterator[Any]:
    """Opens an image as a Pillow image, for a `with` block.

    Args:
        op: Name of the calling operation, for errors.
        source: Path, or a file open for reading bytes.

    Raises:
        ImageError: If the file is not an image, or has too many pixels.
        OSError: If it cannot be opened.
        ImportError: If Pillow is not installed.
    """
    image = pillow(op)
    if isinstance(source, (str, os.PathLike)):
        with Path(source).open("rb") as file, opened_image(op, file) as found:
            yield found
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", image.DecompressionBombWarning)
        try:
            found = image.open(source)
            found.load()
        except (OSError, ValueError, SyntaxError, EOFError, image.DecompressionBombError, Warning) as error:
            shown = getattr(source, "name", source)
            raise ImageError(f"{op}: expected an image, got {shown}: {error}") from error
    with found:
        yield found


def read_image(source: str | os.PathLike[str] | IO[bytes]) -> NDArray[Any]:
    """The pixels of an image.

    Args:
        source: Path, or a file open for reading bytes.

    Returns:
        Array of shape (height, width) for grey images, or (height, width, channels). Its type is `uint8`, or `uint16`
        for 16-bit grey.

    Raises:
        ImageError: If the file is not an image, or has too many pixels.
        OSError: If it cannot be opened.
        ImportError: If Pillow is not installed.
    """
    with opened_image("read_image", source) as found:
        pixels = np.asarray(_grey_or_rgb(found))
    if pixels.dtype.kind in "iu" and pixels.dtype.itemsize > 1:
        pixels = pixels.astype(np.uint16)
    return pixels


def _grey_or_rgb(found: Any) -> Any:
    """Returns an image of Pillow's whose colours are grey or RGB, with alpha if it has some."""
    if found.mode in ("P", "CMYK", "YCbCr", "LAB", "HSV"):
        return found.convert("RGBA" if "transparency" in found.info else "RGB")
    return found.convert("L") if found.mode == "1" else found


def read_channels(
    source: str | os.PathLike[str] | IO[bytes],
    is_grey: bool = False,
    n_channels: int = -1,
    keeps_palette: bool = False,
) -> NDArray[Any]:
    """Reads an image as 8 bits with a given number of channels.

    Args:
        source: Path, or a file open for reading bytes.
        is_grey: True to turn colours into grey.
        n_channels: 3 or 4 of colours, 1, 3 or 4 of grey, 0 for grey without an axis of channels; -1 for the channels
            that the image has.
        keeps_palette: True to read the indices of the palette's colours, not the colours.

    Returns:
        `uint8` array of shape (height, width) or (height, width, channels).

    Raises:
        ArgumentError: If the number of channels is another one.
        ImageError: If the file is no image, has numbers with fractions, or has too many pixels for memory.
        OSError: If it cannot be opened.
        ImportError: If Pillow is not installed.
    """
    check_channels(is_grey, n_channels)
    with opened_image("imread", source) as found:
        if found.mode == "F":
            name = getattr(source, "name", source)
            raise ImageError(
                f"imread: expected an image of whole numbers, got fractions in {name}; read_image reads them"
            )
        plain = found if found.mode == "P" else _grey_or_rgb(found)
        return channels_of(plain, is_grey, n_channels, keeps_palette)


def check_channels(is_grey: bool, n_channels: int) -> None:
    """Refuses a number of channels that `read_channels` does not take."""
    allowed = (-1, 0, 1, 3, 4) if is_grey else (-1, 3, 4)
    if n_channels not in allowed:
        kind = "grey" if is_grey else "colours"
        raise ArgumentError(f"imread: expected `num_channels` to be one of {allowed} for {kind}, got {n_channels}")


def converted(found: Any, is_grey: bool, n_channels: int, keeps_palette: bool) -> Any:
    """Returns an image of Pillow's in the mode that the arguments of `read_channels` ask for."""
    if found.mode == "P" and keeps_palette:
        return found
    if found.mode.startswith("I"):
        found = pillow("imread").fromarray((np.asarray(found).astype(np.uint16) >> 8).astype(np.uint8))
    if is_grey:
        return found.convert("L")
    if n_channels in (3, 4):
        return found.convert("RGB" if n_channels == 3 else "RGBA")
    if found.mode == "P":
        return found.convert("RGBA" if "transparency" in found.info else "RGB")
    return found


def channels_of(found: Any, is_grey: bool, n_channels: int, keeps_palette: bool) -> NDArray[Any]:
    """Returns the pixels of an image of Pillow's as `read_channels` does."""
    pixels = np.asarray(converted(found, is_grey, n_channels, keeps_palette)).astype(np.uint8)
    if pixels.ndim == 2 and n_channels > 0:
        return np.repeat(pixels[..., np.newaxis], n_channels, axis=2)
    return pixels


def write_image(path: str | os.PathLike[str], pixels: NDArray[Any]) -> None:
    """Write an image to a file, atomically.

    Args:
        path: The file. Its extension determines the format.
        pixels: Shape (height, width) or (height, width, channels) with 1 to 4 channels: grey, grey and alpha, RGB,
            RGBA. The type is `uint8`, `uint16` for grey, or a float type from 0 to 1. Floats outside are clipped, NaN
            is 0.

    Raises:
        ArgumentError: If the shape is wrong, or the extension is unknown.
        ImageError: If the format does not support such pixels.
        OSError: If the file cannot be written.
        ImportError: If Pillow is not installed.
    """
    image = pillow("write_image")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim not in (2, 3) or 0 in pixels.shape or (pixels.ndim == 3 and pixels.shape[2] > 4):
        raise ArgumentError(f"write_image: expected shape (height, width[, 1 to 4 channels]), got {pixels.shape}")
    if pixels.dtype not in (np.uint8, np.uint16):
        pixels = np.rint(np.nan_to_num(pixels.astype(np.float64)).clip(0, 1) * 255).astype(np.uint8)
    if pixels.dtype == np.uint16 and pixels.ndim == 3:
        raise ImageError(f"write_image: expected 8 bits for colours, or 16 bits of grey, got uint16 of {pixels.shape}")
    formats = image.registered_extensions()
    ending = Path(path).suffix.lower()
    if ending not in formats:
        raise ArgumentError(f"write_image: expected an ending of an image format such as .png, got {ending!r}")
    made = image.fromarray(np.ascontiguousarray(pixels))
    with replacing(path, durable=False) as temporary:
        try:
            made.save(temporary, format=formats[ending])
        except (OSError, KeyError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise ImageError(
                f"write_image: expected pixels that {ending} has, got mode {made.mode}: {error}"
            ) from error


def resized(pixels: NDArray[Any], height: int, width: int, interpolate: str = "bilinear") -> NDArray[Any]:
    """Resize an image.

    Args:
        pixels: Array of shape (height, width) or (height, width, channels).
        height: New height, above 0.
        width: New width, above 0.
        interpolate: Interpolation: nearest, box, bilinear, hamming, bicubic or lanczos.

    Returns:
        Array of the same type.

    Raises:
        ImportError: If Pillow is not installed.
    """
    image = pillow("resized")
    filtering = image.Resampling[interpolate.upper()]
    planes = pixels.reshape(*pixels.shape[:2], -1)
    if pixels.dtype == np.uint8:
        if 2 <= planes.shape[2] <= 4:  # Pillow weights colours by alpha
            return np.asarray(image.fromarray(np.ascontiguousarray(pixels)).resize((width, height), filtering))
    else:
        planes = planes.astype(np.float32)
    made = [
        np.asarray(image.fromarray(np.ascontiguousarray(planes[..., i])).resize((width, height), filtering))
        for i in range(planes.shape[2])
    ]
    found = np.stack(made, -1).reshape(height, width, *pixels.shape[2:])
    if pixels.dtype.kind in "iu":
        top = np.iinfo(pixels.dtype)
        found = np.clip(found, top.min, top.max)
    return found.astype(pixels.dtype)


def tile_images(data: NDArray[Any], padsize: int = 1, padval: float = 0) -> NDArray[Any]:
    """Arrange images in a square grid, row by row.

    Args:
        data: The images, shape (n, channels, height, width).
        padsize: Width of the margin at the right of and below each image.
        padval: Value of margins and empty cells.

    Returns:
        The grid as one image, shape (height, width, channels), or (height, width) for one channel.

    Raises:
        ArgumentError: If there are not four axes.
    """
    if data.ndim != 4:
        raise ArgumentError(f"tile_images: expected shape (n, channels, height, width), got {data.shape}")
    side = ceil(sqrt(len(data)))
    margins = (0, side * side - len(data)), (0, 0), (0, padsize), (0, padsize)
    padded = np.pad(data, margins, constant_values=padval)
    _, channels, height, width = padded.shape
    rows = padded.reshape(side, side, channels, height, width).transpose(0, 3, 1, 4, 2)
    sheet: NDArray[Any] = rows.reshape(side * height, side * width, channels)
    return sheet.squeeze(2) if channels == 1 else sheet
