"""Tensors and attributes of ONNX messages as values of NumPy and Python.

Knows the bytes of a tensor, in the message or in a file beside it; knows no operators.
"""

from __future__ import annotations

import math
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._core import UnsupportedError
from ...files.atomic import steadily
from ...files.packages import needed
from . import message
from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["Folder", "array_of", "attributes_of", "dtype_of", "has_graphs", "onnx_package"]


_SMALL = (2, 3, 4, 5, 9)
"""Element types that are kept as int32, where they are no bytes: integers of 8 and 16 bits, and truth values."""

_NUMBERS = {1: "float_data", 7: "int64_data", 11: "double_data", **dict.fromkeys((*_SMALL, 6), "int32_data")}
"""The fields of numbers that are no bytes, by element type."""

_STRING = 8
"""The element type of strings."""

_EXTERNAL = 1
"""The place of a tensor that is in another file: a value of `TensorProto.DataLocation`."""


class Folder(NamedTuple):
    """The folder of a model, which the files of its tensors must be in.

    Attributes:
        path: The folder, from which names of files begin.
        target: The folder that the file of the model is in if it is a symbolic link; else None.
    """

    path: Path
    target: Path | None = None

    @classmethod
    def of(cls, model: Path) -> Folder:
        """Returns the folder of a model's file.

        Args:
            model: The file.
        """
        return cls(model.parent, Path(os.path.realpath(model)).parent if model.is_symlink() else None)


def onnx_package(op: str) -> Any:
    """The package `onnx`.

    Args:
        op: The name of the caller, for the error if the package is missing.
    """
    if "onnx.numpy_helper" not in sys.modules:
        needed(op, "onnx.numpy_helper", "ONNX files", "onnx")
    return sys.modules.get("onnx") or needed(op, "onnx", "ONNX files", "onnx")


@cache
def dtype_of(element_type: int) -> np.dtype[Any]:
    """The NumPy type of an element type.

    Args:
        element_type: A `TensorProto.DataType`.

    Raises:
        UnsupportedError: If it is no number or truth value.
    """
    onnx = onnx_package("onnx.load")
    try:
        found: np.dtype[Any] = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(element_type))
    except KeyError as error:
        raise OnnxError(f"onnx.load: expected an element type, got {element_type}") from error
    if found.kind not in "fiub" and found.name != "bfloat16":
        raise UnsupportedError(f"onnx.load: expected numbers or truth values, got elements of {found}")
    return found


def array_of(tensor: Any, folder: Folder | None, content: bytes | None = None) -> NDArray[Any]:
    """The array that a tensor holds.

    Args:
        tensor: A `TensorProto`.
        folder: The folder of the model, which files of tensors must be in.
        content: Its bytes, if they were left in the file of the model.

    Raises:
        OnnxError: If its bytes do not fit its shape, or its file is outside of the folder.
    """
    kind = tensor.data_type
    if kind == _STRING:
        return _strings(tensor)
    dtype, shape = dtype_of(kind), tuple(tensor.dims)
    size = math.prod(shape)
    if shape and min(shape) < 0:
        raise OnnxError(f"{_where(tensor)}: expected lengths of zero or more, got shape {shape}")
    n_bytes = size * dtype.itemsize
    if tensor.data_location == _EXTERNAL:
        content = _outside(tensor, folder, n_bytes)
    packed = dtype.kind == "V" and dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
    given = tensor.raw_data if content is None and tensor.HasField("raw_data") else content
    if given is not None and not packed and len(given) != n_bytes:
        raise OnnxError(f"{_where(tensor)}: expected {n_bytes} bytes of shape {shape}, got {len(given)}")
    if content is None and kind in message.PLAIN:
        content = given
    if content is not None:
        if sys.byteorder == "little":
            return np.frombuffer(content, dtype).reshape(shape)
        return np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype)
    numbers = getattr(tensor, _NUMBERS[kind]) if kind in _NUMBERS and given is None else ()
    if size and len(numbers) == size:
        return np.array(numbers, np.int32 if kind in _SMALL else dtype).astype(dtype, copy=False).reshape(shape)
    try:
        return np.asarray(onnx_package("onnx.load").numpy_helper.to_array(tensor))
    except Exception as error:
        raise OnnxError(f"{_where(tensor)}: expected {size} elements of {dtype}, got others: {error}") from error


def _where(tensor: Any) -> str:
    """Returns the start of errors on a tensor."""
    return f"onnx.load: tensor {tensor.name!r}"


def _strings(tensor: Any) -> NDArray[Any]:
    """Returns the strings that a tensor holds, as an array of objects."""
    texts = [text.decode(errors="replace") for text in tensor.string_data]
    if math.prod(tensor.dims) != len(texts):
        raise OnnxError(f"{_where(tensor)}: expected shape {tuple(tensor.dims)}, got {len(texts)} strings")
    found = np.empty(len(texts), object)
    found[:] = texts
    return found.reshape(tuple(tensor.dims))


def _outside(tensor: Any, folder: Folder | None, size: int) -> bytes:
    """Returns the bytes of a tensor that is stored in another file. Refuses files outside of the model's folder."""
    entries = {held.key: held.value for held in tensor.external_data}
    where = _where(tensor)
    location = entries.get("location", "")
    if folder is None or not location or "\0" in location:
        raise OnnxError(f"{where}: expected a file in the folder of the model, got {location!r}")
    root = Path(os.path.realpath(folder.path))
    path = Path(os.path.realpath(root / location))
    # A link to the model, as in caches of downloads, stands for its file: tensors are linked to the files beside that.
    is_inside = path.is_relative_to(root) or (folder.target is not None and path.is_relative_to(folder.target))
    if Path(location).is_absolute() or not is_inside or not path.is_file():
        raise OnnxError(f"{where}: expected a file in the folder of the model, got {location!r}")
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or size)
    except ValueError as error:
        raise OnnxError(f"{where}: expected whole numbers as offset and length, got others") from error
    if length != size or offset < 0 or offset + size > path.stat().st_size:
        raise OnnxError(f"{where}: expected {size} bytes in {location!r} from {offset} on, got a file without them")

    def read(path: Path) -> bytes:
        """Reads the bytes of the tensor."""
        with path.open("rb") as file:
            file.seek(offset)
            found = file.read(size)
        if len(found) < size:
            raise OnnxError(f"{where}: expected {size} bytes in {location!r} from {offset} on, got a file without them")
        return found

    return steadily("onnx.load", path, read)


_GRAPHS = (5, 10)
"""Types of attributes with graphs: values of `AttributeProto.AttributeType`."""

_WITH_GRAPHS = frozenset(["If", "Loop", "Scan", "SequenceMap"])
"""The operators that have inner graphs."""


def has_graphs(node: Any) -> bool:
    """True if a node has inner graphs.

    Args:
        node: A `NodeProto`.
    """
    return node.op_type in _WITH_GRAPHS and any(held.type in _GRAPHS for held in node.attribute)


_TENSOR = 4
"""The type of attributes with a tensor."""

_FIELDS: dict[int, Callable[[Any], Any]] = {
    1: lambda held: held.f,
    2: lambda held: held.i,
    3: lambda held: held.s.decode(errors="replace"),
    6: lambda held: held.floats[:],
    7: lambda held: held.ints[:],
    8: lambda held: [text.decode(errors="replace") for text in held.strings],
}
"""Readers of attributes with numbers and strings, by the type of the attribute."""


def attributes_of(node: Any, folder: Folder | None) -> dict[str, Any]:
    """The attributes of a node, as Python values; tensors as arrays.

    Args:
        node: A `NodeProto`.
        folder: The folder of the model.

    Raises:
        OnnxError: If one is malformed.
    """
    found: dict[str, Any] = {}
    for held in node.attribute:
        kind = held.type
        if kind == _TENSOR:
            found[held.name] = array_of(held.t, folder)
        elif (read := _FIELDS.get(kind)) is not None:
            found[held.name] = read(held)
        else:
            found[held.name] = onnx_package("onnx.load").helper.get_attribute_value(held) if kind else None
    return found
