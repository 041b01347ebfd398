"""The table of operations: sample inputs, arguments and a NumPy reference for each.

The tests in `test_operations*.py` check every property on every row, so a new operation needs only a row.
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
"""Shapes for elementwise operations: ordinary, scalar, one element, empty, odd."""


@dataclass(frozen=True)
class Row:
    """One operation on one set of inputs, with the results that it should give.

    Attributes:
        name: Name of the function.
        inputs: Its arrays in float64, integers for indices, None for an omitted input.
        reference: The NumPy equivalent: takes the arrays and the arguments, returns an array or a tuple of
            arrays.
        args: Its arguments.
        by: Indices of the inputs to differentiate by. All inputs of real numbers by default.
        gradient: Replaces the numeric derivative if the operation defines its own gradient. Takes the gradients
            of the outputs and the arrays, returns the gradients of the inputs `by`.
        second: True if the gradient is differentiable and has no jumps nearby.
        tolerance: Relative and absolute tolerance in float32.
        writes: Indices of the inputs that the operation changes.
        random: True if the outputs are random. `reference` then returns a check of the drawn values.
        shares: True if the output aliases the input, of any type.
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
        """Converts NumPy scalars to arrays."""
        object.__setattr__(self, "inputs", tuple(x if x is None else np.asarray(x) for x in self.inputs))

    @property
    def wanted(self) -> tuple[int, ...]:
        """Indices of the inputs to differentiate by."""
        if self.by is not None:
            return self.by
        return tuple(i for i, x in enumerate(self.inputs) if x is not None and x.dtype.kind == "f")

    @property
    def expected(self) -> tuple[np.ndarray, ...]:
        """The outputs of the reference."""
        y = self.reference(*(None if x is None else x.copy() for x in self.inputs), **self.args)
        return tuple(map(np.asarray, y)) if isinstance(y, tuple) else (np.asarray(y),)

    def __str__(self) -> str:
        """Returns the name, the shapes and the arguments, for messages of failed tests."""
        shapes = "-".join("x".join(map(str, x.shape)) or "scalar" for x in self.inputs if x is not None)
        args = ",".join(f"{k}={v}" for k, v in self.args.items())
        return f"{self.name}[{shapes}]({args})"


def still(gy: np.ndarray, *x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns zeros: the declared gradient of an operation that blocks gradients."""
    return tuple(np.zeros_like(each) for each in x)


def sample(
    *shape: int, low: float = -2.0, high: float = 2.0, away: Sequence[float] = (), gap: float = 0.05, seed: int = 0
) -> np.ndarray:
    """Returns fixed random numbers in [`low`, `high`), at least `gap` away from each number in `away`."""
    random = np.random.RandomState(zlib.crc32(repr((shape, seed)).encode()))
    x = np.asarray(random.uniform(low, high, shape))
    for kink in away:
        x = np.where(np.abs(x - kink) < gap, kink + np.where(x < kink, -gap, gap) * 1.5, x)
    return x


def distinct(*shape: int, seed: int = 0) -> np.ndarray:
    """Returns numbers at least a tenth apart, so that small changes do not move the maximum."""
    n = int(np.prod(shape))
    random = np.random.RandomState(zlib.crc32(repr((shape, seed)).encode()))
    return (random.permutation(n) * 0.13 - n * 0.06 + 0.01).reshape(shape)


def whole(*shape: int, below: int, seed: int = 0) -> np.ndarray:
    """Returns indices in [0, `below`)."""
    return np.random.RandomState(zlib.crc32(repr((shape, seed)).encode())).randint(0, below, shape).astype(np.int64)


def unary(
    name: str, reference: Callable[..., Any], shapes: Iterable[tuple[int, ...]] = SHAPES, **how: Any
) -> list[Row]:
    """Returns rows of an elementwise operation of one input.

    `low`, `high` and `away` bound the inputs, as in `sample`.
    """
    within = {k: how.pop(k) for k in ("low", "high", "away") if k in how}
    return [Row(name, (sample(*shape, **within),), reference, **how) for shape in shapes]


BROADCASTS = (((2, 3), (2, 3)), ((), ()), ((1,), (1,)), ((0, 3), (1, 3)), ((4, 1, 5), (1, 3, 5)), ((5,), (2, 3, 1)))
"""Pairs of shapes that broadcast, ordinary ones first."""


def binary(
    name: str,
    reference: Callable[..., Any],
    shapes: Iterable[tuple[tuple[int, ...], tuple[int, ...]]] = BROADCASTS,
    **how: Any,
) -> list[Row]:
    """Returns rows of an elementwise operation of two inputs. `first` and `second_input` hold arguments of `sample`."""
    first, other = how.pop("first", {}), how.pop("other", {})
    return [Row(name, (sample(*a, **first), sample(*b, seed=1, **other)), reference, **how) for a, b in shapes]


def all_rows() -> list[Row]:
    """Returns every row of every family."""
    families = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [row for name in families for row in importlib.import_module(f"{__name__}.{name}").ROWS]
