"""Layers with binary weights, written as ordinary layers with the signs of the weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..writer import Call
from .arithmetic import ARITHMETIC
from .layers import LAYERS

if TYPE_CHECKING:
    from ..writer import Tensor

__all__ = ["BINARY"]


def _signs(c: Call) -> Tensor:
    """The signs of the weight, with zeros replaced by the argument `quantize_zero_to`."""
    g, w = c.graph, c.x(1)
    return g.op("Where", g.equal(w, g.number(0)), g.number(float(c.args["quantize_zero_to"])), g.op("Sign", w))


def _layer(kind: str, row: Any, is_scaled: bool) -> Any:
    """A row that writes a layer with the signs of its weight. If `is_scaled`, they are scaled by the mean magnitude."""
    bias = 4 if is_scaled else 3

    def write(c: Call) -> Any:
        """Writes the layer with the binary weight."""
        g, weight = c.graph, _signs(c)
        if is_scaled:
            made_of = [0] if kind == "Affine" else range(1, len(c.shapes[1]))
            weight = g.op("Mul", weight, g.reduce("ReduceMean", g.op("Abs", c.x(1)), made_of))
        inputs, shapes = [c.inputs[0], weight, *c.inputs[bias:]], [*c.shapes[:2], *c.shapes[bias:]]
        return row(Call(g, kind, {"channel_last": False, **c.args}, inputs, shapes, c.outputs))

    return write


BINARY: dict[str, Any] = {
    "BinaryConnectAffine": _layer("Affine", ARITHMETIC["Affine"], False),
    "BinaryConnectConvolution": _layer("Convolution", LAYERS["Convolution"], False),
    "BinaryWeightAffine": _layer("Affine", ARITHMETIC["Affine"], True),
    "BinaryWeightConvolution": _layer("Convolution", LAYERS["Convolution"], True),
}
"""One row for each type of function."""
