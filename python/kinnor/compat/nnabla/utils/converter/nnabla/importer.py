"""Reads files of NNabla as one message with all parameters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kinnor.cli.formats import Document, only_executor, read, with_parameters
from kinnor.files import parameter_file
from kinnor.nnp import NetworkError, ProtoGraph

from .expander import NnpExpander

if TYPE_CHECKING:
    from kinnor.files.parameter_file import Entry

__all__ = ["Imported", "NnpImporter"]

READ = (".nnp", ".nntxt", ".prototxt", ".protobuf", ".h5")
"""Extensions of files that can be read."""


class Imported:
    """The result of an importer.

    Attributes:
        protobuf: An `NNablaProtoBuf` with all parameters.
        other_files: Paths of the files that were not read.
    """

    def __init__(self, protobuf: Any, other_files: list[str]) -> None:
        self.protobuf = protobuf
        self.other_files = other_files


class NnpImporter:
    """Reads the files of one model.

    Args:
        *args: Paths. Files with extensions that NNabla does not have are listed in `other_files`.
        expand_network: Whether to unroll repetitions.
        executor_index: Index of the only executor to read, with its network; all if it is None or out of range.
    """

    def __init__(self, *args: str, expand_network: bool = False, executor_index: int | None = None) -> None:
        self._files = args
        self._expand_network = expand_network
        self._executor_index = executor_index

    def execute(self) -> Imported:
        """Read the files. If they have no parameters, the initializers of the first executor's network draw them.

        Returns:
            The message and the paths that were not read.

        Raises:
            NetworkError: If a file is malformed.
            OSError: If a file cannot be read.
        """
        known = [file for file in self._files if Path(file).suffix.lower() in READ]
        document = read(known)
        if not document.entries:
            document = Document(document.proto, _drawn(document.proto))
        if self._executor_index is not None and 0 <= self._executor_index < len(document.proto.executor):
            document = only_executor(document, self._executor_index)
        proto = with_parameters(document)
        if self._expand_network:
            proto = NnpExpander(proto).execute()
        return Imported(proto, [file for file in self._files if file not in known])


def _drawn(proto: Any) -> list[Entry]:
    """Initial values of the parameters of the network that the first executor runs."""
    if not proto.executor:
        return []
    name = proto.executor[0].network_name
    graph = ProtoGraph.from_proto(proto, rng=np.random.RandomState(0))
    if name not in graph.networks:
        raise NetworkError(f"NnpImporter: expected a network {name!r}, got {list(graph.networks)}")
    network = graph.networks[name]
    entries = []
    for key, node in network.parameters.items():
        if node.initializer is not None:
            shape = [n if n > 0 else network.batch_size or 1 for n in node.shape]
            entries.append(parameter_file.Entry(key, np.asarray(node.initializer(shape), np.float32), need_grad=True))
    return entries
