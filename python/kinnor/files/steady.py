"""Consistent reading of a file that another process may be writing in place.

The result is from the old or from the new content, never from a mixture.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from .._core import Error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["FileBusyError", "steadily"]

Found = TypeVar("Found")

_PATIENCE = 2.0
"""Seconds to wait for other processes to stop writing the file."""

_ODD = 10**9
"""Tolerance in nanoseconds for file times in the future, as clocks of file servers differ."""


class FileBusyError(Error, OSError):
    """A file was written while it was read."""


def steadily(op: str, path: Path, read: Callable[[Path], Found]) -> Found:
    """Calls `read` until the file does not change during the call. Returns the result.

    Args:
        op: Name of the caller, for errors.
        path: The file.
        read: Function that reads the file.

    Raises:
        FileBusyError: If another process keeps writing the file.
        OSError: If it cannot be read.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        before = _stamp(path)
        if _is_fresh(before[-1]):  # another write now could leave the file's time unchanged
            time.sleep(0.001)
        else:
            error = None
            try:
                found = read(path)
            except Exception as raised:
                error = raised
            if _stamp(path) == before:
                if error is not None:
                    raise error
                return found
        if time.monotonic() > deadline:
            raise FileBusyError(f"{op}: expected a file that no process writes while it is read, got {path}")


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """Values that change if a file is written or replaced."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_fresh(written: int) -> bool:
    """True if the clock of the file system has not moved on since a file was written."""
    if hasattr(time, "CLOCK_REALTIME_COARSE"):
        now = time.clock_gettime_ns(time.CLOCK_REALTIME_COARSE)
    else:
        now = time.time_ns() - 20 * 10**6
    return now <= written < now + _ODD
