"""Operators of linear quantization, computed in float32."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from .... import functions as F
from ....context import context_scope
from ....rewrite.int8.levels import dynamic_parameters, rounded
from ..values import DOUBLE, OnnxError, Row, Value, note_lengths
from .arithmetic import matmul
from .building import constant, expand, per_channel, reshape
from .convolutions import convolved

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...._core import Variable
    from ..values import Node

__all__ = ["QUANTIZATION", "as_levels", "numbers"]


def _along(node: Node, i: int) -> Variable:
    """Input `i`, a scale or zero point, reshaped or expanded to broadcast to input 0."""
    x, held = node.value(0), node.x(i)
    if node.get("block_size", 0):
        note_lengths()
        return _of_blocks(held, x.shape, node.get("axis", 1) % max(len(x.shape), 1), node.get("block_size"))
    return (
        per_channel(held, node.get("axis", 1) % max(len(x.shape), 1), len(x.shape))
        if len(x.shape)
        else reshape(held, ())
    )


def _of_blocks(held: Variable, shape: tuple[int, ...], axis: int, block: int) -> Variable:
    """Repeats one number for each block of an axis to one for each element."""
    if block < 1 or [-(-n // block) if k == axis else n for k, n in enumerate(shape)] != list(held.shape):
        raise OnnxError(f"expected a number for each block of {block} along axis {axis} of {shape}, got {held.shape}")
    before, after = held.shape[: axis + 1], held.shape[axis + 1 :]
    wide = expand(reshape(held, (*before, 1, *after)), (*before, block, *after))
    whole = reshape(wide, (*before[:-1], before[-1] * block, *after))
    return F.slice(whole, [0] * len(shape), list(shape), [1] * len(shape))


def _levels_of(
    node: Node, x: Variable, scale: Variable, zero: Variable | None, dtype: np.dtype[Any], sources: frozenset[str]
) -> Value:
    """Quantizes `x` to integers of `dtype`. Scale and zero point broadcast to `x`."""
    if dtype.name not in ("int8", "uint8", "int16", "uint16"):
        raise node.unsupported(f"expected levels of 8 or 16 bits, got {dtype}")
    if zero is None:
        zero = scale * 0.0
    if dtype.itemsize == 1 and x.ndim == scale.ndim == zero.ndim:
        y = F.quantize_linear(x, scale, zero, "HALF_TO_EVEN", False, dtype.type)
    else:
        found = np.iinfo(dtype)
        y = F.minimum_scalar(F.maximum_scalar(rounded(x / scale) + zero, float(found.min)), float(found.max))
    return Value(y, dtype, sources=sources)


def _quantize(node: Node) -> Value:
    """Builds `QuantizeLinear`."""
    from ..tensors import dtype_of

    dtype = np.dtype(np.uint8)
    if node.has(2):
        dtype = node.value(2).dtype
    elif node.get("output_dtype"):
        dtype = dtype_of(node.get("output_dtype"))
    zero = _along(node, 2) if node.has(2) else None
    return _levels_of(node, node.x(0), _along(node, 1), zero, dtype, node.value(0).sources)


def _dequantize(node: Node) -> Value:
    """Builds `DequantizeLinear`."""
    if node.value(0).dtype.name not in ("int8", "uint8", "int16", "uint16", "int32"):
        raise node.unsupported(f"expected levels of 8 bits or more, got {node.value(0).dtype}")
    x, scale = node.x(0), _along(node, 1)
    if x.ndim == scale.ndim:
        y = F.dequantize_linear(x, scale, _along(node, 2) if node.has(2) else scale * 0.0)
    elif not node.has(2):
        y = x * scale
    else:
        y = (x - _along(node, 2)) * scale
    return Value(y, node.value(1).dtype, sources=node.value(0).sources)


def _dynamic(node: Node) -> list[Value]:
    """Builds `DynamicQuantizeLinear`."""
    x, sources = node.x(), node.value(0).sources
    if not x.size:
        return [Value(np.zeros(x.shape, np.uint8)), Value(np.ones((), np.float32)), Value(np.zeros((), np.uint8))]
    scale, zero = dynamic_parameters(x)
    y = _levels_of(node, x, per_channel(scale, 0, x.ndim), per_channel(zero, 0, x.ndim), np.dtype(np.uint8), sources)
    return [y, Value(scale, np.float32, sources=sources), Value(zero, np.uint8, sources=sources)]


def _unscaled(node: Node, i: int, zero: int, axis: int = -1) -> Variable:
    """Input `i` minus its zero point, input `zero`. A vector of zero points broadcasts along an axis."""
    x = node.x(i)
    ones = per_channel(constant(1.0), -1, x.ndim)
    return F.dequantize_linear(x, ones, per_channel(node.x(zero), axis, x.ndim) if node.has(zero) else ones * 0.0)


_EXACT_TERMS = 256
"""Sums of this many products of two differences of levels, each below 256, are exact in float32."""


def _exactly(node: Node, build: Callable[[], Variable], terms: int) -> Variable:
    """Builds sums of products of levels, in float64 if float32 might round them."""
    if not node.value(1).known:
        note_lengths()
    with context_scope(DOUBLE) if terms > _EXACT_TERMS else nullcontext():
        return build()


def _matmul_integer(node: Node) -> Variable:
    """Builds `MatMulInteger`."""
    terms = node.value(0).shape[-1] if node.value(0).shape else 0
    return _exactly(node, lambda: matmul(_unscaled(node, 0, 2, -2), _unscaled(node, 1, 3)), terms)


def numbers(node: Node, i: int, axis: int = -1) -> Variable:
    """The numbers that an input of levels stands for; its scale and zero point follow it.

    Args:
        node: The node.
        i: The input.
        axis: The axis of the channels.
    """
    x = node.x(i)
    scale, zero = (per_channel(node.x(k), axis, x.ndim) if node.has(k) else None for k in (i + 1, i + 2))
    if scale is None:
        raise OnnxError(f"expected a scale of input {i}, got none")
    return x * scale if zero is None else F.dequantize_linear(x, scale, zero)


def as_levels(node: Node, y: Variable, i: int, *inputs: int) -> Value:
    """The levels that are nearest to numbers.

    Args:
        node: The node.
        y: The numbers.
        i: The input that is their scale; their zero point follows it.
        inputs: The inputs that they are computed of.
    """
    held = node.value(i + 1) if node.has(i + 1) else None
    zero = None if held is None else per_channel(held.variable, -1, y.ndim)
    dtype = node.value(inputs[0]).dtype if held is None else held.dtype
    sources = frozenset[str]().union(*(node.value(k).sources for k in inputs))
    return _levels_of(node, y, per_channel(node.x(i), -1, y.ndim), zero, dtype, sources)


def _qlinear_matmul(node: Node) -> Value:
    """Builds `QLinearMatMul`."""
    return as_levels(node, matmul(numbers(node, 0), numbers(node, 3)), 6, 0, 3)


def _with_two(function: Callable[[Variable, Variable], Variable]) -> Row:
    """A row for a function of two inputs of levels, computed on dequantized numbers."""
    return Row(lambda node: as_levels(node, function(numbers(node, 0), numbers(node, 3)), 6, 0, 3))


def _with_one(function: Callable[[Node, Variable], Variable]) -> Row:
    """A row for a function of one input of levels, computed on dequantized numbers."""
    return Row(lambda node: as_levels(node, function(node, numbers(node, 0)), 3, 0))


def _leaky(node: Node, x: Variable) -> Variable:
    """The leaky ReLU of `QLinearLeakyRelu`, on dequantized numbers."""
    return F.leaky_relu(x, node.get("alpha", 0.01))


def _pooled(node: Node, x: Variable) -> Variable:
    """The mean over spatial axes of `QLinearGlobalAveragePool`, on dequantized numbers."""
    axes = list(range(1, x.ndim - 1) if node.get("channels_last", 0) else range(2, x.ndim))
    return F.mean(x, axis=axes, keepdims=True)


def _softmax(node: Node, x: Variable) -> Variable:
    """The softmax of `QLinearSoftmax`, on dequantized numbers."""
    axis = node.get("axis", -1)
    if node.get("opset", 13) < 13 and axis % x.ndim != x.ndim - 1:
        raise node.unsupported("expected the last axis, as of operators before version 13")
    return F.softmax(x, axis=axis)


def _qlinear_concat(node: Node) -> Value:
    """Builds `QLinearConcat`."""
    first = range(2, len(node.inputs), 3)
    return as_levels(node, F.concatenate(*[numbers(node, i) for i in first], axis=node.get("axis")), 0, *first)


def _qgemm(node: Node) -> Value | Variable:
    """Builds `QGemm`."""
    a, b = numbers(node, 0), numbers(node, 3, 0 if node.get("transB", 0) else 1)
    a = F.transpose(a, (1, 0)) if node.get("transA", 0) else a
    b = F.transpose(b, (1, 0)) if node.get("transB", 0) else b
    alpha, bias = node.get("alpha", 1.0), None
    if node.has(6):  # a quantized bias, in units of both scales
        bias = node.x(6) * (node.x(1) * node.x(4))
    is_row = bias is not None and bias.shape == b.shape[1:]
    y = F.affine(a, b, bias) if is_row else F.affine(a, b)
    y = y if bias is None or is_row else y + bias
    y = y if alpha == 1.0 else y * alpha
    return as_levels(node, y, 7, 0, 3) if node.has(7) else Value(y, np.float32)


def _conv_integer(node: Node) -> Variable:
    """Builds `ConvInteger`."""
    terms = math.prod(node.value(1).shape[1:])
    return _exactly(node, lambda: convolved(node, _unscaled(node, 0, 2), _unscaled(node, 1, 3, 0), None), terms)


def _qlinear_conv(node: Node) -> Value:
    """Builds `QLinearConv`."""
    bias = node.x(8) * (node.x(1) * node.x(4)) if node.has(8) else None
    return as_levels(node, convolved(node, numbers(node, 0), numbers(node, 3, 0), bias), 6, 0, 3)


QUANTIZATION: dict[tuple[str, str], Row] = {
    ("", "ConvInteger"): Row(_conv_integer, dtype=np.int32, is_free=True),
    ("", "DequantizeLinear"): Row(_dequantize, is_free=True),
    ("", "DynamicQuantizeLinear"): Row(_dynamic, is_free=True),
    ("", "MatMulInteger"): Row(_matmul_integer, dtype=np.int32, is_free=True),
    ("", "QLinearConv"): Row(_qlinear_conv),
    ("", "QLinearMatMul"): Row(_qlinear_matmul),
    ("", "QuantizeLinear"): Row(_quantize, is_free=True),
    ("com.microsoft", "DequantizeLinear"): Row(_dequantize, is_free=True),
    ("com.microsoft", "QGemm"): Row(_qgemm),
    ("com.microsoft", "QLinearAdd"): _with_two(lambda a, b: a + b),
    ("com.microsoft", "QLinearConcat"): Row(_qlinear_concat),
    ("com.microsoft", "QLinearGlobalAveragePool"): _with_one(_pooled),
    ("com.microsoft", "QLinearLeakyRelu"): _with_one(_leaky),
    ("com.microsoft", "QLinearMul"): _with_two(lambda a, b: a * b),
    ("com.microsoft", "QLinearSigmoid"): _with_one(lambda _, x: F.sigmoid(x)),
    ("com.microsoft", "QLinearSoftmax"): _with_one(_softmax),
    ("com.microsoft", "QuantizeLinear"): Row(_quantize, is_free=True),
}
"""One row for each operator."""
