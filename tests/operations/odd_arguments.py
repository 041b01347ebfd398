"""Random arguments that may be invalid: numbers, shapes, arrays, and variables in every state."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Choose = Callable[[Sequence[Any]], Any]

NUMBERS = [0, 1, -1, 2, 3, -3, 7, 0.5, -0.5, 1e-300, 1e308, float("nan"), float("inf"), -float("inf"), True, False]
"""Numbers that an argument may hold, ordinary and special."""
HUGE = [10**6, 10**10, 2**31, 2**32 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, -(10**30), 10**400]
"""Integers near and beyond the limits of integer types."""
SEQUENCES = [
    (), (0,), (1,), (-1,), (2,), (1, 2), (0, 0), (2, 2), (3, 3), (1, 1, 1), (2, 3), (3, -1), (-1, -1), (0, 1, 2),
    (2, 0, 1), (1, 1), (2, 1, 2, 1), (5, 5), (1,) * 10, (1,) * 40, (2,) * 70, (2**40, 2**40), (2**62, 2**62),
    (2**62, 4), (-(2**63),), (2**63 - 1,), (2**31, 2**31, 0), (10**6, 10**6), (10**400,), [1, 2], [0.5, 1.5],
    [None], ["a"], [[1]], range(2), (True, False), (None, 1),
]  # fmt: skip
"""Sequences for axes, shapes and the like, many of them invalid."""
ODD = [
    "", "x", "reflect", "repeat", "constant", "nearest", "\0", "é", b"x", {}, {"a": 1}, {1, 2}, object(), len, int,
    1j, ..., slice(None),
]  # fmt: skip
"""Values of types that few arguments accept."""
SHAPES = [
    (), (0,), (1,), (3,), (2, 3), (3, 2), (3, 3), (2, 3, 4), (2, 1), (1, 3), (0, 3), (3, 0), (2, 2, 5, 5), (3, 2, 3,
    3), (4, 2, 3), (1, 2, 3, 4, 5), (2,) * 6, (1,) * 12, (2, 2), (1, 1, 1, 1),
]  # fmt: skip
"""Shapes of random arrays."""
DTYPES = [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.float16]
"""Element types of random arrays."""
FILLS = ["count", "zero", "one", "negative", "nan", "inf", "huge"]
"""Kinds of contents of random arrays."""


def filled(shape: tuple[int, ...], dtype: Any, how: str) -> np.ndarray:
    """Returns an array of ordinary or extreme numbers, as `how` says."""
    n = int(np.prod(shape))
    x = {
        "count": np.arange(n) % 5,
        "zero": np.zeros(n),
        "one": np.ones(n),
        "negative": -np.arange(1, n + 1),
        "nan": np.full(n, np.nan),
        "inf": np.full(n, -np.inf),
        "huge": np.full(n, 1e18),
    }[how]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.astype(dtype).reshape(shape)


def numpy_array(choose: Choose) -> np.ndarray:
    """Returns a random NumPy array."""
    return filled(choose(SHAPES), choose(DTYPES), choose(FILLS))


def variable(choose: Choose) -> Any:
    """Returns a random variable in one of its possible states, such as cleared, shared or computed."""
    kind = choose(["leaf", "leaf", "leaf", "array", "result", "forwarded", "cleared", "empty", "narrow"])
    if kind == "empty":
        return nn.Variable(choose(SHAPES), need_grad=choose([True, False, None]))
    a = numpy_array(choose)
    if kind == "array":
        return nn.NdArray.from_numpy_array(a)
    if kind == "narrow":
        return nn.NdArray.from_numpy_array(np.zeros((4, 3), np.float32)).narrow(0, 1, 2)
    x = nn.Variable.from_numpy_array(a, need_grad=choose([True, False, None]))
    if kind == "cleared":
        x.data.clear()
    if kind in ("result", "forwarded"):
        x = F.identity(x)
    if kind == "forwarded":
        x.forward()
    return x


def anything(choose: Choose) -> Any:
    """Returns an argument of any kind."""
    kind = choose(["number", "number", "sequence", "sequence", "none", "huge", "odd", "variable", "array", "numpy"])
    if kind == "variable":
        return variable(choose)
    if kind == "array":
        return numpy_array(choose)
    if kind == "numpy":
        return choose([np.int64(2), np.float32(1.5), np.bool_(True), np.array(3), np.float64("nan"), np.array([1, 0])])
    return choose({"number": NUMBERS, "sequence": SEQUENCES, "huge": HUGE, "odd": ODD, "none": [None]}[kind])
