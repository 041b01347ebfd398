"""Classifies arrays of an ONNX file as trainable parameters or constants."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from . import reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from .tensors import Folder

__all__ = ["Uses", "constant_nodes"]

_EACH = range(1 << 16)
"""Every input of an operator."""

_SHAPING: dict[str, Sequence[int]] = {
    "Clip": (1, 2),
    "CumSum": (1,),
    "Dropout": (1, 2),
    "DynamicQuantizeLSTM": _EACH,
    "Equal": _EACH,
    "Greater": _EACH,
    "GreaterOrEqual": _EACH,
    "GroupQueryAttention": (7, 8),
    "If": (0,),
    "Less": _EACH,
    "LessOrEqual": _EACH,
    "Loop": (0, 1),
    "Max": _EACH,
    "Min": _EACH,
    "MatMulNBits": (2, 3),
    "Mod": _EACH,
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "Pow": (1,),
    "Range": _EACH,
    "Resize": (1, 2, 3),
    "RotaryEmbedding": (2, 3),
    "Sqrt": _EACH,
    "STFT": (2,),
    "Upsample": (1,),
    "Where": (0,),
}
"""Inputs that configure an operator and are never weights: exponents, bounds, fill values, scales and the like."""

_LAYERS = frozenset(
    [
        "Add",
        "BatchNormalization",
        "Conv",
        "ConvTranspose",
        "Gemm",
        "GRU",
        "GroupNormalization",
        "InstanceNormalization",
        "LayerNormalization",
        "LSTM",
        "MatMul",
        "PRelu",
        "RNN",
    ]
)
"""Operators whose operand of one element may be a weight or a bias."""

_WEIGHTED = _LAYERS - {"Add"}
"""Operators whose operand in a `Constant` node is a weight, however small it is."""

_LARGE = 64
"""An array of at least this many elements in a `Constant` node is a parameter."""

_MASKED = -1e4
"""Numbers below this mask what they are added to, as in attention masks."""


class Uses:
    """For each name of a graph, the operators and input positions that read it. Includes inner graphs.

    Args:
        every: The graph and its inner graphs, each a `GraphProto`.
    """

    def __init__(self, every: Iterable[Any]) -> None:
        self._uses: dict[str, list[tuple[str, int]]] = {}
        for node in (node for graph in every for node in graph.node):
            operator = node.op_type
            for i, name in enumerate(node.input[:]):
                self._uses.setdefault(name, []).append((operator, i))

    def is_parameter(self, name: str, array: NDArray[Any]) -> bool:
        """True if an initializer is a parameter: floats that do not merely configure an operator.

        Args:
            name: Its name.
            array: Its elements.
        """
        if array.dtype.kind in "iubO":
            return False
        uses = self._uses.get(name, [])
        if any(_is_quantization(operator) for operator, _ in uses):
            return True  # keeps the quantized node from being folded
        if array.ndim == 0:
            return False
        if uses and all(i in _SHAPING.get(operator, ()) for operator, i in uses):
            return False
        if array.size == 1:
            return any(operator in _LAYERS for operator, _ in uses)
        return not (any(operator == "Add" for operator, _ in uses) and _is_mask(array))

    def may_be_parameter_in_node(self, name: str, size: int) -> bool:
        """True if the array of a `Constant` node is large or the weight of a layer.

        Args:
            name: The output of the node.
            size: Number of its elements.
        """
        return size >= _LARGE or any(operator in _WEIGHTED for operator, _ in self._uses.get(name, []))


@cache
def _is_quantization(operator: str) -> bool:
    """True if an operator quantizes or dequantizes, or computes with quantized numbers."""
    if operator == "DynamicQuantizeLSTM":  # it is built of the numbers that its inputs have
        return False
    return "quantize" in operator.lower() or operator.startswith(("QLinear", "QGemm", "QAttention"))


def _is_mask(array: NDArray[Any]) -> bool:
    """True if an array is an additive mask: zeros and large negative numbers."""
    hides = array < _MASKED
    return bool(hides.any() and (array[~hides] == 0).all())


def constant_nodes(graph: Any, uses: Uses, folder: Folder | None) -> dict[str, NDArray[Any]]:
    """The parameters among a graph's `Constant` nodes: arrays by output name.

    Args:
        graph: The `GraphProto`.
        uses: The uses of its names.
        folder: The folder of the model.
    """
    found = {}
    for node in graph.node:
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            continue
        for held in node.attribute:
            if held.name != "value":
                continue
            tensor, name = held.t, node.output[0]
            if len(tensor.string_data) or reading.dtype_of(tensor.data_type).kind in "iub":
                continue
            if uses.may_be_parameter_in_node(name, math.prod(tensor.dims)):
                array = np.asarray(reading.array_of(tensor, folder))
                if uses.is_parameter(name, array):
                    found[name] = array
    return found
