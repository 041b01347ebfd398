"""Rows of images that are looked up at places, and of kernels that differ from place to place."""

from __future__ import annotations

import itertools

import numpy as np

from . import Row, sample


def places(size, align_corners):
    """Places of the elements of an image between -1 and 1, as (..., x, y, z, 1)."""
    axes = []
    for n in size:
        i = np.arange(n)
        axes.append(2 * i / (n - 1) - 1 if align_corners and n > 1 else (2 * i + 1) / n - 1)
    return np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(size)], -1)


def affine_grid(theta, size, align_corners=False):
    return np.einsum("nij,...j->n...i", theta, places(size, align_corners))


def reflected(at, low, high):
    width = high - low
    if width <= 0:
        return np.full_like(at, low)
    turn = (at - low) % (2 * width)
    return low + np.where(turn > width, 2 * width - turn, turn)


def settled(at, n, padding_mode, align_corners):
    if padding_mode == "zero":
        return at
    if padding_mode == "reflect":
        at = reflected(at, 0, n - 1) if align_corners else reflected(at, -0.5, n - 0.5)
    return np.clip(at, 0, n - 1)


def looked_up(x, at, nearest=False):
    """Images (n, channels, spatial...) at places (n, out..., axes), in elements, along the axes in order."""
    axes = at.shape[-1]
    base = np.trunc(at + np.copysign(0.5, at)) if nearest else np.floor(at)
    share = at - base
    y = np.zeros(x.shape[:2] + at.shape[1:-1])
    for corner in itertools.product(*[(0,) if nearest else (0, 1)] * axes):
        i = (base + corner).astype(int)
        weight = 1.0 if nearest else np.where(np.array(corner) == 1, share, 1 - share).prod(-1)
        inside = np.all((i >= 0) & (i < x.shape[2:]), -1)
        i = np.where(inside[..., None], i, 0)
        for n in range(len(x)):
            y[n] += x[n][(slice(None), *np.moveaxis(i[n], -1, 0))] * (inside * weight)[n]
    return y


def warp_by_grid(x, grid, mode="linear", padding_mode="zero", align_corners=False, channel_last=False):
    x = np.moveaxis(x, -1, 1) if channel_last else x
    sizes = np.array(x.shape[2:])
    at = grid[..., ::-1]
    at = (at + 1) * (sizes - 1) / 2 if align_corners else ((at + 1) * sizes - 1) / 2
    at = np.stack([settled(at[..., a], n, padding_mode, align_corners) for a, n in enumerate(sizes)], -1)
    y = looked_up(x, at, mode == "nearest")
    return np.moveaxis(y, 1, -1) if channel_last else y


def warp_by_flow(data, flow):
    rows, columns = np.indices(data.shape[2:])
    at = np.stack([rows + flow[:, 1], columns + flow[:, 0]], -1)
    return looked_up(data, np.clip(at, 0, np.array(data.shape[2:]) - 1))


def grid(*shape, seed=0):
    """Places that are not near the middle of two elements of 4, 5 or 6, nor near one of them."""
    g = sample(*shape, low=-1.4, high=1.4, seed=seed)
    for n in (3, 4, 5, 6):
        for scale in (n / 2, (n - 1) / 2):
            for shift in (0.0, 0.5):
                at = g * scale * 2 + shift
                near = np.abs(at - np.round(at)) < 0.02
                g = np.where(near, g + 0.03 / scale, g)
    return g


def adaptive_separable_convolution(x, v, u):
    h, w = x.shape[2] - v.shape[1] + 1, x.shape[3] - u.shape[1] + 1
    y = np.zeros((*x.shape[:2], h, w))
    for j, i in itertools.product(range(v.shape[1]), range(u.shape[1])):
        y += (v[:, j, :h, :w] * u[:, i, :h, :w])[:, None] * x[:, :, j : j + h, i : i + w]
    return y


WARPS = (
    ((2, 3, 4, 5), (2, 3, 6, 2)),
    ((1, 2, 3, 4, 5), (1, 2, 3, 2, 3)),
    ((1, 1, 1, 1), (1, 1, 1, 2)),
    ((0, 2, 4, 5), (0, 2, 3, 2)),
)

ROWS: list[Row] = [
    *(
        Row("affine_grid", (sample(*s),), affine_grid, args, tolerance=5e-6)
        for s, args in (
            ((2, 2, 3), {"size": (3, 4)}),
            ((2, 2, 3), {"size": (3, 4), "align_corners": True}),
            ((1, 3, 4), {"size": (2, 3, 4)}),
            ((2, 2, 3), {"size": (1, 2), "align_corners": False}),
            ((0, 2, 3), {"size": (3, 4)}),
        )
    ),
    *(
        Row(
            "warp_by_grid",
            (sample(*x), grid(*g)),
            warp_by_grid,
            {"mode": mode, "padding_mode": padding, "align_corners": corners},
            by=(0, 1) if mode == "linear" else (0,),
            second=False,
            tolerance=2e-5,
        )
        for x, g in WARPS
        for mode in ("linear", "nearest")
        for padding in ("zero", "repeat", "reflect")
        for corners in (False, True)
    ),
    Row(
        "warp_by_grid",
        (sample(2, 4, 5, 3), grid(2, 3, 6, 2)),
        warp_by_grid,
        {"channel_last": True},
        second=False,
        tolerance=2e-5,
    ),
    Row("warp_by_grid", (sample(2, 3, 4, 5), grid(2, 3, 6, 2)), warp_by_grid, by=(0,), tolerance=2e-5),
    *(
        Row("warp_by_flow", (sample(*s), grid(s[0], 2, *s[2:]) * 2 + 0.011), warp_by_flow, second=False, tolerance=2e-5)
        for s in ((2, 3, 4, 5), (1, 1, 1, 3), (0, 2, 3, 4))
    ),
    *(
        Row(
            "adaptive_separable_convolution",
            (sample(*x), sample(*v, seed=1), sample(*u, seed=2)),
            adaptive_separable_convolution,
            tolerance=1e-5,
        )
        for x, v, u in (
            ((2, 3, 5, 6), (2, 3, 3, 5), (2, 2, 3, 5)),
            ((1, 2, 4, 4), (1, 2, 4, 4), (1, 4, 4, 4)),
            ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1)),
            ((0, 2, 4, 4), (0, 2, 3, 2), (0, 3, 3, 2)),
        )
    ),
]
