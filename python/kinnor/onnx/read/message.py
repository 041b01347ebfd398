"""Reads the message of an ONNX file without its large tensors, whose bytes are read from the file one by one later."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..._core import count_onnx_nodes, read_onnx
from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import IO

__all__ = ["MOST_NODES", "PLAIN", "TensorFile", "parse", "read", "refuse_many"]

MOST_NODES = 100_000
"""Limit on the nodes of a file, including nodes of its functions."""

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


def refuse_many(n_nodes: int) -> None:
    """Raises OnnxError if a model has more than `MOST_NODES` nodes.

    Args:
        n_nodes: Number of nodes.

    Raises:
        OnnxError: If there are too many.
    """
    if n_nodes > MOST_NODES:
        raise OnnxError(f"onnx.load: expected {MOST_NODES} nodes at most, got {n_nodes} or more")


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
    refuse_many(count_onnx_nodes(content, MOST_NODES))
    return onnx.ModelProto.FromString(content)


def _parsed(content: Any, onnx: Any, path: Path) -> tuple[Any, TensorFile]:
    """Parses a model without the data of its large tensors. Returns it with the file that holds them."""
    message, large, n_nodes = read_onnx(content, _LARGE, MOST_NODES)
    refuse_many(n_nodes)
    model = onnx.ModelProto.FromString(message)
    places = {}
    for at, start, end in large:
        tensor = model.graph.initializer[at]
        if tensor.data_type in PLAIN:
            places[tensor.name] = start, end
        else:
            tensor.raw_data = content[start:end]
    return model, TensorFile(path, places)
