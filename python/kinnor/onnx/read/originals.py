"""Parameters that no graph takes as they are: their numbers go, and are read from the file again if somebody asks.

Knows bytes of a file and variables; knows no messages and no graphs.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from ..._core import clear_memory_cache
from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Container
    from pathlib import Path

    from numpy.typing import NDArray

    from ..._core import Variable

__all__ = ["Originals"]


class Originals:
    """Where the numbers of parameters are in the file of a model, which stays open, whatever becomes of its name.

    Args:
        path: The file; by default none, and no parameter goes. So it is where a file that is open cannot be deleted.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._places: dict[Variable, tuple[int, int, np.dtype[Any]]] = {}
        self._gone: list[Variable] = []
        self._sums: dict[Variable, int] = {}
        self._file: int | None = None
        if path is not None and os.name == "posix":
            self._file = os.open(path, os.O_RDONLY)
            self._state = self._now()
            weakref.finalize(self, os.close, self._file)

    def _now(self) -> tuple[int, int]:
        """What tells whether the file was written."""
        found = os.fstat(self._file)  # type: ignore[arg-type]
        return found.st_size, found.st_mtime_ns

    def add(self, parameter: Variable, place: tuple[int, int], values: NDArray[Any]) -> None:
        """Say where the numbers of a parameter are.

        Args:
            parameter: The parameter.
            place: Where its bytes begin and end.
            values: Its elements, of the type that they have in the file.
        """
        if self._file is not None:
            self._places[parameter] = (*place, values.dtype)
            self._sums[parameter] = _checksum(values)

    def release(self, taken: Container[Variable]) -> None:
        """Let go of the numbers of parameters.

        Args:
            taken: Parameters that are needed.
        """
        if self._places and self._now() != self._state:
            return  # what is there by now is something else
        self._gone = [x for x in self._places if x not in taken]
        for x in self._gone:
            x.data.clear()
        if self._gone:
            clear_memory_cache()  # what they leave is of no use for arrays of other sizes

    def restore(self) -> None:
        """Have all parameters their numbers.

        Raises:
            OnnxError: If the file was written in the meantime.
        """
        while self._gone:
            x = self._gone[-1]
            start, end, dtype = self._places[x]
            content = os.pread(self._file, end - start, start)  # type: ignore[arg-type]
            if len(content) == end - start and self._now() == self._state:
                values = np.frombuffer(content, dtype.newbyteorder("<")).reshape(x.shape).astype(dtype, copy=False)
                if _checksum(values) == self._sums[x]:
                    x.d = values.astype(np.float32, copy=False)
                    self._gone.pop()
                    continue
            raise OnnxError(
                "onnx.Model: expected the file of its parameters as it was when it was loaded, got one that was "
                "written since then"
            )


def _checksum(values: NDArray[Any]) -> int:
    """Tells whether numbers are others. Times of files do not: programs that copy files keep them."""
    return crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
