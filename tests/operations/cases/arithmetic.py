"""Rows of operations on pairs and lists of arrays: arithmetic, comparisons, logic, pairwise losses."""

from __future__ import annotations

import operator

import numpy as np
from scipy import special

from . import BROADCASTS, SHAPES, Row, binary, sample, still, unary

POSITIVE = {"low": 0.5, "high": 3.0}
"""Range of positive sample inputs."""
SAME_RANK = [pair for pair in BROADCASTS if len(pair[0]) == len(pair[1])]
"""Pairs of shapes that broadcast without new axes."""

ARITHMETIC = {
    "add2": operator.add,
    "bc_add2": operator.add,
    "sub2": operator.sub,
    "mul2": operator.mul,
    "div2": operator.truediv,
    "pow2": operator.pow,
    "atan2": np.arctan2,
}
"""The NumPy reference of each arithmetic function."""
COMPARISONS = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
    "less_equal": operator.le,
}
"""The reference of each comparison."""
LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
"""The NumPy reference of each logical function."""


def steps(*shape, seed=0):
    """Returns the integers -1, 0 and 1, many of them equal, for comparisons."""
    return np.round(sample(*shape, low=-1.4, high=1.4, seed=seed)) + 0.0


def ordered(name, f):
    """Returns rows of a maximum or minimum of two inputs that are never nearly equal."""
    rows = []
    for a, b in BROADCASTS:
        x0 = np.round(sample(*a), 1)
        rows.append(Row(name, (x0, np.round(sample(*b, seed=1), 1) + 0.05), f))
    return rows


def margin(x, margins):
    """Returns `x` and an array whose differences from `x` stay away from the kinks of a loss at `margins`."""
    other = sample(*x.shape, seed=1)
    d = x - other
    for kink in margins:
        d = np.where(np.abs(d - kink) < 0.05, kink + 0.1, d)
    return x, x - d


def huber(x0, x1, delta=1.0):
    """NumPy reference of `huber_loss`."""
    d = np.abs(x0 - x1)
    return np.where(d < delta, d * d, delta * (2 * d - delta))


def towards_zero(x0, x1, epsilon):
    """NumPy reference of `epsilon_insensitive_loss`."""
    return np.maximum(np.abs(x0 - x1) - epsilon, 0)


def entropy(x, t):
    """NumPy reference of `binary_cross_entropy`."""
    return -(t * np.log(x) + (1 - t) * np.log(1 - x))


PROBABILITY = {"low": 0.1, "high": 0.9}
"""Range of sample inputs that are probabilities, away from 0 and 1."""

ROWS: list[Row] = [
    *(row for name, f in ARITHMETIC.items() for row in binary(name, f, first=POSITIVE, other=POSITIVE, tolerance=5e-6)),
    *binary("mul2", lambda x0, x1, inplace: x0 * x1, [((2, 3), (2, 3))], args={"inplace": True}),
    *ordered("maximum2", np.maximum),
    *ordered("minimum2", np.minimum),
    *(
        Row(name, (steps(*a), steps(*b, seed=1)), f, gradient=still)
        for name, f in (COMPARISONS | LOGIC).items()
        for a, b in BROADCASTS
    ),
    *(
        Row(f"{name}_scalar", (steps(*shape),), lambda x, val, f=f: f(x, val), {"val": val}, gradient=still)
        for name, f in COMPARISONS.items()
        for shape in SHAPES
        for val in (0.0, -1.0)
    ),
    *(
        Row(f"{name}_scalar", (steps(2, 3),), lambda x, f=f: f(x, 1.0), gradient=still)
        for name, f in COMPARISONS.items()
    ),
    *(
        Row(f"{name}_scalar", (steps(*shape),), lambda x, val, f=f: f(x, val), {"val": val}, gradient=still)
        for name, f in LOGIC.items()
        for shape in SHAPES
        for val in (False, True)
    ),
    *(Row("logical_not", (steps(*shape),), np.logical_not, gradient=still) for shape in SHAPES),
    *(
        Row(name, tuple(sample(*shape, seed=i, **POSITIVE) for i in range(n)), f, tolerance=5e-6)
        for name, f in (("add_n", lambda *x: sum(x)), ("mul_n", lambda *x: np.prod(x, axis=0)))
        for n in (1, 2, 3, 5)
        for shape in SHAPES
    ),
    Row(
        "mul_n",
        (np.array([0.0, 2.0, 3.0]), np.array([0.0, 0.0, 4.0]), np.array([5.0, 6.0, 0.0])),
        lambda *x: np.prod(x, axis=0),
    ),
    *binary("squared_error", lambda x0, x1: (x0 - x1) ** 2, SAME_RANK),
    *(
        Row(name, margin(sample(*shape), margins), f, args)
        for shape in SHAPES
        for name, margins, f, args in (
            ("absolute_error", (0.0,), lambda x0, x1: np.abs(x0 - x1), {}),
            ("huber_loss", (-1.0, 1.0), huber, {}),
            ("huber_loss", (-0.5, 0.5), huber, {"delta": 0.5}),
            ("epsilon_insensitive_loss", (-0.4, 0.0, 0.4), towards_zero, {"epsilon": 0.4}),
        )
    ),
    *binary(
        "sigmoid_cross_entropy", lambda x, t: entropy(special.expit(x), t), SAME_RANK, other=PROBABILITY, tolerance=5e-6
    ),
    *binary("binary_cross_entropy", entropy, SAME_RANK, first=PROBABILITY, other=PROBABILITY, tolerance=5e-6),
    *(
        Row(
            "binary_error",
            (sample(*shape, low=0, high=1, away=(0.5,)), whole.astype(float)),
            lambda x, t: (x >= 0.5) != (t >= 0.5),
            gradient=still,
        )
        for shape in SHAPES
        for whole in (sample(*shape, seed=1) > 0,)
    ),
    *unary(
        "clip_by_norm",
        lambda x, clip_norm: x * clip_norm / max(np.sqrt((x * x).sum()), clip_norm),
        [(2, 3), (1,), (5, 1, 7)],
        args={"clip_norm": 0.8},
        tolerance=5e-6,
    ),
    Row(
        "clip_by_norm",
        (sample(4, 3),),
        lambda x, clip_norm, axis: x * clip_norm / np.maximum(np.sqrt((x * x).sum(axis, keepdims=True)), clip_norm),
        {"clip_norm": 0.8, "axis": 1},
        tolerance=5e-6,
    ),
]
