"""What `kinnor convert` reads and writes: a function for each way of each format, by extension.

A reader gives a `Document`, a writer takes one; another format is a further entry of `FORMATS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import parameter as parameters
from .._core import Error
from ..files import network_file, parameter_file, parameter_protobuf, schema
from ..model import from_graph
from ..nnp import NetworkError, ProtoGraph, entries

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..files.parameter_file import Entry

__all__ = ["FORMATS", "Document", "Format", "FormatError", "only_executor", "read", "with_parameters", "write"]


class FormatError(Error, ValueError):
    """A format is unknown, or cannot hold what is to be written."""


class Document(NamedTuple):
    """What is converted.

    Attributes:
        proto: An `NNablaProtoBuf` message without parameters; one without networks if there are none.
        entries: The parameters.
    """

    proto: Any
    entries: list[Entry]


class Format(NamedTuple):
    """A format: what reads it and what writes it; None where that is not possible."""

    read: Callable[[str], Document] | None
    write: Callable[[str, Document], None] | None
    holds_networks: bool


def _read_network(path: str) -> Document:
    content = network_file.read(path, op="convert")
    return Document(content.proto, content.entries)


def _read_parameters(path: str) -> Document:
    return Document(schema.messages().NNablaProtoBuf(), parameter_file.load(path))


def _write_archive(path: str, document: Document) -> None:
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
    """A document with one of its executors alone, and with the networks, solvers and monitors of its network.

    Args:
        document: The document.
        index: Which executor, from 0 on.

    Raises:
        FormatError: If there is none of that number.
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
    network_file.write(path, with_parameters(document))


def _write_parameters(path: str, document: Document) -> None:
    parameter_file.save(path, document.entries)


def _read_onnx(path: str) -> Document:
    from .. import onnx
    from ..onnx.converting import described

    proto, graph = described(onnx.load(path), Path(path).stem)
    return Document(proto, entries(graph.get_parameters().items()))


def _write_onnx(path: str, document: Document, opset: int | None = None) -> None:
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
    suffix = Path(path).suffix
    if suffix not in FORMATS:
        raise FormatError(f"expected a name that ends in {' or '.join(FORMATS)}, got {path!r}")
    return FORMATS[suffix]


def read(paths: list[str]) -> Document:
    """Read files of one model: networks and parameters may be in different ones.

    Args:
        paths: Their paths.

    Raises:
        FormatError: If one's format cannot be read.
        NetworkError: If one is malformed.
        ParameterError: If one of parameters is.
        OSError: If one cannot be read.
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
    """Add what a message has and another has not: of two networks of a name the first counts."""
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
        document: What to write. A format of parameters alone leaves networks out.
        opset: The version of an ONNX file's operators.

    Raises:
        FormatError: If the format cannot be written, or if it holds nothing of the document.
        NetworkError: If it cannot hold a function.
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
            raise FormatError(f"expected a name that ends in .onnx, which has versions of operators, got {path!r}")
    except NetworkError as error:
        raise FormatError(str(error)) from error
