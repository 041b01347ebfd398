"""Replacing a file whole or not at all.

Knows files and processes; knows nothing of what is written.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import count
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["replacing"]

_numbers = count()
_open: set[Path] = set()

_LONGEST = 200
"""Bytes of a name that leave room for what temporary names add; file systems allow 255."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file under another name and rename it when it is complete.

    A reader, a crash or a power cut finds the old file or the new one, never a part. What a killed process left
    behind is removed by the next one that writes the same file.

    Args:
        path: The file to replace or to create; a link is followed.

    Returns:
        The context manager; it gives the path to write to.

    Raises:
        OSError: If the file cannot be written, or if `path` is no regular file.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(f"expected a path of a regular file, got {path}")
    _remove_leftovers(target)
    temporary = target.with_name(f"{_prefix(target)}{os.getpid()}-{next(_numbers)}.tmp")
    _open.add(temporary)
    try:
        # Some writers make files that nobody else may read; this one may be read as any other of the user's.
        temporary.touch(exist_ok=False)
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(S_IMODE(mode))
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
        _open.discard(temporary)


def _prefix(target: Path) -> str:
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        name = blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}."


def _sync(path: Path) -> None:
    """Wait until a file or a directory is on the disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(target: Path) -> None:
    """Remove what writers of this file left that are no longer there."""
    prefix = _prefix(target)
    for path in target.parent.iterdir():
        if not (path.name.startswith(prefix) and path.suffix == ".tmp"):
            continue
        writer, _, number = path.stem[len(prefix) :].partition("-")
        if writer.isdecimal() and number.isdecimal() and not _in_use(path, int(writer)):
            with suppress(FileNotFoundError):
                path.unlink()


def _in_use(path: Path, writer: int) -> bool:
    # A restarted container has the process ids of the one that was killed, so our own id proves nothing.
    if writer == os.getpid():
        return path in _open
    if os.name == "nt":  # `os.kill` would end the process there.
        return True
    try:
        os.kill(writer, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
