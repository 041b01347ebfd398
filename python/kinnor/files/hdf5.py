"""Reading of untrusted HDF5 files, and writing. Declared sizes are checked against the file before any data is read."""

from __future__ import annotations

import os
from contextlib import contextmanager
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._check import LEVELS
from .._core import ParameterError
from .packages import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["Node", "reading", "writing"]

_LEAST_LINK = 16
"""Smallest size of a link in a file, in bytes."""


class Node:
    """A group or a dataset of a file. Its contents are read on demand.

    Args:
        op: Name of the calling operation, for errors.
        name: Path in the file.
        place: The file.
        found: h5py's identifier of the object.
    """

    def __init__(self, op: str, name: str, place: _Place, found: Any) -> None:
        self.op = op
        self.name = name
        self.place = place
        self.found = found

    @property
    def shown(self) -> str:
        """The name in errors."""
        return f"{self.name!r} of {self.place.path}"

    @property
    def is_dataset(self) -> bool:
        """True for a dataset, False for a group."""
        return isinstance(self.found, _h5py(self.op).h5d.DatasetID)

    def number(self, attribute: str) -> int | None:
        """The integer value of an attribute.

        Args:
            attribute: Name of the attribute.

        Returns:
            The number, or None if the attribute does not exist.

        Raises:
            ParameterError: If the attribute is not an integer.
        """
        h5a = _h5py(self.op).h5a
        key = attribute.encode()
        if not h5a.exists(self.found, key):
            return None
        held = h5a.open(self.found, key)
        if held.shape != () or held.dtype.kind not in "biu":
            raise ParameterError(f"{self.op}: expected a whole number as `{attribute}`, got another of {self.shown}")
        value = np.empty((), held.dtype)
        held.read(value)
        return int(value)

    def values(self) -> NDArray[Any]:
        """The elements of a dataset, in native byte order.

        Raises:
            ParameterError: If they are not numbers, or not stored completely and uncompressed in the file.
        """
        shape, dtype = self.found.shape, self.found.dtype
        if shape is None or dtype.kind not in "biuf":
            raise ParameterError(f"{self.op}: expected numbers, got dtype {dtype} in {self.shown}")
        self._check_place(shape, dtype)
        values = np.empty(shape, dtype)
        h5s = _h5py(self.op).h5s
        if values.size:
            self.found.read(h5s.ALL, h5s.ALL, values)
        return values.astype(dtype.newbyteorder("="), copy=False)

    def _check_place(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Raises ParameterError unless the dataset's bytes are stored completely and uncompressed in the file."""
        h5d = _h5py(self.op).h5d
        made = self.found.get_create_plist()
        if made.get_layout() == h5d.VIRTUAL or made.get_external_count():
            raise ParameterError(
                f"{self.op}: expected values inside the file, got a reference to another in {self.shown}"
            )
        if made.get_nfilters():
            raise ParameterError(f"{self.op}: expected values as they are, got compressed ones in {self.shown}")
        n_bytes = prod(shape) * dtype.itemsize
        held = self.found.get_storage_size() if n_bytes else 0
        self.place.left -= held
        if n_bytes > held or self.place.left < 0:
            raise ParameterError(
                f"{self.op}: expected values inside the file, got only a shape {shape} in {self.shown}"
            )


class _Place:
    """A file, and the number of its bytes that no dataset has claimed yet."""

    def __init__(self, path: str | os.PathLike[str], n_bytes: int) -> None:
        self.path = path
        self.left = n_bytes


@contextmanager
def reading(op: str, path: str | os.PathLike[str], content: bytes | None = None) -> Iterator[list[Node]]:
    """Opens an untrusted file for a `with` block.

    Args:
        op: Name of the calling operation, for errors.
        path: The file.
        content: The content of the file, if it is a member of an archive.

    Returns:
        A context manager. It returns the groups and datasets, each group before its members.

    Raises:
        ParameterError: If it is not an HDF5 file or is malformed. Also if it has links to other files, names that are
            not UTF-8, objects with two names, or too many levels.
    """
    h5py = _h5py(op)
    try:
        with h5py.File(path if content is None else BytesIO(content), "r") as file:
            yield _nodes(op, _Place(path, Path(path).stat().st_size if content is None else len(content)), file.id)
    except (ParameterError, MemoryError):
        raise
    except Exception as error:  # h5py raises various errors for malformed files
        raise ParameterError(f"{op}: expected an HDF5 file, got {path}: {error}") from error


def _nodes(op: str, place: _Place, root: Any) -> list[Node]:
    """All groups and datasets below a group."""
    h5py = _h5py(op)
    found: list[Node] = []
    known: set[int] = set()
    groups = [("", 0, root)]
    while groups:
        path, level, group = groups.pop()
        for key in _keys(op, place, group):
            shown = f"{key!r} in {path!r} of {place.path}"
            try:
                name = path + key.decode()
            except UnicodeDecodeError as error:
                raise ParameterError(f"{op}: expected a name in UTF-8, got {shown}") from error
            link = group.links.get_info(key)
            if link.type != h5py.h5l.TYPE_HARD:
                raise ParameterError(f"{op}: expected values inside the file, got the link {shown}")
            if level >= LEVELS:
                raise ParameterError(f"{op}: expected names of at most {LEVELS} levels, got {shown}")
            node = Node(op, name, place, h5py.h5o.open(group, key))
            if link.u in known:  # its address in the file
                raise ParameterError(f"{op}: expected one name for each object, got another, {shown}")
            known.add(link.u)
            if isinstance(node.found, h5py.h5g.GroupID):
                groups.append((f"{name}/", level + 1, node.found))
                found.append(node)
            elif node.is_dataset:
                found.append(node)
    return found


def _keys(op: str, place: _Place, group: Any) -> list[bytes]:
    """The names in a group. Raises ParameterError for more than fit the file, as a malformed group may be endless."""
    keys: list[bytes] = []
    most = place.left // _LEAST_LINK

    def take(key: bytes) -> bool | None:
        """Collects a name; True stops the iteration."""
        keys.append(key)
        return True if len(keys) > most else None

    group.links.iterate(take)
    if len(keys) > most:
        raise ParameterError(f"{op}: expected at most {most} links in {place.path}, got more")
    return keys


@contextmanager
def writing(op: str, path: Path) -> Iterator[Any]:
    """Creates a file in a `with` block.

    Args:
        op: Name of the calling operation, for errors.
        path: The file.

    Returns:
        A context manager. It returns an open `h5py.File`.

    Raises:
        OSError: If the file cannot be written, for example because the disk is full.
    """
    h5py = _h5py(op)
    with path.open("w+b", buffering=0) as raw:
        file = _Patient(raw)
        try:
            with h5py.File(os.fspath(path), "w", driver="fileobj", fileobj=file) as made:
                yield made
        except Exception:
            if file.error is None:
                raise
        if file.error is not None:
            raise file.error


class _Patient:
    """A file object that stores its first error instead of raising it, because HDF5 cannot close a file after one."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: OSError | None = None

    def write(self, content: Any) -> int:
        """Writes bytes. After an error it does nothing."""
        rest = memoryview(content).cast("B")
        n_bytes = len(rest)
        try:
            while self.error is None and len(rest):
                rest = rest[self.file.write(rest) :]
        except OSError as error:
            self.error = error
        return n_bytes

    def readinto(self, target: Any) -> int:
        """Reads until the target is full or the file ends."""
        view = memoryview(target).cast("B")
        at = 0
        while n := self.file.readinto(view[at:]):  # type: ignore[attr-defined]
            at += n
        return at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position."""
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        return self.file.tell()

    def truncate(self, size: int | None = None) -> int:
        """Changes the size, and stores an error."""
        try:
            return self.file.truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0

    def flush(self) -> None:
        """Does nothing, as the file is not buffered."""


def _h5py(op: str) -> Any:
    """The package h5py. Raises ImportError if it is not installed."""
    return needed(op, "h5py", ".h5 files", "h5")
