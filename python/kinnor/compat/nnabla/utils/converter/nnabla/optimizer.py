"""Networks with affine layers where they multiply by parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinnor.rewrite.affine import with_affine_layers

if TYPE_CHECKING:
    from kinnor.nnp import ProtoGraph, ProtoNetwork

__all__ = ["optimize_nnp"]


def optimize_nnp(graph_def: ProtoGraph) -> ProtoNetwork:
    """The first network of a graph, as `kinnor optimize` makes it.

    Args:
        graph_def: The graph, which stays as it is.

    Raises:
        NetworkError: If there is no network, or if its functions go round in a circle.
    """
    return with_affine_layers(graph_def.default_graph())
