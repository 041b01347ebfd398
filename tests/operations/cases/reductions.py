"""Rows of operations along axes: sums, extremes, norms, scans, softmax."""

from __future__ import annotations

import numpy as np
from scipy import special

from . import Row, distinct, sample


def axes(axis):
    """Converts a list of axes to a tuple."""
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


def top_k(x, k, abs=False, reduce=True, base_axis=1, largest=True, with_index=False):
    """NumPy reference of `top_k_data`."""
    base_axis %= x.ndim
    flat = x.reshape(*x.shape[:base_axis], int(np.prod(x.shape[base_axis:])))
    by = np.abs(flat) if abs else flat
    index = np.argsort(-by if largest else by, -1, kind="stable")[..., :k]
    y = np.take_along_axis(flat, index, -1)
    if not reduce:
        whole = np.zeros_like(flat)
        np.put_along_axis(whole, index, y, -1)
        y = whole.reshape(x.shape)
    return (y, index) if with_index else y


def cut_down(k, **args):
    """Returns the declared gradient of `top_k_grad`, which passes only the largest elements of `gy`."""
    return lambda gy, x: (top_k(gy, k, reduce=False, **args),)


def extreme(pick, at):
    """Returns the reference of `max` or `min`.

    `pick` reduces values, `at` gives their flat index over the reduced axes.
    """

    def reference(x, axis=None, keepdims=False, with_index=False, only_index=False):
        """NumPy reference of the reduction."""
        chosen = tuple(range(x.ndim)) if axis is None else tuple(sorted(a % x.ndim for a in np.atleast_1d(axis)))
        kept = tuple(a for a in range(x.ndim) if a not in chosen)
        flat = x.transpose(kept + chosen).reshape(
            *(x.shape[a] for a in kept), int(np.prod([x.shape[a] for a in chosen]))
        )
        shape = tuple(1 if a in chosen else n for a, n in enumerate(x.shape)) if keepdims else flat.shape[:-1]
        y, index = pick(flat, -1).reshape(shape), at(flat, -1).astype(np.int64).reshape(shape)
        return index if only_index else (y, index) if with_index else y

    return reference


def along(f):
    """Adapts the NumPy reduction `f` to this library's `axis`, which may be a list."""
    return lambda x, axis=None, keepdims=False: f(x, axis=axes(axis), keepdims=keepdims)


def norm(x, p=2.0, axis=None, keepdims=False):
    """NumPy reference of `norm`."""
    return (np.abs(x) ** p).sum(axes(axis), keepdims=keepdims) ** (1 / p)


def norm_normalization(x, p=2.0, axes=None, eps=1e-12):
    """NumPy reference of `norm_normalization`."""
    return x / ((np.abs(x) ** p).sum(axes, keepdims=True) + eps) ** (1 / p)


def scan(f, start):
    """Returns the reference of `cumsum` or `cumprod`.

    `f` is NumPy's scan, `start` the value before the first element.
    """

    def reference(x, axis=0, exclusive=False, reverse=False):
        """NumPy reference of the scan."""
        x = np.flip(x, axis) if reverse else x
        if exclusive:
            first = np.full_like(x.take([0], axis), start) if x.shape[axis] else x
            x = np.concatenate((first, x.take(range(x.shape[axis] - 1), axis)), axis) if x.shape[axis] else x
        y = f(x, axis)
        return np.flip(y, axis) if reverse else y

    return reference


REDUCED = (
    ((2, 3), {}),
    ((2, 3), {"axis": 1}),
    ((2, 3, 4), {"axis": (0, -1)}),
    ((2, 3, 4), {"axis": -2, "keepdims": True}),
    ((2, 3, 4), {"axis": (1,)}),
    ((), {}),
    ((1,), {"axis": 0}),
    ((3, 0, 2), {"axis": 0}),
    ((3, 5, 7), {"axis": (0, 1, 2), "keepdims": True}),
)
"""Shape of the input and arguments of a reduction."""
EMPTY = ((3, 0), {"axis": 1}), ((0,), {})
"""The same for empty lines, which only some reductions accept."""
SCANNED = (
    ((3, 4), {}),
    ((3, 4), {"axis": 1}),
    ((3, 4, 2), {"axis": -2, "exclusive": True}),
    ((3, 4), {"axis": 1, "reverse": True}),
    ((3, 4), {"exclusive": True, "reverse": True}),
    ((1,), {"exclusive": True}),
    ((0, 3), {}),
    ((3, 0), {"exclusive": True}),
)
"""Shape of the input and arguments of a cumulative function."""
INDEXED = ({}, {"with_index": True}, {"only_index": True})
"""Arguments that choose between values, indices and both."""

ROWS: list[Row] = [
    *(Row("sum", (sample(*s),), along(np.sum), args) for s, args in REDUCED + EMPTY),
    *(Row("mean", (sample(*s),), along(np.mean), args) for s, args in REDUCED),
    *(Row("prod", (sample(*s, low=0.5),), along(np.prod), args, tolerance=1e-5) for s, args in REDUCED[:8] + EMPTY),
    *(
        Row("prod", (np.array(x, float),), along(np.prod), {"axis": -1})
        for x in ([0, 2, 3], [0, 2, 0], [[0, 0, 0], [1, 2, 3]])
    ),
    *(Row("norm", (sample(*s, away=(0.0,)),), norm, args) for s, args in REDUCED),
    *(
        Row("norm", (sample(*s, away=(0.0,)),), norm, {"p": p, **args}, tolerance=5e-6)
        for p in (1.0, 3.0)
        for s, args in REDUCED[:4]
    ),
    *(
        Row("norm_normalization", (sample(*s, away=(0.0,)),), norm_normalization, args, tolerance=5e-6)
        for s, args in (
            ((2, 3), {}),
            ((2, 3), {"axes": (1,)}),
            ((2, 3, 4), {"axes": (0, -1), "p": 3.0}),
            ((2, 3), {"axes": (0,), "p": 1.0, "eps": 0.1}),
            ((0, 2), {"axes": (1,)}),
            ((1,), {}),
        )
    ),
    *(
        Row(name, (distinct(*s),), reference, args | more)
        for name, reference in (("max", extreme(np.max, np.argmax)), ("min", extreme(np.min, np.argmin)))
        for s, args in REDUCED
        for more in INDEXED
    ),
    *(Row("cumsum", (sample(*s),), scan(np.cumsum, 0.0), args) for s, args in SCANNED),
    *(Row("cumprod", (sample(*s, low=0.3),), scan(np.cumprod, 1.0), args, tolerance=5e-6) for s, args in SCANNED),
    *(
        Row("cumprod", (np.array([2.0, 0, 3, 0, 5]),), scan(np.cumprod, 1.0), args)
        for args in ({}, {"reverse": True}, {"exclusive": True})
    ),
    *(
        Row(name, (sample(*s),), f, args, tolerance=5e-6)
        for name, f in (("softmax", special.softmax), ("log_softmax", special.log_softmax))
        for s, args in (
            ((3, 4), {"axis": 1}),
            ((3, 4), {"axis": 0}),
            ((2, 3, 4), {"axis": -2}),
            ((1,), {"axis": 0}),
            ((0, 3), {"axis": 1}),
            ((3, 0), {"axis": 0}),
        )
    ),
    *(
        Row(name, (sample(3, 4),), lambda x, f=f: f(x, -1), tolerance=5e-6)
        for name, f in (("softmax", special.softmax), ("log_softmax", special.log_softmax))
    ),
    *(
        Row(name, (sample(*s),), f)
        for name, f in (("reduce_sum", np.sum), ("reduce_mean", np.mean))
        for s in ((2, 3), (), (1,), (5, 1, 7))
    ),
    Row("reduce_sum", (sample(0, 3),), np.sum),
    *(
        Row(
            "top_k_data",
            (distinct(*s) + 0.03,),
            top_k,
            args,
            gradient=None if args.get("reduce", True) else lambda gy, *_: (gy,),
        )
        for s in ((3, 4, 2), (2, 5), (1, 2), (0, 3))
        for args in (
            {"k": 2},
            {"k": 2, "abs": True, "base_axis": -1},
            {"k": 1, "largest": False, "with_index": True},
            {"k": 2, "reduce": False},
        )
    ),
    *(
        Row("top_k_grad", (sample(*s),), lambda x, **_: x, args, gradient=cut_down(**args))
        for s in ((3, 4, 2), (2, 5), (1, 2), (0, 3))
        for args in ({"k": 2}, {"k": 1, "abs": True, "base_axis": -1})
    ),
]
