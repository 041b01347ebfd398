"""Rows of operations that read or write at indices or masks."""

from __future__ import annotations

import numpy as np

from . import Row, sample, still, whole


def mask(*shape, seed=0):
    """Returns a random mask of zeros and ones."""
    return (sample(*shape, seed=seed + 7) > 0).astype(float)


def gather(x, at, axis=0, batch_dims=0):
    """NumPy reference of `gather`."""
    if batch_dims:
        axis = axis % x.ndim
        return np.stack([gather(a, b, axis - 1, batch_dims - 1) for a, b in zip(x, at, strict=True)])
    return np.take(x, at, axis)


def scatter_add(x, at, values, axis=0):
    """NumPy reference of `scatter_add`."""
    y = x.copy()
    within = np.indices(at.shape)
    places = list(within)
    places[axis] = at
    np.add.at(y, tuple(places), values[tuple(within)])
    return y


def scatter_nd(data, at, out=None, shape=None, add=False):
    """NumPy reference of `scatter_nd`."""
    y = np.zeros(shape) if out is None else out.copy()
    if add:
        np.add.at(y, tuple(at), data)
    else:
        y[tuple(at)] = data
    return y


def bool_scatter(x, m, out=None):
    """NumPy reference of `bool_scatter`."""
    y = np.zeros(m.shape + x.shape[1:]) if out is None else out.copy()
    y[m != 0] = x
    return y


def one_hot(x, shape):
    """NumPy reference of `one_hot`."""
    y = np.zeros(x.shape[:-1] + shape)
    for i in np.ndindex(x.shape[:-1]):
        y[(*i, *x[i])] = 1
    return y


def where(condition, x, y):
    """NumPy reference of `where`."""
    condition = condition.reshape(condition.shape + (1,) * (x.ndim - condition.ndim))
    return np.where(condition != 0, x, y)


def searchsorted(sequence, values, right=False):
    """NumPy reference of `searchsorted`."""
    side = "right" if right else "left"
    y = np.zeros(values.shape, np.int64)
    for i in np.ndindex(values.shape[:-1]):
        y[i] = np.searchsorted(sequence[i], values[i], side)
    return y


def places(shape, lengths, seed=0):
    """Returns distinct indices into axes of these lengths, shape (axes, *shape)."""
    n = int(np.prod(shape))
    flat = np.random.RandomState(seed).permutation(int(np.prod(lengths)))[:n]
    return np.stack(np.unravel_index(flat, lengths)).reshape(len(lengths), *shape).astype(np.int64)


ROWS: list[Row] = [
    *(
        Row("embed", (whole(*at, below=4), sample(4, *features)), lambda at, w: w[at])
        for at in ((3,), (2, 3), (), (0,))
        for features in ((2,), (), (2, 3))
    ),
    *(
        Row("gather", (sample(*shape), whole(*at, below=below)), gather, args)
        for shape, at, below, args in (
            ((4, 3), (2,), 4, {}),
            ((4, 3), (2, 2), 3, {"axis": 1}),
            ((4, 3), (), 3, {"axis": -1}),
            ((2, 4, 3), (2, 5), 4, {"axis": 1, "batch_dims": 1}),
            ((4, 3), (0,), 4, {}),
            ((2, 2, 3), (2, 2, 2), 3, {"axis": 2, "batch_dims": 2}),
        )
    ),
    Row("gather", (sample(4, 3), np.array([-1, 2, -4])), gather),
    *(
        Row(
            "gather_nd",
            (sample(*shape), np.stack([whole(*at, below=n, seed=i) for i, n in enumerate(lengths)])),
            lambda x, at: x[tuple(at)],
        )
        for shape, at, lengths in (
            ((4, 3), (2,), (4,)),
            ((4, 3), (2, 2), (4, 3)),
            ((4, 3, 2), (5,), (4, 3)),
            ((4,), (0,), (4,)),
        )
    ),
    Row("gather_nd", (sample(4, 3), np.array([[-1, 0], [2, -3]])), lambda x, at: x[tuple(at)]),
    Row("scatter_nd", (sample(3, 2), places((3,), (5,))), scatter_nd, {"shape": (5, 2)}),
    Row("scatter_nd", (sample(3, 2), np.array([[0, 4, 0]])), scatter_nd, {"shape": (5, 2), "add": True}),
    Row("scatter_nd", (sample(4), places((4,), (3, 2))), scatter_nd, {"shape": (3, 2)}),
    Row("scatter_nd", (sample(0, 2), np.zeros((1, 0), np.int64)), scatter_nd, {"shape": (5, 2)}),
    Row("scatter_nd", (sample(3, 2), places((3,), (5,)), sample(5, 2, seed=1)), scatter_nd, writes=(2,)),
    Row(
        "scatter_nd",
        (sample(3, 2), np.array([[1, 1, -1]]), sample(5, 2, seed=1)),
        scatter_nd,
        {"add": True},
        writes=(2,),
    ),
    Row("scatter_add", (sample(4, 3), whole(2, 3, below=4), sample(2, 3, seed=1)), scatter_add),
    Row("scatter_add", (sample(4, 3), whole(4, 5, below=3), sample(4, 5, seed=1)), scatter_add, {"axis": 1}),
    Row("scatter_add", (sample(4, 3), whole(2, 2, below=4) - 4, sample(2, 2, seed=1)), scatter_add, {"axis": -2}),
    Row("scatter_add", (sample(4, 3), np.zeros((0, 3), np.int64), sample(0, 3)), scatter_add),
    Row("scatter_add", (sample(4, 3), whole(2, 3, below=3), sample(3, 5, seed=1)), scatter_add, {"axis": 1}),
    *(
        Row("one_hot", (at,), one_hot, {"shape": shape})
        for at, shape in (
            (whole(3, 1, below=4), (4,)),
            (np.array([[1, 2], [0, 0]]), (2, 3)),
            (np.zeros((0, 1), np.int64), (3,)),
            (np.array([2]), (3,)),
        )
    ),
    *(
        Row("where", (mask(*c), sample(*s), sample(*s, seed=1)), where, by=(1, 2))
        for c, s in (((2, 3), (2, 3)), ((2,), (2, 3)), ((), ()), ((0,), (0, 3)), ((5, 1), (5, 1, 7)))
    ),
    *(
        Row("bool_fill", (sample(*s), mask(*m)), lambda x, m, value=0.0: np.where(m != 0, value, x), args, by=(0,))
        for s, m, args in (
            ((2, 3), (2, 3), {}),
            ((2, 3), (3,), {"value": -2.0}),
            ((), (), {}),
            ((0, 3), (3,), {}),
            ((2, 3), (2, 1), {"value": 7.0}),
        )
    ),
    *(
        Row("bool_gather", (sample(*s), mask(*m)), lambda x, m: x[m != 0], by=(0,))
        for s, m in (((4, 3), (4,)), ((4, 3), (4, 3)), ((4, 3, 2), (4, 3)), ((0, 3), (0,)))
    ),
    Row("bool_gather", (sample(3, 2), np.zeros(3)), lambda x, m: x[m != 0], by=(0,)),
    *(
        Row("bool_scatter", (sample(int(m.sum()), *rest), m), bool_scatter, by=(0,))
        for m, rest in ((mask(5), (2,)), (mask(2, 3), ()), (np.zeros(3), (2,)), (np.ones((2, 2)), (3, 1)))
    ),
    Row(
        "bool_scatter",
        (sample(2, 3), np.array([1.0, 0, 0, 1]), sample(4, 3, seed=1)),
        bool_scatter,
        by=(0, 2),
        writes=(2,),
    ),
    *(
        Row("nonzero", (m,), lambda x: np.stack(np.nonzero(x)))
        for m in (mask(3, 4), mask(6), np.zeros((2, 2)), mask(2, 3, 2), np.zeros((0, 2)))
    ),
    *(
        Row("searchsorted", (np.sort(sample(*s)), sample(*v, seed=1)), searchsorted, args, gradient=still)
        for s, v in (((5,), (3,)), ((2, 5), (2, 3)), ((2, 2, 4), (2, 2, 1)), ((0,), (3,)), ((4,), (0,)))
        for args in ({}, {"right": True})
    ),
    Row(
        "searchsorted",
        (np.array([1.0, 2, 2, 2, 5]), np.array([2.0, 5, 0, 9])),
        searchsorted,
        {"right": True},
        gradient=still,
    ),
    Row(
        "assign",
        (sample(2, 3), sample(2, 3, seed=1)),
        lambda dst, src: src,
        gradient=lambda gy, dst, src: (gy, np.zeros_like(src)),
        writes=(0,),
    ),
]
