"""The base class of the modifiers between channels first and channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ....rewrite.patterns import registered
from .graph_converter import FunctionModifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Function

__all__ = ["ChannelOrderModifier"]

_POOLING = ("AveragePooling", "MaxPooling", "SumPooling", "Unpooling")
"""Functions on windows without weights: their argument `channel_last` changes."""
_POINTS = ("Convolution", "Deconvolution")
"""Functions with filters: their argument `channel_last` and their weight change."""


class ChannelOrderModifier(FunctionModifier):
    """Converts a graph on images from one memory layout to the other.

    Weights and statistics are transposed into new parameters, in the scopes of the old ones.

    Args:
        inputs: The images that the graph reads.
        turned: The transposed images to use instead; by default new variables with the transposed values.
    """

    last: bool

    def __init__(self, inputs: Sequence[Variable], turned: Sequence[Variable] | None = None) -> None:
        super().__init__()
        self._suffix = "cl" if self.last else "cf"
        if turned is None:
            turned = [Variable.from_numpy_array(np.ascontiguousarray(self._transposed(v.d))) for v in inputs]
        self._turned_inputs, self._images = list(turned), dict(zip(inputs, turned, strict=True))
        self._made.update(self._images)

    def modify(self, f: Function, inputs: list[Variable]) -> Any:
        """Build the replacement of a function. None stands for a copy of it."""
        kind, args = f.info.type_name, f.info.args
        turned = f.inputs[0].ndim == 4
        if not turned and kind != "Affine":
            return None
        if kind in _POINTS:
            w = self._parameter(f.inputs[1], "W")
            return self._call_function(kind, [inputs[0], w, *inputs[2:]], {**args, "channel_last": self.last})
        if kind == "BatchNormalization":
            names = [*(() if args["no_bias"] else ("beta",)), *(() if args["no_scale"] else ("gamma",)), "mean", "var"]
            own = [self._parameter(v, name) for v, name in zip(f.inputs[1:], names, strict=True)]
            return self._batch_normalization(inputs[0], dict(zip(names, own, strict=True)), args)
        if kind in _POOLING:
            return self._call_function(kind, inputs, {**args, "channel_last": self.last})
        if kind == "Concatenate":
            return self._call_function(kind, inputs, {**args, "axis": self._axis(args["axis"])})
        if kind == "Affine" and turned:
            w = self._rows(f.inputs[0].shape[1:], f.inputs[1])
            return self._call_function(kind, [inputs[0], w, *inputs[2:]], args)
        return None

    def finish_up(self) -> None:
        """Reset the modifier for another graph on the same images."""
        super().finish_up()
        self._made.update(self._images)

    def _batch_normalization(self, x: Variable, own: dict[str, Any], args: dict[str, Any]) -> Any:
        """The batch normalization with its channel axis moved."""
        own["variance"] = own.pop("var")
        own.update({name: args[name] for name in ("decay_rate", "eps", "batch_stat")})
        return F.batch_normalization(x, axes=[self._axis(axis) for axis in args["axes"]], **own)

    def _axis(self, axis: int) -> int:
        """The new position of an axis of an image."""
        axis %= 4
        return ([0, 3, 1, 2] if self.last else [0, 2, 3, 1])[axis]

    def _transposed(self, values: Any) -> Any:
        """Values transposed to the new memory layout."""
        return values.transpose([0, 2, 3, 1] if self.last else [0, 3, 1, 2])

    def _parameter(self, v: Variable, name: str) -> Variable:
        """A new parameter with the transposed values of another."""
        values = np.ascontiguousarray(self._transposed(v.d))
        return registered(self.get_parameter_scope(v), f"{name}_{self._suffix}", values, v)

    def _rows(self, image: tuple[int, ...], w: Variable) -> Variable:
        """The weight of an affine layer on images, with its rows in the order of the new layout."""
        order = (1, 2, 0) if self.last else (2, 0, 1)
        rows = np.arange(np.prod(image)).reshape(image).transpose(order).ravel()
        return registered(self.get_parameter_scope(w), f"W_{self._suffix}", w.d[rows], w)
