"""Where parameters start: initializers as messages.

Knows NNabla's names of distributions; knows no parameters.
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
_LAYERS: dict[str, Callable[[Sequence[int]], tuple[int, int, tuple[int, ...]]]] = {
    "Affine": lambda shape: (shape[0], prod(shape[1:]), (1, 1)),
    "Convolution": lambda shape: (shape[-3], shape[0], tuple(shape[-2:])),
    "CLConv": lambda shape: (shape[-1], shape[0], tuple(shape[1:3])),
}
"""How many maps go in and out, and the kernel, of weights of this shape."""


LARGEST = 1e30
"""The largest multiplier: what is drawn is far from the largest number of float32."""


def read(message: Any, rng: RandomState) -> Callable[[Sequence[int]], NDArray[Any]] | None:
    """The initializer that a message describes.

    Args:
        message: An `Initializer`.
        rng: What random values are drawn from.

    Returns:
        A function from a shape to values, or None if NNabla has no distribution of this name.

    Raises:
        NetworkError: If what is drawn would not be finite.
    """
    kind, multiplier = message.type, message.multiplier
    if kind == "Constant":
        return I.ConstantInitializer(multiplier)
    if not abs(multiplier) <= LARGEST:
        raise NetworkError(f"initializer {kind}: expected a multiplier of at most {LARGEST:g}, got {multiplier:g}")
    if kind == "Range":
        return partial(_times, multiplier, lambda shape: I.RangeInitializer(0, 1)(shape))
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
    return initializer(shape) * multiplier


def _normal(sizes: Any, deviation: Any, rng: RandomState, shape: Sequence[int]) -> Any:
    return I.NormalInitializer(deviation(*_sizes(sizes, shape)), rng=rng)(list(shape))


def _uniform(sizes: Any, rng: RandomState, shape: Sequence[int]) -> Any:
    return I.UniformInitializer(I.calc_uniform_lim_glorot(*_sizes(sizes, shape)), rng=rng)(list(shape))


def _sizes(sizes: Any, shape: Sequence[int]) -> Any:
    try:
        return sizes(shape)
    except IndexError as error:
        raise ValueError(f"expected weights with as many axes as their layer has, got shape {tuple(shape)}") from error


def fill(message: Any, initializer: Any) -> None:
    """Put an initializer into its message, if it is one of three that a name and a number describe.

    Args:
        message: An `Initializer`.
        initializer: What the parameter's `info` has.
    """
    if isinstance(initializer, I.ConstantInitializer) and ndim(initializer.value) == 0:
        message.type, message.multiplier = "Constant", float(initializer.value)  # type: ignore[arg-type]
    elif isinstance(initializer, I.UniformInitializer):
        message.type, message.multiplier = "Uniform", abs(float(initializer.lim[0]))
    elif isinstance(initializer, I.NormalInitializer):
        message.type, message.multiplier = "Normal", initializer.sigma
