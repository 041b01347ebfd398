"""Elementwise functions of one quantized array as lookup tables with 256 entries."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _core
from ... import functions as F
from .levels import constant

if TYPE_CHECKING:
    from ..._core import Variable
    from .converting import IntegerLayers
    from .levels import Levels, Target

__all__ = ["table_of"]

_ELEMENTWISE = frozenset(
    [
        *("Abs", "Add2", "AddScalar", "Div2", "ELU", "Erf", "Exp", "GELU", "HardSigmoid", "HardSwish"),
        *("HardTanh",),
        *("Identity", "LeakyReLU", "Log", "Maximum2", "MaximumScalar", "Minimum2", "MinimumScalar", "Mish", "Mul2"),
        *("MulScalar", "Pow2", "PowScalar", "RDivScalar", "ReLU", "ReLU6", "RPowScalar", "RSubScalar", "SELU"),
        *("Sigmoid", "Sinc", "SoftPlus", "SoftSign", "Sub2", "Swish", "Tanh"),
    ]
)
"""Types of elementwise functions."""

_MOST = 32
"""Limit on the functions that one table replaces."""


@cache
def _names() -> dict[str, str]:
    """Names in `kinnor.functions` by function type."""
    return {type_name: name for name, type_name, *_ in _core.declarations()}


class _NotElementwise(Exception):
    """Raised if a variable is not an elementwise function of one quantized array."""


def table_of(graph: IntegerLayers, x: Variable, target: Target) -> Levels | None:
    """The levels of `x` by a lookup table. None unless `x` is an elementwise function of one quantized array.

    Args:
        graph: The conversion under way.
        x: The variable.
        target: The quantization of the result.
    """
    found: dict[Variable, Variable] = {}
    sources: list[Levels] = []
    try:
        y = _rebuild(graph, x, tuple(x.shape), found, sources)
    except _NotElementwise:
        return None
    if not sources:
        return None
    y.forward()
    return sources[0].mapped(target, np.array(y.d))


def _rebuild(
    graph: IntegerLayers, x: Variable, shape: tuple[int, ...], found: dict[Variable, Variable], sources: list[Any]
) -> Variable:
    """Rebuilds the computation of `x` for the numbers of all 256 levels.

    Args:
        graph: The conversion under way.
        x: The variable.
        shape: The shape that all arrays on the way must have.
        found: Rebuilt variables, for reuse.
        sources: Gets the single quantized array.

    Raises:
        _NotElementwise: If it is not an elementwise function of one quantized array.
    """
    if x in found:
        return found[x]
    levels = graph.of(x)
    if levels is not None:
        if levels.given is not None or tuple(x.shape) != shape or (sources and sources[0] is not levels):
            raise _NotElementwise
        sources[:] = [levels]
        found[x] = constant(levels.scale.numbers(np.arange(256)), np.float32)
        return found[x]
    f = x.parent
    if x.size == 1 and (value := graph.value(x)) is not None:
        found[x] = constant(np.reshape(value, (1,)), np.float32)
        return found[x]
    if f is None or f.info.type_name not in _ELEMENTWISE or tuple(x.shape) != shape or len(found) > _MOST:
        raise _NotElementwise
    inputs = [_rebuild(graph, v, shape, found, sources) for v in f.inputs]
    found[x] = getattr(F, _names()[f.info.type_name])(*inputs, **f.info.args)
    return found[x]
