"""Reading ONNX files: the message, its tensors, and what it must not ask for.

Knows files and messages; builds nothing.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Error, UnsupportedError
from ...files.packages import needed
from ...files.steady import steadily
from . import definitions, expansion, message
from .tables import TABLE
from .values import OnnxError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = [
    "array_of",
    "attributes_of",
    "check",
    "dtype_of",
    "graphs",
    "inlined",
    "names_read",
    "onnx_package",
    "read",
    "versions_of",
    "without_arrays",
]


def onnx_package(op: str) -> Any:
    """The package `onnx`.

    Args:
        op: What needs it.
    """
    needed(op, "onnx.numpy_helper", "ONNX files", "onnx")
    return needed(op, "onnx", "ONNX files", "onnx")


def read(path: str | os.PathLike[str]) -> tuple[Any, message.TensorFile]:
    """The `ModelProto` of a file, and where its large tensors are: neither these nor those of other files are read yet.

    Args:
        path: Path.

    Raises:
        OnnxError: If it is no ONNX file.
        OSError: If it cannot be read.
    """
    onnx = onnx_package("onnx.load")
    try:
        model, tensors = message.read(path, onnx)
    except (Error, OSError):
        raise
    except Exception as error:
        raise OnnxError(f"onnx.load: expected an ONNX model in {path}, got bytes that are none") from error
    if not model.HasField("graph") or not model.opset_import:
        raise OnnxError(f"onnx.load: expected a model with a graph and versions of operators in {path}, got none")
    return model, tensors


def inlined(model: Any) -> Any:
    """A model without functions of its own: what calls one has its nodes instead.

    Args:
        model: A `ModelProto`.

    Raises:
        OnnxError: If the functions come to too many nodes.
    """
    if not len(model.functions):
        return model
    onnx_package("onnx.load")
    expansion.refuse_calls(model)
    return needed("onnx.load", "onnx.inliner", "ONNX files", "onnx").inline_local_functions(model)


def without_arrays(model: Any, moved: Container[str]) -> Any:
    """A copy of a model without the initializers of its graph: their memory is freed with the model.

    Args:
        model: A `ModelProto`.
        moved: Outputs of `Constant` nodes that are left out, too.
    """
    found = type(model)()
    _merge(model, found, "graph")
    _merge(model.graph, found.graph, "initializer", "node")
    found.graph.node.extend(
        node for node in model.graph.node if not (node.op_type == "Constant" and node.output[0] in moved)
    )
    return found


def _merge(source: Any, target: Any, *but: str) -> None:
    """Copies the fields of a message, without those named."""
    for field, value in source.ListFields():
        if field.name in but:
            continue
        if hasattr(value, "MergeFrom"):
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)


def versions_of(model: Any) -> dict[str, int]:
    """The versions of operators by domain.

    Args:
        model: A `ModelProto`.
    """
    return {"" if held.domain == "ai.onnx" else held.domain: int(held.version) for held in model.opset_import}


def graphs(graph: Any) -> Iterator[Any]:
    """A graph and the graphs inside of its nodes.

    Args:
        graph: A `GraphProto`.
    """
    yield graph
    for node in graph.node:
        yield from _inside(node)


def _inside(node: Any) -> Iterator[Any]:
    """The graphs inside of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from graphs(attribute.g)
        for held in attribute.graphs:
            yield from graphs(held)


def names_read(nodes: Sequence[Any]) -> set[str]:
    """The names of what nodes take, and of what graphs inside of them take from outside or give.

    Args:
        nodes: Each a `NodeProto`.
    """
    found = {name for node in nodes for name in node.input}
    for graph in (graph for node in nodes for graph in _inside(node)):
        found.update(name for node in graph.node for name in node.input)
        found.update(held.name for held in graph.output)
    return found


def check(model: Any) -> None:
    """Refuse what cannot be built, before anything is.

    Args:
        model: A `ModelProto`.

    Raises:
        UnsupportedError: If operators are missing.
        OnnxError: If the nodes are not in an order in which they can be computed.
    """
    versions = versions_of(model)
    n_nodes = sum(len(graph.node) for graph in graphs(model.graph))
    message.refuse_many(n_nodes)
    missing = []
    for graph in graphs(model.graph):
        for node in graph.node:
            domain = "" if node.domain == "ai.onnx" else node.domain
            if (domain, node.op_type) not in TABLE and not definitions.is_defined(node, versions):
                named = f"{domain}.{node.op_type}" if domain else node.op_type
                missing.append(f"{named}-{versions.get(domain, '?')} (node {node.name or node.output[:1]!r})")
            elif domain not in versions:
                raise OnnxError(f"onnx.load: expected a version of the operators {domain!r}, got none")
        if len(graph.sparse_initializer):
            raise UnsupportedError("onnx.load: expected dense initializers, got sparse ones")
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise UnsupportedError(f"onnx.load: expected operators of docs/onnx.md, got {', '.join(missing[:5])}{more}")
    _check_order(model.graph, set())
    expansion.n_built(model.graph, {})


def _check_order(graph: Any, outer: set[str]) -> None:
    known = {"", *outer, *(x.name for x in graph.input), *(x.name for x in graph.initializer)}
    made: set[str] = set()
    for node in graph.node:
        for name in node.input:
            if name not in known:
                raise OnnxError(f"onnx.load: expected {name!r} before node {node.name!r} that takes it, got nothing")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _check_order(attribute.g, known)
        for name in node.output:
            if name and name in made:
                raise OnnxError(f"onnx.load: expected one node that makes {name!r}, got two")
            made.add(name)
            known.add(name)
    for output in graph.output:
        if output.name not in known:
            raise OnnxError(f"onnx.load: expected something that makes the output {output.name!r}, got nothing")


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


def array_of(tensor: Any, folder: Path | None, content: bytes | None = None) -> NDArray[Any]:
    """The array that a tensor holds.

    Args:
        tensor: A `TensorProto`.
        folder: The folder of the model, which files of tensors must be in.
        content: Its bytes, if they were left in the file of the model.

    Raises:
        OnnxError: If its bytes do not fit its shape, or its file is outside of the folder.
    """
    onnx = onnx_package("onnx.load")
    dtype, shape = dtype_of(tensor.data_type), tuple(tensor.dims)
    size = math.prod(shape)
    where = f"onnx.load: tensor {tensor.name!r}"
    if any(length < 0 for length in shape):
        raise OnnxError(f"{where}: expected lengths of zero or more, got shape {shape}")
    n_bytes = size * dtype.itemsize
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        content = _outside(tensor, folder, n_bytes)
    packed = dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
    given = tensor.raw_data if content is None and tensor.HasField("raw_data") else content
    if given is not None and not packed and len(given) != n_bytes:
        raise OnnxError(f"{where}: expected {n_bytes} bytes of shape {shape}, got {len(given)}")
    if content is not None:
        return np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype, copy=False)
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except Exception as error:
        raise OnnxError(f"{where}: expected {size} elements of {dtype}, got others: {error}") from error


def _outside(tensor: Any, folder: Path | None, size: int) -> bytes:
    entries = {held.key: held.value for held in tensor.external_data}
    where = f"onnx.load: tensor {tensor.name!r}"
    location = entries.get("location", "")
    if folder is None or not location or "\0" in location:
        raise OnnxError(f"{where}: expected a file in the folder of the model, got {location!r}")
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location))
    if Path(location).is_absolute() or not path.is_relative_to(root) or not path.is_file():
        raise OnnxError(f"{where}: expected a file in the folder of the model, got {location!r}")
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or size)
    except ValueError as error:
        raise OnnxError(f"{where}: expected whole numbers as offset and length, got others") from error
    if length != size or offset < 0 or offset + size > path.stat().st_size:
        raise OnnxError(f"{where}: expected {size} bytes in {location!r} from {offset} on, got a file without them")

    def read(path: Path) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            found = file.read(size)
        if len(found) < size:
            raise OnnxError(f"{where}: expected {size} bytes in {location!r} from {offset} on, got a file without them")
        return found

    return steadily("onnx.load", path, read)


def attributes_of(node: Any, folder: Path | None) -> dict[str, Any]:
    """The attributes of a node, as Python values; tensors as arrays.

    Args:
        node: A `NodeProto`.
        folder: The folder of the model.

    Raises:
        OnnxError: If one is malformed.
    """
    onnx = onnx_package("onnx.load")
    kinds = onnx.AttributeProto
    found: dict[str, Any] = {}
    for held in node.attribute:
        if held.type == kinds.TENSOR:
            found[held.name] = array_of(held.t, folder)
        elif held.type == kinds.STRING:
            found[held.name] = held.s.decode(errors="replace")
        elif held.type == kinds.STRINGS:
            found[held.name] = [text.decode(errors="replace") for text in held.strings]
        else:
            content: Any = onnx.helper.get_attribute_value(held) if held.type else None
            found[held.name] = list(content) if held.type in (kinds.INTS, kinds.FLOATS) else content
    return found
