"""Which arrays of an ONNX file are parameters of the network, and which are constants.

Knows messages; knows no graphs that are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import reading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["Uses", "constant_nodes"]

_EACH = range(1 << 16)

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
"""Inputs, by operator, that only shape a function: exponents, bounds, limits of comparisons, fill values, scales."""

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
"""Elements from which on an array in a `Constant` node is a parameter."""

_MASKED = -1e4
"""Numbers below this hide what they are added to."""


class Uses:
    """The inputs of nodes that each name of a graph is, inner graphs included.

    Args:
        graph: The `GraphProto`.
    """

    def __init__(self, graph: Any) -> None:
        self._uses: dict[str, list[tuple[str, int]]] = {}
        for node in _nodes(graph):
            for i, name in enumerate(node.input):
                self._uses.setdefault(name, []).append((node.op_type, i))

    def is_parameter(self, name: str, array: NDArray[Any]) -> bool:
        """True if an initializer is a parameter: real numbers that are more than the setting of a function.

        Args:
            name: Its name.
            array: Its elements.
        """
        if array.dtype.kind in "iubO":
            return False
        uses = self._uses.get(name, [])
        if any(_is_quantization(operator) for operator, _ in uses):
            return True  # its node is computed with levels of 8 bits, not folded
        if array.ndim == 0:
            return False
        if uses and all(i in _SHAPING.get(operator, ()) for operator, i in uses):
            return False
        if array.size == 1:
            return any(operator in _LAYERS for operator, _ in uses)
        return not (any(operator == "Add" for operator, _ in uses) and _is_mask(array))

    def is_parameter_in_node(self, name: str, array: NDArray[Any]) -> bool:
        """True if the array of a `Constant` node is a parameter: a weight, or a large array.

        Args:
            name: The output of the node.
            array: Its elements.
        """
        is_weight = any(operator in _WEIGHTED for operator, _ in self._uses.get(name, []))
        return (is_weight or array.size >= _LARGE) and self.is_parameter(name, array)


def _nodes(graph: Any) -> Iterator[Any]:
    for held in reading.graphs(graph):
        yield from held.node


def _is_quantization(operator: str) -> bool:
    """True if an operator maps numbers to levels, or computes with levels."""
    if operator == "DynamicQuantizeLSTM":  # it is built of the numbers that its inputs have
        return False
    return "quantize" in operator.lower() or operator.startswith(("QLinear", "QGemm", "QAttention"))


def _is_mask(array: NDArray[Any]) -> bool:
    """True if an array holds zeros and numbers that hide what they are added to."""
    hides = array < _MASKED
    return bool(hides.any() and (array[~hides] == 0).all())


def constant_nodes(graph: Any, uses: Uses, folder: Path | None) -> dict[str, NDArray[Any]]:
    """The arrays of the `Constant` nodes of a graph that are parameters, by the names of their outputs.

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
            is_text = held.name == "value" and len(held.t.string_data) > 0
            if held.name == "value" and not is_text and reading.dtype_of(held.t.data_type).kind not in "iub":
                array = np.asarray(reading.array_of(held.t, folder))
                if uses.is_parameter_in_node(node.output[0], array):
                    found[node.output[0]] = array
    return found
