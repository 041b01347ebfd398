"""Fused layers as separate ONNX nodes, and layers with binary weights as ordinary ones with the signs of the weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....nnp.messages import inputs_of_fused_convolution
from ..writer import Call
from .arithmetic import ARITHMETIC
from .arrays import ARRAYS
from .layers import LAYERS

if TYPE_CHECKING:
    from ..writer import Tensor

__all__ = ["BINARY", "FUSED"]

ACTIVATIONS = {
    "relu": "ReLU",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "leaky_relu": "LeakyReLU",
    "elu": "ELU",
    "relu6": "ReLU6",
}
"""The function types of activations."""


def _finished(c: Call, y: Tensor, z: Tensor | None) -> Tensor:
    """Adds `z`, if there is one, and applies the activation."""
    if z is not None:
        y = c.graph.op("Add", y, z)
    kind = ACTIVATIONS.get(c.args["nonlinearity"])
    if kind is None:
        return y
    args = dict(zip(("alpha",), c.args.get("nonlinearity_args", ()), strict=False))
    shapes = [c.outputs[0]]
    made: Tensor = ARITHMETIC[kind](Call(c.graph, kind, args, [y], shapes, shapes))
    return made


def _padded(c: Call) -> tuple[Tensor, tuple[int, ...], list[int]]:
    """The input, padded if the convolution cannot pad it; its shape; and the padding left to the convolution."""
    spatial = len(c.args["stride"])
    pad = [int(p) for p in c.args["pad"]]
    if len(pad) == spatial and c.args["pad_mode"] == "constant" and c.args["constant_value"] == 0:
        return c.inputs[0], c.shape, pad
    if len(pad) == spatial:
        pad = [p for width in pad for p in (width, width)] + ([0, 0] if c.args["channel_last"] else [])
    args = {"pad_width": pad, "mode": c.args["pad_mode"], "constant_value": c.args["constant_value"]}
    first = c.ndim - len(pad) // 2
    framed = [n + sum(pad[2 * i : 2 * i + 2]) for i, n in enumerate(c.shape[first:])]
    shape = (*c.shape[:first], *framed)
    return ARRAYS["Pad"](Call(c.graph, "Pad", args, c.inputs[:1], c.shapes[:1], [shape])), shape, [0] * spatial


def _convolution(c: Call) -> Tensor:
    """Writes `FusedConvolution` as ONNX nodes."""
    names = inputs_of_fused_convolution([len(shape) for shape in c.shapes])
    at = {name: i for i, name in enumerate(names)}
    x, shape, pad = _padded(c)
    own = [i for name, i in at.items() if name in ("weight", "bias")]
    inputs, shapes = [x, *(c.inputs[i] for i in own)], [shape, *(c.shapes[i] for i in own)]
    y = LAYERS["Convolution"](Call(c.graph, "Convolution", {**c.args, "pad": pad}, inputs, shapes, c.outputs))
    if "beta" in at:
        axis = len(c.outputs[0]) - 1 if c.args["channel_last"] else c.args["base_axis"]
        args = {**c.args, "axes": [axis], "no_scale": False, "no_bias": False}
        statistics = range(at["beta"], at["beta"] + 4)
        inputs, shapes = [y, *(c.inputs[i] for i in statistics)], [c.outputs[0], *(c.shapes[i] for i in statistics)]
        y = LAYERS["BatchNormalization"](Call(c.graph, "BatchNormalization", args, inputs, shapes, c.outputs))[0]
    return _finished(c, y, c.x(at["z"]) if "z" in at else None)


def _batch_normalization(c: Call) -> list[Tensor]:
    """Writes `FusedBatchNormalization` as ONNX nodes."""
    args = {name: c.args.get(name, False) for name in ("no_bias", "no_scale", "no_mean", "no_variance")}
    n = 5 - sum(args.values())
    inner = Call(c.graph, "BatchNormalization", {**c.args, **args}, c.inputs[:n], c.shapes[:n], c.outputs)
    y, *statistics = LAYERS["BatchNormalization"](inner)
    return [_finished(c, y, c.x(n) if len(c.inputs) > n else None), *statistics]


FUSED: dict[str, Any] = {
    "FusedBatchNormalization": _batch_normalization,
    "FusedConvolution": _convolution,
}
"""One row for each type of function."""


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
