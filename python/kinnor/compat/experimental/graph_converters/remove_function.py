"""Removes functions from graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Function, Variable

__all__ = ["RemoveFunctionModifier"]


class RemoveFunctionModifier(FunctionModifier):
    """Removes functions of some types: their first input replaces their output.

    Args:
        rm_funcs: The types, such as `Dropout`.
    """

    def __init__(self, rm_funcs: Sequence[str] = ()) -> None:
        super().__init__()
        self._types = tuple(rm_funcs)

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        return inputs[0] if f.info.type_name in self._types else None
