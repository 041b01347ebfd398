"""Changes of described networks (`ProtoNetwork`), under NNabla's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kinnor.nnp import ProtoNetwork

__all__ = ["rename_variable"]


def rename_variable(proto_network: ProtoNetwork, renames: Mapping[str, str]) -> None:
    """Rename variables of a network.

    Args:
        proto_network: The network.
        renames: New names by old names.

    Raises:
        NetworkError: If a variable does not exist, or if a new name is in use.
    """
    for old, new in renames.items():
        proto_network.rename(old, new)
