"""Changes of networks that are described, as NNabla names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinnor.nnp import ProtoNetwork

__all__ = ["rename_variable"]


def rename_variable(proto_network: ProtoNetwork, renames: Mapping[str, str]) -> None:
    """Give variables of a network other names.

    Args:
        proto_network: The network.
        renames: New names by old names.

    Raises:
        NetworkError: If there is no such variable, or one of the new name already.
    """
    for old, new in renames.items():
        proto_network.rename(old, new)
