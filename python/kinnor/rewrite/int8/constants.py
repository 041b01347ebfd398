"""Constants of a graph during conversion: values, and quantized weights."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..patterns import is_a
from .levels import SIGNED

if TYPE_CHECKING:
    from collections.abc import Container

    from numpy.typing import NDArray

    from ..._core import Variable

__all__ = ["Weights", "value_of", "weights_of"]


class Weights(NamedTuple):
    """Quantized weights `(levels - zero) * step`. Step and zero are scalars or vary along one axis."""

    levels: NDArray[np.int8]
    step: NDArray[np.float32]
    zero: NDArray[np.int64]
    key: Any
    """Identifies the levels in this axis order, for sharing between graphs."""

    def transposed(self, axes: list[int]) -> Weights:
        """The weights with permuted axes.

        Args:
            axes: The permutation.
        """
        step = self.step.transpose(axes) if self.step.ndim == len(axes) else self.step
        zero = self.zero.transpose(axes) if self.zero.ndim == len(axes) else self.zero
        return Weights(self.levels.transpose(axes), step, zero, (self.key, *axes))

    def along(self, axis: int) -> tuple[NDArray[np.float32], NDArray[np.int64]] | None:
        """Step and zero point as vectors along an axis, or of length 1. None if they vary along another axis.

        Args:
            axis: The axis.
        """
        for x in (self.step, self.zero):
            if x.size != 1 and x.size != x.shape[axis]:
                return None
        return self.step.ravel(), self.zero.ravel()


_COMPUTED = frozenset(
    ["Add2", "DequantizeLinear", "Identity", "Mul2", "MulScalar", "QuantizeLinear", "Reshape", "Sub2", "Transpose"]
)
"""Types of functions that may compute quantization parameters from constants."""


def is_constant(x: Variable, given: Container[Variable]) -> bool:
    """True if a variable is a constant, or cheap functions compute it from constants.

    Args:
        x: The variable.
        given: The inputs of the graph.
    """
    f = x.parent
    if f is None:
        return x not in given
    return f.info.type_name in _COMPUTED and all(is_constant(v, given) for v in f.inputs)


def value_of(x: Variable, given: Container[Variable]) -> NDArray[Any] | None:
    """The values of a constant variable, else None.

    Args:
        x: The variable.
        given: The inputs of the graph.
    """
    if not is_constant(x, given):
        return None
    if x.parent is not None:
        x.forward()
    return np.array(x.d)


def weights_of(x: Variable, given: Container[Variable]) -> Weights | None:
    """The quantized weights that a variable dequantizes. None unless they are constant 8-bit levels.

    Args:
        x: The variable.
        given: The inputs of the graph.
    """
    f = x.parent
    if f is not None and f.info.type_name == "Transpose":
        found = weights_of(f.inputs[0], given)
        return None if found is None else found.transposed(list(f.info.args["axes"]))
    if f is None or f.info.type_name != "DequantizeLinear":
        return None
    held = f.inputs[0]
    levels, step, zero = (value_of(v, given) for v in f.inputs)
    if levels is None or step is None or zero is None:
        return None
    if is_a(held.parent, "QuantizeLinear"):
        levels = levels.astype(np.int8 if held.parent.info.args["dtype"] == 1 else np.uint8)
    if levels.dtype not in (np.int8, np.uint8):
        return None
    zero = zero.astype(np.int64)
    if levels.dtype == np.uint8:
        levels, zero = (levels ^ np.uint8(SIGNED)).view(np.int8), zero - SIGNED
    # Graphs for other shapes may have the same constants as other variables, so the key is the content.
    key = (hashlib.sha1(levels.tobytes(), usedforsecurity=False).digest(), levels.shape)
    return Weights(levels, step.astype(np.float32), zero, key)
