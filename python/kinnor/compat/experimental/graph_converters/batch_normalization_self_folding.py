"""Replaces batch normalizations by a multiplication and an addition, for evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....rewrite.patterns import is_a, normalization, registered
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from ...._core import Function, Variable

__all__ = ["BatchNormalizationSelfFoldingModifier"]


class BatchNormalizationSelfFoldingModifier(FunctionModifier):
    """Replaces batch normalizations by `c0 x + c1`. `c0` and `c1` are new, numbered parameters.

    Args:
        name: The scope of the parameters.
    """

    def __init__(self, name: str = "bn-self-folding") -> None:
        super().__init__()
        self._name, self._count = name, 0

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if not is_a(f, "BatchNormalization"):
            return None
        how, shape = normalization(f), f.inputs[-1].shape
        c0 = registered(self._name, f"c0-{self._name}-{self._count}", how.scale.reshape(shape))
        c1 = registered(self._name, f"c1-{self._name}-{self._count}", how.shift.reshape(shape))
        self._count += 1
        return c0 * inputs[0] + c1

    def __finish__(self) -> None:
        """Resets the count of normalizations for the next graph."""
        self._count = 0
