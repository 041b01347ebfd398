"""Convolutions, pooling and resizing."""

from __future__ import annotations

import math
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ...._core import Variable
from ...._python_functions.detection import resampled
from ..values import OnnxError, Row, note_free, note_lengths, note_same
from .building import per_channel, sliced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..values import Node

__all__ = ["CONVOLUTIONS", "averaged", "convolved", "maximal"]


def _pads(
    attributes: Mapping[str, Any],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    lengths: Sequence[int],
) -> list[tuple[int, int]]:
    """The padding before and after each spatial axis, from the attributes `pads` or `auto_pad`."""
    n = len(kernel)
    auto = attributes.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        given = attributes.get("pads") or [0] * (2 * n)
        return list(zip(given[:n], given[n:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * n
    found = []
    for length, k, s, d in zip(lengths, kernel, strides, dilations, strict=True):
        whole = max((-(-length // s) - 1) * s + (k - 1) * d + 1 - length, 0)
        less = whole // 2
        found.append((less, whole - less) if auto == "SAME_UPPER" else (whole - less, less))
    return found


def _noted(node: Node, lengths: Sequence[int], find: Callable[[Sequence[int]], Any]) -> Any:
    """Returns what follows from the spatial lengths of the first input, and notes that it does.

    Args:
        node: The node.
        lengths: The lengths.
        find: Finds it for other lengths too.
    """
    found = find(lengths)
    if not node.domain:  # the axes are in ONNX's order
        note_same(lambda inputs: inputs[0] is not None and find(inputs[0].shape[2:]) == found)
    note_lengths()
    return found


def _follows(attributes: Mapping[str, Any], strides: Sequence[int]) -> bool:
    """True if the padding follows from lengths."""
    return attributes.get("auto_pad", "").startswith("SAME") and any(s != 1 for s in strides)


def _framed(x: Variable, pads: Any, number: float = 0.0) -> Variable:
    """The input padded along its spatial axes; itself without padding."""
    return F.pad(x, [width for pair in pads for width in pair], "constant", number) if np.any(pads) else x


def convolved(node: Node, x: Variable, w: Variable, bias: Variable | None) -> Variable:
    """A convolution with the attributes of a node.

    Args:
        node: The node.
        x: Input.
        w: Weight.
        bias: Bias, or None.
    """
    n = w.ndim - 2
    strides, dilations = node.get("strides") or [1] * n, node.get("dilations") or [1] * n
    find = partial(_pads, node.attributes, w.shape[2:], strides, dilations)
    lengths = x.shape[2:]
    pads = _noted(node, lengths, find) if _follows(node.attributes, strides) else find(lengths)
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
    """Builds `ConvTranspose`."""
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
    left = [high - o for (_, high), o in zip(pads, more, strict=True)]
    frame: list[tuple[int, int]] = []
    if any(n < 0 for n in left) or any(p < 0 for q in pads for p in q):
        frame = [(max(-low, 0), max(-n, 0)) for (low, _), n in zip(pads, left, strict=True)]
        y = F.deconvolution(x, w, stride=strides, dilation=dilations, group=node.get("group", 1))
        y = _framed(y, frame)
        y = y if not node.has(2) else y + per_channel(node.x(2), 1, y.ndim)
        pads = [(low + before, high) for (low, high), (before, _) in zip(pads, frame, strict=True)]
    starts, stops = [low for low, _ in pads], [-n if n > 0 else None for n in left]
    is_free = node.get("output_shape") is None and not (
        node.value(1).is_computed or (node.has(2) and node.value(2).is_computed)
    )
    if not is_free or frame or any(starts) or any(stops):
        note_lengths()
    if is_free:  # what is cut off does not depend on lengths
        note_free()
    if not any(starts) and not any(stops):
        return y
    return sliced(y, [0, 0, *starts], [None, None, *stops])


def _pool_setup(node: Node, x: Variable) -> Any:
    """The padding, the extra padding at the end for `ceil_mode`, the kernel and the strides of a pooling node."""
    attributes, kernel, lengths = node.attributes, node.get("kernel_shape"), x.shape[2:]
    strides = node.get("strides") or [1] * len(kernel)
    find = partial(_pool_pads, attributes, kernel, strides)
    follows = bool(node.get("ceil_mode", 0)) or _follows(attributes, strides)
    pads, extra = _noted(node, lengths, find) if follows else find(lengths)
    return pads, extra, kernel, strides


def _pool_pads(
    attributes: Mapping[str, Any], kernel: Sequence[int], strides: Sequence[int], lengths: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """The padding of a pooling node, and the extra padding at the end of each axis for `ceil_mode`."""
    dilations = attributes.get("dilations") or [1] * len(kernel)
    pads = _pads(attributes, kernel, strides, dilations, lengths)
    extra = [0] * len(kernel)
    if attributes.get("ceil_mode", 0):
        for k, (length, size, s, d, (low, high)) in enumerate(
            zip(lengths, kernel, strides, dilations, pads, strict=True)
        ):
            span = length + low + high - (size - 1) * d - 1
            if -(-span // s) * s < length + low:
                extra[k] = max(-(-span // s) * s - span, 0)
    return pads, extra


def _dilated(node: Node) -> list[int] | None:
    """The dilations of a pooling node, or None if all are one."""
    found = node.get("dilations")
    return found if found and any(d != 1 for d in found) else None


def _windows(x: Variable, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[Variable]:
    """For each position within a pooling window, the elements at it in all windows."""
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


def maximal(node: Node, x: Variable) -> Any:
    """Maximum pooling as the attributes of a node say it.

    Args:
        node: The node.
        x: Input.
    """
    if node.n_outputs > 1:
        raise node.unsupported("expected one output, got the indices too")
    pads, extra, kernel, strides = _pool_setup(node, x)
    ends = [(low, high + more) for (low, high), more in zip(pads, extra, strict=True)]
    if (dilations := _dilated(node)) is not None:
        note_lengths()
        note_same(None)
        return reduce(F.maximum2, _windows(_framed(x, ends, -np.inf), kernel, strides, dilations))
    if all(low == high < size for (low, high), size in zip(ends, kernel, strict=True)):
        return F.max_pooling(x, kernel, strides, pad=[low for low, _ in ends])
    return F.max_pooling(_framed(x, ends, -np.inf), kernel, strides)


def averaged(node: Node, x: Variable) -> Variable:
    """Average pooling with the attributes of a node.

    Args:
        node: The node.
        x: Input.
    """
    pads, extra, kernel, strides = _pool_setup(node, x)
    counts_pads = bool(node.get("count_include_pad", 0))
    ends = [(low, high + more) for (low, high), more in zip(pads, extra, strict=True)]
    dilations = _dilated(node)
    if not np.any(ends) and dilations is None:
        return F.average_pooling(x, kernel, strides)
    note_lengths()
    note_same(None)

    def summed(x: Variable) -> Variable:
        """The sums over all windows."""
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
    """Builds `LpPool`."""
    x = node.x()
    pads, extra, kernel, strides = _pool_setup(node, x)
    ends = [(low, high + more) for (low, high), more in zip(pads, extra, strict=True)]
    p = float(node.get("p", 2))
    powers = _framed(F.pow_scalar(F.abs(x), p), ends)
    note_same(None)
    if (dilations := _dilated(node)) is not None:
        return F.pow_scalar(reduce(F.add2, _windows(powers, kernel, strides, dilations)), 1.0 / p)
    return F.pow_scalar(F.sum_pooling(powers, kernel, strides), 1.0 / p)


def _over_space(function: Any) -> Row:
    """A row for a reduction of all spatial axes."""
    return Row(lambda node: function(node.x(), axis=list(range(2, node.x().ndim)), keepdims=True), is_free=True)


def _resize(node: Node) -> Variable:
    """Builds `Resize` and `Upsample`."""
    x = node.x()
    ndim = x.ndim
    is_upsample = node.proto.op_type == "Upsample"
    place = 1 if is_upsample or node.version < 11 else 2
    axes = [axis % ndim for axis in node.get("axes") or range(ndim)]
    scales = [1.0] * ndim
    lengths = list(x.shape)
    mode = node.get("mode", "nearest")
    where = node.get("coordinate_transformation_mode", "asymmetric" if node.version < 11 else "half_pixel")
    if where not in _PLACES:
        raise node.unsupported(f"expected a coordinate transformation of {sorted(_PLACES)}, got {where}")
    parts = dict.fromkeys(range(ndim), (0.0, 1.0))
    has_parts = where == "tf_crop_and_resize"
    if has_parts:
        starts, ends = np.reshape(node.static(1), (2, len(axes))).astype(np.float64)
        parts.update((axis, (start, end)) for axis, start, end in zip(axes, starts, ends, strict=True))
    if node.has(3) and node.value(3).shape != (0,):
        given = node.ints(3) or []
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        ratios = [length / x.shape[axis] for axis, length in zip(axes, given, strict=True)]
        if policy != "stretch":
            ratios = [(min if policy == "not_larger" else max)(ratios)] * len(axes)
            given = [int(np.floor(ratio * x.shape[axis] + 0.5)) for axis, ratio in zip(axes, ratios, strict=True)]
        for axis, length, ratio in zip(axes, given, ratios, strict=True):
            lengths[axis], scales[axis] = length, ratio
    else:
        given = node.get("scales") if "scales" in node.attributes else node.static(place).tolist()
        for axis, scale in zip(axes, given, strict=True):
            start, end = parts[axis]
            lengths[axis], scales[axis] = int(np.floor(x.shape[axis] * (end - start) * scale)), scale
    if mode == "nearest" and not has_parts and (kernel := _repeats(node, x, lengths, scales, where)) is not None:
        return F.unpooling(x, kernel) if kernel else F.identity(x)
    if mode == "linear" and (made := _interpolated(node, x, lengths, scales, where)) is not None:
        return made
    if not x.size or 0 in lengths:
        if math.prod(lengths):
            raise OnnxError(f"{node.operator}: expected elements, got an input of shape {x.shape}")
        return F.constant(0.0, lengths)
    y, inside = x, np.ones((), bool)
    for axis in range(ndim):
        size, length = x.shape[axis], lengths[axis]
        if length != size or scales[axis] != 1.0 or parts[axis] != (0.0, 1.0):
            at = np.arange(length, dtype=np.float64)
            places = _PLACES[where](at, size, length, scales[axis], *parts[axis])
            y = _along(y, _resizing(node, places, size, scales[axis], mode), axis, mode)
            if where == "tf_crop_and_resize":
                is_in = (places >= 0) & (places <= size - 1)
                inside = inside & is_in.reshape([length if k == axis else 1 for k in range(ndim)])
    if not inside.all():
        kept = Variable.from_numpy_array(np.broadcast_to(inside, y.shape).astype(np.float32))
        y = F.where(kept, y, F.constant(node.get("extrapolation_value", 0.0), y.shape))
    return F.identity(y) if y is x else y


def _repeats(node: Node, x: Variable, lengths: Sequence[int], scales: Sequence[float], where: str) -> list[int] | None:
    """How often a `Resize` repeats elements of the last axes, or None if it does not just repeat elements.

    A longer output begins with the same places as a shorter one, except for `align_corners`. So a few places show
    whether elements only repeat.
    """
    whole = [round(scale) for scale in scales]
    axes = zip(lengths, x.shape, scales, whole, strict=True)
    is_whole = all(length == k * size and scale == k > 0 for length, size, scale, k in axes)
    if where not in _SHIFTED or not is_whole or 0 in lengths or node.value(0).dtype.kind != "f":
        return None
    for k in {*whole} - {1}:
        at = _PLACES[where](np.arange(4.0 * k), 4, 4 * k, float(k), 0.0, 1.0)
        if not np.array_equal(np.argmax(_resizing(node, at, 4, float(k), "nearest"), 1), np.arange(4 * k) // k):
            return None
    if node.is_fixed() and not node.has(3):
        note_free()
    first = next((axis for axis, k in enumerate(whole) if k != 1), x.ndim)
    return whole[first:]


def _interpolated(
    node: Node, x: Variable, lengths: Sequence[int], scales: Sequence[float], where: str
) -> Variable | None:
    """A linear `Resize` of the last axes by `interpolate`, or None if that function places elements elsewhere."""
    changed = [k for k, (size, length) in enumerate(zip(x.shape, lengths, strict=True)) if length != size]
    exact = all(scale == length / size for size, length, scale in zip(x.shape, lengths, scales, strict=True) if size)
    first = changed[0] if changed else x.ndim
    if where not in ("align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel") or not exact or x.size == 0:
        return None
    if (
        not 0 < x.ndim - first <= 3
        or min(lengths[first:]) < 2
        or node.get("antialias", 0)
        or node.get("exclude_outside")
    ):
        return None
    aligned, half = where == "align_corners", where.endswith("half_pixel")
    return F.interpolate(x, output_size=lengths[first:], mode="linear", align_corners=aligned, half_pixel=half)


def _half_pixel(at: Any, size: int, length: int, scale: float, *_: float) -> Any:
    """Input coordinates of the output indices `at`, in the mode `half_pixel`."""
    return (at + 0.5) / scale - 0.5


def _cropped(at: Any, size: int, length: int, scale: float, start: float, end: float) -> Any:
    """Input coordinates of the output indices `at`, in the mode `tf_crop_and_resize`."""
    if length == 1:
        return at + 0.5 * (start + end) * (size - 1)
    return start * (size - 1) + at * (end - start) * (size - 1) / (length - 1)


_SHIFTED = ("asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn")
"""Coordinate transformations that place the elements of each part of a longer array alike."""

_PLACES: dict[str, Callable[..., Any]] = {
    "align_corners": lambda at, size, length, scale, *_: at * (size - 1) / max(scale * size - 1, 1e-9),
    "asymmetric": lambda at, size, length, scale, *_: at / scale,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": lambda at, size, length, scale, *_: (
        size / 2 * (1 - length / (scale * size)) + _half_pixel(at, size, length, scale)
    ),
    "pytorch_half_pixel": lambda at, size, length, *rest: (
        at * 0.0 if length == 1 else _half_pixel(at, size, length, *rest)
    ),
    "tf_crop_and_resize": _cropped,
    "tf_half_pixel_for_nn": lambda at, size, length, scale, *_: (at + 0.5) / scale,
}
"""Coordinate transformations by mode: from output indices, both lengths, scale and crop to input coordinates."""


def _resizing(node: Node, places: Any, size: int, scale: float, mode: str) -> Any:
    """The interpolation matrix (output length, input size) of an axis, for the input coordinates `places`."""
    rows = np.arange(len(places))
    matrix = np.zeros((len(places), size), np.float64)
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
    if mode not in ("linear", "cubic"):
        raise node.unsupported(f"expected a known mode, got {mode}")
    smooths = bool(node.get("antialias", 0)) and scale < 1
    shrunk = scale if smooths else 1.0
    reach = int(np.ceil((1 if mode == "linear" else 2) / shrunk))
    index = np.floor(places).astype(int)[:, None] + np.arange(1 - reach, reach + 1)
    d = np.abs(index - places[:, None]) * shrunk
    if mode == "linear":
        weights = np.maximum(1 - d, 0.0)
    else:
        a = node.get("cubic_coeff_a", -0.75)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weights = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    outside = bool(node.get("exclude_outside", 0))
    if outside:
        weights[(index < 0) | (index >= size)] = 0.0
    if smooths or outside:
        weights /= weights.sum(axis=1, keepdims=True)
    np.add.at(matrix, (rows[:, None], np.clip(index, 0, size - 1)), weights)
    return matrix


def _along(x: Variable, matrix: Any, axis: int, mode: str) -> Variable:
    """An axis resized by an interpolation matrix."""
    if mode == "nearest":
        chosen = Variable.from_numpy_array(np.argmax(matrix, axis=1).astype(np.int64))
        return F.gather(x, chosen, axis=axis)
    return resampled(x, np.asarray(matrix, np.float32), axis)


CONVOLUTIONS: dict[tuple[str, str], Row] = {
    ("", "AveragePool"): Row(lambda node: averaged(node, node.x()), is_free=True),
    ("", "Conv"): Row(lambda node: convolved(node, node.x(0), node.x(1), node.optional(2)), is_free=True),
    ("", "ConvTranspose"): Row(_conv_transpose, is_free=True),
    ("", "GlobalAveragePool"): _over_space(F.mean),
    ("", "GlobalMaxPool"): _over_space(F.max),
    ("", "LpPool"): Row(_lp_pool),
    ("", "MaxPool"): Row(lambda node: maximal(node, node.x()), is_free=True),
    ("", "Resize"): Row(_resize),
    ("", "Upsample"): Row(_resize),
}
"""One row for each operator."""
