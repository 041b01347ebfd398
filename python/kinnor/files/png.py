"""Writing PNG files, so that pictures need no other package.

Source:
    W3C: Portable Network Graphics (PNG) Specification, third edition.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import ArgumentError

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["write_png"]

_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}


def write_png(path: str | os.PathLike[str], image: NDArray[Any]) -> None:
    """Write an image to a PNG file.

    Args:
        path: The file.
        image: Shape (height, width) or (height, width, channels) with 1 to 4 channels: grey, grey and opacity, RGB,
            RGB and opacity. uint8, or a real type from 0 to 1; values outside are clipped, NaN is black.

    Raises:
        ArgumentError: If the shape is another one.
    """
    pixels = image[..., np.newaxis] if image.ndim == 2 else image
    if pixels.ndim != 3 or pixels.shape[2] not in _COLOUR_TYPES or 0 in pixels.shape:
        raise ArgumentError(f"write_png: expected shape (height, width[, 1 to 4 channels]), got {image.shape}")
    if pixels.dtype != np.uint8:
        pixels = np.rint(np.nan_to_num(pixels.astype(np.float64)).clip(0, 1) * 255).astype(np.uint8)
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    # Each row starts with the number of its filter; 0 is none.
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")
    Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
