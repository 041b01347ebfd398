"""Reports the progress of a program in a file for another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

__all__ = ["configure_progress", "progress"]


class _Target:
    """The destination of progress reports: a file and a callback."""

    path: Path | None = None
    call: Callable[[str | None, float], object] | None = None


def configure_progress(
    file_name: str | os.PathLike[str] | None, cb: Callable[[str | None, float], object] | None = None
) -> None:
    """Set the destination of `progress`. Without it nothing is reported.

    Args:
        file_name: Path of the file, which is truncated; None for no file.
        cb: A function that is also called with the state and the progress.

    Raises:
        OSError: If the file cannot be written.
    """
    _Target.path = None if file_name is None else Path(file_name)
    _Target.call = cb
    progress(None)


def progress(state: str | None, progress: float = 0.0) -> None:
    """Report progress: overwrite the file with the state and the progress in percent.

    Args:
        state: The current activity of the program; None empties the file.
        progress: The completed part, from 0 to 1; larger numbers count as 1.

    Raises:
        OSError: If the file cannot be written.

    Examples:
        >>> configure_progress(None, lambda state, part: print(state, part))
        None 0.0
        >>> globals()["progress"]("Training", 0.25)
        Training 0.25
        >>> configure_progress(None)
    """
    if _Target.path is not None:
        _Target.path.write_text("" if state is None else f"{state} ({min(progress, 1.0):.2%})")
    if _Target.call is not None:
        _Target.call(state, progress)
