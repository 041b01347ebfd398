"""Frees the values of parameters that no graph reads directly, and reloads them from the model's file on demand."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ..._core import clear_memory_cache
from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from ..._core import Variable

__all__ = ["Originals"]


class Originals:
    """Positions of parameters' values in a model's file. The file stays open, so it may be renamed or deleted.

    Args:
        path: The file. Without it no parameter is ever freed. The same holds on systems other than POSIX, where an open
            file cannot be deleted.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._places: dict[Variable, tuple[int, int, np.dtype[Any]]] = {}
        self._freed: dict[Variable, None] = {}
        self._sums: dict[Variable, int] = {}
        self._file: int | None = None
        if path is not None and os.name == "posix":
            self._file = os.open(path, os.O_RDONLY)
            self._state = self._now()
            weakref.finalize(self, os.close, self._file)

    def _now(self) -> tuple[int, int]:
        """Size and time of the last change of the file, to detect writes."""
        found = os.fstat(self._file)  # type: ignore[arg-type]
        return found.st_size, found.st_mtime_ns

    def add(self, parameter: Variable, place: tuple[int, int], values: NDArray[Any]) -> None:
        """Registers the position of a parameter's values.

        Args:
            parameter: The parameter.
            place: Start and end of its bytes in the file.
            values: Its values, in the element type of the file.
        """
        if self._file is not None:
            self._places[parameter] = (*place, values.dtype)
            self._sums[parameter] = _checksum(values)

    def release(self, taken: Container[Variable]) -> None:
        """Frees the values of all registered parameters but the ones in use.

        Args:
            taken: Parameters in use.
        """
        if self._places and self._now() != self._state:
            return  # the file has changed and could not restore them
        new = [x for x in self._places if x not in taken and x not in self._freed]
        for x in new:
            x.data.clear()
            self._freed[x] = None
        if new:
            clear_memory_cache()  # cached buffers of these sizes would rarely be reused

    def restore(self, wanted: Iterable[Variable] | None = None) -> None:
        """Reloads the values of freed parameters.

        Args:
            wanted: Only freed parameters among these variables are reloaded. By default all freed parameters are.

        Raises:
            OnnxError: If the file was written in the meantime.
        """
        for x in list(self._freed) if wanted is None else wanted:
            if x in self._freed:
                self._load(x)
                del self._freed[x]

    def _load(self, x: Variable) -> None:
        """Reloads the values of a parameter."""
        start, end, dtype = self._places[x]
        content = os.pread(self._file, end - start, start)  # type: ignore[arg-type]
        if len(content) == end - start and self._now() == self._state:
            values = np.frombuffer(content, dtype.newbyteorder("<")).reshape(x.shape).astype(dtype, copy=False)
            if _checksum(values) == self._sums[x]:
                x.d = values.astype(np.float32, copy=False)
                return
        raise OnnxError(
            "onnx.Model: expected the file of its parameters as it was when it was loaded, got one that was written "
            "since then"
        )


def _checksum(values: NDArray[Any]) -> int:
    """A checksum that detects changed values. File times do not suffice, as copying programs preserve them."""
    return crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
