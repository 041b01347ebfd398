"""Shapes and initial values of weights, for layers with several versions of a weight."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from .._core import Variable
from ..initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ..parameter import get_parameter_or_create
from .arguments import check_input, index_of_axis, multiple, sizes, taps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

    from ..initializer import Initializer

__all__ = ["Filters", "Matrix", "Weights", "channels", "constant", "kept"]


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
