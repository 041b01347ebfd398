"""Converts graphs to parameters that need no gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....parameter import get_parameters
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from ...._core import Function, Variable

__all__ = ["NoGradModifier"]


class NoGradModifier(FunctionModifier):
    """Replaces the parameters of a graph by variables that need no gradient and share their values."""

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        known = set(get_parameters(grad_only=False).values())
        given = [v.get_unlinked_variable(need_grad=False) if v.parent is None and v in known else v for v in inputs]
        return self._modify_as_same(f, given)
