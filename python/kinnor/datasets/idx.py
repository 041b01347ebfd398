"""Reads files in the IDX format, in which MNIST and similar data sets are published."""

from __future__ import annotations

import gzip
import math
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import numpy as np

from .._core import Error

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = ["IdxError", "read_idx"]

# Element types by the third byte of a file; all are big-endian.
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxError(Error, OSError):
    """A file is not in the IDX format, or is incomplete."""


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read the array in an IDX file, plain or compressed with gzip.

    Only the number of bytes that the header declares is read, so that a malformed file cannot exhaust the memory.

    Args:
        path: The file, such as `train-images-idx3-ubyte.gz`. Compression is detected from its content.

    Returns:
        The array, with the file's shape and element type, in native byte order.

    Raises:
        IdxError: If the file does not follow the format.
        OSError: If it cannot be opened.
    """
    with Path(path).open("rb") as plain:
        compressed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        try:
            if compressed:
                with gzip.open(plain) as file:
                    return _read(cast("BinaryIO", file), path)
            return _read(plain, path)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise IdxError(
                f"read_idx: expected {path} to be a complete gzip file, got a broken one: {error}"
            ) from error


def _read(file: BinaryIO, path: str | os.PathLike[str]) -> NDArray[Any]:
    """Reads an uncompressed file; `path` is its name in errors."""
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES:
        raise IdxError(
            f"read_idx: expected {path} to start with two zero bytes and one of "
            f"{', '.join(f'{code:#04x}' for code in _DTYPES)}, got {magic.hex(' ') or 'an empty file'}"
        )
    dtype, ndim = np.dtype(_DTYPES[magic[2]]), magic[3]
    if ndim == 0 or ndim > 32:
        raise IdxError(f"read_idx: expected {path} to have 1 to 32 axes, got {ndim}")
    sizes = file.read(4 * ndim)
    if len(sizes) < 4 * ndim:
        raise IdxError(f"read_idx: expected {path} to have {ndim} sizes of 4 bytes, got {len(sizes)} bytes")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    if math.prod(size or 1 for size in shape) > sys.maxsize // 8:
        raise IdxError(f"read_idx: expected {path} to have a shape that memory can hold, got {shape}")
    expected = math.prod(shape) * dtype.itemsize
    data = _read_up_to(file, expected + 1)
    if len(data) != expected:
        got = f"only {len(data)}" if len(data) < expected else "more"
        raise IdxError(f"read_idx: expected {path} of shape {shape} to hold {expected} bytes of data, got {got}")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _read_up_to(file: BinaryIO, n_bytes: int) -> bytes:
    """Reads in pieces. A single `file.read(n)` with a size from a malformed header would allocate all of it."""
    pieces = []
    while n_bytes > 0 and (piece := file.read(min(n_bytes, 1 << 22))):
        pieces.append(piece)
        n_bytes -= len(piece)
    return b"".join(pieces)
