"""Copies graphs onto other inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...._core import ShapeError
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...._core import Function, Variable

__all__ = ["IdentityModifier"]


class IdentityModifier(FunctionModifier):
    """Copies a graph and replaces some of its leaves.

    Args:
        inputs: The replacement of each leaf.
        copy_value: Whether to copy values and gradients of the leaves to their replacements.

    Raises:
        ShapeError: If values are to be copied and the shapes differ.

        >>> import kinnor as nn, kinnor.functions as F
        >>> import kinnor.experimental.graph_converters as GC
        >>> x, other = nn.Variable((2, 3)), nn.Variable((5, 3))
        >>> copy = GC.GraphConverter([GC.IdentityModifier({x: other})]).convert(F.relu(x))
        >>> copy.shape
        (5, 3)
    """

    def __init__(self, inputs: Mapping[Variable, Variable] | None = None, copy_value: bool = False) -> None:
        super().__init__()
        self._inputs = dict(inputs or {})
        for old, new in self._inputs.items() if copy_value else ():
            if old.shape != new.shape:
                raise ShapeError(f"IdentityModifier: expected an input of shape {old.shape}, got shape {new.shape}")
            new.d, new.g = old.d, old.g

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        return self._modify_as_same(f, [self._inputs.get(v, v) for v in inputs])
