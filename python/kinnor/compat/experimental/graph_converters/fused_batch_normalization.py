"""Fuses batch normalization, addition and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import functions as F
from ....rewrite.patterns import inputs_by_name, is_a, only_reader
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from ...._core import Function, Variable

__all__ = ["FusedBatchNormalizationModifier"]


class FusedBatchNormalizationModifier(FunctionModifier):
    """Fuses a batch normalization, an addition to its output and a ReLU into one function.

    The fused function uses the parameters of the batch normalization.
    """

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        if not is_a(f, "ReLU"):
            return None
        add = f.inputs[0].parent
        if add is None or not is_a(add, "Add2") or only_reader(add) != f:
            return None
        for place, v in enumerate(add.inputs):
            bn = v.parent
            if bn is not None and is_a(bn, "BatchNormalization") and only_reader(bn) == add:
                own = inputs_by_name(bn, [self._made.get(x, x) for x in bn.inputs])
                z = add.inputs[1 - place]
                args = {name: bn.info.args[name] for name in ("axes", "decay_rate", "eps", "batch_stat")}
                return F.fused_batch_normalization(**own, z=self._made.get(z, z), **args, nonlinearity="relu")
        return None
