"""Infers symbolic dimensions: rebuilds the graph with a larger batch and compares shapes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ... import functions as F
from ..._core import UnsupportedError, Variable
from ...modes import auto_forward
from ...nnp import messages
from .writer import Length

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..._core import Function

__all__ = ["shapes_of"]

_MORE = 7
"""Increase of the symbolic length when the graph is rebuilt."""


def shapes_of(
    functions: Sequence[Function], open_axes: Mapping[Variable, int], batch: int
) -> dict[Variable, tuple[Length, ...]]:
    """The symbolic shapes of the outputs of all functions, and of the inputs with a symbolic axis.

    Args:
        functions: The functions in the order of a run.
        open_axes: The symbolic axis of each input that has one.
        batch: The symbolic length as the graph was built.

    Raises:
        UnsupportedError: If a function cannot be built with another length.
    """
    found: dict[Variable, tuple[Length, ...]] = {}
    again: dict[Variable, Variable] = {}
    for x, axis in open_axes.items():
        found[x] = tuple(Length(n, int(k == axis)) for k, n in enumerate(x.shape))
        again[x] = Variable([n + _MORE if k == axis else n for k, n in enumerate(x.shape)])
    with auto_forward(False):
        for number, function in enumerate(functions):
            inputs, outputs = function.inputs, function.outputs
            is_open = any(x in again for x in inputs)
            starts = bool(open_axes) and not is_open and _is_start(function, batch)
            if not (starts or is_open):
                continue
            wide = [tuple(again.get(x, x).shape) for x in inputs]
            try:
                args = _arguments(function, wide, starts)
                given = [again.get(x, x) for x in inputs]
                made = messages.call(function.info.type_name, given, args, len(outputs))
                if function.info.type_name == "Slice":
                    made = (_without_axes(function, made[0]),)
            except Exception as error:
                raise UnsupportedError(
                    f"onnx.save: function {number}, {function.info.type_name}: expected one that takes a batch of any "
                    f"length, or free_batch=False: {error}"
                ) from error
            for old, new in zip(outputs, made, strict=False):
                found[old] = _compared(function, number, old.shape, new.shape)
                if tuple(old.shape) != tuple(new.shape):
                    again[old] = new
    return found


def _compared(function: Function, number: int, old: Sequence[int], new: Sequence[int]) -> tuple[Length, ...]:
    """The symbolic shape of an output, from its shapes in the original and in the rebuilt graph."""
    if len(old) != len(new) or any((b - a) % _MORE or b < a for a, b in zip(old, new, strict=True)):
        raise UnsupportedError(
            f"onnx.save: function {number}, {function.info.type_name}: expected lengths that grow with the batch, or "
            f"free_batch=False, got {tuple(old)} and {tuple(new)}"
        )
    return tuple(Length(a, (b - a) // _MORE) for a, b in zip(old, new, strict=True))


def _without_axes(function: Function, made: Variable) -> Variable:
    """A rebuilt slice in the shape of the function's output, which lacks axes indexed by a number."""
    args, shape = function.info.args, function.inputs[0].shape
    places = zip(shape, args["start"], args["stop"], args["step"], strict=True)
    whole = [len(range(n)[slice(start, stop, step)]) for n, start, stop, step in places]
    wanted = function.outputs[0].shape
    return made if len(wanted) == len(whole) else F.reshape(made, _reshaped(whole, made.shape, wanted), inplace=False)


def _is_start(function: Function, batch: int) -> bool:
    """True if a function's argument `shape` starts with the batch."""
    if function.info.type_name == "Broadcast":
        wide, narrow = function.outputs[0].shape, function.inputs[0].shape
        return wide[:1] == (batch,) and (len(narrow) < len(wide) or narrow[0] != batch)
    return function.info.type_name == "Constant" and list(function.info.args["shape"])[:1] == [batch]


def _arguments(function: Function, wide: Sequence[tuple[int, ...]], starts: bool) -> dict[str, Any]:
    """The function's arguments for the rebuilt graph. `wide` are the rebuilt input shapes."""
    kind, args = function.info.type_name, dict(function.info.args)
    if starts:
        args["shape"] = [args["shape"][0] + _MORE, *args["shape"][1:]]
    elif kind == "Reshape":
        args["shape"] = _reshaped(function.inputs[0].shape, wide[0], function.outputs[0].shape)
        args.update(inplace=False, axes=[])
    elif kind == "Broadcast":
        shape = list(function.outputs[0].shape)
        first = len(shape) - len(wide[0])
        narrow = function.inputs[0].shape
        for axis, (old, new) in enumerate(zip(narrow, wide[0], strict=True), first):
            shape[axis] = new if new != old else shape[axis]
        args["shape"] = shape
    elif kind == "Slice":
        args["stop"] = [
            new if stop == was and new != was else stop
            for stop, was, new in zip(args["stop"], function.inputs[0].shape, wide[0], strict=True)
        ]
    return args


def _reshaped(old: Sequence[int], new: Sequence[int], target: Sequence[int]) -> list[int]:
    """The target of a reshape for a longer input.

    `old` and `target` are split into groups of axes with equal numbers of elements. In the group with the symbolic
    length, the first axis of the target grows.
    """
    made = list(target)
    if tuple(old) == tuple(new) or not math.prod(old):
        return made
    i = k = 0
    while i < len(old):
        first_i, first_k = i, k
        have, want = old[i], target[k] if k < len(target) else 1
        i, k = i + 1, k + 1
        while have != want:
            if have < want and i < len(old):
                have, i = have * old[i], i + 1
            elif k < len(target):
                want, k = want * target[k], k + 1
            else:
                raise ValueError(f"expected a shape for {tuple(new)}, got {tuple(target)}")
        more = math.prod(new[first_i:i]) // have if have else 1
        if more * have == math.prod(new[first_i:i]) and more == 1:
            continue
        longer = math.prod(new[first_i:i])
        rest = have // made[first_k]
        if not rest or longer % rest:
            raise ValueError(f"expected a shape for {tuple(new)}, got {tuple(target)}")
        made[first_k] = longer // rest
    return made
