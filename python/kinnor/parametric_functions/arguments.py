"""Checks of arguments of parametric functions, and shapes and initial values of their weights and biases."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
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

__all__ = [
    "Filters",
    "Matrix",
    "Weights",
    "applied",
    "bias",
    "channels",
    "check_input",
    "constant",
    "index_of_axis",
    "kept",
    "multiple",
    "sizes",
    "taps",
    "weight",
]


def check_input(op: str, inp: Variable, min_ndim: int = 1) -> None:
    """Raises CallError unless the input is a Variable or an NdArray, and ShapeError if it has too few axes."""
    if not isinstance(inp, (Variable, NdArray)):
        is_array = isinstance(inp, (list, tuple)) or hasattr(inp, "__array__")
        hint = "; wrap it: kinnor.Variable.from_numpy_array(x)" if is_array else ""
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


class Weights:
    """Base class for the weight shapes of a layer.

    Attributes:
        shape: Shape of the weight.
        maps: Shape of the bias.
        fans: Input maps, output maps and kernel, the arguments of `calc_uniform_lim_glorot`.
    """

    shape: tuple[int, ...]
    maps: tuple[int, ...]
    fans: tuple[int, int, Sequence[int]]

    def initializer(self, given: Initializer | None, rng: RandomState | None) -> Initializer:
        """The given initializer, or the default: uniform."""
        return UniformInitializer(calc_uniform_lim_glorot(*self.fans), rng) if given is None else given

    def weight(self, init: Initializer | None, rng: RandomState | None, fix_parameters: bool) -> Variable:
        """The parameter `W`, which is trained."""
        return get_parameter_or_create("W", self.shape, self.initializer(init, rng), True, not fix_parameters)

    def other(self, name: str, init: Initializer | None, rng: RandomState | None) -> Variable:
        """A parameter of the weight's shape that is not trained."""
        return get_parameter_or_create(name, self.shape, self.initializer(init, rng), False)


class Matrix(Weights):
    """The weight of an affine transformation, shape (inputs, *n_outmaps)."""

    def __init__(self, op: str, inp: Variable, n_outmaps: int | Sequence[int], base_axis: int) -> None:
        check_input(op, inp)
        inputs = prod(inp.shape[index_of_axis(op, inp, base_axis) :])
        self.maps = sizes(op, "n_outmaps", n_outmaps, single=True)
        self.shape = (inputs, *self.maps)
        self.fans = inputs, prod(self.maps), (1, 1)


class Filters(Weights):
    """The weight of a convolution, shape (outmaps, inmaps / group, *kernel), or with channels last.

    If transposed, it is the weight of a transposed convolution: inmaps and outmaps change places.
    """

    def __init__(
        self,
        op: str,
        inp: Variable,
        outmaps: int,
        kernel: int | Sequence[int],
        base_axis: int,
        group: int = 1,
        channel_last: bool = False,
        is_transposed: bool = False,
    ) -> None:
        inmaps = channels(op, inp, base_axis, channel_last)
        size = taps(op, inp, base_axis, kernel)
        (outmaps,) = self.maps = sizes(op, "outmaps", outmaps, single=True)
        first, grouped, of = outmaps, inmaps, "the channels of the input"
        if is_transposed:
            first, grouped, of = inmaps, outmaps, "`outmaps`"
        per_group = multiple(op, of, grouped, group)
        self.shape = (first, *size, per_group) if channel_last else (first, per_group, *size)
        self.fans = grouped, first, size


def channels(op: str, inp: Variable, base_axis: int, channel_last: bool = False) -> int:
    """The number of channels of a checked input."""
    check_input(op, inp)
    return inp.shape[-1 if channel_last else index_of_axis(op, inp, base_axis)]


def constant(name: str, shape: Sequence[int], value: float = 0) -> Variable:
    """A parameter that is not trained, with the same initial value everywhere."""
    return get_parameter_or_create(name, shape, ConstantInitializer(value), False)


def kept(made: Any) -> Any:
    """The argument, made persistent if it is a variable. A parameter shares its array, so no run may clear it."""
    if isinstance(made, Variable):
        made.persistent = True
    return made
