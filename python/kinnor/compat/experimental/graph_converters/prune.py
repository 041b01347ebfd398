"""Prunes output maps of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ....rewrite.patterns import registered
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Function, Variable

__all__ = ["PruningModifier"]

_AXES = {"Affine": 1, "Convolution": 0, "Deconvolution": 1, "DepthwiseConvolution": 0, "DepthwiseDeconvolution": 0}
"""The axis of the output maps in the weight of each layer type."""


class PruningModifier(FunctionModifier):
    """Sets weight and bias of an output map to zero if the sum of its squared weights is at most a threshold.

    The new parameters are `w-pruned` and `b-pruned`, in the scope of the layer's parameters.

    Args:
        pruning_threshold: The threshold.
        functions_to_prune: Types of the layers to prune.
        channel_last: Whether the output maps are the last weight axis of transposed convolutions.
    """

    def __init__(
        self,
        pruning_threshold: float,
        functions_to_prune: Sequence[str] = tuple(_AXES),
        channel_last: bool = False,
    ) -> None:
        super().__init__()
        self._threshold, self._types, self._channel_last = pruning_threshold, functions_to_prune, channel_last

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        kind = f.info.type_name
        if kind not in self._types or kind not in _AXES:
            return None
        w = inputs[1]
        axis = w.ndim - 1 if kind == "Deconvolution" and self._channel_last else _AXES[kind]
        others = tuple(i for i in range(w.ndim) if i != axis)
        kept = np.sum(w.d**2, axis=others, keepdims=True) > self._threshold
        scope = self.get_parameter_scope(w)
        given = [inputs[0], registered(scope, "w-pruned", w.d * kept, w)]
        if len(inputs) == 3:
            group = inputs[2].size // kept.size
            given.append(registered(scope, "b-pruned", inputs[2].d * np.tile(kept.ravel(), group), inputs[2]))
        return self._modify_as_same(f, given)
