"""Rows of losses over classes and distributions."""

from __future__ import annotations

import numpy as np
from scipy import special

from . import Row, distinct, sample, whole


def pick(x, target, axis):
    """Returns the elements of `x` along `axis` at the target classes, zero where a target is negative."""
    chosen = np.take_along_axis(x, np.maximum(target, 0), axis)
    return np.where(target < 0, 0.0, chosen)


def softmax_cross_entropy(x, target, axis=-1):
    """NumPy reference of `softmax_cross_entropy`."""
    return -pick(special.log_softmax(x, axis), target, axis)


def categorical_cross_entropy(x, target, axis=-1):
    """NumPy reference of `categorical_cross_entropy`."""
    return -pick(np.log(x), target, axis)


def top_n_error(x, target, axis=-1, n=1):
    """NumPy reference of `top_n_error`."""
    chosen = np.take_along_axis(x, np.maximum(target, 0), axis)
    better = (x >= chosen).sum(axis, keepdims=True) - 1
    return np.where(target < 0, 0.0, better >= n)


def probabilities(*shape, axis=-1, seed=0):
    """Returns distributions along `axis`."""
    return special.softmax(sample(*shape, seed=seed), axis)


def kl(p, q, base_axis=1):
    """NumPy reference of `kl_multinomial`."""
    base_axis = base_axis % p.ndim
    return (p * np.log((p + 1e-8) / (q + 1e-8))).sum(tuple(range(base_axis, p.ndim))).reshape(*p.shape[:base_axis], 1)


def still(gy, x, target):
    """Returns zeros: the declared gradient of a function that blocks gradients."""
    return (np.zeros_like(x),)


LABELLED = (
    ((3, 4), (3, 1), {}),
    ((3, 4), (3, 1), {"axis": 1}),
    ((2, 4, 3), (2, 1, 3), {"axis": 1}),
    ((4, 3), (1, 3), {"axis": -2}),
    ((4,), (1,), {}),
    ((0, 4), (0, 1), {}),
    ((1, 1), (1, 1), {}),
)
"""Shape of the scores, shape of the labels, arguments."""


def labels(x, target, args):
    """Returns random target classes in the shape `target`, for scores of the shape `x`."""
    return whole(*target, below=x[args.get("axis", -1)])


ROWS: list[Row] = [
    *(
        Row("softmax_cross_entropy", (sample(*x), labels(x, t, args)), softmax_cross_entropy, args, tolerance=5e-6)
        for x, t, args in LABELLED
    ),
    *(
        Row(
            "categorical_cross_entropy",
            (probabilities(*x), labels(x, t, args)),
            categorical_cross_entropy,
            args,
            tolerance=5e-6,
        )
        for x, t, args in LABELLED
    ),
    *(
        Row("top_n_error", (distinct(*x), labels(x, t, args)), top_n_error, args | more, gradient=still)
        for x, t, args in LABELLED
        for more in ({}, {"n": 2})
    ),
    Row("softmax_cross_entropy", (sample(3, 4), np.array([[1], [-1], [3]])), softmax_cross_entropy, tolerance=5e-6),
    Row(
        "categorical_cross_entropy",
        (probabilities(3, 4), np.array([[1], [-1], [3]])),
        categorical_cross_entropy,
        tolerance=5e-6,
    ),
    Row("top_n_error", (distinct(3, 4), np.array([[1], [-1], [3]])), top_n_error, gradient=still),
    *(
        Row("kl_multinomial", (probabilities(*s), probabilities(*s, seed=1)), kl, args, tolerance=5e-6)
        for s, args in (
            ((3, 4), {}),
            ((2, 3, 4), {}),
            ((2, 3, 4), {"base_axis": 2}),
            ((3, 4), {"base_axis": 0}),
            ((0, 3), {}),
        )
    ),
]
