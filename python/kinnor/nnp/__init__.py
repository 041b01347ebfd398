"""Descriptions of networks, independent of built graphs: read from NNabla's files, traced from variables, saved.

g = nn.graph_def.create_graph_from_variable("net", y, names={"x": x, "y": y})
g.save("net.nnp")
y = nn.graph_def.load("net.nnp")(x)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import parameter as parameters
from ..files import network_file
from ..files.network_file import NetworkError
from .graph import ProtoExecutor, ProtoGraph, entries
from .network import ProtoNetwork
from .nodes import NetworkVariable, ProtoFunction
from .tracing import (
    ProtoVariable,
    create_graph_from_variable,
    get_default_graph,
    get_default_graph_by_variable,
    graph,
    graph_name,
    reset_default_graph,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from ..files.parameter_file import PathOrFile
    from ..parameter.tree import Scope

__all__ = [
    "NetworkError",
    "NetworkVariable",
    "ProtoExecutor",
    "ProtoFunction",
    "ProtoGraph",
    "ProtoNetwork",
    "ProtoVariable",
    "create_graph_from_variable",
    "entries",
    "get_default_graph",
    "get_default_graph_by_variable",
    "graph",
    "graph_name",
    "load",
    "reset_default_graph",
    "save",
]


def load(
    filename: PathOrFile | Sequence[PathOrFile],
    batch_size: int | None = None,
    exclude_parameter: bool = False,
    parameter_only: bool = False,
    extension: str = ".nntxt",
    parameter_scope: Scope | None = None,
    rng: RandomState | None = None,
) -> ProtoGraph:
    """Read networks and their parameters.

    Args:
        filename: Path of a `.nnp`, `.nntxt`, `.prototxt`, `.protobuf` or `.h5` file, a file open for reading, or
            several of them.
        batch_size: Batch size; the file's by default.
        exclude_parameter: Whether to leave the parameters out.
        parameter_only: Whether to leave everything else out.
        extension: Format of a file object.
        parameter_scope: The scope to load parameters into; by default a new scope of the graph.
        rng: Random generator for parameters that are not in the file.

    Returns:
        The graph description. A call builds the graph.

    Raises:
        NetworkError: If a file is malformed, or if names in it do not match.
        ParameterError: If a parameter has another shape than the existing one.
        OSError: If a file cannot be read.
    """
    content = network_file.read(filename, extension, parameters=not exclude_parameter, networks=not parameter_only)
    described = ProtoGraph.from_proto(content.proto, batch_size, parameter_scope, rng)
    with parameters.parameter_scope("", described.parameter_scope):
        parameters.put(content.entries, "load")
    return described


def save(
    filename: PathOrFile,
    content: Sequence[ProtoGraph | ProtoNetwork],
    include_parameters: bool = False,
    variable_batch_size: bool = True,
    extension: str = ".nnp",
    executors: Sequence[dict[str, Any]] | None = None,
) -> None:
    """Write networks to a file, whole or not at all. A `.nnp` file includes their parameters.

    Args:
        filename: Path that ends in `.nnp`, `.nntxt`, `.prototxt` or `.protobuf`, or a file open for writing.
        content: A list of a `ProtoGraph`, for all its networks, or of a `ProtoNetwork`.
        include_parameters: Whether to include the parameters in files other than `.nnp`, too.
        variable_batch_size: Whether to save the batch size as -1, so that the network runs with any batch size.
        extension: Format of a file object.
        executors: Executors to save, as dicts for `ProtoExecutor.create_from_dict`.

    Raises:
        NetworkError: If the format is unknown or cannot store a function, or if a shape argument does not begin with
            the batch size.
        OSError: If the file cannot be written.
    """
    if not content or not isinstance(content[0], (ProtoGraph, ProtoNetwork)):
        raise NetworkError(f"save: expected a ProtoGraph or a ProtoNetwork in a list, got {content!r}")
    first = content[0]
    owner = first if isinstance(first, ProtoGraph) else first.owner
    networks = None if isinstance(first, ProtoGraph) else [first]
    owner.write(filename, networks, include_parameters, variable_batch_size, extension, executors)
