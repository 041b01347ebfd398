"""Checks of arguments of parametric functions, and creation of the common parameters `W` and `b`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._check import as_whole, callee, whole
from .._core import AxisError, CallError, NdArray, RangeError, ShapeError, Variable
from ..initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ..parameter import get_parameter_or_create
from ..parameter.tree import here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState

    from ..initializer import Initializer

__all__ = ["applied", "bias", "check_input", "index_of_axis", "multiple", "sizes", "taps", "weight"]


def check_input(op: str, inp: Variable, min_ndim: int = 1) -> None:
    """Raises CallError unless the input is a Variable or an NdArray, and ShapeError if it has too few axes."""
    if not isinstance(inp, (Variable, NdArray)):
        hint = "; wrap it: kinnor.Variable.from_numpy_array(x)" if hasattr(inp, "__array__") else ""
        raise CallError(f"{op}: expected a Variable or an NdArray, got {type(inp).__name__}{hint}")
    if inp.ndim < min_ndim:
        raise ShapeError(f"{op}: expected an input of at least {min_ndim} axes, got shape {inp.shape}")


def index_of_axis(op: str, inp: Variable, axis: int) -> int:
    """An axis of an input as a non-negative index. Raises AxisError if it is out of range."""
    if type(axis) is int and 0 <= axis < inp.ndim:  # fast path for the common case
        return axis
    axis = whole(op, "axis", axis)
    if not -inp.ndim <= axis < inp.ndim:
        raise AxisError(f"{op}: expected an axis of an input of shape {inp.shape}, got {axis}")
    return axis % inp.ndim


def sizes(op: str, argument: str, value: int | Sequence[int], single: bool = False) -> tuple[int, ...]:
    """A checked tuple of positive integers. With `single`, one integer is accepted as a tuple of one."""
    if single and type(value) is int and value > 0:  # fast path for the common case
        return (value,)
    given: Any = value
    one = as_whole(given) if single else None
    several = [as_whole(n) for n in given] if one is None and isinstance(given, Iterable) else [one]
    numbers = tuple(n for n in several if n is not None) if None not in several else ()
    if not numbers or min(numbers) < 1:
        expected = "a whole number above 0 or a tuple of them" if single else "a tuple of whole numbers above 0"
        raise (RangeError if numbers else CallError)(f"{op}: expected `{argument}` to be {expected}, got {value!r}")
    return numbers


def taps(op: str, inp: Variable, base_axis: int, kernel: int | Sequence[int]) -> tuple[int, ...]:
    """The size of a kernel along each spatial axis of the input; a single number is the size along all of them."""
    given: Any = kernel
    if as_whole(given) is None:
        return sizes(op, "kernel", given)
    n = inp.ndim - index_of_axis(op, inp, base_axis) - 1
    if n < 1:
        raise ShapeError(f"{op}: expected an input with spatial axes after axis {base_axis}, got shape {inp.shape}")
    return sizes(op, "kernel", given, single=True) * n


def weight(
    shape: Sequence[int],
    w_init: Initializer | None,
    fans: tuple[int, int, Sequence[int]],
    rng: RandomState | None,
    fix_parameters: bool,
    apply_w: Callable[[Variable], Variable] | None = None,
) -> Variable:
    """The parameter `W`. By default it is uniform, by `calc_uniform_lim_glorot(*fans)`."""
    if w_init is None and "W" not in here():
        w_init = UniformInitializer(calc_uniform_lim_glorot(*fans), rng)
    w = get_parameter_or_create("W", shape, w_init, True, not fix_parameters)
    return applied("apply_w", apply_w, w)


def bias(
    shape: Sequence[int],
    b_init: Initializer | None,
    with_bias: bool,
    fix_parameters: bool,
    apply_b: Callable[[Variable], Variable] | None = None,
) -> Variable | None:
    """The parameter `b`, by default zeros; None without bias."""
    if not with_bias:
        return None
    if b_init is None and "b" not in here():
        b_init = ConstantInitializer()
    b = get_parameter_or_create("b", shape, b_init, True, not fix_parameters)
    return applied("apply_b", apply_b, b)


def applied(argument: str, function: Callable[[Variable], Variable] | None, parameter: Variable) -> Variable:
    """A parameter after `function`, or the parameter itself without a function."""
    if function is None:
        return parameter
    made: Variable = callee("parametric function", argument, function)(parameter)
    return made


def multiple(op: str, what: str, maps: int, group: int, name: str = "group") -> int:
    """The number of maps in each group. Raises RangeError if `maps` is not a multiple of `group`."""
    (group,) = sizes(op, name, group, single=True)
    if maps % group:
        raise RangeError(f"{op}: expected {what} to be a multiple of `{name}`, got {maps} and {group}")
    return maps // group
