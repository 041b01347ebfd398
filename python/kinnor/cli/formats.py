"""The file formats of `kinnor convert`: a reader and a writer for each extension.

A reader returns a `Document`, a writer takes one. To add a format, add an entry to `FORMATS`.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import nnp
from .. import parameter as parameters
from .._core import Error, Variable
from ..files import network_file, parameter_file, parameter_protobuf, schema
from ..model import from_graph
from ..nnp import NetworkError, ProtoExecutor, ProtoGraph, entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..files.parameter_file import Entry
    from ..onnx import Model

__all__ = ["FORMATS", "Document", "Format", "FormatError", "only_executor", "read", "with_parameters", "write"]


class FormatError(Error, ValueError):
    """The format is unknown, or cannot store the document."""


class Document(NamedTuple):
    """Networks and parameters of one model, as `kinnor convert` passes them from reader to writer.

    Attributes:
        proto: An `NNablaProtoBuf` message without parameters. It has no networks if the files have none.
        entries: The parameters.
    """

    proto: Any
    entries: list[Entry]


class Format(NamedTuple):
    """The reader and the writer of a file format, each None if it is not supported.

    Files with `holds_networks` hold networks, others only parameters.
    """

    read: Callable[[str], Document] | None
    """Reads the file at a path."""
    write: Callable[[str, Document], None] | None
    """Writes a document to a file at a path."""
    holds_networks: bool


def _read_network(path: str) -> Document:
    """Read a file of networks, with parameters if it has any."""
    content = network_file.read(path, op="convert")
    return Document(content.proto, content.entries)


def _read_parameters(path: str) -> Document:
    """Read a file of parameters."""
    return Document(schema.messages().NNablaProtoBuf(), parameter_file.load(path))


def _write_archive(path: str, document: Document) -> None:
    """Write a `.nnp` archive."""
    network_file.write_archive(path, document.proto, document.entries)


def with_parameters(document: Document) -> Any:
    """The message of a document with its parameters in it.

    Args:
        document: The document.
    """
    whole = schema.messages().NNablaProtoBuf()
    whole.CopyFrom(document.proto)
    for piece in parameter_protobuf.pieces(document.entries):
        whole.MergeFromString(piece)
    return whole


def only_executor(document: Document, index: int) -> Document:
    """A document with one of its executors, and with the networks, solvers and monitors that belong to it.

    Args:
        document: The document.
        index: Index of the executor.

    Raises:
        FormatError: If the document has fewer executors.
    """
    n = len(document.proto.executor)
    if not 0 <= index < n:
        raise FormatError(f"expected an executor from 0 to {n - 1}, got {index}" if n else "expected an executor")
    kept = schema.messages().NNablaProtoBuf()
    kept.CopyFrom(document.proto)
    name = document.proto.executor[index].network_name
    del kept.executor[:]
    kept.executor.append(document.proto.executor[index])
    for kind in ("optimizer", "monitor"):
        held = [x for x in getattr(document.proto, kind) if x.network_name == name]
        kept.ClearField(kind)
        getattr(kept, kind).extend(held)
    kept.ClearField("network")
    kept.network.extend(network for network in document.proto.network if network.name == name)
    return Document(kept, document.entries)


def _write_network(path: str, document: Document) -> None:
    """Write networks and parameters to a single protobuf file."""
    network_file.write(path, with_parameters(document))


def _write_parameters(path: str, document: Document) -> None:
    """Write a file of parameters."""
    parameter_file.save(path, document.entries)


def _read_onnx(path: str) -> Document:
    """Read an ONNX file."""
    from .. import onnx

    proto, graph = _described(onnx.load(path), Path(path).stem)
    return Document(proto, entries(graph.get_parameters().items()))


def _described(model: Model, name: str = "model", batch_size: int = 2) -> tuple[Any, ProtoGraph]:
    """A model as an NNabla network, with its constants as parameters.

    Args:
        model: The model. Only the first axis of its inputs may have a symbolic length.
        name: The name of the network.
        batch_size: Length of symbolic axes. If possible, the network allows any batch size.

    Returns:
        The `NNablaProtoBuf` message without parameters, and the graph with parameters.

    Raises:
        NetworkError: If another axis is symbolic, or if NNabla's format cannot hold a function.
    """
    inputs = {}
    for key, shape in model.shapes.items():
        if shape is None or None in shape[1:]:
            raise NetworkError(f"convert: expected input {key!r} with the first axis open at most, got {shape}")
        inputs[key] = Variable([batch_size if n is None else n for n in shape])
    made = model(**inputs)
    outputs = dict(zip(model.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    with parameters.parameter_scope("", {}):
        for key, x in model.get_parameters().items():
            parameters.set_parameter(key, x)
        known = set(model.get_parameters().values()) | set(inputs.values())
        taken = {key.split("/")[0] for key in model.get_parameters()}
        functions: list[Any] = []
        for output in outputs.values():
            output.visit(functions.append)
        for function in functions:
            for x in function.inputs:
                if x.parent is None and x not in known:
                    known.add(x)
                    free = next(key for n in count(len(known)) if (key := f"constant_{n}") not in taken)
                    taken.add(free)
                    parameters.set_parameter(free, x)
        names = {**inputs, **outputs}
        graph = nnp.create_graph_from_variable(name, list(outputs.values()), names)
    network = graph.networks[name]
    used = [key for key in inputs if key in network.inputs]
    executor = {"name": "runtime", "network": name, "data": used, "output": list(outputs)}
    graph.executors["runtime"] = ProtoExecutor.create_from_dict(executor, network)
    is_open = any(shape and shape[0] is None for shape in model.shapes.values())
    try:
        proto = graph.as_proto(False, False, [network], is_open)
    except NetworkError:
        if not is_open:
            raise
        proto = graph.as_proto(False, False, [network], False)  # some shape does not start with the batch
    return proto, graph


def _write_onnx(path: str, document: Document, opset: int | None = None) -> None:
    """Write the first network to an ONNX file."""
    from .. import onnx

    graph = ProtoGraph.from_proto(document.proto)
    if not graph.networks:
        raise NetworkError(f"expected a network to write to {path!r}, got parameters alone")
    with parameters.parameter_scope("", graph.parameter_scope):
        parameters.put(document.entries, "convert")
    chosen: dict[str, Any] = {} if opset is None else {"opset": opset}
    model = from_graph(graph)
    shapes = {name: model.network.variables[name].shape for name in model.inputs}
    is_open = {name: 0 for name, shape in shapes.items() if shape[:1] == (-1,)}
    onnx.save(model, path, free_batch=is_open or False, **chosen)


FORMATS: dict[str, Format] = {
    ".nnp": Format(_read_network, _write_archive, holds_networks=True),
    ".nntxt": Format(_read_network, _write_network, holds_networks=True),
    ".prototxt": Format(_read_network, _write_network, holds_networks=True),
    ".protobuf": Format(_read_network, _write_network, holds_networks=True),
    ".onnx": Format(_read_onnx, _write_onnx, holds_networks=True),
    ".h5": Format(_read_parameters, _write_parameters, holds_networks=False),
    ".safetensors": Format(_read_parameters, _write_parameters, holds_networks=False),
}
"""Formats by extension."""


def _format(path: str) -> Format:
    """The format for the extension of a path."""
    suffix = Path(path).suffix
    if suffix not in FORMATS:
        raise FormatError(f"expected a name that ends in {' or '.join(FORMATS)}, got {path!r}")
    return FORMATS[suffix]


def read(paths: list[str]) -> Document:
    """Read the files of one model. Networks and parameters may be in different files.

    Args:
        paths: Their paths.

    Raises:
        FormatError: If a format cannot be read.
        NetworkError: If a file of networks is malformed.
        ParameterError: If a file of parameters is malformed.
        OSError: If a file cannot be read.
    """
    whole = Document(schema.messages().NNablaProtoBuf(), [])
    found: dict[str, Entry] = {}
    for path in paths:
        reader = _format(path).read
        if reader is None:
            raise FormatError(f"expected a format that can be read, got {path!r}")
        document = reader(path)
        _merge(whole.proto, document.proto)
        found.update((entry.name, entry) for entry in document.entries)
    whole.entries.extend(found.values())
    return whole


def _merge(whole: Any, proto: Any) -> None:
    """Add the items of one message to another, except those whose names exist there."""
    for kind in ("network", "dataset", "optimizer", "monitor", "executor"):
        known = {held.name for held in getattr(whole, kind)}
        getattr(whole, kind).extend(held for held in getattr(proto, kind) if held.name not in known)
    for kind in ("global_config", "training_config"):
        if proto.HasField(kind) and not whole.HasField(kind):
            getattr(whole, kind).CopyFrom(getattr(proto, kind))


def write(path: str, document: Document, opset: int | None = None) -> None:
    """Write a file, whole or not at all.

    Args:
        path: Its path.
        document: Networks and parameters. Formats for parameters only leave out the networks.
        opset: Opset of an ONNX file.

    Raises:
        FormatError: If the format cannot be written, or if it can store no part of the document.
        NetworkError: If the format does not have a function of the network.
        OSError: If the file cannot be written.
    """
    found = _format(path)
    if found.write is None:
        raise FormatError(f"expected a format that can be written, got {path!r}")
    if not found.holds_networks and not document.entries:
        raise FormatError(f"expected parameters to write to {path!r}, got networks alone")
    try:
        if opset is None:
            found.write(path, document)
        elif found.write is _write_onnx:
            _write_onnx(path, document, opset)
        else:
            raise FormatError(f"expected a name that ends in .onnx for an opset, got {path!r}")
    except NetworkError as error:
        raise FormatError(str(error)) from error
