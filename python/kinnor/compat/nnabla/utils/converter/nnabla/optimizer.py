"""Replaces matrix products with parameters by affine layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kinnor.compat.utils.affine import with_affine_layers

if TYPE_CHECKING:
    from kinnor.nnp import ProtoGraph, ProtoNetwork

__all__ = ["optimize_nnp"]


def optimize_nnp(graph_def: ProtoGraph) -> ProtoNetwork:
    """The first network of a graph, rewritten as `kinnor optimize` does.

    Args:
        graph_def: The graph, which is not changed.

    Raises:
        NetworkError: If there is no network, or if it has a cycle.
    """
    return with_affine_layers(graph_def.default_graph())
