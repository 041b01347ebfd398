"""Reads and checks ONNX files: the message, its tensors and attributes."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..._core import CallError, Error, UnsupportedError
from ...files.packages import needed
from . import expansion, message
from .tables import TABLE
from .tensors import array_of, attributes_of, dtype_of, has_graphs, onnx_package
from .values import OnnxError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

__all__ = [
    "ModelMetadata",
    "NodeArg",
    "array_of",
    "attributes_of",
    "check",
    "described",
    "dtype_of",
    "graphs",
    "has_graphs",
    "held",
    "inlined",
    "map_keys",
    "metadata_of",
    "names_read",
    "onnx_package",
    "read",
    "strings_of",
    "versions_of",
    "without_arrays",
]


_STRING, _TENSOR, _GRAPH, _STRINGS, _GRAPHS = 3, 4, 5, 8, 10
"""Types of attributes: values of `AttributeProto.AttributeType`."""


def read(path: str | os.PathLike[str]) -> tuple[Any, message.TensorFile]:
    """The `ModelProto` of a file, and the file of its large tensors. Large and external tensors are not read yet.

    Args:
        path: Path of the file.

    Raises:
        OnnxError: If it is not an ONNX file.
        OSError: If it cannot be read.
    """
    onnx = onnx_package("onnx.load")
    model, tensors = _read(lambda: message.read(path, onnx), str(path))
    return model, tensors


def held(source: Any) -> Any:
    """Returns the `ModelProto` that is in memory already.

    Args:
        source: The bytes of an ONNX file, or a `ModelProto`, which is not changed.

    Raises:
        OnnxError: If it is no ONNX model.
        CallError: If it is something else.
    """
    onnx = onnx_package("onnx.load")
    if isinstance(source, onnx.ModelProto):
        return _read(lambda: (source, None), "the message")[0]
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise CallError(f"onnx.load: expected a path, bytes or a ModelProto, got {type(source).__name__}")
    content = bytes(source)
    return _read(lambda: (message.parse(content, onnx), None), f"{len(content)} bytes")[0]


def _read(read: Callable[[], tuple[Any, Any]], where: str) -> tuple[Any, Any]:
    """Calls `read`, which returns a model and its tensor file or None.

    Raises OnnxError if there is no model `where`.
    """
    try:
        model, tensors = read()
    except (Error, OSError):
        raise
    except Exception as error:
        raise OnnxError(f"onnx.load: expected an ONNX model in {where}, got bytes that are none") from error
    if not model.HasField("graph") or not model.opset_import:
        raise OnnxError(f"onnx.load: expected a model with a graph and versions of operators in {where}, got none")
    return model, tensors


def inlined(model: Any) -> Any:
    """A model with its local functions inlined.

    Args:
        model: A `ModelProto`.

    Raises:
        OnnxError: If the functions expand to too many nodes.
    """
    if not len(model.functions):
        return model
    onnx_package("onnx.load")
    expansion.refuse_calls(model)
    return needed("onnx.load", "onnx.inliner", "ONNX files", "onnx").inline_local_functions(model)


def strings_of(every: Iterable[Any]) -> list[str]:
    """Returns the strings that nodes and constants of graphs contain, in order and each once.

    Args:
        every: Each a `GraphProto`.
    """
    found: set[bytes] = set()
    for inner in every:
        for tensor in inner.initializer:
            found.update(tensor.string_data)
        for node in inner.node:
            for held in node.attribute:
                if held.type == _TENSOR:
                    found.update(held.t.string_data)
                elif held.type == _STRINGS:
                    found.update(held.strings)
                elif held.type == _STRING and held.name in ("default_string", "value_string"):
                    found.add(held.s)
    return sorted(text.decode(errors="replace") for text in found)


def map_keys(graph: Any) -> dict[str, list[Any]]:
    """Returns the keys of the dictionaries among the inputs of a graph, by input: the keys of `DictVectorizer`.

    Args:
        graph: A `GraphProto`.

    Raises:
        UnsupportedError: If other operators take a dictionary, or the keys of two of them differ.
    """
    found: dict[str, list[Any]] = {}
    for held in graph.input:
        if held.type.WhichOneof("value") != "map_type":
            continue
        nodes = [node for node in graph.node if held.name in node.input]
        named = [attributes_of(node, None) for node in nodes if node.op_type == "DictVectorizer"]
        keys = [each.get("string_vocabulary") or each.get("int64_vocabulary") or [] for each in named]
        if len(named) < len(nodes) or not keys or keys != keys[:1] * len(keys):
            raise UnsupportedError(
                f"onnx.load: expected one DictVectorizer of the dictionary {held.name!r}, got others"
            )
        found[held.name] = [key.decode() if isinstance(key, bytes) else key for key in keys[0]]
    return found


def without_arrays(model: Any, moved: Container[str]) -> Any:
    """A copy of a model without the initializers of its graph, so that their memory can be freed.

    Args:
        model: A `ModelProto`.
        moved: Outputs of `Constant` nodes to leave out as well.
    """
    found = type(model)()
    _merge(model, found, "graph")
    _merge(model.graph, found.graph, "initializer", "node")
    found.graph.node.extend(
        node for node in model.graph.node if not (node.op_type == "Constant" and node.output[0] in moved)
    )
    return found


def _merge(source: Any, target: Any, *but: str) -> None:
    """Copies all fields of a message except the named ones."""
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
    """A graph and all inner graphs of its nodes.

    Args:
        graph: A `GraphProto`.
    """
    yield graph
    for node in graph.node:
        if has_graphs(node):
            yield from _inside(node)


def _inside(node: Any) -> Iterator[Any]:
    """The inner graphs of a node, at all levels."""
    for attribute in node.attribute:
        if attribute.type == _GRAPH:
            yield from graphs(attribute.g)
        elif attribute.type == _GRAPHS:
            for held in attribute.graphs:
                yield from graphs(held)


def names_read(nodes: Sequence[Any]) -> set[str]:
    """All names that nodes and their inner graphs read, and the outputs of inner graphs.

    Args:
        nodes: Each a `NodeProto`.
    """
    found = {name for node in nodes for name in node.input}
    for graph in (graph for node in nodes if has_graphs(node) for graph in _inside(node)):
        found.update(name for node in graph.node for name in node.input)
        found.update(held.name for held in graph.output)
    return found


def check(model: Any) -> list[Any]:
    """Checks a model before it is built.

    Args:
        model: A `ModelProto`.

    Returns:
        Its graph, and all inner graphs of nodes.

    Raises:
        UnsupportedError: If an operator is not supported.
        OnnxError: If a node comes before a node that it depends on.
    """
    versions = versions_of(model)
    every = list(graphs(model.graph))
    message.refuse_many(sum(len(graph.node) for graph in every))
    missing, are_known = [], set[tuple[str, str]]()
    for graph in every:
        for node in graph.node:
            kind = node.domain, node.op_type
            if kind in are_known:
                continue
            domain = "" if node.domain == "ai.onnx" else node.domain
            if (domain, node.op_type) not in TABLE and not expansion.is_defined(node, versions):
                named = f"{domain}.{node.op_type}" if domain else node.op_type
                missing.append(f"{named}-{versions.get(domain, '?')} (node {node.name or node.output[:1]!r})")
            elif domain not in versions:
                raise OnnxError(f"onnx.load: expected a version of the operators {domain!r}, got none")
            else:
                are_known.add(kind)
        if len(graph.sparse_initializer):
            raise UnsupportedError("onnx.load: expected dense initializers, got sparse ones")
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise UnsupportedError(f"onnx.load: expected operators of docs/onnx.md, got {', '.join(missing[:5])}{more}")
    _check_order(model.graph, set())
    if len(every) > 1:
        expansion.n_built(model.graph, {})
    return every


def _check_order(graph: Any, outer: set[str]) -> None:
    """Raises OnnxError unless each name is made once, and before it is read."""
    known = {"", *outer, *(x.name for x in graph.input), *(x.name for x in graph.initializer)}
    made: set[str] = set()
    for node in graph.node:
        if not known.issuperset(node.input[:]):
            name = next(name for name in node.input if name not in known)
            raise OnnxError(f"onnx.load: expected {name!r} before node {node.name!r} that takes it, got nothing")
        for attribute in node.attribute if has_graphs(node) else ():
            if attribute.type == _GRAPH:
                _check_order(attribute.g, known)
        for name in node.output[:]:
            if name and name in made:
                raise OnnxError(f"onnx.load: expected one node that makes {name!r}, got two")
            made.add(name)
            known.add(name)
    for output in graph.output:
        if output.name not in known:
            raise OnnxError(f"onnx.load: expected something that makes the output {output.name!r}, got nothing")


class NodeArg(NamedTuple):
    """An input or output of a model, as the file describes it.

    Attributes:
        name: Its name.
        type: Its type as ONNX writes it, such as `tensor(float)` or `seq(tensor(int64))`; empty if the file has none.
        shape: Its lengths: the name of an open axis, or None if that has no name. Empty if the file says nothing.
    """

    name: str
    type: str
    shape: list[int | str | None]


class ModelMetadata(NamedTuple):
    """The description of a model in its file.

    Attributes:
        producer_name: The program that wrote it.
        graph_name: The name of its graph.
        domain: The domain of its name.
        description: A text about the model.
        graph_description: A text about its graph.
        version: Its version.
        custom_metadata_map: The entries of `metadata_props`.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = MappingProxyType({})


def metadata_of(proto: Any) -> ModelMetadata:
    """Returns what a model says of itself.

    Args:
        proto: A `ModelProto`.
    """
    return ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version,
        {held.key: held.value for held in proto.metadata_props},
    )


def described(held: Any) -> NodeArg:
    """Returns what a model says of an input or output.

    Args:
        held: A `ValueInfoProto`.
    """
    kind = held.type
    while kind.WhichOneof("value") in ("optional_type", "sequence_type"):
        kind = getattr(kind, kind.WhichOneof("value")).elem_type
    shape = kind.tensor_type.shape.dim if kind.WhichOneof("value") == "tensor_type" else []
    return NodeArg(held.name, _type_name(held.type), [_length(axis) for axis in shape])


def _length(axis: Any) -> int | str | None:
    """Returns the length of an axis, or its name. Older exporters write -1 for an open length."""
    if axis.HasField("dim_value"):
        return int(axis.dim_value) if axis.dim_value >= 0 else None
    return axis.dim_param or None


def _type_name(kind: Any) -> str:
    """Returns ONNX's name of a type."""
    which = kind.WhichOneof("value")
    if which == "optional_type":
        return f"optional({_type_name(kind.optional_type.elem_type)})"
    if which == "sequence_type":
        return f"seq({_type_name(kind.sequence_type.elem_type)})"
    if which == "map_type":
        return f"map({_element_name(kind.map_type.key_type)},{_type_name(kind.map_type.value_type)})"
    if which in ("tensor_type", "sparse_tensor_type"):
        name = _element_name(getattr(kind, which).elem_type)
        return f"{which.removesuffix('_type')}({name})" if name else ""
    return ""


@cache
def _element_name(element_type: int) -> str:
    """Returns ONNX's name of an element type."""
    onnx = onnx_package("onnx.load")
    if not element_type or element_type not in onnx.TensorProto.DataType.values():
        return ""
    return str(onnx.TensorProto.DataType.Name(element_type)).lower()
