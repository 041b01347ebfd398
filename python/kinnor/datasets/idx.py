"""Files in the IDX format, in which MNIST and the data sets after its model are published.

Knows bytes; knows nothing of what the arrays mean.
"""

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

# The third byte of a file says what its elements are; all are big-endian.
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class IdxError(Error, OSError):
    """A file that is not in the IDX format, or not all of one."""


def read_idx(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read the array in an IDX file, plain or compressed with gzip.

    The header says how many bytes must follow; not one more is read, so that a broken or hostile file cannot fill the
    memory.

    Args:
        path: The file, such as `train-images-idx3-ubyte.gz`. Its content, not its name, tells whether it is compressed.

    Returns:
        The array with the file's shape and type of elements, in the byte order of this machine.

    Raises:
        IdxError: If the file is not what the format demands; the message says in what.
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
    """Read in pieces: `file.read(n)` of a size that a broken header invented would reserve all of it at once."""
    pieces = []
    while n_bytes > 0 and (piece := file.read(min(n_bytes, 1 << 22))):
        pieces.append(piece)
        n_bytes -= len(piece)
    return b"".join(pieces)
