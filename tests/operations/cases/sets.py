"""Rows of unique elements, shapes, remainders, bit shifts and confusion matrices."""

from __future__ import annotations

import numpy as np

from . import Row, sample, still, whole


def unique(x, flatten=True, axis=None, sorted=True, with_index=False, with_inverse=False, with_counts=False):
    """NumPy reference of `unique`."""
    y, index, inverse, counts = np.unique(x, True, True, True, axis=None if flatten else axis)
    inverse = inverse.ravel()
    if not sorted:
        order = np.argsort(index)
        y = np.take(y, order, 0 if flatten else axis)
        index, counts, inverse = index[order], counts[order], np.argsort(order)[inverse]
    asked = ((with_index, index), (with_inverse, inverse), (with_counts, counts))
    return (y, *(found.astype(np.int64) for wanted, found in asked if wanted))


def repeated(*shape):
    """Returns random multiples of one half, many of them equal."""
    return np.random.RandomState(3).randint(-3, 4, shape) / 2


def unique_gradient(**how):
    """Returns the gradient of `unique`, which goes to the first occurrence of each element."""

    def gradient(gy, *others):
        """Returns the gradient of the input."""
        x = others[-1]
        gx = np.zeros_like(x)
        _, index = unique(x, **{**how, "with_inverse": False, "with_counts": False, "with_index": True})
        if how.get("flatten", True):
            gx.reshape(-1)[index] = gy
        else:
            np.moveaxis(gx, how["axis"], 0)[index] = np.moveaxis(gy, how["axis"], 0)
        return (gx,)

    return gradient


def confusion_matrix(x, target, axis=-1):
    """NumPy reference of `confusion_matrix`."""
    n = x.shape[axis]
    best = np.expand_dims(x.argmax(axis), axis)
    y = np.zeros((n, n), np.int64)
    np.add.at(y, (target[target >= 0], best[target >= 0]), 1)
    return y


def shape(x, start=None, end=None):
    """NumPy reference of `shape`."""
    return np.array(x.shape[start : end or None], np.int64)


def bit_shift(x, shift, direction="LEFT", bits=63):
    """NumPy reference of `bit_shift`."""
    return (x << shift) & ((1 << bits) - 1) if direction == "LEFT" else x >> shift


ALL = {"with_index": True, "with_inverse": True, "with_counts": True}
"""Arguments that ask for all outputs."""

ROWS: list[Row] = [
    *(
        Row("unique", (x,), unique, args, gradient=unique_gradient(**args), second=False)
        for x, args in (
            (repeated(3, 4), {}),
            (repeated(3, 4), {"with_counts": True}),
            (repeated(3, 4), {**ALL, "sorted": False}),
            (repeated(6, 2), {**ALL, "flatten": False, "axis": 0}),
            (repeated(2, 6), {"flatten": False, "axis": 1, "sorted": False}),
            (repeated(2, 6, 1), {"flatten": False, "axis": -2, "with_inverse": True}),
            (repeated(1), {"with_index": True}),
            (repeated(0), ALL),
        )
    ),
    *(
        Row("shape", (sample(2, 3, 4),), shape, args, gradient=still)
        for args in ({}, {"start": 1}, {"end": 2}, {"start": -2, "end": -1}, {"start": 2, "end": 1}, {"end": 9})
    ),
    Row("shape", (sample(),), shape),
    Row("shape", (sample(0, 3),), shape),
    *(
        Row("mod2", (sample(*a, away=(0,)), sample(*b, seed=1, low=0.6, high=1.7)), how, {"fmod": fmod}, tolerance=5e-6)
        for fmod, how in ((True, lambda a, b, fmod: np.fmod(a, b)), (False, lambda a, b, fmod: np.mod(a, b)))
        for a, b in (((2, 3), (2, 3)), ((4, 1), (1, 3)), ((3,), (2, 1)), ((), ()), ((0, 3), (1, 3)))
    ),
    Row("mod2", (np.array([5.0, -5.0, 5.0, -5.0]), np.array([3.0, 3.0, -3.0, -3.0])), lambda a, b: np.mod(a, b), by=()),
    *(
        Row("bit_shift", (whole(*a, below=200), whole(*b, below=9, seed=1)), bit_shift, args)
        for a, b, args in (
            ((2, 3), (2, 3), {}),
            ((2, 3), (2, 3), {"direction": "RIGHT"}),
            ((2, 1, 3), (4, 1), {"bits": 8}),
            ((), (), {}),
            ((0, 3), (1, 3), {}),
        )
    ),
    *(
        Row("confusion_matrix", (sample(*x), labels), confusion_matrix, args, by=())
        for x, labels, args in (
            ((5, 3), whole(5, 1, below=3), {}),
            ((4, 3, 2), whole(4, 1, 2, below=3) - 1, {"axis": 1}),
            ((1, 1), whole(1, 1, below=1), {}),
            ((0, 3), whole(0, 1, below=3), {"axis": -1}),
        )
    ),
]
