"""Atomic writing of files and folders, and reading of files that another process may be writing in place."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from stat import S_IMODE
from typing import TYPE_CHECKING, TypeVar

from .._core import Error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FileBusyError", "Stamp", "replacing", "replacing_folder", "stamp", "steadily"]

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


Stamp = tuple[int, int, int, int]
"""Values that change if a file is written or replaced."""
_LONGEST = 200
"""Longest file name in bytes to which a temporary suffix can be added; file systems allow 255."""


@contextmanager
def replacing(path: str | os.PathLike[str], durable: bool = True) -> Iterator[Path]:
    """Writes a file under a temporary name, and renames it at the end of the `with` block.

    Readers see the old file or the new one, never a part, even after a crash. Temporary files of killed processes are
    removed by the next process that writes the same file.

    Args:
        path: The file to replace or to create. Links are followed.
        durable: Whether the file is complete after a power failure, too. The flush to the disk takes milliseconds, so
            it is False for files that come in thousands and can be made again, such as images. Temporary files of
            killed processes stay then, because a search in the folder for each file would take too long.

    Returns:
        A context manager. It returns the path to write to.

    Raises:
        OSError: If the file cannot be written, or if `path` is not a regular file.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise OSError(f"expected a path of a regular file, got {path}")
    if durable:
        _remove_leftovers(target)
    with _temporary(target, is_folder=False) as temporary:
        # Some writers restrict permissions. Restore the permissions of the old file, or of an ordinary new file.
        mode = (target if target.exists() else temporary).stat().st_mode
        yield temporary
        temporary.chmod(S_IMODE(mode))
        if durable:
            _sync(temporary)
        temporary.replace(target)
        if durable:
            _sync(target.parent)


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Writes a folder under a temporary name, and renames it at the end of the `with` block.

    The old folder is removed just before.

    Args:
        path: The folder to replace or to create.

    Returns:
        A context manager. It returns the folder to write into.

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
    """A temporary file or folder in the target's folder, locked in the `with` block. It is removed unless renamed.

    Processes in different containers may have equal ids, so names are random, and a lock shows that the writer is
    alive.
    """
    while True:
        temporary = target.with_name(f"{_prefix(target)}{os.getpid()}-{secrets.randbits(64)}.tmp")
        temporary.mkdir() if is_folder else temporary.touch(exist_ok=False)
        try:
            with _locked(temporary):
                if temporary.exists():  # otherwise another process has just removed it as a leftover
                    yield temporary
                    return
        finally:
            with suppress(FileNotFoundError):
                shutil.rmtree(temporary) if is_folder else temporary.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Locks a file or folder in a `with` block, to show that it is being written."""
    if fcntl is None:
        yield
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        # A shared lock, as HDF5 takes one, too. On file systems without locks leftovers are never removed.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _prefix(target: Path) -> str:
    """Common start of the names of a target's temporary files."""
    name = target.name
    if len(os.fsencode(name)) > _LONGEST:
        name = blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}."


def _sync(path: Path) -> None:
    """Flushes a file or folder to the disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(target: Path) -> None:
    """Removes temporary files of writers of this target that have ended."""
    prefix = _prefix(target)
    for path in target.parent.iterdir():
        if not (path.name.startswith(prefix) and path.suffix == ".tmp"):
            continue
        writer, _, number = path.stem[len(prefix) :].partition("-")
        if writer.isdecimal() and number.isdecimal() and _may_be_gone(int(writer)):
            _remove_unlocked(path)


def _may_be_gone(writer: int) -> bool:
    """False if a process with the writer's id is alive. True is no proof, because containers have separate ids."""
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
    """Removes a file or folder unless it is locked by a writer."""
    with suppress(OSError):  # locked, gone, or owned by another user
        is_folder = path.is_dir()
        descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path) if is_folder else path.unlink()
        finally:
            os.close(descriptor)


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
        before = stamp(path)
        if _is_fresh(before[-1]):  # another write now could leave the file's time unchanged
            time.sleep(0.001)
        else:
            error = None
            try:
                found = read(path)
            except Exception as raised:
                error = raised
            if stamp(path) == before:
                if error is not None:
                    raise error
                return found
        if time.monotonic() > deadline:
            raise FileBusyError(f"{op}: expected a file that no process writes while it is read, got {path}")


def stamp(path: Path) -> Stamp:
    """Returns the stamp of a file: device, number, size and time."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_fresh(written: int) -> bool:
    """True if the clock of the file system has not moved on since a file was written."""
    if hasattr(time, "CLOCK_REALTIME_COARSE"):
        now = time.clock_gettime_ns(time.CLOCK_REALTIME_COARSE)
    else:
        now = time.time_ns() - 20 * 10**6
    return now <= written < now + _ODD
