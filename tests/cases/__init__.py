"""The table of operations: for each, sample inputs, arguments and the same thing in NumPy.

Every property of `test_operations*.py` runs over every row, so that a row is all that a new operation needs.
"""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SHAPES = ((2, 3), (), (1,), (0, 3), (5, 1, 7))
"""Shapes for operations that work element by element: usual, scalar, one element, empty, odd."""


@dataclass(frozen=True)
class Row:
    """One operation on one set of inputs.

    Attributes:
        name: Name of the function.
        inputs: Its arrays in float64, integers where it reads indices, None where one is left out.
        reference: The same in NumPy: takes the arrays and the arguments, gives an array or a tuple of them.
        args: Its arguments.
        by: Numbers of the inputs that it is differentiated by, all of real numbers by default.
        gradient: What takes the place of the derivative, where the operation has a gradient that is none: takes the
            gradients of the outputs and the arrays, gives those of the inputs `by`.
        second: Whether the gradient can be differentiated again and has no jumps nearby.
        tolerance: Relative and absolute error allowed in float32.
        writes: Numbers of the inputs that running it changes.
        random: Whether the outputs are drawn; `reference` then gives a check of what was drawn.
        shares: Whether the output is the memory of the input, whatever type that has.
    """

    name: str
    inputs: tuple[np.ndarray | None, ...]
    reference: Callable[..., Any]
    args: dict[str, Any] = field(default_factory=dict)
    by: tuple[int, ...] | None = None
    gradient: Callable[..., Any] | None = None
    second: bool = True
    tolerance: float = 2e-6
    writes: tuple[int, ...] = ()
    random: bool = False
    shares: bool = False

    def __post_init__(self) -> None:
        """Makes arrays of what NumPy made numbers of."""
        object.__setattr__(self, "inputs", tuple(x if x is None else np.asarray(x) for x in self.inputs))

    @property
    def wanted(self) -> tuple[int, ...]:
        """Numbers of the inputs that it is differentiated by."""
        if self.by is not None:
            return self.by
        return tuple(i for i, x in enumerate(self.inputs) if x is not None and x.dtype.kind == "f")

    @property
    def expected(self) -> tuple[np.ndarray, ...]:
        """The outputs by the reference."""
        y = self.reference(*(None if x is None else x.copy() for x in self.inputs), **self.args)
        return tuple(map(np.asarray, y)) if isinstance(y, tuple) else (np.asarray(y),)

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, x.shape)) or "scalar" for x in self.inputs if x is not None)
        args = ",".join(f"{k}={v}" for k, v in self.args.items())
        return f"{self.name}[{shapes}]({args})"


def still(gy: np.ndarray, *x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Gradient of what has none: zeros."""
    return tuple(np.zeros_like(each) for each in x)


def sample(
    *shape: int, low: float = -2.0, high: float = 2.0, away: Sequence[float] = (), gap: float = 0.05, seed: int = 0
) -> np.ndarray:
    """Numbers from `low` to `high`, the same at each call, none nearer than `gap` to those in `away`."""
    random = np.random.RandomState(zlib.crc32(repr((shape, seed)).encode()))
    x = np.asarray(random.uniform(low, high, shape))
    for kink in away:
        x = np.where(np.abs(x - kink) < gap, kink + np.where(x < kink, -gap, gap) * 1.5, x)
    return x


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers no two of which are nearer than a tenth: what is the largest stays so under small changes."""
    n = int(np.prod(shape))
    random = np.random.RandomState(zlib.crc32(repr((shape, seed)).encode()))
    return (random.permutation(n) * 0.13 - n * 0.06 + 0.01).reshape(shape)


def whole(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    """Indices from 0 up to but not including `below`."""
    return np.random.RandomState(zlib.crc32(repr((shape, seed)).encode())).randint(0, below, shape).astype(np.int64)


def unary(
    name: str, reference: Callable[..., Any], shapes: Iterable[tuple[int, ...]] = SHAPES, **how: Any
) -> list[Row]:
    """Rows of an operation on each element of one input; `low`, `high`, `away` say what the input holds."""
    within = {k: how.pop(k) for k in ("low", "high", "away") if k in how}
    return [Row(name, (sample(*shape, **within),), reference, **how) for shape in shapes]


BROADCASTS = (((2, 3), (2, 3)), ((), ()), ((1,), (1,)), ((0, 3), (1, 3)), ((4, 1, 5), (1, 3, 5)), ((5,), (2, 3, 1)))
"""Pairs of shapes that broadcast, usual ones first."""


def binary(
    name: str,
    reference: Callable[..., Any],
    shapes: Iterable[tuple[tuple[int, ...], tuple[int, ...]]] = BROADCASTS,
    **how: Any,
) -> list[Row]:
    """Rows of an operation on pairs of elements; `first` and `second_input` say what the inputs hold."""
    first, other = how.pop("first", {}), how.pop("other", {})
    return [Row(name, (sample(*a, **first), sample(*b, seed=1, **other)), reference, **how) for a, b in shapes]


def all_rows() -> list[Row]:
    """Every row of every family."""
    families = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [row for name in families for row in importlib.import_module(f"{__name__}.{name}").ROWS]
