"""Operators of `com.microsoft` that ONNX Runtime's optimizer and quantizer make of several others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .... import functions as F
from ....rewrite.int8.levels import dynamic_parameters
from ..values import Row, Value
from .arithmetic import gemm, matmul
from .building import expand, per_channel, reshape
from .convolutions import averaged, convolved, maximal
from .quantization import as_levels, numbers
from .shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ...._core import Variable
    from ..values import Node

__all__ = ["OPTIMIZED"]


def _activated(node: Node, y: Variable, numbers: Sequence[float]) -> Variable:
    """Returns the activation that a node names, with its numbers."""
    name = node.get("activation") or ""
    given = dict(enumerate(numbers))
    if name == "LeakyRelu":
        return F.leaky_relu(y, given.get(0, 0.01))
    if name == "Clip":
        return F.minimum_scalar(F.maximum_scalar(y, given.get(0, -3.4e38)), given.get(1, 3.4e38))
    if name == "HardSigmoid":
        return F.minimum_scalar(F.maximum_scalar(y * given.get(0, 0.2) + given.get(1, 0.5), 0.0), 1.0)
    found: dict[str, Callable[[Variable], Variable]] = {
        "": lambda y: y,
        "HardSwish": F.hard_swish,
        "Relu": F.relu,
        "Sigmoid": F.sigmoid,
        "Softplus": F.softplus,
        "Tanh": F.tanh,
    }
    if name not in found:
        raise node.unsupported(f"expected an activation of {sorted([*found][1:])}, LeakyRelu, Clip, got {name}")
    return found[name](y)


def _channels_first(x: Variable) -> Variable:
    """Moves the last axis to axis 1."""
    return F.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def _channels_last(x: Variable) -> Variable:
    """Moves axis 1 to the end."""
    return F.transpose(x, (0, *range(2, x.ndim), 1))


def _conv(node: Node) -> Variable:
    """Builds `FusedConv`: a convolution, an optional sum and an activation."""
    y = convolved(node, node.x(0), node.x(1), node.optional(2))
    return _activated(node, y + node.x(3) if node.has(3) else y, node.get("activation_params") or [])


def _conv_channels_last(node: Node) -> Variable:
    """Builds `NhwcFusedConv`, the same with the channels last."""
    y = _channels_last(convolved(node, _channels_first(node.x(0)), node.x(1), node.optional(2)))
    return _activated(node, y + node.x(3) if node.has(3) else y, node.get("activation_params") or [])


def _own_numbers(node: Node) -> list[float]:
    """Returns the arguments of the activation that the node gives."""
    found = [node.get(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return [number for number in found if number is not None]


def _gemm(node: Node) -> Variable:
    """Builds `FusedGemm`."""
    return _activated(node, gemm(node), _own_numbers(node))


def _factor(x: Variable, is_transposed: bool, is_batch_last: bool) -> Variable:
    """Returns a factor of `FusedMatMul` with the batch axis first and the matrices transposed as the attributes say."""
    n = x.ndim
    if n < 2:
        return x
    order = [*range(1, n - 1), 0, n - 1] if is_batch_last else list(range(n))
    if is_transposed:
        order[-2:] = order[:-3:-1]
    return x if order == list(range(n)) else F.transpose(x, order)


def _fused_matmul(node: Node) -> Variable:
    """Builds `FusedMatMul`."""
    a, b = (
        _factor(node.x(i), bool(node.get(f"trans{name}", 0)), bool(node.get(f"transBatch{name}", 0)))
        for i, name in enumerate("AB")
    )
    y, alpha = matmul(a, b), node.get("alpha", 1.0)
    return _activated(node, y if alpha == 1.0 else y * alpha, _own_numbers(node))


def _expand_dims(node: Node) -> Variable:
    """Builds `ExpandDims`."""
    axis = int(node.static(1).item())
    shape = list(node.value(0).shape)
    shape.insert(axis if axis >= 0 else len(shape) + 1 + axis, 1)
    return F.identity(reshape(node.x(0), shape))


def _inverse(node: Node) -> Variable:
    """Builds `Inverse`."""
    x = node.x(0)
    n = x.shape[-1]
    return reshape(F.batch_inv(reshape(x, (x.size // (n * n or 1), n, n))), x.shape)


def _scaled_product(node: Node, a: Variable, b: Variable, scale: Variable, bias: int) -> Value:
    """Returns a product of levels without their zero points, times its scale, with a bias."""
    y = matmul(a, b) * scale
    y = y + node.x(bias) if node.has(bias) else y
    return Value(y, np.float32, sources=node.value(0).sources)


def _centered(node: Node, i: int, zero: int, axis: int) -> Variable:
    """Returns levels without their zero point."""
    x = node.x(i)
    ones = per_channel(Value(np.ones(1, np.float32)).variable, -1, x.ndim)
    return F.dequantize_linear(x, ones, per_channel(node.x(zero), axis, x.ndim) if node.has(zero) else ones * 0.0)


def _dynamic_matmul(node: Node) -> Value:
    """Builds `DynamicQuantizeMatMul`."""
    x, b = node.x(0), node.x(1)
    scale, zero = dynamic_parameters(x)
    levels = F.quantize_linear(
        x, per_channel(scale, 0, x.ndim), per_channel(zero, 0, x.ndim), "HALF_TO_EVEN", False, np.uint8
    )
    ones = per_channel(Value(np.ones(1, np.float32)).variable, -1, x.ndim)
    a = F.dequantize_linear(levels, ones, per_channel(zero, 0, x.ndim))
    y_ndim = max(x.ndim, b.ndim)
    factor = per_channel(node.x(2), -1, y_ndim) * per_channel(scale, 0, y_ndim)
    return _scaled_product(node, a, _centered(node, 1, 3, -1), factor, 4)


def _matmul_to_float(node: Node) -> Value:
    """Builds `MatMulIntegerToFloat`."""
    a, b = _centered(node, 0, 4, -2), _centered(node, 1, 5, -1)
    ndim = max(a.ndim, b.ndim)
    return _scaled_product(node, a, b, per_channel(node.x(2), -1, ndim) * per_channel(node.x(3), -1, ndim), 6)


def _qlinear_where(node: Node) -> Value:
    """Builds `QLinearWhere`."""
    shape = np.broadcast_shapes(*(node.value(i).shape for i in (0, 1, 4)))
    x, y = (expand(numbers(node, i), shape) for i in (1, 4))
    y = F.where(expand(node.x(0), shape), x, y)
    return as_levels(node, y, 7, 1, 4)


def _qlinear_mean(node: Node) -> Value:
    """Builds `QLinearReduceMean`."""
    x = numbers(node, 0)
    axes = [axis % x.ndim for axis in node.get("axes") or range(x.ndim)]
    return as_levels(node, F.mean(x, axis=axes, keepdims=bool(node.get("keepdims", 1))), 3, 0)


def _qlinear_conv(node: Node) -> Value:
    """Builds `QLinearConv` of ONNX Runtime, which may have the channels last."""
    bias = node.x(8) * (node.x(1) * node.x(4)) if node.has(8) else None
    x, w = numbers(node, 0), numbers(node, 3, 0)
    if not node.get("channels_last", 0):
        return as_levels(node, convolved(node, x, w, bias), 6, 0, 3)
    return as_levels(node, _channels_last(convolved(node, _channels_first(x), w, bias)), 6, 0, 3)


def _qlinear_average(node: Node) -> Value:
    """Builds `QLinearAveragePool`."""
    x = numbers(node, 0)
    is_last = node.get("channels_last", 0)
    y = _channels_last(averaged(node, _channels_first(x))) if is_last else averaged(node, x)
    return as_levels(node, y, 3, 0)


OPTIMIZED: dict[tuple[str, str], Row] = {
    ("com.microsoft", "DynamicQuantizeMatMul"): Row(_dynamic_matmul),
    ("com.microsoft", "ExpandDims"): Row(_expand_dims),
    ("com.microsoft", "FusedConv"): Row(_conv),
    ("com.microsoft", "FusedGemm"): Row(_gemm),
    ("com.microsoft", "FusedMatMul"): Row(_fused_matmul),
    ("com.microsoft", "FusedMatMulActivation"): Row(_fused_matmul),
    ("com.microsoft", "Inverse"): Row(_inverse),
    ("com.microsoft", "MatMulIntegerToFloat"): Row(_matmul_to_float),
    ("com.microsoft", "NhwcFusedConv"): Row(_conv_channels_last),
    ("com.microsoft", "NhwcMaxPool"): Row(lambda node: _channels_last(maximal(node, _channels_first(node.x())))),
    ("com.microsoft", "QLinearAveragePool"): Row(_qlinear_average),
    ("com.microsoft", "QLinearConv"): Row(_qlinear_conv),
    ("com.microsoft", "QLinearReduceMean"): Row(_qlinear_mean),
    ("com.microsoft", "QLinearWhere"): Row(_qlinear_where),
    ("com.microsoft", "TransposeMatMul"): Row(_fused_matmul),
    ("com.microsoft", "Trilu"): SHAPES["", "Trilu"],
}
"""One row for each operator."""
