"""Normalization, and attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .... import functions as F
from ..values import Row, note_lengths
from .building import per_channel, reshape

if TYPE_CHECKING:
    from ...._core import Variable
    from ..values import Node

__all__ = ["NORMALIZATION", "standardized"]


def _batch(node: Node) -> Any:
    """Builds `BatchNormalization`."""
    if node.get("training_mode", 0) or node.n_outputs > 1:
        raise node.unsupported("expected training_mode to be off, got statistics as outputs")
    x = node.x(0)
    if any(node.value(i).sources for i in (1, 2, 3, 4)):
        note_lengths()
    gamma, beta, mean, variance = (per_channel(node.x(i), 1, x.ndim) for i in (1, 2, 3, 4))
    if x.ndim < 2 or node.x(1).size == 1:
        return (x - mean) / F.pow_scalar(variance + node.get("epsilon", 1e-5), 0.5) * gamma + beta
    return F.batch_normalization(
        x, beta, gamma, mean, variance, axes=[1], eps=node.get("epsilon", 1e-5), batch_stat=False
    )


def standardized(x: Variable, axes: list[int], eps: float) -> tuple[Variable, Variable, Variable]:
    """An array normalized to mean zero and variance one along axes, the mean, and 1 / standard deviation.

    Args:
        x: The array.
        axes: The axes.
        eps: Added to the variance.
    """
    y, mean, variance = F.tensor_normalization(
        x, [axis for axis in range(x.ndim) if axis not in axes], eps=eps, output_stat=True
    )
    return y, mean, F.pow_scalar(variance + eps, -0.5)


def _over_root_mean_square(x: Variable, axes: list[int], eps: float) -> Any:
    """An array divided by its root mean square along axes."""
    n = math.prod(x.shape[axis] for axis in axes)
    return F.norm_normalization(x, p=2, axes=axes, eps=eps * n) * math.sqrt(n)


def normalized(x: Variable, axis: int, eps: float, gamma: Variable, beta: Variable | None) -> Variable:
    """Layer normalization: an array normalized along its last axes, scaled and shifted.

    Args:
        x: The array.
        axis: The first normalized axis.
        eps: Added to the variance.
        gamma: The scale, of the shape of the normalized axes.
        beta: The shift, of the same shape.
    """
    shape = [*[1] * axis, *x.shape[axis:]]
    shift = None if beta is None else reshape(beta, shape)
    y: Variable = F.layer_normalization(x, shift, reshape(gamma, shape), batch_axis=list(range(axis)), eps=eps)
    return y


def _layer(node: Node) -> Any:
    """Builds `LayerNormalization` and `LayerNormalization`."""
    x = node.x(0)
    axis = node.get("axis", -1) % x.ndim
    eps, gamma, beta = node.get("epsilon", 1e-5), node.x(1), node.optional(2)
    if any(held is not None and (held.sources or 1 in held.shape) for held in node.inputs[1:]):
        note_lengths()  # the shapes of scale and shift decide which function it is
    if not any(node.proto.output[1:]) and all(held is None or held.shape == x.shape[axis:] for held in (gamma, beta)):
        return normalized(x, axis, eps, gamma, beta)
    y, mean, scale = standardized(x, list(range(axis, x.ndim)), eps)
    y = y * node.x(1)
    y = y + node.x(2) if node.has(2) else y
    return [y, mean, scale][: node.n_outputs]


def _rms(node: Node) -> Any:
    """Builds `RMSNormalization` and `SimplifiedLayerNormalization`."""
    x = node.x(0)
    axes = list(range(node.get("axis", -1) % x.ndim, x.ndim))
    return _over_root_mean_square(x, axes, node.get("epsilon", 1e-5)) * node.x(1)


def _instance(node: Node) -> Variable:
    """Builds `InstanceNormalization`."""
    x = node.x(0)
    y, _, _ = standardized(x, list(range(2, x.ndim)), node.get("epsilon", 1e-5))
    return y * per_channel(node.x(1), 1, x.ndim) + per_channel(node.x(2), 1, x.ndim)


def _group(node: Node) -> Variable:
    """Builds `GroupNormalization`."""
    x, groups = node.x(0), node.get("num_groups")
    parts = reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    y, _, _ = standardized(parts, [2], node.get("epsilon", 1e-5))
    if node.version < 21:
        each = (1, groups, 1)
        return reshape(y * reshape(node.x(1), each) + reshape(node.x(2), each), x.shape)
    return reshape(y, x.shape) * per_channel(node.x(1), 1, x.ndim) + per_channel(node.x(2), 1, x.ndim)


def _mean_variance(node: Node) -> Variable:
    """Builds `MeanVarianceNormalization`."""
    x = node.x()
    if not x.size:
        return F.identity(x)
    axes = node.get("axes") or [0, 2, 3]
    rest = x - F.mean(x, axis=axes, keepdims=True)
    deviation = F.norm(rest, p=2, axis=axes, keepdims=True) * math.prod(x.shape[axis] for axis in axes) ** -0.5
    y: Variable = rest / (deviation + 1e-9)
    return y


def _lp(node: Node) -> Variable:
    """Builds `LpNormalization`."""
    x, axis = node.x(), [node.get("axis", -1) % node.x().ndim]
    y: Variable = F.norm_normalization(x, p=node.get("p", 2), axes=axis, eps=0.0)
    return y


def _lrn(node: Node) -> Any:
    """Builds `LRN`."""
    x, size = node.x(), node.get("size")
    low = (size - 1) // 2
    square = F.pad(x * x, [0, 0, low, size - 1 - low, *[0] * (2 * (x.ndim - 2))])
    total = None
    for k in range(size):
        start = [0, k] + [0] * (x.ndim - 2)
        stop = [x.shape[0], k + x.shape[1], *x.shape[2:]]
        part = F.slice(square, start, stop, [1] * x.ndim)
        total = part if total is None else total + part
    scale = total * (node.get("alpha", 1e-4) / size) + node.get("bias", 1.0)
    return x * F.pow_scalar(scale, -node.get("beta", 0.75))


def _skip_layer(node: Node) -> Any:
    """Builds `SkipLayerNormalization` and `SkipSimplifiedLayerNormalization`."""
    if node.n_outputs > 1 and any(node.proto.output[1:3]):
        raise node.unsupported("expected the sum as the only other output, got statistics")
    x = node.x(0) + node.x(1)
    is_rms = node.proto.op_type == "SkipSimplifiedLayerNormalization"
    gamma, beta, bias = node.x(2), None if is_rms else node.optional(3), node.optional(3 if is_rms else 4)
    x = x if bias is None else x + bias
    eps = node.get("epsilon", 1e-12)
    if not is_rms and gamma.shape == x.shape[-1:] and (beta is None or beta.shape == gamma.shape):
        return [normalized(x, x.ndim - 1, eps, gamma, beta), x, x, x][: node.n_outputs]
    if is_rms:
        y = _over_root_mean_square(x, [x.ndim - 1], eps) * gamma
    else:
        y = standardized(x, [x.ndim - 1], eps)[0] * gamma
    y = y if beta is None else y + beta
    return [y, x, x, x][: node.n_outputs]


NORMALIZATION: dict[tuple[str, str], Row] = {
    ("", "BatchNormalization"): Row(_batch, is_free=True),
    ("", "GroupNormalization"): Row(_group),
    ("", "InstanceNormalization"): Row(_instance),
    ("", "LRN"): Row(_lrn),
    ("", "LayerNormalization"): Row(_layer, is_free=True),
    ("", "LpNormalization"): Row(_lp),
    ("", "MeanVarianceNormalization"): Row(_mean_variance),
    ("", "RMSNormalization"): Row(_rms),
    ("", "SimplifiedLayerNormalization"): Row(_rms),
    ("com.microsoft", "LayerNormalization"): Row(_layer, is_free=True),
    ("com.microsoft", "SkipLayerNormalization"): Row(_skip_layer),
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): Row(_skip_layer),
}
"""One row for each operator."""
