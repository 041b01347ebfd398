"""Converts graphs of training to graphs of evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch_norm_batchstat import BatchNormBatchStatModifier
from .remove_function import RemoveFunctionModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .graph_converter import FunctionModifier

__all__ = ["TestModeModifier"]


def TestModeModifier(rm_funcs: Sequence[str] = ()) -> list[FunctionModifier]:
    """Modifiers that convert a graph of training to a graph of evaluation.

    Batch normalizations use their running statistics, and functions of some types are removed.

    Args:
        rm_funcs: Types of functions to remove, such as `Dropout`.

    Returns:
        Modifiers for `GraphConverter`.
    """
    return [BatchNormBatchStatModifier(), RemoveFunctionModifier(rm_funcs)]
