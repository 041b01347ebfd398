"""Linear quantization, computed in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..values import OnnxError, Row, Value
from .arithmetic import matmul, rounded
from .building import expand, per_channel, reshape
from .convolutions import convolved

if TYPE_CHECKING:
    from ..._core import Variable
    from ..values import Node

__all__ = ["QUANTIZATION"]


def _along(node: Node, i: int) -> Variable:
    """A scale or zero point, as a shape that broadcasts to the input."""
    x, held = node.value(0), node.x(i)
    if node.get("block_size", 0):
        return _of_blocks(held, x.shape, node.get("axis", 1) % max(len(x.shape), 1), node.get("block_size"))
    return (
        per_channel(held, node.get("axis", 1) % max(len(x.shape), 1), len(x.shape))
        if len(x.shape)
        else reshape(held, ())
    )


def _of_blocks(held: Variable, shape: tuple[int, ...], axis: int, block: int) -> Variable:
    """Numbers that blocks along an axis share, one for each element."""
    if block < 1 or [-(-n // block) if k == axis else n for k, n in enumerate(shape)] != list(held.shape):
        raise OnnxError(f"expected a number for each block of {block} along axis {axis} of {shape}, got {held.shape}")
    before, after = held.shape[: axis + 1], held.shape[axis + 1 :]
    wide = expand(reshape(held, (*before, 1, *after)), (*before, block, *after))
    whole = reshape(wide, (*before[:-1], before[-1] * block, *after))
    return F.slice(whole, [0] * len(shape), list(shape), [1] * len(shape))


def _saturated(node: Node, y: Variable, dtype: np.dtype[Any], sources: frozenset[str]) -> Value:
    if dtype.name not in ("int8", "uint8", "int16", "uint16"):
        raise node.unsupported(f"expected levels of 8 or 16 bits, got {dtype}")
    found = np.iinfo(dtype)
    y = F.minimum_scalar(F.maximum_scalar(y, float(found.min)), float(found.max))
    return Value(y, dtype, sources=sources)


def _quantize(node: Node) -> Value:
    from ..reading import dtype_of

    dtype = np.dtype(np.uint8)
    if node.has(2):
        dtype = node.value(2).dtype
    elif node.get("output_dtype"):
        dtype = dtype_of(node.get("output_dtype"))
    y = rounded(node.x(0) / _along(node, 1))
    y = y + _along(node, 2) if node.has(2) else y
    return _saturated(node, y, dtype, node.value(0).sources)


def _dequantize(node: Node) -> Value:
    if node.value(0).dtype.name not in ("int8", "uint8", "int16", "uint16", "int32"):
        raise node.unsupported(f"expected levels of 8 bits or more, got {node.value(0).dtype}")
    x = node.x(0)
    x = x - _along(node, 2) if node.has(2) else x
    return Value(x * _along(node, 1), node.value(1).dtype, sources=node.value(0).sources)


def _dynamic(node: Node) -> list[Value]:
    x, sources = node.x(), node.value(0).sources
    axes = list(range(x.ndim))
    most = F.maximum_scalar(F.max(x, axis=axes), 0.0)
    least = F.minimum_scalar(F.min(x, axis=axes), 0.0)
    scale = (most - least) * (1.0 / 255.0)
    zero = rounded(F.minimum_scalar(F.maximum_scalar(-least / scale, 0.0), 255.0))
    y = _saturated(node, rounded(x / scale) + zero, np.dtype(np.uint8), sources)
    return [y, Value(scale, np.float32, sources=sources), Value(zero, np.uint8, sources=sources)]


def _shifted(node: Node, i: int, zero: int, is_right: bool = False) -> Variable:
    x = node.x(i)
    if not node.has(zero):
        return x
    held = node.x(zero)
    if held.ndim == 1 and held.size > 1 and not is_right:
        held = reshape(held, (held.size, 1))
    return x - held


def _matmul_integer(node: Node) -> Variable:
    return matmul(_shifted(node, 0, 2), _shifted(node, 1, 3, True))


def _qlinear_matmul(node: Node) -> Value:
    a = (node.x(0) - node.x(2)) * node.x(1)
    b = (node.x(3) - node.x(5)) * node.x(4)
    y = rounded(matmul(a, b) / node.x(6)) + node.x(7)
    return _saturated(node, y, node.value(7).dtype, node.value(0).sources | node.value(3).sources)


def _levels(node: Node, i: int, zero: int, axis: int | None = None) -> Variable:
    """Levels without their zero point."""
    if not node.has(zero):
        return node.x(i)
    held = node.x(zero)
    return node.x(i) - (reshape(held, ()) if held.size == 1 else per_channel(held, axis or 0, node.x(i).ndim))


def _conv_integer(node: Node) -> Variable:
    return convolved(node, _levels(node, 0, 2), _levels(node, 1, 3), None)


def _qlinear_conv(node: Node) -> Value:
    x, w = _levels(node, 0, 2), _levels(node, 3, 5)
    y = convolved(node, x, w, node.optional(8))
    scale = node.x(1) * node.x(4) / node.x(6)
    scale = per_channel(scale, 1, y.ndim) if scale.size > 1 else reshape(scale, ())
    y = rounded(y * scale) + reshape(node.x(7), ())
    return _saturated(node, y, node.value(7).dtype, node.value(0).sources)


QUANTIZATION: dict[tuple[str, str], Row] = {
    ("", "ConvInteger"): Row(_conv_integer, dtype=np.int32),
    ("", "DequantizeLinear"): Row(_dequantize),
    ("", "DynamicQuantizeLinear"): Row(_dynamic),
    ("", "MatMulInteger"): Row(_matmul_integer, dtype=np.int32),
    ("", "QLinearConv"): Row(_qlinear_conv),
    ("", "QLinearMatMul"): Row(_qlinear_matmul),
    ("", "QuantizeLinear"): Row(_quantize),
}
"""One row for each operator."""
