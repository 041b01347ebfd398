"""Replacing a file or a folder whole or not at all.

Knows files and processes; knows nothing of what is written.
"""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["replacing", "replacing_folder"]

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
    with _temporary(target, is_folder=False) as temporary:
        # Some writers make files that nobody else may read; this one may be read as any other of the user's.
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(S_IMODE(mode))
        _sync(temporary)
        temporary.replace(target)
        _sync(target.parent)


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a folder under another name and rename it when it is complete; the old one is removed before.

    Args:
        path: The folder to replace or to create.

    Returns:
        The context manager; it gives the folder to write into.

    Raises:
        OSError: If it cannot be written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    with _temporary(target, is_folder=True) as temporary:
        yield temporary
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)


@contextmanager
def _temporary(target: Path, *, is_folder: bool) -> Iterator[Path]:
    """A file or folder beside a target, locked in a block and removed after it, unless it was renamed.

    Processes in containers have equal ids, so the name is random, and a lock says that its writer lives.
    """
    while True:
        temporary = target.with_name(f"{_prefix(target)}{os.getpid()}-{secrets.randbits(64)}.tmp")
        temporary.mkdir() if is_folder else temporary.touch(exist_ok=False)
        try:
            with _locked(temporary):
                if temporary.exists():  # or another process has just taken it for a leftover
                    yield temporary
                    return
        finally:
            with suppress(FileNotFoundError):
                shutil.rmtree(temporary) if is_folder else temporary.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Mark a file or folder in a block as one that is being written."""
    if fcntl is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        # Shared, as readers of HDF5 files take such a lock. A file system without locks keeps leftovers.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


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
    """Remove what writers of this file or folder left that are no longer there."""
    prefix = _prefix(target)
    for path in target.parent.iterdir():
        if not (path.name.startswith(prefix) and path.suffix == ".tmp"):
            continue
        writer, _, number = path.stem[len(prefix) :].partition("-")
        if writer.isdecimal() and number.isdecimal() and _may_be_gone(int(writer)):
            _remove_unlocked(path)


def _may_be_gone(writer: int) -> bool:
    """False if a process that lives has a writer's id; True proves nothing, as containers have ids of their own."""
    if fcntl is None:  # `os.kill` would end the process on Windows.
        return False
    if writer == os.getpid():
        return True
    try:
        os.kill(writer, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def _remove_unlocked(path: Path) -> None:
    """Remove a file or folder that no process writes."""
    with suppress(OSError):  # locked, gone, or owned by another user
        is_folder = path.is_dir()
        descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if is_folder else path.unlink()
        finally:
            os.close(descriptor)
