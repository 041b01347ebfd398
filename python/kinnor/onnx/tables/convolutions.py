"""Convolutions, pooling and resizing."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..._core import Variable
from ..values import Row
from .building import per_channel, reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..values import Node

__all__ = ["CONVOLUTIONS", "convolved"]


def _pads(
    node: Node, lengths: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Any:
    """What is added before and after each spatial axis."""
    n = len(kernel)
    auto = node.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        given = node.get("pads") or [0] * (2 * n)
        return list(zip(given[:n], given[n:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * n
    found = []
    for length, k, s, d in zip(lengths, kernel, strides, dilations, strict=True):
        whole = max((-(-length // s) - 1) * s + (k - 1) * d + 1 - length, 0)
        less = whole // 2
        found.append((less, whole - less) if auto == "SAME_UPPER" else (whole - less, less))
    return found


def _framed(x: Variable, pads: Any, number: float = 0.0) -> Variable:
    return F.pad(x, [width for pair in pads for width in pair], "constant", number) if np.any(pads) else x


def convolved(node: Node, x: Variable, w: Variable, bias: Variable | None) -> Variable:
    """A convolution as the attributes of a node say it.

    Args:
        node: The node.
        x: Input.
        w: Weight.
        bias: Bias, or None.
    """
    n = w.ndim - 2
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    pads = _pads(node, x.shape[2:], w.shape[2:], strides, dilations)
    if any(low != high for low, high in pads):
        x, pads = _framed(x, pads), [(0, 0)] * n
    return F.convolution(
        x,
        w,
        bias,
        pad=[low for low, _ in pads],
        stride=strides,
        dilation=dilations,
        group=node.get("group", 1),
    )


def _conv_transpose(node: Node) -> Variable:
    x, w = node.x(0), node.x(1)
    n = w.ndim - 2
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    more = node.get("output_padding") or [0] * n
    whole = [
        (length - 1) * s + (k - 1) * d + 1
        for length, s, k, d in zip(x.shape[2:], strides, w.shape[2:], dilations, strict=True)
    ]
    auto, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [length * s for length, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        wanted = wanted[-n:]
        cut = [have + o - want for have, o, want in zip(whole, more, wanted, strict=True)]
        pads = [(c // 2, c - c // 2) if auto == "SAME_UPPER" else (c - c // 2, c // 2) for c in cut]
    else:
        given = node.get("pads") or [0] * (2 * n)
        pads = list(zip(given[:n], given[n:], strict=True))
    y = F.deconvolution(x, w, node.optional(2), stride=strides, dilation=dilations, group=node.get("group", 1))
    ends = [have - high for have, (_, high) in zip(whole, pads, strict=True)]
    if any(end + o > have for end, o, have in zip(ends, more, whole, strict=True)) or any(
        p < 0 for q in pads for p in q
    ):
        frame = [
            (max(-low, 0), max(end + o - have, 0))
            for (low, _), end, o, have in zip(pads, ends, more, whole, strict=True)
        ]
        y = F.deconvolution(x, w, stride=strides, dilation=dilations, group=node.get("group", 1))
        y = _framed(y, frame)
        y = y if not node.has(2) else y + per_channel(node.x(2), 1, y.ndim)
        pads = [(low + before, high) for (low, high), (before, _) in zip(pads, frame, strict=True)]
        ends = [end + before for end, (before, _) in zip(ends, frame, strict=True)]
    stops = [end + o for end, o in zip(ends, more, strict=True)]
    starts = [low for low, _ in pads]
    if not any(starts) and stops == list(y.shape[2:]):
        return y
    return F.slice(y, [0, 0, *starts], [*y.shape[:2], *stops], [1] * y.ndim)


def _pool_setup(node: Node) -> Any:
    """The input, its frame, kernel and strides; with what `ceil_mode` needs at the end."""
    x, kernel = node.x(), node.get("kernel_shape")
    n = len(kernel)
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    pads = _pads(node, x.shape[2:], kernel, strides, dilations)
    extra = [0] * n
    if node.get("ceil_mode", 0):
        for k, (length, size, s, d, (low, high)) in enumerate(
            zip(x.shape[2:], kernel, strides, dilations, pads, strict=True)
        ):
            span = length + low + high - (size - 1) * d - 1
            if -(-span // s) * s < length + low:
                extra[k] = max(-(-span // s) * s - span, 0)
    return x, pads, extra, kernel, strides


def _dilated(node: Node) -> list[int] | None:
    """The distances within a window, or None if they are all one."""
    found = node.get("dilations")
    return found if found and any(d != 1 for d in found) else None


def _windows(x: Variable, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[Variable]:
    """For each place in the windows, what is there in each of them."""
    n_steps = [
        (length - (k - 1) * d - 1) // s + 1
        for length, k, s, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)
    ]
    found = []
    for at in np.ndindex(*kernel):
        low = [i * d for i, d in zip(at, dilations, strict=True)]
        high = [a + (n - 1) * s + 1 for a, n, s in zip(low, n_steps, strides, strict=True)]
        found.append(F.slice(x, [0, 0, *low], [*x.shape[:2], *high], [1, 1, *strides]))
    return found


def _max_pool(node: Node) -> Any:
    if node.n_outputs > 1:
        raise node.unsupported("expected one output, got the indices too")
    x, pads, extra, kernel, strides = _pool_setup(node)
    ends = [(low, high + more) for (low, high), more in zip(pads, extra, strict=True)]
    if (dilations := _dilated(node)) is not None:
        return reduce(F.maximum2, _windows(_framed(x, ends, -np.inf), kernel, strides, dilations))
    if all(low == high < size for (low, high), size in zip(ends, kernel, strict=True)):
        return F.max_pooling(x, kernel, strides, pad=[low for low, _ in ends])
    return F.max_pooling(_framed(x, ends, -np.inf), kernel, strides)


def _average_pool(node: Node) -> Any:
    x, pads, extra, kernel, strides = _pool_setup(node)
    counts_pads = bool(node.get("count_include_pad", 0))
    ends = [(low, high + more) for (low, high), more in zip(pads, extra, strict=True)]
    dilations = _dilated(node)
    if not np.any(ends) and dilations is None:
        return F.average_pooling(x, kernel, strides)

    def summed(x: Variable) -> Variable:
        if dilations is None:
            return F.sum_pooling(x, kernel, strides)
        return reduce(F.add2, _windows(x, kernel, strides, dilations))

    total = summed(_framed(x, ends))
    ones = np.ones(x.shape[2:], np.float32)
    if counts_pads:
        ones = np.pad(ones, pads, constant_values=1.0)
        rest = [(0, more) for more in extra]
    else:
        rest = ends
    counted = summed(Variable.from_numpy_array(np.pad(ones, rest)[None, None]))
    counted.forward()
    return total * Variable.from_numpy_array(1.0 / np.maximum(counted.d, 1.0))


def _lp_pool(node: Node) -> Variable:
    x, pads, extra, kernel, strides = _pool_setup(node)
    ends = [(low, high + more) for (low, high), more in zip(pads, extra, strict=True)]
    p = float(node.get("p", 2))
    powers = _framed(F.pow_scalar(F.abs(x), p), ends)
    if (dilations := _dilated(node)) is not None:
        return F.pow_scalar(reduce(F.add2, _windows(powers, kernel, strides, dilations)), 1.0 / p)
    return F.pow_scalar(F.sum_pooling(powers, kernel, strides), 1.0 / p)


def _over_space(function: Any) -> Row:
    return Row(lambda node: function(node.x(), axis=list(range(2, node.x().ndim)), keepdims=True))


def _resize(node: Node) -> Variable:
    x = node.x()
    ndim = x.ndim
    is_upsample = node.proto.op_type == "Upsample"
    place = 1 if is_upsample or node.version < 11 else 2
    axes = [axis % ndim for axis in node.get("axes") or range(ndim)]
    scales = [1.0] * ndim
    lengths = list(x.shape)
    if node.has(3) and node.value(3).shape != (0,):
        if node.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise node.unsupported("expected the policy stretch, got another")
        for axis, length in zip(axes, node.ints(3) or [], strict=True):
            lengths[axis], scales[axis] = length, length / x.shape[axis]
    else:
        given = node.get("scales") if "scales" in node.attributes else node.static(place).tolist()
        for axis, scale in zip(axes, given, strict=True):
            lengths[axis], scales[axis] = int(np.floor(x.shape[axis] * scale)), scale
    mode = node.get("mode", "nearest")
    where = node.get("coordinate_transformation_mode", "asymmetric" if node.version < 11 else "half_pixel")
    if node.get("antialias", 0) or where not in (
        "half_pixel",
        "asymmetric",
        "align_corners",
        "pytorch_half_pixel",
        "half_pixel_symmetric",
    ):
        raise node.unsupported(f"expected a resize without antialiasing and crops, got {where}")
    y = x
    for axis in range(ndim):
        if lengths[axis] != x.shape[axis] or scales[axis] != 1.0:
            matrix = _resizing(node, x.shape[axis], lengths[axis], scales[axis], mode, where)
            y = _along(y, matrix, axis, mode)
    return F.identity(y) if y is x else y


def _resizing(node: Node, size: int, length: int, scale: float, mode: str, where: str) -> Any:
    """The weights (length, size) of what each element of an axis is made of."""
    at = np.arange(length, dtype=np.float64)
    if where == "align_corners":
        places = at * (size - 1) / (scale * size - 1) if scale * size != 1 else at * 0.0
    elif where == "asymmetric":
        places = at / scale
    elif where == "pytorch_half_pixel" and length == 1:
        places = at * 0.0
    elif where == "half_pixel_symmetric":
        places = size / 2 * (1 - length / (scale * size)) + (at + 0.5) / scale - 0.5
    else:
        places = (at + 0.5) / scale - 0.5
    matrix = np.zeros((length, size), np.float64)
    rows = np.arange(length)
    if mode == "nearest":
        kind = node.get("nearest_mode", "floor" if node.version < 11 else "round_prefer_floor")
        nearest = {
            "round_prefer_floor": np.ceil(places - 0.5),
            "round_prefer_ceil": np.floor(places + 0.5),
            "floor": np.floor(places),
            "ceil": np.ceil(places),
        }[kind]
        matrix[rows, np.clip(nearest, 0, size - 1).astype(int)] = 1.0
        return matrix
    base = np.floor(places)
    t = places - base
    if mode == "linear":
        weights = {0: 1 - t, 1: t}
    elif mode == "cubic":
        a = node.get("cubic_coeff_a", -0.75)
        weights = {}
        for k in (-1, 0, 1, 2):
            d = np.abs(t - k)
            near = ((a + 2) * d - (a + 3)) * d * d + 1
            far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
            weights[k] = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    else:
        raise node.unsupported(f"expected a known mode, got {mode}")
    outside = node.get("exclude_outside", 0)
    for k, weight in weights.items():
        index = (base + k).astype(int)
        inside = (index >= 0) & (index < size)
        kept = np.where(inside, weight, 0.0) if outside else weight
        np.add.at(matrix, (rows, np.clip(index, 0, size - 1)), kept)
    return matrix / matrix.sum(axis=1, keepdims=True) if outside else matrix


def _along(x: Variable, matrix: Any, axis: int, mode: str) -> Variable:
    """An axis, resized by weights."""
    if mode == "nearest":
        chosen = Variable.from_numpy_array(np.argmax(matrix, axis=1).astype(np.int64))
        return F.gather(x, chosen, axis=axis)
    order = [k for k in range(x.ndim) if k != axis] + [axis]
    weights = Variable.from_numpy_array(np.ascontiguousarray(matrix.T).astype(np.float32))
    last = F.transpose(x, order)
    y = F.affine(reshape(last, (last.size // last.shape[-1], last.shape[-1])), weights)
    back = [order.index(k) for k in range(x.ndim)]
    return F.transpose(reshape(y, (*last.shape[:-1], matrix.shape[0])), back)


CONVOLUTIONS: dict[tuple[str, str], Row] = {
    ("", "AveragePool"): Row(_average_pool),
    ("", "Conv"): Row(lambda node: convolved(node, node.x(0), node.x(1), node.optional(2))),
    ("", "ConvTranspose"): Row(_conv_transpose),
    ("", "GlobalAveragePool"): _over_space(F.mean),
    ("", "GlobalMaxPool"): _over_space(F.max),
    ("", "LpPool"): Row(_lp_pool),
    ("", "MaxPool"): Row(_max_pool),
    ("", "Resize"): Row(_resize),
    ("", "Upsample"): Row(_resize),
}
"""One row for each operator."""
