"""Functions of one quantized array: elementwise ones as lookup tables of 256 entries, and functions that move elements.

A rule returns None if there is no integer version of the function.
"""

from __future__ import annotations

from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _core
from ... import functions as F
from .levels import constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import Function, Variable
    from .converting import IntegerLayers
    from .levels import Levels, Target

__all__ = ["EACH", "MOVES", "framed", "joined", "table_of"]

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

EACH: dict[str, Callable[..., Variable]] = {
    "Add2": F.add2,
    "Div2": F.div2,
    "Identity": F.identity,
    "Mul2": F.mul2,
    "ReLU": F.relu,
    "Sigmoid": F.sigmoid,
    "Sub2": F.sub2,
    "Tanh": F.tanh,
}
"""Elementwise functions without arguments that are computed on images with their channels last, by function type."""

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
    if f is None or f.name not in _ELEMENTWISE or tuple(x.shape) != shape or len(found) > _MOST:
        raise _NotElementwise
    inputs = [_rebuild(graph, v, shape, found, sources) for v in f.inputs]
    found[x] = getattr(F, _names()[f.name])(*inputs, **f.args)
    return found[x]


_LAST = (0, 3, 1, 2)
"""Index in channels-last order of each axis of images."""


def _max_pooling(x: Levels, f: Function) -> Levels | None:
    """The rule of `MaxPooling`."""
    args = f.args
    if f.inputs[0].ndim != 4 or len(args["kernel"]) != 2 or args["channel_last"] or not args["ignore_border"]:
        return None
    kernel, stride, pad = (list(args[key]) for key in ("kernel", "stride", "pad"))
    return x.like(last=F.max_pooling_uint8(x.last, kernel, stride, pad))


def _slice(x: Levels, f: Function) -> Levels | None:
    """The rule of `Slice`: one axis, step 1."""
    shape, args = f.inputs[0].shape, f.args
    bounds = zip(args["start"], args["stop"], args["step"], strict=True)
    cuts = [range(n)[slice(*at)] for n, at in zip(shape, bounds, strict=True)]
    axes = [axis for axis, (cut, n) in enumerate(zip(cuts, shape, strict=True)) if cut != range(n)]
    if len(axes) > 1 or any(cut.step != 1 for cut in cuts):
        return None
    part = x.plain
    for axis in axes:
        part = F.slice_uint8(part, cuts[axis].start, cuts[axis].stop, axis)
    return x.like(plain=part)


def _transpose(x: Levels, f: Function) -> Levels:
    """The rule of `Transpose`."""
    return x.like(plain=F.transpose_uint8(x.plain, list(f.args["axes"])))


def framed(x: Levels, f: Function, level: int) -> Levels:
    """Levels padded by a constant level.

    Args:
        x: The levels.
        f: The `Pad` function of the numbers.
        level: The level to pad with.
    """
    widths = [0] * (2 * f.inputs[0].ndim - len(f.args["pad_width"])) + list(f.args["pad_width"])
    if x.is_last:
        widths = [w for axis in (0, 2, 3, 1) for w in widths[2 * axis : 2 * axis + 2]]
        return x.like(last=F.pad_uint8(x.last, widths, level))
    return x.like(plain=F.pad_uint8(x.plain, widths, level))


MOVES: dict[str, Callable[[Levels, Function], Levels | None]] = {
    "Identity": lambda x, _: x,
    "MaxPooling": _max_pooling,
    "Reshape": lambda x, f: x.like(plain=F.reshape(x.plain, f.args["shape"], axes=f.args["axes"])),
    "Slice": _slice,
    "Transpose": _transpose,
}
"""Rules by function type: from input levels and the function to output levels."""


def joined(parts: Sequence[Levels], axis: int) -> Levels:
    """Concatenates levels of one scale.

    Args:
        parts: The levels.
        axis: The axis, in the order of the numbers.
    """
    if any(x.is_last for x in parts):
        join = partial(F.concatenate_uint8, axis=_LAST[axis])
        return parts[0].like(last=reduce(join, [x.last for x in parts]))
    return parts[0].like(plain=reduce(partial(F.concatenate_uint8, axis=axis), [x.plain for x in parts]))
