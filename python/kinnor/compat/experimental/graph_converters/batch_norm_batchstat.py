"""Switches batch normalizations to their running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import functions as F
from ....rewrite.patterns import inputs_by_name, is_a
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from ...._core import Function, Variable

__all__ = ["BatchNormBatchStatModifier"]


class BatchNormBatchStatModifier(FunctionModifier):
    """Makes batch normalizations use their running statistics instead of the batch's, as in evaluation."""

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if is_a(f, "BatchNormalization"):
            args = f.info.args
            own = inputs_by_name(f, inputs)
            own.update({name: args[name] for name in ("axes", "decay_rate", "eps")})
            return F.batch_normalization(own.pop("x"), **own, batch_stat=False)
        if is_a(f, "FusedBatchNormalization", "SyncBatchNormalization"):
            return self._call_function(f.info.type_name, inputs, {**f.info.args, "batch_stat": False})
        return None
