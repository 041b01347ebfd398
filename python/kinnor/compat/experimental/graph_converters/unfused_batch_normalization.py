"""Splits fused batch normalizations into batch normalization, addition and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import functions as F
from ....rewrite.patterns import is_a
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from ...._core import Function, Variable

__all__ = ["UnfusedBatchNormalizationModifier"]


class UnfusedBatchNormalizationModifier(FunctionModifier):
    """Splits a fused batch normalization into three functions, which use its parameters."""

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if not is_a(f, "FusedBatchNormalization"):
            return None
        args = f.info.args
        rest: dict[str, Any] = {name: args[name] for name in ("axes", "decay_rate", "eps", "batch_stat")}
        x, beta, gamma, mean, variance = inputs[:5]
        h = F.batch_normalization(x, beta, gamma, mean, variance, **rest)
        h = h + inputs[5] if len(inputs) == 6 else h
        return F.relu(h) if args["nonlinearity"] == "relu" else h
