"""Reads the message of an ONNX file without its large tensors, whose bytes are read from the file one by one later."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import IO

__all__ = ["MOST_NODES", "PLAIN", "TensorFile", "parse", "read", "refuse_many"]

MOST_NODES = 100_000
"""Limit on the nodes of a file, including nodes of its functions."""

_GRAPH, _NODE, _INITIALIZER, _RAW = 7, 1, 5, 9
"""The numbers of `ModelProto.graph`, `GraphProto.node`, `GraphProto.initializer` and `TensorProto.raw_data`."""

_LARGE = 1 << 12
"""Tensors of more than this many bytes stay in the file."""

PLAIN = frozenset(range(1, 8)) | frozenset(range(9, 14))
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
    def opened(self) -> Iterator[Callable[..., bytes | None]]:
        """Opens the file for a `with` block.

        Yields:
            A function from a `TensorProto` to its bytes, or None if they were not left in the file. Given an array of
            that size as well, it writes them there, and returns None.
        """
        with self.path.open("rb") if self._places else nullcontext() as file:

            def content(tensor: Any, into: Any = None) -> bytes | None:
                """Reads the bytes of a tensor that was left in the file. None if it was not left there."""
                place = self.place(tensor)
                if file is None or place is None:
                    return None
                file.seek(place[0])
                if into is None:
                    return file.read(place[1] - place[0])
                if (n_bytes := file.readinto(memoryview(into).cast("B"))) < into.nbytes:
                    raise OnnxError(
                        f"onnx.load: tensor {tensor.name!r}: expected {into.nbytes} bytes in the file, got {n_bytes}"
                    )
                return None

            yield content


_BLOCK = 1 << 16
"""Number of bytes that are read together."""

_MOST_HEAD = 20
"""The most bytes of two numbers, as at the start of a field."""


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

    def __getitem__(self, key: slice) -> bytes:
        start, stop, _ = key.indices(self._size)
        if stop - start >= _BLOCK:
            return self._read(start, stop - start)
        at = start - self._start
        if at < 0 or stop - self._start > len(self._block):
            self._block, self._start, at = self._read(start, min(_BLOCK, self._size - start)), start, 0
        return self._block[at : at + stop - start]

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


def _number(block: bytes, start: int, base: int) -> tuple[int, int]:
    """Decodes a varint.

    Args:
        block: Bytes of a message.
        start: Its position in the message.
        base: The position of the first byte of the block.

    Returns:
        Its value and the position after it.
    """
    value = shift = 0
    at = start - base
    while (byte := block[at]) > 127 and shift < 63:
        value |= (byte & 127) << shift
        shift += 7
        at += 1
    return value | (byte & 127) << shift, at + base + 1


def _fields(content: Any, start: int, end: int) -> Iterator[_Field]:
    """The fields of the protobuf message at bytes `start` to `end`.

    Raises:
        ValueError: If the last field is longer than the message.
        IndexError: If the bytes end within a number.
    """
    size = len(content)
    block, base = b"", start  # bytes of the content, and the position of the first one
    while start < end:
        begin = start
        if len(block) - (start - base) < _MOST_HEAD:
            block, base = content[start : min(start + _BLOCK, end + _MOST_HEAD, size)], start
        key, start = _number(block, start, base)
        kind, stop = key & 7, end  # groups, which ONNX does not use, are left to the parser
        if kind == 2:
            length, start = _number(block, start, base)
            stop = start + length
        elif kind == 0:
            _, stop = _number(block, start, base)
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


def _extract_fields(content: Any, fields: Iterable[_Field], number: int) -> tuple[list[_Field], bytes]:
    """The fields of a message that have this number, and the message without them."""
    found, kept = [], [(0, 0)]  # the second are starts and ends
    for field in fields:
        if field.number == number:
            found.append(field)
        elif kept[-1][1] == field.begin:
            kept[-1] = (kept[-1][0], field.end)
        else:
            kept.append((field.begin, field.end))
    return found, b"".join([content[start:end] for start, end in kept])


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
    for graph in _fields(content, 0, len(content)):
        for _ in _counted(_fields(content, graph.start, graph.end)) if graph.number == _GRAPH else ():
            pass
    return onnx.ModelProto.FromString(content)


def _counted(fields: Iterable[_Field]) -> Iterator[_Field]:
    """Passes on the fields of a graph, and refuses too many nodes before any node is made."""
    n_nodes = 0
    for field in fields:
        n_nodes += field.number == _NODE
        refuse_many(n_nodes)
        yield field


def _parsed(content: Any, onnx: Any, path: Path) -> tuple[Any, TensorFile]:
    """Parses a model without the data of its large tensors. Returns it with the file that holds them."""
    graphs, rest = _extract_fields(content, _fields(content, 0, len(content)), _GRAPH)
    model = onnx.ModelProto.FromString(rest)
    places = {}
    for graph in graphs:
        fields = _counted(_fields(content, graph.start, graph.end))
        initializers, rest = _extract_fields(content, fields, _INITIALIZER)
        model.graph.MergeFromString(rest)
        for field in initializers:
            tensor, place = _tensor(content, onnx, field)
            model.graph.initializer.append(tensor)
            if place is not None:
                places[tensor.name] = place
    return model, TensorFile(path, places)


def _tensor(content: Any, onnx: Any, field: _Field) -> tuple[Any, tuple[int, int] | None]:
    """A `TensorProto`, and the start and end of its bytes if they stay in the file."""
    if field.end - field.start > _LARGE:
        raw, rest = _extract_fields(content, _fields(content, field.start, field.end), _RAW)
        tensor = onnx.TensorProto.FromString(rest)
        if len(raw) == 1 and tensor.data_type in PLAIN:
            return tensor, (raw[0].start, raw[0].end)
    return onnx.TensorProto.FromString(content[field.start : field.end]), None
