"""Repetitions of networks in a message, written out."""

from __future__ import annotations

from typing import Any

from kinnor.files import schema
from kinnor.nnp import ProtoGraph
from kinnor.nnp.project_load import matching

__all__ = ["NnpExpander"]


class NnpExpander:
    """Writes repetitions out: what is repeated is there as often as it runs.

    Where a repetition starts or ends is an `Identity`, so that the network stays as it was but for them; names get
    the place in brackets, such as `h_loop[0]`.

    Args:
        nnp: An `NNablaProtoBuf`.
    """

    def __init__(self, nnp: Any) -> None:
        self._nnp = nnp

    def execute(self) -> Any:
        """Write them out.

        Returns:
            An `NNablaProtoBuf` without repetitions; optimizers and executors name all places of a parameter.

        Raises:
            NetworkError: If repetitions do not fit, or if a network would have too many nodes.
        """
        graph = ProtoGraph.from_proto(self._nnp)
        graph.expand_loop_control()
        proto = schema.messages().NNablaProtoBuf()
        proto.CopyFrom(self._nnp)
        proto.ClearField("network")
        proto.network.extend(n.as_proto(variable_batch_size=False) for n in graph.networks.values())
        for held in (*proto.optimizer, *proto.executor):
            network = graph.networks.get(held.network_name)
            if network is not None:
                given = list(held.parameter_variable)
                held.ClearField("parameter_variable")
                for one in given:
                    for name in matching(network, one.variable_name):
                        held.parameter_variable.add().CopyFrom(one)
                        held.parameter_variable[-1].variable_name = name
        return proto
