"""Conversion between initializers and messages.

Knows NNabla's names of distributions.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from numpy import ndim

from .. import initializer as I
from ..files.network_file import NetworkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import RandomState
    from numpy.typing import NDArray

__all__ = ["fill", "read"]

_NORMAL = {
    "HeForward": I.calc_normal_std_he_forward,
    "He": I.calc_normal_std_he_forward,
    "HeBackward": I.calc_normal_std_he_backward,
    "Glorot": I.calc_normal_std_glorot,
}
"""The function that computes the standard deviation of each type of normal initializer."""


def _affine(shape: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The numbers of input and output maps of the weight of an affine layer, and its kernel."""
    return shape[0], prod(shape[1:]), (1, 1)


def _convolution(shape: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The same for a convolution."""
    return shape[-3], shape[0], tuple(shape[-2:])


def _channel_last(shape: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The same for a convolution whose channels are the last axis."""
    return shape[-1], shape[0], tuple(shape[1:3])


_LAYERS = {"Affine": _affine, "Convolution": _convolution, "CLConv": _channel_last}
"""Functions from a weight's shape to its numbers of input maps and output maps, and its kernel."""

LARGEST = 1e30
"""Largest multiplier: keeps random values far from the largest float32."""


def read(message: Any, rng: RandomState) -> Callable[[Sequence[int]], NDArray[Any]] | None:
    """Create an initializer from a message.

    Args:
        message: An `Initializer`.
        rng: Random generator.

    Returns:
        A function from a shape to values, or None if NNabla has no distribution of this name.

    Raises:
        NetworkError: If random values could overflow.
    """
    kind, multiplier = message.type, message.multiplier
    if kind == "Constant":
        return I.ConstantInitializer(multiplier)
    if not abs(multiplier) <= LARGEST:
        raise NetworkError(f"initializer {kind}: expected a multiplier of at most {LARGEST:g}, got {multiplier:g}")
    if kind == "Range":
        return partial(_times, multiplier, I.RangeInitializer(0, 1))
    if kind == "Uniform":
        return I.UniformInitializer((-abs(multiplier), abs(multiplier)), rng=rng)
    if kind == "Normal":
        return I.NormalInitializer(multiplier, rng=rng)
    for layer, sizes in _LAYERS.items():
        if kind == f"Uniform{layer}Glorot":
            return partial(_times, multiplier, partial(_uniform, sizes, rng))
        for name, deviation in _NORMAL.items():
            if kind == f"Normal{layer}{name}":
                return partial(_times, multiplier, partial(_normal, sizes, deviation, rng))
    return None


def _times(multiplier: float, initializer: Callable[[Sequence[int]], NDArray[Any]], shape: Sequence[int]) -> Any:
    """The values that an initializer gives for a shape, times `multiplier`."""
    return initializer(shape) * multiplier


def _normal(sizes: Any, deviation: Any, rng: RandomState, shape: Sequence[int]) -> Any:
    """Normal values for a weight. `deviation` computes their deviation from the weight's numbers of maps."""
    return I.NormalInitializer(deviation(*_sizes(sizes, shape)), rng=rng)(list(shape))


def _uniform(sizes: Any, rng: RandomState, shape: Sequence[int]) -> Any:
    """Uniform values for a weight, within the limit of Glorot and Bengio."""
    return I.UniformInitializer(I.calc_uniform_lim_glorot(*_sizes(sizes, shape)), rng=rng)(list(shape))


def _sizes(sizes: Any, shape: Sequence[int]) -> Any:
    """Calls `sizes`, which finds the numbers of input and output maps and the kernel of a weight in its shape."""
    try:
        return sizes(shape)
    except IndexError as error:
        raise ValueError(f"expected weights with as many axes as their layer has, got shape {tuple(shape)}") from error


def fill(message: Any, initializer: Any) -> None:
    """Write an initializer into a message, if a name and a number describe it (three kinds).

    Args:
        message: An `Initializer`.
        initializer: The initializer in the parameter's `info`.
    """
    if isinstance(initializer, I.ConstantInitializer) and ndim(initializer.value) == 0:
        message.type, message.multiplier = "Constant", float(initializer.value)  # type: ignore[arg-type]
    elif isinstance(initializer, I.UniformInitializer):
        message.type, message.multiplier = "Uniform", abs(float(initializer.lim[0]))
    elif isinstance(initializer, I.NormalInitializer):
        message.type, message.multiplier = "Normal", initializer.sigma
