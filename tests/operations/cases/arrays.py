"""Rows of operations that move elements: reshape, transpose, repeat, concatenate, slice, pad."""

from __future__ import annotations

import numpy as np

from . import Row, distinct, sample

slice_ = slice


def diagonals(x):
    """NumPy reference of `matrix_diag`, which makes diagonal matrices of vectors."""
    return x[..., None] * np.eye(x.shape[-1])


def shifted(x, shifts, border_mode="nearest"):
    """NumPy reference of `shift`: shifts the last axes, one after the other."""
    for axis, by in enumerate(shifts, x.ndim - len(shifts)):
        n = x.shape[axis]
        at = np.arange(n) - by
        if border_mode == "reflect":
            at = np.where(at % (2 * n) < n, at % (2 * n), 2 * n - 1 - at % (2 * n))
        x = np.take(x, np.clip(at, 0, n - 1), axis)
    return x


def framed(x, pad_width, mode="constant", constant_value=0.0):
    """NumPy reference of `pad`."""
    pairs = [pad_width[i : i + 2] for i in range(0, len(pad_width), 2)]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if mode == "constant":
        return np.pad(x, pairs, constant_values=constant_value)
    return np.pad(x, pairs, mode={"reflect": "reflect", "repeat": "edge"}[mode])


def cut(x, start=None, stop=None, step=None):
    """NumPy reference of `slice`."""
    each = zip(*(v or (None,) * x.ndim for v in (start, stop, step)), strict=True)
    return x[tuple(slice_(*v) for v in each)]


def sorted_along(x, axis=-1, reverse=False, with_index=False, only_index=False):
    """NumPy reference of `sort`, with indices if requested."""
    at = np.argsort(-x if reverse else x, axis, kind="stable")
    y = np.take_along_axis(x, at, axis)
    return at if only_index else (y, at) if with_index else y


def joined_parts(*x, axis, along, start, stop):
    """NumPy reference of a concatenation along `axis` of slices of the inputs along `along`."""
    parts = zip(x, start, stop, strict=True)
    return np.concatenate([a.take(np.arange(first, last), along) for a, first, last in parts], axis)


def spread(x, y, axis=-1):
    """NumPy reference of `broadcast_to`. `axis` is the axis of `x` at which the axes of `y` start."""
    after = 0 if axis < 0 else x.ndim - axis - y.ndim
    return np.broadcast_to(y.reshape(y.shape + (1,) * after), x.shape)


ROWS: list[Row] = [
    *(
        Row("reshape", (sample(*a),), lambda x, shape: x.reshape(shape), {"shape": b}, shares=True)
        for a, b in (((2, 3), (3, 2)), ((2, 3), (6,)), ((2, 3), (-1, 2)), ((), (1, 1)), ((0, 3), (3, 0)), ((1,), ()))
    ),
    Row("reshape", (sample(2, 3),), lambda x, shape, inplace: x.reshape(shape), {"shape": (3, 2), "inplace": False}),
    Row(
        "reshape",
        (sample(2, 3, 4),),
        lambda x, shape, axes: x.reshape(2, 1, 3, 4),
        {"shape": (0, 1, -1, 4), "axes": (0, -1, -1, 2)},
        shares=True,
    ),
    *(
        Row("transpose", (sample(*a),), lambda x, axes: x.transpose(axes), {"axes": b})
        for a, b in (
            ((2, 3), (1, 0)),
            ((2, 3, 4), (2, 0, 1)),
            ((2, 3, 4), (0, 2, 1)),
            ((), ()),
            ((0, 3), (1, 0)),
            ((2, 1, 3, 2), (3, 1, 0, 2)),
        )
    ),
    *(
        Row("broadcast", (sample(*a),), np.broadcast_to, {"shape": b})
        for a, b in (
            ((2, 1), (2, 3)),
            ((1, 3, 1), (4, 3, 2)),
            ((), ()),
            ((1, 3), (0, 3)),
            ((1,), (5,)),
            ((3,), (2, 3)),
            ((), (2, 2)),
        )
    ),
    *(
        Row("broadcast_to", (sample(*a), sample(*b, seed=1)), spread, c, by=(1,))
        for a, b, c in (
            ((2, 3), (3,), {}),
            ((2, 3, 4), (3,), {"axis": 1}),
            ((2, 3), (2, 3), {}),
            ((2, 3, 4), (2, 3), {"axis": 0}),
            ((0, 3), (3,), {}),
        )
    ),
    *(
        Row("tile", (sample(*a),), np.tile, {"reps": b})
        for a, b in (((2, 3), (2, 1)), ((2, 3), (2,)), ((3,), (2, 2)), ((), (3,)), ((2, 3), (0, 2)), ((0, 2), (2, 2)))
    ),
    *(
        Row(
            "concatenate",
            tuple(sample(*s, seed=i) for i, s in enumerate(shapes)),
            lambda *x, axis=-1: np.concatenate(x, axis),
            args,
        )
        for shapes, args in (
            (((2, 3), (2, 4)), {}),
            (((2, 3), (1, 3), (4, 3)), {"axis": 0}),
            (((2, 3),), {}),
            (((2, 0), (2, 3)), {"axis": 1}),
            (((2, 1, 3), (2, 2, 3)), {"axis": -2}),
        )
    ),
    *(
        Row(
            "concatenate_parts",
            tuple(sample(*s, seed=i) for i, s in enumerate(shapes)),
            joined_parts,
            {"axis": axis, "along": along, "start": start, "stop": stop},
        )
        for shapes, axis, along, start, stop in (
            (((4, 2, 3), (1, 5, 3)), 1, 0, [2, 0], [3, 1]),
            (((2, 5, 2, 3), (2, 2, 2, 1), (2, 3, 2, 2)), -1, 1, [1, 0, 1], [3, 2, 3]),
            (((2, 3, 4),), 2, 0, [1], [1]),
            (((3, 2, 9, 4), (3, 2, 0, 4)), 2, -4, [0, 0], [3, 3]),
        )
    ),
    *(
        Row("stack", tuple(sample(*shape, seed=i) for i in range(n)), lambda *x, axis=0: np.stack(x, axis), args)
        for shape, n, args in (
            ((2, 3), 2, {}),
            ((2, 3), 3, {"axis": 1}),
            ((2, 3), 2, {"axis": -1}),
            ((), 2, {}),
            ((0, 2), 2, {"axis": 1}),
            ((4,), 1, {}),
        )
    ),
    *(
        Row("split", (sample(*shape),), lambda x, axis=0: tuple(np.moveaxis(x, axis, 0)), args)
        for shape, args in (((3, 2), {}), ((2, 3), {"axis": 1}), ((2, 3, 4), {"axis": -1}), ((1, 2), {}), ((2, 0), {}))
    ),
    *(
        Row(
            "meshgrid",
            tuple(sample(n, seed=i) for i, n in enumerate(lengths)),
            lambda *x, ij_indexing=False: tuple(np.meshgrid(*x, indexing="ij" if ij_indexing else "xy")),
            args,
        )
        for lengths, args in (
            ((2, 3), {}),
            ((2, 3), {"ij_indexing": True}),
            ((2, 3, 4), {}),
            ((2, 3, 4), {"ij_indexing": True}),
            ((3,), {}),
            ((2, 0), {"ij_indexing": True}),
        )
    ),
    *(
        Row("slice", (sample(*shape),), cut, args)
        for shape, args in (
            ((4, 5), {"start": (1, 0), "stop": (3, 4)}),
            ((4, 5), {"start": (0, 1), "stop": (4, 5), "step": (2, 3)}),
            ((4, 5), {"start": (-1, 4), "stop": (-5, 0), "step": (-1, -2)}),
            ((4, 5), {"start": (-3, -4), "stop": (-1, 100)}),
            ((4, 5), {"start": (3, 0), "stop": (1, 5)}),
            ((4, 5), {}),
            ((0, 3), {"start": (0, 1), "stop": (0, 3)}),
        )
    ),
    *(
        Row("pad", (sample(*shape),), framed, args)
        for shape, args in (
            ((2, 3), {"pad_width": (1, 2)}),
            ((2, 3), {"pad_width": (1, 0, 0, 2), "constant_value": 1.5}),
            ((2, 3), {"pad_width": (0, 1, 2, 2), "mode": "reflect"}),
            ((3, 4), {"pad_width": (2, 1, 1, 3), "mode": "repeat"}),
            ((2, 3), {"pad_width": (0, 0)}),
            ((0, 2), {"pad_width": (1, 1, 0, 0)}),
            ((3, 0), {"pad_width": (1, 2), "constant_value": 4.0}),
            ((1,), {"pad_width": (1, 1), "mode": "repeat"}),
            ((3, 5), {"pad_width": (4, 4), "mode": "reflect"}),
        )
    ),
    *(
        Row("flip", (sample(*shape),), lambda x, axes=-1: np.flip(x, axes), args)
        for shape, args in (
            ((2, 3), {}),
            ((2, 3), {"axes": (0,)}),
            ((2, 3, 4), {"axes": (0, -1)}),
            ((0, 2), {}),
            ((1,), {}),
        )
    ),
    *(
        Row("shift", (sample(*shape),), shifted, args)
        for shape, args in (
            ((2, 3), {"shifts": (1,)}),
            ((3, 4), {"shifts": (-2, 1)}),
            ((3, 4), {"shifts": (1, -2), "border_mode": "reflect"}),
            ((3, 4), {"shifts": (0, 6), "border_mode": "nearest"}),
            ((3,), {"shifts": (2,), "border_mode": "reflect"}),
        )
    ),
    Row("shift", (sample(2, 3),), lambda x: x),
    *(
        Row("sort", (distinct(*shape),), sorted_along, args)
        for shape, args in (
            ((3, 4), {}),
            ((3, 4), {"axis": 0}),
            ((3, 4), {"axis": 0, "reverse": True}),
            ((3, 4, 2), {"axis": 1, "with_index": True}),
            ((3, 4), {"with_index": True, "reverse": True}),
            ((3, 4), {"only_index": True}),
            ((0, 4), {}),
            ((1,), {"with_index": True}),
        )
    ),
    *(Row("matrix_diag", (sample(*s),), diagonals) for s in ((3,), (2, 3), (1,), (2, 0), (0, 2), (2, 1, 4))),
    *(
        Row("matrix_diag_part", (sample(*s),), lambda x: np.diagonal(x, axis1=-2, axis2=-1))
        for s in ((3, 3), (2, 3, 3), (1, 1), (2, 0, 0), (0, 2, 2))
    ),
    *(
        Row("trilu", (sample(*s),), lambda x, k=0, upper=True: (np.triu if upper else np.tril)(x, k), args)
        for s, args in (
            ((3, 4), {}),
            ((4, 3), {"k": 1}),
            ((2, 3, 3), {"k": -1, "upper": False}),
            ((3, 3), {"k": 5}),
            ((3, 3), {"k": -5, "upper": False}),
            ((0, 3), {}),
        )
    ),
    *(
        Row("eye_like", (sample(*s),), lambda x, k=0: np.eye(*x.shape, k), args)
        for s, args in (((3, 4), {}), ((4, 3), {"k": 1}), ((3, 3), {"k": -2}), ((3, 3), {"k": 7}), ((0, 3), {}))
    ),
    *(
        Row("constant", (), lambda val=0.0, shape=(): np.full(shape, val), args)
        for args in ({}, {"val": 2.5, "shape": (2, 3)}, {"shape": (0, 3)}, {"val": -1.0, "shape": 4})
    ),
    *(
        Row("arange", (), lambda **args: np.arange(**args, dtype=float), args)
        for args in (
            {"start": 0, "stop": 5},
            {"start": 1, "stop": 4, "step": 0.5},
            {"start": 5, "stop": 0, "step": -2},
            {"start": 3, "stop": 3},
            {"start": 3, "stop": 0},
        )
    ),
    *(
        Row("linspace", (), np.linspace, args)
        for args in (
            {"start": 0, "stop": 1, "num": 5},
            {"start": 2.0, "stop": -1.0, "num": 4},
            {"start": 3, "stop": 7, "num": 1},
            {"start": 0, "stop": 1, "num": 0},
        )
    ),
]
