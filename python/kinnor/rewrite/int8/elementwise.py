"""Functions of one number as tables of 256 levels."""

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
"""Types of functions of single numbers."""

_MOST = 32
"""Functions that a table may stand for."""


@cache
def _names() -> dict[str, str]:
    """The names of functions by their types."""
    return {type_name: name for name, type_name, *_ in _core.declarations()}


class _Outside(Exception):
    """Something that is no function of one number."""


def table_of(graph: IntegerLayers, x: Variable, target: Target) -> Levels | None:
    """The levels of `x` by a table, if it follows from one array of levels number by number.

    Args:
        graph: What is converted.
        x: The variable.
        target: What its levels are to be.
    """
    found: dict[Variable, Variable] = {}
    sources: list[Levels] = []
    try:
        y = _rebuilt(graph, x, tuple(x.shape), found, sources)
    except _Outside:
        return None
    if not sources:
        return None
    y.forward()
    return sources[0].mapped(target, np.array(y.d))


def _rebuilt(
    graph: IntegerLayers, x: Variable, shape: tuple[int, ...], found: dict[Variable, Variable], sources: list[Any]
) -> Variable:
    """The same of the numbers that all levels stand for."""
    if x in found:
        return found[x]
    levels = graph.of(x)
    if levels is not None:
        if levels.given is not None or tuple(x.shape) != shape or (sources and sources[0] is not levels):
            raise _Outside
        sources[:] = [levels]
        found[x] = constant(levels.scale.numbers(np.arange(256)), np.float32)
        return found[x]
    f = x.parent
    if x.size == 1 and (value := graph.value(x)) is not None:
        found[x] = constant(np.reshape(value, (1,)), np.float32)
        return found[x]
    if f is None or f.info.type_name not in _ELEMENTWISE or tuple(x.shape) != shape or len(found) > _MOST:
        raise _Outside
    inputs = [_rebuilt(graph, v, shape, found, sources) for v in f.inputs]
    found[x] = getattr(F, _names()[f.info.type_name])(*inputs, **f.info.args)
    return found[x]
