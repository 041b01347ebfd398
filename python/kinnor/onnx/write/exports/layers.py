"""Convolutions, pooling, resizing, normalization, recurrent layers and detection."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ...read.tables.recurrent import ORDER
from .arrays import powers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..writer import Call, Tensor

__all__ = ["LAYERS", "RECURRENT"]

# --- Convolutions


def _framed(c: Call, n: int, base: int, last: bool, write: Any) -> Tensor:
    """Writes a layer on an input of ONNX's shape (batch, channels, spatial...), and restores the shape of the output.

    Args:
        c: The function.
        n: Number of spatial axes.
        base: Number of batch axes; they become one.
        last: Whether channels come last.
        write: Writes the layer for an input tensor.
    """
    g, x = c.graph, c.x()
    if last:
        x = g.transpose(x, [*range(base), c.ndim - 1, *range(base, c.ndim - 1)])
    moved = [*c.shape[:base], c.shape[-1], *c.shape[base:-1]] if last else list(c.shape)
    if base != 1:
        x = g.reshape(x, [-1, *moved[base:]])
    y = write(x)
    out = c.outputs[0]
    if base != 1:
        y = g.reshape(y, [*out[:base], out[-1], *out[base:-1]] if last else out)
    return g.transpose(y, [*range(base), *range(base + 1, len(out)), base]) if last else y


def _convolution(c: Call) -> Tensor:
    """Writes `Convolution` and `Deconvolution` as ONNX nodes."""
    g, last, n = c.graph, bool(c.args["channel_last"]), len(c.args["pad"])
    w = c.x(1)
    w = g.transpose(w, [0, n + 1, *range(1, n + 1)]) if last else w
    return _filtered(c, w, int(c.args["group"]), int(c.args["base_axis"]) % c.ndim, last)


def _depthwise(c: Call) -> Tensor:
    """Writes `DepthwiseConvolution` and `DepthwiseDeconvolution` as ONNX nodes."""
    g, base = c.graph, int(c.args["base_axis"]) % c.ndim
    is_transposed = c.kind == "DepthwiseDeconvolution"
    w = g.reshape(c.x(1), [c.shapes[1][0], 1, *c.shapes[1][1:]])
    group = c.shape[base] // int(c.args["divisor"]) if is_transposed else c.shape[base]
    return _filtered(c, w, group, base, last=False)


def _filtered(c: Call, w: Tensor, group: int, base: int, last: bool) -> Tensor:
    """Writes a convolution or transposed convolution with the filters `w` in the order of axes that ONNX expects.

    Args:
        c: The function.
        w: The filters.
        group: Number of groups of channels.
        base: Number of batch axes.
        last: Whether channels come last.
    """
    operator = "ConvTranspose" if c.kind.lower().endswith("deconvolution") else "Conv"
    more = c.args.get("output_padding")

    def write(x: Tensor) -> Tensor:
        """Writes the convolution of an input."""
        return c.graph.op(
            operator,
            x,
            w,
            *([] if c.optional(2) is None else [c.x(2)]),
            pads=list(c.args["pad"]) * 2,
            strides=list(c.args["stride"]),
            dilations=list(c.args["dilation"]),
            group=int(group),
            output_padding=list(more) if more and any(more) else None,
        )

    return _framed(c, len(c.args["pad"]), base, last, write)


def _pooling(c: Call) -> Tensor:
    """Writes `AveragePooling`, `MaxPooling` and `SumPooling` as ONNX nodes."""
    g, kernel, strides, pad = c.graph, *([int(k) for k in c.args[key]] for key in ("kernel", "stride", "pad"))
    n, last = len(kernel), bool(c.args["channel_last"])
    if n > 3:
        raise c.refused("windows of three axes or fewer")
    first = c.ndim - n - int(last)
    lengths = [int(k) for k in c.shape[first : first + n]]
    out = c.outputs[0][first : first + n]
    # Windows at the border may reach beyond the padding. Extra padding at the end completes them.
    extra = [
        max((o - 1) * s + k - length - 2 * p, 0)
        for o, s, k, length, p in zip(out, strides, kernel, lengths, pad, strict=True)
    ]
    is_max = c.kind == "MaxPooling"

    def write(x: Tensor) -> Tensor:
        """Writes the pooling of an input."""
        pads = [*pad, *(p + e for p, e in zip(pad, extra, strict=True))]
        if any(p >= k for p, k in zip(pads, kernel * 2, strict=True)):
            value = float(np.finfo(np.float32).min) if is_max else 0.0
            widths = [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)]
            x, pads = g.pad(x, widths, value=value), [0] * (2 * n)
        if is_max:
            return g.op("MaxPool", x, kernel_shape=kernel, strides=strides, pads=pads)
        counts = c.kind == "SumPooling" or bool(c.args["including_pad"])
        y = g.op("AveragePool", x, kernel_shape=kernel, strides=strides, pads=pads, count_include_pad=int(counts))
        if c.kind == "SumPooling":
            return g.op("Mul", y, g.number(math.prod(kernel)))
        if not counts or not any(extra):
            return y
        # Elements beyond the padding do not count in the mean.
        shares = [
            k / np.minimum(k, length + 2 * p - s * np.arange(o))
            for k, length, p, s, o in zip(kernel, lengths, pad, strides, out, strict=True)
        ]
        for axis, share in enumerate(shares):
            y = g.op("Mul", y, g.constant(share.reshape(-1, *[1] * (n - 1 - axis)), np.float32))
        return y

    if last:
        return _framed(c, n, first, True, write)
    if first == 2:
        return write(c.x())
    y = write(g.reshape(c.x(), [-1, 1, *lengths]))
    return g.reshape(y, c.outputs[0])


def _global_average(c: Call) -> Tensor:
    """Writes `GlobalAveragePooling` as ONNX nodes."""
    y = c.graph.op("GlobalAveragePool", c.x())
    return y if c.ndim == 4 else c.graph.reshape(y, c.outputs[0])


def _interpolate(c: Call) -> Tensor:
    """Writes `Interpolate` as ONNX nodes."""
    g, x = c.graph, c.x()
    last = int(bool(c.args["channel_last"]))
    n = len(c.args["output_size"] or c.args["scale"])
    keys = ("mode", "align_corners", "half_pixel", "half_pixel_for_nn")
    for axis in range(c.ndim - n - last, c.ndim - last):
        length, wanted = c.fixed(axis), int(c.outputs[0][axis])
        # Interpolating the unit vectors gives the matrix of the axis.
        units = Variable.from_numpy_array(np.eye(length, dtype=np.float32))
        made = F.interpolate(units, output_size=(wanted,), **{key: c.args[key] for key in keys})
        made.forward()
        matrix = made.d.copy()
        if c.args["mode"] == "nearest":
            x = g.take(x, axis, matrix.argmax(axis=0))
        elif axis == c.ndim - 1:
            x = g.op("MatMul", x, g.constant(matrix))
        elif axis == c.ndim - 2:
            x = g.op("MatMul", g.constant(matrix.T), x)
        else:
            order = [k for k in range(c.ndim) if k != axis] + [axis]
            y = g.op("MatMul", g.transpose(x, order), g.constant(matrix))
            x = g.transpose(y, [order.index(k) for k in range(c.ndim)])
    return x


# --- Normalization


def _scaled(c: Call, y: Tensor, first: int = 1) -> Tensor:
    """A normalized tensor times `gamma` plus `beta`, which are optional inputs from index `first` on."""
    g, at = c.graph, first
    beta = None if c.args["no_bias"] else c.x(at)
    at += not c.args["no_bias"]
    y = y if c.args["no_scale"] else g.op("Mul", y, c.x(at))
    return y if beta is None else g.op("Add", y, beta)


def _batch(c: Call) -> list[Tensor]:
    """Writes `BatchNormalization` as ONNX nodes."""
    g, x, eps = c.graph, c.x(), float(c.args["eps"])
    axes = [axis % c.ndim for axis in c.args["axes"]]
    if c.args["batch_stat"]:
        y, mean, variance = g.standardized(x, [k for k in range(c.ndim) if k not in axes], eps)
        return [_scaled(c, y), mean, variance][: len(c.outputs)]
    at = 1 + (not c.args["no_bias"]) + (not c.args["no_scale"])
    mean, variance = c.x(at), c.x(at + 1)
    if axes == [1] and c.ndim > 1:
        n = int(c.shape[1])
        gamma = g.constant(np.ones(n, np.float32)) if c.args["no_scale"] else g.reshape(c.x(at - 1), [n])
        beta = g.constant(np.zeros(n, np.float32)) if c.args["no_bias"] else g.reshape(c.x(1), [n])
        y = g.op("BatchNormalization", x, gamma, beta, g.reshape(mean, [n]), g.reshape(variance, [n]), epsilon=eps)
    else:
        deviation = g.op("Sqrt", g.op("Add", variance, g.number(eps)))
        y = _scaled(c, g.op("Div", g.op("Sub", x, mean), deviation))
    return [y, mean, variance][: len(c.outputs)]


def _standard(c: Call, kept: Sequence[int]) -> list[Tensor]:
    """Normalization over all axes except `kept`."""
    y, mean, variance = c.graph.standardized(c.x(), [k for k in range(c.ndim) if k not in kept], float(c.args["eps"]))
    return [_scaled(c, y), mean, variance][: len(c.outputs)]


def _listed(c: Call, key: str) -> list[int]:
    """An argument of one or several axes, as a list of non-negative axes."""
    given = c.args[key]
    return [int(k) % c.ndim for k in (given if isinstance(given, (list, tuple)) else [given])]


def _layer(c: Call) -> list[Tensor]:
    """Writes `LayerNormalization` as ONNX nodes."""
    g, kept = c.graph, _listed(c, "batch_axis")
    first = len(kept)
    inner = list(c.shape[first:])
    has_both = not (c.args["no_scale"] or c.args["no_bias"]) and len(c.outputs) == 1
    is_plain = has_both and all(list(c.shapes[i]) == [1] * first + inner for i in (1, 2))
    if is_plain and g.opset >= 17 and kept == list(range(first)) and inner:
        beta, gamma = (g.reshape(c.x(i), inner) for i in (1, 2))
        return [g.op("LayerNormalization", c.x(), gamma, beta, axis=first, epsilon=float(c.args["eps"]))]
    return _standard(c, kept)


def _group(c: Call) -> list[Tensor]:
    """Writes `GroupNormalization` as ONNX nodes."""
    g, axis, groups = c.graph, int(c.args["channel_axis"]) % c.ndim, int(c.args["num_groups"])
    kept = [k if k < axis else k + 1 for k in _listed(c, "batch_axis")] + [axis]
    parts = [*c.shape[:axis], groups, int(c.shape[axis]) // groups, *c.shape[axis + 1 :]]
    y, mean, variance = g.standardized(
        g.reshape(c.x(), parts), [k for k in range(len(parts)) if k not in kept], float(c.args["eps"])
    )
    made = [_scaled(c, g.reshape(y, c.shape))]
    made += [g.reshape(x, shape) for x, shape in zip((mean, variance), c.outputs[1:], strict=False)]
    return made


def _norm_normalization(c: Call) -> Tensor:
    """Writes `NormNormalization` as ONNX nodes."""
    g, (power, axes, p) = c.graph, powers(c)
    total = g.op("Add", g.reduce("ReduceSum", power, axes), g.number(c.args["eps"]))
    return g.op("Div", c.x(), total if p == 1 else g.op("Pow", total, g.number(1 / p)))


def _weight_normalization(c: Call) -> Tensor:
    """Writes `WeightNormalization` as ONNX nodes."""
    g, w, axis = c.graph, c.x(0), int(c.args["dim"]) % c.ndim
    others = [k for k in range(c.ndim) if k != axis]
    length = g.op("Sqrt", g.op("Add", g.reduce("ReduceSum", g.op("Mul", w, w), others), g.number(c.args["eps"])))
    scale = g.reshape(c.x(1), [c.shape[axis] if k == axis else 1 for k in range(c.ndim)])
    return g.op("Mul", w, g.op("Div", scale, length))


# --- Detection and grids


def _detected(c: Call) -> Tensor:
    """Writes `NmsDetection2d` as ONNX nodes."""
    if not c.args["nms_per_class"]:
        raise c.refused("nms_per_class, got a comparison by objectness")
    c.needs(11)
    g, x, n, size = c.graph, c.x(), c.fixed(1), c.fixed(2)
    least = g.number(c.args["thresh"])
    boxes, objectness, classes = g.split(x, 2, [4, 1, size - 5])

    def kept(v: Tensor) -> Tensor:
        """Elements, with zero for elements below the threshold."""
        return g.op("Where", g.op("Less", v, least, dtype=np.bool_), g.number(0), v)

    objectness = kept(objectness)
    scores = g.transpose(kept(g.op("Mul", objectness, classes)), [0, 2, 1])
    # Boxes stay in centre form, which all runtimes support.
    places = g.op(
        "NonMaxSuppression",
        boxes,
        scores,
        g.ints([n]),
        g.constant([c.args["nms"]], np.float32),
        g.constant([0.0], np.float32),
        center_point_box=1,
        dtype=np.int64,
    )
    values = g.op("GatherND", scores, places)
    zeros = g.op("Sub", scores, scores)
    found = g.op("ScatterND", zeros, places, values)
    return g.op("Concat", boxes, objectness, g.transpose(found, [0, 2, 1]), axis=2)


def _warped(c: Call) -> Tensor:
    """Writes `WarpByGrid` as ONNX nodes."""
    c.needs(16)
    if c.ndim != 4 or c.args["channel_last"]:
        raise c.refused("images of shape (n, channels, height, width)")
    linear = "linear" if c.graph.opset >= 20 else "bilinear"
    return c.graph.op(
        "GridSample",
        c.x(0),
        c.x(1),
        mode={"linear": linear, "nearest": "nearest"}[c.args["mode"]],
        padding_mode={"zero": "zeros", "repeat": "border", "reflect": "reflection"}[c.args["padding_mode"]],
        align_corners=int(c.args["align_corners"]),
    )


LAYERS: dict[str, Any] = {
    "AveragePooling": _pooling,
    "BatchNormalization": _batch,
    "Convolution": _convolution,
    "Deconvolution": _convolution,
    "DepthwiseConvolution": _depthwise,
    "DepthwiseDeconvolution": _depthwise,
    "GlobalAveragePooling": _global_average,
    "GroupNormalization": _group,
    "InstanceNormalization": lambda c: _standard(c, [*_listed(c, "batch_axis"), *_listed(c, "channel_axis")]),
    "Interpolate": _interpolate,
    "LayerNormalization": _layer,
    "MaxPooling": _pooling,
    "NmsDetection2d": _detected,
    "NormNormalization": _norm_normalization,
    "SumPooling": _pooling,
    "TensorNormalization": lambda c: _standard(c, _listed(c, "axes")),
    "WarpByGrid": _warped,
    "WeightNormalization": _weight_normalization,
    "WeightStandardization": lambda c: list(
        c.graph.standardized(
            c.x(), [k for k in range(c.ndim) if k != int(c.args["channel_axis"]) % c.ndim], float(c.args["eps"])
        )[: len(c.outputs)]
    ),
}
"""One row for each type of function."""


def _element(x: Tensor, axis: int, k: int, c: Call) -> Tensor:
    """Element `k` of an axis, without the axis."""
    return c.graph.squeeze(c.graph.part(x, axis, k, k + 1), [axis])


def _recurrent(c: Call) -> list[Tensor]:
    """Writes `GRU`, `LSTM` and `RNN` as ONNX nodes."""
    g, kind = c.graph, c.kind
    order, n_states = ORDER[kind], 2 if kind == "LSTM" else 1
    n_layers, n_directions, hidden = int(c.args["num_layers"]), 1 + bool(c.args["bidirectional"]), int(c.shapes[1][-1])
    n_gates = len(order)
    first = 1 + n_states
    later = c.x(first + 1) if n_layers > 1 else None
    bias = c.optional(first + 1 + (n_layers > 1))
    x, ends = c.x(), []
    for k in range(n_layers):
        shape = list(c.shapes[first] if k == 0 else c.shapes[first + 1][1:])
        n_in = int(shape[-1]) - hidden
        w = c.x(first) if later is None or k == 0 else _element(later, 0, k - 1, c)
        w = g.take(w, 1, order) if kind != "RNN" else w
        taken = g.part(w, len(shape) - 1, 0, n_in)
        kept = g.part(w, len(shape) - 1, n_in, n_in + hidden)
        states = [_element(c.x(1 + i), 0, k, c) for i in range(n_states)]
        attributes: dict[str, Any] = {"hidden_size": hidden}
        if n_directions > 1:
            attributes["direction"] = "bidirectional"
        if kind == "GRU":
            attributes["linear_before_reset"] = 1
        if kind == "RNN":
            attributes["activations"] = [c.args["nonlinearity"].capitalize()] * n_directions
        made = g.ops(
            kind,
            x,
            g.reshape(taken, [n_directions, n_gates * hidden, n_in]),
            g.reshape(kept, [n_directions, n_gates * hidden, hidden]),
            None if bias is None else _recurrent_bias(c, bias, k, n_directions, hidden),
            None,
            *states,
            n=1 + n_states,
            **attributes,
        )
        y = g.transpose(made[0], [0, 2, 1, 3])
        x = g.op("Reshape", y, g.ints([0, 0, n_directions * hidden]))
        ends.append([g.unsqueeze(end, [0]) for end in made[1:]])
    stacked = [g.op("Concat", *held, axis=0) if n_layers > 1 else held[0] for held in zip(*ends, strict=True)]
    return [x, *stacked]


def _recurrent_bias(c: Call, bias: Tensor, k: int, n_directions: int, hidden: int) -> Tensor:
    """The bias of layer `k` in ONNX's form: input biases, then state biases."""
    g, order = c.graph, ORDER[c.kind]
    held = _element(bias, 0, k, c)
    n = len(order) * hidden
    if c.kind == "RNN":
        zeros = g.constant(np.zeros((n_directions, n), np.float32))
        return g.op("Concat", held, zeros, axis=1)
    first = g.reshape(g.take(held, 1, order), [n_directions, n])
    if c.kind == "LSTM":
        return g.op("Concat", first, g.constant(np.zeros((n_directions, n), np.float32)), axis=1)
    zeros = g.constant(np.zeros((n_directions, 2 * hidden), np.float32))
    second = g.reshape(g.part(held, 1, 3, 4), [n_directions, hidden])
    return g.op("Concat", first, zeros, second, axis=1)


RECURRENT: dict[str, Any] = {"GRU": _recurrent, "LSTM": _recurrent, "RNN": _recurrent}
"""One row for each type of function."""
