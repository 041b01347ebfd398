"""Checks of what layers are given, and the parameters that they register."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._check import is_truth
from .._core import CallError, NdArray, RangeError, ShapeError, Variable
from ..parametric_functions.arguments import sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..core import Module

__all__ = ["check_axis", "each_axis", "probability", "registered", "whole"]


def registered(module: Module, name: str) -> Variable:
    """The parameter of a name that a method of the module has registered."""
    found = module.parameter_scope[name]
    assert isinstance(found, Variable)
    return found


def whole(op: str, argument: str, value: int) -> int:
    """A whole number above 0."""
    return sizes(op, argument, value, single=True)[0]


def each_axis(op: str, argument: str, value: int | Sequence[int], n_axes: int, least: int = 0) -> tuple[int, ...]:
    """A whole number for each spatial axis, of one number for all of them or one for each."""
    given: Any = (value,) * n_axes if isinstance(value, int) and not is_truth(value) else value
    try:
        numbers = tuple(int(n) for n in given)
    except (TypeError, ValueError):
        raise CallError(f"{op}: expected `{argument}` to be a whole number or a tuple of them, got {value!r}") from None
    if len(numbers) != n_axes or min(numbers, default=least) < least:
        expected = f"a whole number of at least {least}, or a tuple of {n_axes} of them"
        raise RangeError(f"{op}: expected `{argument}` to be {expected}, got {value!r}")
    return numbers


def probability(op: str, p: float) -> float:
    """A number from 0 up to but not including 1."""
    if not 0 <= p < 1:
        raise RangeError(f"{op}: expected `p` from 0 up to but not including 1, got {p!r}")
    return float(p)


def check_axis(op: str, x: Variable, axis: int, size: int, n_axes: Sequence[int] = ()) -> None:
    """Refuse an input whose axis does not have the size that the layer was built for.

    Args:
        op: The layer, for the error.
        x: The input.
        axis: The axis.
        size: The size that it has to have.
        n_axes: The numbers of axes that the input may have; any by default.
    """
    if not isinstance(x, (Variable, NdArray)):
        is_array = isinstance(x, (list, tuple)) or hasattr(x, "__array__")
        hint = "; wrap it: kinnor.Variable.from_numpy_array(x)" if is_array else ""
        raise CallError(f"{op}: expected a Variable, got {type(x).__name__}{hint}")
    if n_axes and x.ndim not in n_axes:
        allowed = " or ".join(map(str, n_axes))
        raise ShapeError(f"{op}: expected an input of {allowed} axes, got shape {x.shape}")
    if not -x.ndim <= axis < x.ndim or x.shape[axis] != size:
        raise ShapeError(f"{op}: expected an input whose axis {axis} has size {size}, got shape {x.shape}")
