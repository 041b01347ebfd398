"""Functions that only move or select elements, such as transpose and max pooling, on levels of any scale.

A rule returns None if there is no integer version of the function.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING

from ... import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import Function
    from .levels import Levels

__all__ = ["MOVES", "framed", "joined"]

_LAST = (0, 3, 1, 2)
"""Index in channels-last order of each axis of images."""


def _max_pooling(x: Levels, f: Function) -> Levels | None:
    """The rule of `MaxPooling`."""
    args = f.info.args
    if f.inputs[0].ndim != 4 or len(args["kernel"]) != 2 or args["channel_last"] or not args["ignore_border"]:
        return None
    kernel, stride, pad = (list(args[key]) for key in ("kernel", "stride", "pad"))
    return x.like(last=F.max_pooling_uint8(x.last, kernel, stride, pad))


def _slice(x: Levels, f: Function) -> Levels | None:
    """The rule of `Slice`: one axis, step 1."""
    shape, args = f.inputs[0].shape, f.info.args
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
    return x.like(plain=F.transpose_uint8(x.plain, list(f.info.args["axes"])))


def framed(x: Levels, f: Function, level: int) -> Levels:
    """Levels padded by a constant level.

    Args:
        x: The levels.
        f: The `Pad` function of the numbers.
        level: The level to pad with.
    """
    widths = [0] * (2 * f.inputs[0].ndim - len(f.info.args["pad_width"])) + list(f.info.args["pad_width"])
    if x.is_last:
        widths = [w for axis in (0, 2, 3, 1) for w in widths[2 * axis : 2 * axis + 2]]
        return x.like(last=F.pad_uint8(x.last, widths, level))
    return x.like(plain=F.pad_uint8(x.plain, widths, level))


MOVES: dict[str, Callable[[Levels, Function], Levels | None]] = {
    "Identity": lambda x, _: x,
    "MaxPooling": _max_pooling,
    "Reshape": lambda x, f: x.like(plain=F.reshape(x.plain, f.info.args["shape"])),
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
