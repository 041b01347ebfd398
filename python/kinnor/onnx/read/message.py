"""Reads the message of an ONNX file without its large tensors, whose bytes are read from the file one by one later."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import IO

__all__ = ["MOST_NODES", "TensorFile", "parse", "read", "refuse_many"]

MOST_NODES = 100_000
"""Limit on the nodes of a file, including nodes of its functions."""

_GRAPH, _NODE, _INITIALIZER, _RAW = 7, 1, 5, 9
"""The numbers of `ModelProto.graph`, `GraphProto.node`, `GraphProto.initializer` and `TensorProto.raw_data`."""

_LARGE = 1 << 12
"""Tensors of more than this many bytes stay in the file."""

_PLAIN = frozenset(range(1, 8)) | frozenset(range(9, 14))
"""Element types of whole bytes, whose raw data has the layout of an array."""


class TensorFile:
    """The file in which large tensors were left.

    Args:
        path: The file.
        places: Start and end of each left tensor's bytes, by name; by default none was left.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path = Path(), places: Mapping[str, tuple[int, int]] = MappingProxyType({})) -> None:
        self.path = path
        self._places = places

    def place(self, tensor: Any) -> tuple[int, int] | None:
        """Start and end of a tensor's bytes in the file; None if the tensor was not left there.

        Args:
            tensor: A `TensorProto`.
        """
        return None if tensor.HasField("raw_data") else self._places.get(tensor.name)

    @contextmanager
    def opened(self) -> Iterator[Callable[[Any], bytes | None]]:
        """Opens the file for a `with` block.

        Yields:
            A function from a `TensorProto` to its bytes, or None if they were not left in the file.
        """
        with self.path.open("rb") if self._places else nullcontext() as file:

            def content(tensor: Any) -> bytes | None:
                """Reads the bytes of a tensor that was left in the file. None if it was not left there."""
                place = self.place(tensor)
                if file is None or place is None:
                    return None
                file.seek(place[0])
                return file.read(place[1] - place[0])

            yield content


_BLOCK = 1 << 16
"""Number of bytes that are read together."""


class _FileContent:
    """The bytes of a file as a sequence, read on demand. It is not mapped, because the file may be truncated meanwhile.

    Args:
        file: The file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size
        self._start = 0
        self._block = b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, stop, _ = key.indices(self._size)
            at = start - self._start
            if at >= 0 and stop - self._start <= len(self._block):
                return self._block[at : stop - self._start]
            return self._read(start, stop - start)
        at = key - self._start
        if not 0 <= at < len(self._block):
            if not 0 <= key < self._size:
                raise ValueError(f"expected a byte of {self._size}, got byte {key}")
            self._block = self._read(key, min(_BLOCK, self._size - key))
            self._start, at = key, 0
        return self._block[at]

    def _read(self, start: int, n_bytes: int) -> bytes:
        """Reads bytes. Raises EOFError if the file has been truncated."""
        self._file.seek(start)
        found = self._file.read(n_bytes)
        if len(found) < n_bytes:
            raise EOFError(f"expected {n_bytes} bytes from {start} on, got {len(found)}")
        return found


class _Field(NamedTuple):
    """A field of a protobuf message: its number, its start, and start and end of its content. Number 0 is not bytes."""

    number: int
    begin: int
    """The position of the field's tag. `start` is the position after tag and length."""
    start: int
    end: int


def _fields(content: Any, start: int, end: int) -> Iterator[_Field]:
    """The fields of the protobuf message at bytes `start` to `end`.

    Raises:
        ValueError: If the last field is longer than the message.
    """

    def number(at: int) -> tuple[int, int]:
        """Decodes a varint. Returns its value and the position after it."""
        value = 0
        for shift in range(0, 70, 7):
            value |= (content[at] & 127) << shift
            at += 1
            if content[at - 1] < 128:
                break
        return value, at

    while start < end:
        begin = start
        key, start = number(start)
        kind, stop = key & 7, end  # groups, which ONNX does not use, are left to the parser
        if kind == 2:
            length, start = number(start)
            stop = start + length
        elif kind == 0:
            _, stop = number(start)
        elif kind in (1, 5):
            stop = start + (8 if kind == 1 else 4)
        if stop > end:
            raise ValueError(f"expected a field that ends at {end}, got one up to {stop}")
        yield _Field(key >> 3 if kind == 2 else 0, begin, start, stop)
        start = stop


def refuse_many(n_nodes: int) -> None:
    """Raises OnnxError if a model has more than `MOST_NODES` nodes.

    Args:
        n_nodes: Number of nodes.

    Raises:
        OnnxError: If there are too many.
    """
    if n_nodes > MOST_NODES:
        raise OnnxError(f"onnx.load: expected {MOST_NODES} nodes at most, got {n_nodes} or more")


def _without(content: Any, start: int, end: int, number: int) -> bytes:
    """The message at bytes `start` to `end` without the fields of this number."""
    kept = [
        b"" if field.number == number else content[field.begin : field.end] for field in _fields(content, start, end)
    ]
    return b"".join(kept)


def read(path: str | os.PathLike[str], onnx: Any) -> tuple[Any, TensorFile]:
    """The `ModelProto` of a file without large tensors, and the file in which they are.

    Args:
        path: Path of the file.
        onnx: The package `onnx`.

    Raises:
        OnnxError: If there are too many nodes.
        Exception: If it is not an ONNX file.
        OSError: If it cannot be read.
    """
    where = Path(path)
    with where.open("rb") as file:
        content = _FileContent(file)
        return _parsed(content, onnx, where) if len(content) else (onnx.ModelProto(), TensorFile())


def parse(content: bytes, onnx: Any) -> Any:
    """Returns the `ModelProto` that bytes hold.

    Args:
        content: The bytes of an ONNX file.
        onnx: The package `onnx`.

    Raises:
        OnnxError: If there are too many nodes.
        Exception: If they are no ONNX model.
    """
    _graphs(content)
    return onnx.ModelProto.FromString(content)


def _graphs(content: Any) -> list[_Field]:
    """Returns the fields of the graph, and refuses graphs with too many nodes before any node is made."""
    graphs = [field for field in _fields(content, 0, len(content)) if field.number == _GRAPH]
    for graph in graphs:
        n_nodes = 0
        for field in _fields(content, graph.start, graph.end):
            n_nodes += field.number == _NODE
            refuse_many(n_nodes)
    return graphs


def _parsed(content: Any, onnx: Any, path: Path) -> tuple[Any, TensorFile]:
    """Parses a model without the data of its large tensors. Returns it with the file that holds them."""
    graphs = _graphs(content)
    model = onnx.ModelProto.FromString(_without(content, 0, len(content), _GRAPH))
    places = {}
    for graph in graphs:
        model.graph.MergeFromString(_without(content, graph.start, graph.end, _INITIALIZER))
        for field in _fields(content, graph.start, graph.end):
            if field.number == _INITIALIZER:
                tensor, place = _tensor(content, onnx, field)
                model.graph.initializer.append(tensor)
                if place is not None:
                    places[tensor.name] = place
    return model, TensorFile(path, places)


def _tensor(content: Any, onnx: Any, field: _Field) -> tuple[Any, tuple[int, int] | None]:
    """A `TensorProto`, and the start and end of its bytes if they stay in the file."""
    if field.end - field.start > _LARGE:
        raw = [part for part in _fields(content, field.start, field.end) if part.number == _RAW]
        tensor = onnx.TensorProto.FromString(_without(content, field.start, field.end, _RAW))
        if len(raw) == 1 and tensor.data_type in _PLAIN:
            return tensor, (raw[0].start, raw[0].end)
    return onnx.TensorProto.FromString(content[field.start : field.end]), None
