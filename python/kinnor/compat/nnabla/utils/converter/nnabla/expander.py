"""Unrolls the repetitions of the networks in a message."""

from __future__ import annotations

from typing import Any

from kinnor.compat.utils.load import matching
from kinnor.files import schema
from kinnor.nnp import ProtoGraph

__all__ = ["NnpExpander"]


class NnpExpander:
    """Unrolls repetitions: each repeated function is copied once for each time it runs.

    The start and the end of a repetition become an `Identity`. Names get the index in brackets, such as `h_loop[0]`.

    Args:
        nnp: An `NNablaProtoBuf`.
    """

    def __init__(self, nnp: Any) -> None:
        self._nnp = nnp

    def execute(self) -> Any:
        """Unroll all networks.

        Returns:
            An `NNablaProtoBuf` without repetitions. Optimizers and executors name each copy of a parameter.

        Raises:
            NetworkError: If a repetition is malformed, or if a network would have too many nodes.
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
