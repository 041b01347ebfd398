"""Initializers: callables from a shape to the initial values of a parameter."""

from __future__ import annotations

from contextlib import contextmanager
from math import inf, prod, sqrt
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from . import _check, random
from ._core import CallError, RangeError, ShapeError
from .placement import changed, skips_init

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import NoReturn

    from numpy.random import RandomState
    from numpy.typing import ArrayLike, NDArray

    from ._core import Variable

__all__ = [
    "BaseInitializer",
    "ConstantInitializer",
    "Initializer",
    "NormalInitializer",
    "OrthogonalInitializer",
    "RangeInitializer",
    "UniformInitializer",
    "UniformIntInitializer",
    "WeightNormalizationScaleInitializer",
    "calc_normal_std_glorot",
    "calc_normal_std_he_backward",
    "calc_normal_std_he_forward",
    "calc_uniform_lim_glorot",
    "skip_init",
]

#: An initializer: a function from a shape to values, or the values themselves.
Initializer: TypeAlias = "Callable[[list[int]], NDArray[Any]] | NDArray[Any]"


@contextmanager
def skip_init() -> Iterator[None]:
    """Make new parameters in a block zeros that take no memory until they are used, for a model that is loaded next.

    Building a large model is fast then. No random numbers are drawn. Initial values that are given as arrays are used.

    Yields:
        Nothing.

    Examples:
        >>> import numpy as np
        >>> import kinnor as nn, kinnor.layers as L
        >>> with nn.initializer.skip_init():
        ...     layer = L.Linear(1000, 1000)
        >>> layer.load_state_dict({"W": np.eye(1000, dtype=np.float16), "b": np.zeros(1000)})
        LoadedNames(missing_keys=[], unexpected_keys=[])
    """
    with changed(skips_init, True):
        yield


class BaseInitializer:
    """Base of the initializers: a callable from a shape to initial values."""

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values.

        Args:
            shape: Shape of the parameter.

        Returns:
            Array of that shape.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method __call__(shape), got none")


class _RandomInitializer(BaseInitializer):
    """An initializer that draws from `rng`, by default the `kinnor.random.prng` at the time of construction."""

    #: Name of the generator's method that draws.
    draw: ClassVar[str]

    def __init__(self, rng: RandomState | None) -> None:
        if rng is not None and not hasattr(rng, self.draw):
            import inspect  # On a mistake only, not on import.

            known = list(inspect.signature(type(self)).parameters)
            hint = f"; the arguments are ({', '.join(known)})" if isinstance(rng, (int, float)) else ""
            raise CallError(f"{type(self).__name__}: expected `rng` to be a RandomState or None, got {rng!r}{hint}")
        self.rng = random.prng if rng is None else rng


def _ends(op: str, lim: Any) -> tuple[Any, Any]:
    """The lower and the upper end of a checked interval."""
    try:
        low, high = (_check.number(op, "lim", end) for end in lim)
    except (TypeError, ValueError):
        raise CallError(f"{op}: expected `lim` to be a lower and an upper end, got {lim!r}") from None
    if not low <= high:
        raise RangeError(f"{op}: expected the lower end of `lim` first, got {lim!r}")
    return low, high


class NormalInitializer(_RandomInitializer):
    """Values of a normal distribution: `N(0, sigma^2)`.

    Args:
        sigma: Standard deviation.
        rng: Generator; by default the library's own.
    """

    draw = "randn"

    def __init__(self, sigma: float = 1.0, rng: RandomState | None = None) -> None:
        super().__init__(rng)
        self.sigma = _check.number("NormalInitializer", "sigma", sigma)
        if not sigma >= 0:
            raise RangeError(f"NormalInitializer: expected `sigma` to be zero or more, got {sigma!r}")

    def __repr__(self) -> str:
        return f"NormalInitializer({self.sigma})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        return np.asarray(self.rng.randn(*shape) * self.sigma, np.float32)


class UniformInitializer(_RandomInitializer):
    """Values of a uniform distribution: `U(lim[0], lim[1])`.

    Args:
        lim: Lower end (included) and upper end (excluded).
        rng: Generator; by default the library's own.
    """

    draw = "uniform"

    def __init__(self, lim: tuple[float, float] = (-1, 1), rng: RandomState | None = None) -> None:
        super().__init__(rng)
        self.lim = _ends("UniformInitializer", lim)

    def __repr__(self) -> str:
        return f"UniformInitializer({self.lim})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        low, high = self.lim
        drawn = np.asarray(self.rng.uniform(low, high, size=tuple(shape)), np.float32)
        # Rounding to float32 may give the excluded upper end.
        return np.where(drawn < np.float32(high), drawn, np.float32(low))


class UniformIntInitializer(_RandomInitializer):
    """Whole numbers, each with the same probability.

    Args:
        lim: Lower end (included) and upper end (excluded).
        rng: Generator; by default the library's own.
    """

    draw = "randint"

    def __init__(self, lim: tuple[int, int] = (0, 10), rng: RandomState | None = None) -> None:
        super().__init__(rng)
        self.lim = _ends("UniformIntInitializer", lim)

    def __repr__(self) -> str:
        return f"UniformIntInitializer({self.lim})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        low, high = self.lim
        return np.asarray(self.rng.randint(low, high, size=tuple(shape)))


class RangeInitializer(BaseInitializer):
    """Evenly spaced values along the last axis, repeated over the others: `start + step * i`.

    Args:
        start: First value.
        step: Distance between two values.
    """

    def __init__(self, start: float = 0, step: float = 1) -> None:
        self.start = _check.number("RangeInitializer", "start", start)
        self.step = _check.number("RangeInitializer", "step", step)

    def __repr__(self) -> str:
        return f"RangeInitializer({self.start}, {self.step})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        if not shape:
            raise ShapeError("RangeInitializer: expected a shape of at least one axis, got ()")
        values = np.asarray(self.start + self.step * np.arange(shape[-1]))
        spread: NDArray[Any] = np.broadcast_to(values, tuple(shape)).copy()
        return spread


class ConstantInitializer(BaseInitializer):
    """The same value everywhere.

    Args:
        value: The value; an array is broadcast to the shape.
    """

    def __init__(self, value: ArrayLike = 0) -> None:
        if np.asarray(value).dtype.kind not in "biuf":
            raise CallError(f"ConstantInitializer: expected `value` to be numbers, got {value!r}")
        self.value = value

    def __repr__(self) -> str:
        return f"ConstantInitializer({self.value!r})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        return np.full(tuple(shape), self.value, np.float32)


class OrthogonalInitializer(_RandomInitializer):
    """A random matrix of orthonormal rows or columns, times `gain`.

    The matrix is shape[0] x (product of the rest); the shorter of its two sides is the orthonormal one.

    Args:
        gain: Factor; 1 for linear layers and sigmoids, sqrt(2) before a ReLU.
        rng: Generator; by default the library's own.

    Source:
        Saxe, McClelland, Ganguli: Exact solutions to the nonlinear dynamics of learning in deep linear neural
        networks, 2014.
    """

    draw = "randn"

    def __init__(self, gain: float = 1.0, rng: RandomState | None = None) -> None:
        super().__init__(rng)
        self.gain = _check.number("OrthogonalInitializer", "gain", gain)

    def __repr__(self) -> str:
        return f"OrthogonalInitializer({self.gain})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        if not shape:
            raise ShapeError("OrthogonalInitializer: expected a shape of at least one axis, got ()")
        rows, columns = shape[0], prod(shape[1:])
        u, _, v = np.linalg.svd(self.rng.randn(rows, columns), full_matrices=False)
        q = u if rows >= columns else v
        return np.asarray(q.reshape(tuple(shape)) * self.gain, np.float32)


class WeightNormalizationScaleInitializer(BaseInitializer):
    """The norms of a weight, so that normalizing it does not change it at first: `sqrt(sum(w^2) + eps)`.

    Args:
        w: The weight, shape (..., n, ...).
        dim: Axis of the weight that keeps its length n; the sum runs over the others.
        eps: Small number that keeps the root away from 0.

    Source:
        Salimans, Kingma: Weight normalization, 2016.
    """

    def __init__(self, w: Variable, dim: int = 0, eps: float = 1e-12) -> None:
        _check.arrays("WeightNormalizationScaleInitializer", w=w)
        self.w = w
        self.dim = _check.whole("WeightNormalizationScaleInitializer", "dim", dim)
        self.eps = _check.number("WeightNormalizationScaleInitializer", "eps", eps)

    def __repr__(self) -> str:
        return f"WeightNormalizationScaleInitializer(dim={self.dim}, eps={self.eps})"

    def __call__(self, shape: Sequence[int]) -> NDArray[Any]:
        """Initial values of that shape."""
        ndim = self.w.ndim
        if not -ndim <= self.dim < ndim:
            raise RangeError(
                f"WeightNormalizationScaleInitializer: expected as `dim` an axis of {self.w.shape}, got {self.dim}"
            )
        others = tuple(axis for axis in range(ndim) if axis != self.dim % ndim)
        return np.asarray(np.sqrt(np.square(self.w.d).sum(axis=others) + self.eps), np.float32)


def calc_normal_std_he_forward(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> float:
    """Standard deviation that keeps the variance of values through a ReLU layer: `sqrt(2 / (prod(kernel) inmaps))`.

    Args:
        inmaps: Number of input maps.
        outmaps: Number of output maps (has no influence).
        kernel: Shape of the kernel.

    Returns:
        The standard deviation, for `NormalInitializer`.

    Source:
        He, Zhang, Ren, Sun: Delving deep into rectifiers, 2015.
    """
    return sqrt(2.0 / _fan("calc_normal_std_he_forward", kernel, inmaps=inmaps))


def calc_normal_std_he_backward(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> float:
    """Standard deviation that keeps the variance of gradients through a ReLU layer: `sqrt(2 / (prod(kernel) outmaps))`.

    Args:
        inmaps: Number of input maps (has no influence).
        outmaps: Number of output maps.
        kernel: Shape of the kernel.

    Returns:
        The standard deviation, for `NormalInitializer`.

    Source:
        He, Zhang, Ren, Sun: Delving deep into rectifiers, 2015.
    """
    return sqrt(2.0 / _fan("calc_normal_std_he_backward", kernel, outmaps=outmaps))


def calc_normal_std_glorot(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> float:
    """Standard deviation that balances values and gradients: `sqrt(2 / (prod(kernel) (inmaps + outmaps)))`.

    Args:
        inmaps: Number of input maps.
        outmaps: Number of output maps.
        kernel: Shape of the kernel.

    Returns:
        The standard deviation, for `NormalInitializer`.

    Source:
        Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks, 2010.
    """
    return sqrt(2.0 / _fan("calc_normal_std_glorot", kernel, inmaps=inmaps, outmaps=outmaps))


def calc_uniform_lim_glorot(inmaps: int, outmaps: int, kernel: Sequence[int] = (1, 1)) -> tuple[float, float]:
    """Limits that balance values and gradients: `+- sqrt(6 / (prod(kernel) (inmaps + outmaps)))`.

    Args:
        inmaps: Number of input maps.
        outmaps: Number of output maps.
        kernel: Shape of the kernel.

    Returns:
        Lower and upper end, for `UniformInitializer`.

    Source:
        Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks, 2010.
    """
    limit = sqrt(6.0 / _fan("calc_uniform_lim_glorot", kernel, inmaps=inmaps, outmaps=outmaps))
    return -limit, limit


def _fan(op: str, kernel: Sequence[int], **given: int) -> int:
    """The fan: number of all maps times number of kernel taps."""
    maps = sum(_check.number(op, name, value) for name, value in given.items())
    if not hasattr(kernel, "__len__"):
        raise CallError(f"{op}: expected `kernel` to be a sequence of lengths, got {kernel!r}")
    fan = prod(kernel) * maps
    if not 1 <= fan < inf:
        raise RangeError(f"{op}: expected numbers of maps and a kernel above 0, got {maps} maps and kernel {kernel}")
    return int(fan)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        if name.startswith("__"):  # The import system asks for some.
            raise AttributeError(name)
        from ._suggest import absent

        absent(f"{__name__}.{name}", __all__)
